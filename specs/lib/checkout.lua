-- checkout.lua - a Hugging Face checkout to a model. ftxc calls this with the folder's files;
-- specs/hf/ knows what the config.json of an architecture means.
local ftx = require "ftx"
local nn = require "nn"
local hf = require "lib.hf"
local decoders = require "hf/decoders"
local seq2seqs = require "hf/seq2seqs"
local encoders = require "hf/encoders"
local text_of = require "hf/wrappers"

local SEQUENCES = 16 -- limits.sequences

-- What may follow an encoder's name, and what is read in its place: for most heads the encoder alone.
local heads = { Model = "Model", Encoder = "Model",                 -- Encoder: of DPR
                ForSequenceClassification = "ForSequenceClassification", ForMaskedLM = "Model", WithLMHeadModel = "Model",
                ForPreTraining = "Model", ForTokenClassification = "ForTokenClassification",
                ForQuestionAnswering = "ForQuestionAnswering",
                ForMultipleChoice = "Model", ForNextSentencePrediction = "Model" }

-- What reads an architecture, and the file that it stands in; nil: nothing does. vectors: see architecture()
local function reader(name, vectors)
  if ftx.has("hf/" .. name) then return require("hf/" .. name), "hf/" .. name .. ".lua" end
  if rawget(decoders, name) then return rawget(decoders, name), "hf/decoders.lua" end
  if rawget(seq2seqs, name) then return rawget(seq2seqs, name), "hf/seq2seqs.lua" end
  local function head_of(encoder)
    local head = string.sub(name, 1, #encoder) == encoder and rawget(heads, string.sub(name, #encoder + 1))
    return head and vectors and rawget(hf.token_heads, head) and "Model" or head
  end
  for encoder, read in pairs(encoders) do
    local head = head_of(encoder) or name == encoder .. "ModelWithProjection" and "ModelWithProjection"
    if head then return function(config) return read(config, head) end, "hf/encoders.lua" end
  end
end

-- The architecture that is read and whose name begins most like this one, of several the shortest; else one of its kind.
local function nearest(config, name)
  local best, length = nil, 3
  local known = { "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "T5GemmaForConditionalGeneration" }
  for class in pairs(decoders.classes) do table.insert(known, class) end
  for class in pairs(seq2seqs.classes) do table.insert(known, class) end
  for encoder in pairs(encoders) do table.insert(known, encoder .. "Model") end
  for _, other in ipairs(known) do
    local n = 0
    while n < #name and string.sub(name, 1, n + 1) == string.sub(other, 1, n + 1) do n = n + 1 end
    local sooner = n == length and best and (#other < #best or #other == #best and other < best)
    if n > length or sooner then best, length = other, n end
  end
  if best then return best end
  if config:value("is_encoder_decoder") then return "BartForConditionalGeneration" end
  return (string.sub(name, -11) == "ForCausalLM" or string.sub(name, -11) == "LMHeadModel") and "LlamaForCausalLM" or
    "BertModel"
end

-- What transformers 5 has no class for but LlamaForCausalLM; names of tensors and defaults are their own.
local llama_types = { exaone = true, internlm3 = true, iquestcoder = true }
local other_types = { sarvam_mla = "DeepseekV3ForCausalLM", sarvam_moe = "Glm4MoeForCausalLM" } -- nor for these

-- The architecture's name: of `architectures`, or that of this `model_type`.
local function name_of(config)
  local list, kind = config:value("architectures"), config:value("model_type")
  local name = type(list) == "table" and list[1]
  if list == nil and type(kind) == "string" then
    name = rawget(decoders.types, kind) or rawget(seq2seqs.types, kind)
  end
  if type(name) ~= "string" then config:refuse("architectures", "a list with one name") end
  if name == "LlamaForCausalLM" and llama_types[kind or ""] then return decoders.types[kind] end
  if type(kind) == "string" and rawget(other_types, kind) == name then return decoders.types[kind] end
  return name
end

-- vectors: the checkout has the files of sentence-transformers, or -D pooling= says what a text's vector is; then a decoder is
-- an encoder, which gives the states of its last layer, and heads of tokens are left out
local function architecture(config, name, vectors)
  local whole = name
  for _, head in ipairs { "ForCausalLM", "LMHeadModel" } do
    if vectors and not rawget(seq2seqs, name) and string.sub(name, -#head) == head then
      name = string.sub(name, 1, -#head - 1) .. "Model"
    end
  end
  local read, path = reader(name, vectors)
  if not path and name ~= whole and reader(whole, vectors) then
    local by = ftx.override("pooling")
    ftx.refuse(by and "-D pooling=" .. by or config.path, string.format("%s is read as a model that generates text; " ..
      "a file hf/%s.lua beside config.json would say what its vectors are", whole, name))
  end
  if not path then
    local part, length = nil, 0
    for beginning, what in pairs(decoders.lacking) do
      if string.sub(name, 1, #beginning) == beginning and #beginning > length then part, length = what, #beginning end
    end
    ftx.refuse(config.path, string.format("architectures: %s is not known%s; the nearest that ftxc reads is %s. " ..
      "docs/specs.md says how a file hf/%s.lua beside config.json describes it", name,
      part and ", and nn.* cannot say it yet: it has " .. part or "", nearest(config, name), name))
  end
  if type(read) ~= "function" then
    ftx.refuse(path, "must return a function of config, it returns a " .. type(read))
  end
  return read, path
end

-- The fields of the table that the function of hf/NAME.lua returns: what they must be, and a check.
local results = {
  graph = { "a graph value: what a family returns", function(v) return type(v) == "userdata" end },
  positions = { "the longest text, a whole number of 1 or more",
                function(v) return math.type(v) == "integer" and v >= 1 end },
  vocab = { "the number of ids, if vocab_size does not say it",
            function(v) return v == nil or math.type(v) == "integer" and v >= 2 end },
  source = { "the longest source, a whole number of 1 or more",
             function(v) return v == nil or math.type(v) == "integer" and v >= 1 end },
  encoder = { "true for an encoder", function(v) return v == nil or type(v) == "boolean" end },
  whole = { "true if a step must take the longest prompt", function(v) return v == nil or type(v) == "boolean" end },
  labels = { "a list of the names of classes", function(v) return v == nil or type(v) == "table" end },
  scoring = { "none, sigmoid or softmax", function(v) return v == nil or type(v) == "string" end },
}

local function check_result(path, model)
  local function refuse(what)
    ftx.refuse(path, what .. "; its function must return a table { graph = ..., positions = ... }, and may set " ..
      "vocab, source, encoder, whole, labels, scoring")
  end
  if type(model) ~= "table" then
    local kind = type(model) == "userdata" and "graph value" or type(model)
    refuse("returned " .. (model == nil and "nothing" or "a " .. kind))
  end
  for name in pairs(model) do
    if rawget(results, name) == nil then refuse("returned the unknown field " .. tostring(name)) end
  end
  for name, result in pairs(results) do
    if not result[2](model[name]) then refuse(name .. " must be " .. result[1]) end
  end
  return model
end

-- seq2seq: the architecture reads a source
local function refuse_unknown_meaning(config, seq2seq, encoder)
  config:value("quantization_config") -- the reader of the checkpoint follows it (compiler/weights/stored.c)
  if not seq2seq then config:only("is_encoder_decoder", "false", false) end
  if not encoder then config:only("is_causal", "true: a token that sees those after it cannot be generated", true) end
  config:only("add_cross_attention", "false", false)
  config:only("is_decoder", "true", true, false)
end

local types = { bfloat16 = "bf16", float16 = "fp16", float32 = "fp32" }

local function ends(file, vocab)
  local list = file:value("eos_token_id")
  if list == nil then return nil end
  if type(list) ~= "table" then list = { list } end
  if #list > 8 then file:refuse("eos_token_id", "at most 8 ids") end
  for _, id in ipairs(list) do
    if not (math.type(id) == "integer" and id >= 0 and id < vocab) then
      file:refuse("eos_token_id", "ids below vocab_size " .. vocab)
    end
  end
  return list
end

-- Words that are never generated. A word that is just an end id is ignored, as in Hugging Face.
local function bad_words(file, vocab)
  local list, last = {}, {}
  local words = file:value("bad_words_ids") or {}
  local function refuse() file:refuse("bad_words_ids", "lists of ids below vocab_size " .. vocab) end
  for _, id in ipairs(ends(file, vocab) or {}) do last[id] = true end
  if type(words) ~= "table" then refuse() end
  for _, word in ipairs(words) do
    if type(word) ~= "table" or #word == 0 then refuse() end
    for _, id in ipairs(word) do
      if not (math.type(id) == "integer" and id >= 0 and id < vocab) then refuse() end
    end
    if #word > 1 or not last[word[1]] then table.insert(list, word) end
  end
  return list
end

-- A field of generation_config.json that is a field of `decode`, in the same range.
local function setting(file, key, field, default)
  local low, high, whole = ftx.range("decode." .. field)
  return (whole and file.count or file.number)(file, key, low, high, default)
end

-- Hugging Face's defaults: greedy without do_sample, top_k 50 with it. With a source, lengths include the
-- decoder's first token.
local function decode(file, seq2seq, vocab)
  file:only("epsilon_cutoff", "0", 0.0)
  file:only("eta_cutoff", "0", 0.0)
  file:only("penalty_alpha", "0", 0.0)
  file:only("encoder_repetition_penalty", "1", 1.0)
  file:only("guidance_scale", "1", 1.0)
  if not seq2seq then
    file:only("min_length", "0; min_new_tokens is read", 0)
    file:only("forced_bos_token_id", "empty")
    file:only("forced_eos_token_id", "empty")
  end
  for _, key in ipairs { "force_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "stop_strings",
                         "watermarking_config", "exponential_decay_length_penalty" } do
    file:only(key, "empty")
  end
  local d = {
    bad_words = bad_words(file, vocab),
    repetition_penalty = setting(file, "repetition_penalty", "repetition_penalty", 1.0),
    no_repeat_ngram = setting(file, "no_repeat_ngram_size", "no_repeat_ngram", 0),
    min_new = setting(file, "min_new_tokens", "min_new", 0),
    max_new = setting(file, "max_new_tokens", "max_new", 0),
  }
  if seq2seq then
    local longest = setting(file, "max_length", "max_new", 0)
    local shortest = setting(file, "min_length", "min_new", 0)
    if d.max_new == 0 and longest > 1 then d.max_new = longest - 1 end
    if d.min_new == 0 and shortest > 1 then d.min_new = shortest - 1 end
    d.forced_bos = file:value("forced_bos_token_id") and file:count("forced_bos_token_id", 0, vocab - 1)
    d.forced_eos = file:value("forced_eos_token_id") and file:count("forced_eos_token_id", 0, vocab - 1)
  end
  local width = setting(file, "num_beams", "width", 1)
  if width > 1 then
    file:only("do_sample", "false: beams are not drawn", false)
    d.width = width
    d.length_penalty = setting(file, "length_penalty", "length_penalty", 1.0)
    d.n_best = file:count("num_return_sequences", 1, width, 1)
    d.beam_groups = file:count("num_beam_groups", 1, width, 1)
    d.diversity_rate = setting(file, "diversity_penalty", "diversity_rate", 0.0)
    if width % d.beam_groups ~= 0 then
      file:refuse("num_beam_groups", "a divisor of num_beams, " .. width)
    end
    d.early_stopping = file:get("early_stopping", false, "true, false or \"never\"", function(v)
      return type(v) == "boolean" or v == "never"
    end)
    return ftx.beam(d)
  end
  file:only("num_beam_groups", "1", 1)
  if not file:flag("do_sample", false) then
    file:only("num_return_sequences", "1", 1)
    return ftx.greedy(d)
  end
  d.samples = file:count("num_return_sequences", 1, SEQUENCES, 1)
  d.temperature = setting(file, "temperature", "temperature", 1.0)
  d.top_k = setting(file, "top_k", "top_k", 50)
  d.top_p = setting(file, "top_p", "top_p", 1.0)
  d.min_p = setting(file, "min_p", "min_p", 0.0)
  d.typical_p = setting(file, "typical_p", "typical_p", 1.0)
  return ftx.sample(d)
end

-- How sentence-transformers pools a text's vectors: pooling_mode, or one of several flags.
local function pooling(file)
  local words, names = { mean = "mean", cls = "first", lasttoken = "last" }, {}
  file:only("include_prompt", "true: pooling without the tokens of a prompt is not computed", true)
  if file:value("pooling_mode") ~= nil then return file:word("pooling_mode", words) end
  for flag, name in pairs { pooling_mode_cls_token = "first", pooling_mode_mean_tokens = "mean",
                            pooling_mode_lasttoken = "last" } do
    if file:flag(flag, false) then table.insert(names, name) end
  end
  for _, flag in ipairs { "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                          "pooling_mode_weightedmean_tokens" } do
    file:only(flag, "false", false)
  end
  if #names ~= 1 then
    ftx.refuse(file.path, "one of pooling_mode_cls_token, pooling_mode_mean_tokens and pooling_mode_lasttoken must be true")
  end
  return names[1]
end

-- Names of torch's activations to those of nn.act.
local torch_activations = {
  ["torch.nn.modules.linear.Identity"] = "identity", ["torch.nn.modules.activation.Tanh"] = "tanh",
  ["torch.nn.modules.activation.ReLU"] = "relu", ["torch.nn.modules.activation.GELU"] = "gelu_erf",
  ["torch.nn.modules.activation.SiLU"] = "silu", ["torch.nn.modules.activation.Sigmoid"] = "sigmoid",
}

-- A linear layer and its activation, of the vector of a text.
local function dense(at)
  local file = hf.file(at.path, at.config)
  local made = {
    folder = at.folder, inputs = file:count("in_features", 1, 2 ^ 17), outputs = file:count("out_features", 1, 2 ^ 17),
    bias = file:flag("bias", true),
    activation = file:word("activation_function", torch_activations, "torch.nn.modules.activation.Tanh"),
  }
  file:only("module_input_name", "sentence_embedding", "sentence_embedding")
  file:only("module_output_name", "sentence_embedding", "sentence_embedding")
  file:known {}
  return made
end

-- Gives an encoder the vector of a text that linear layers make of the pooled one.
local function through(layers, pooling, hidden)                     -- hidden [T, D]
  local y = ({ mean = nn.pool_mean, first = nn.select_first, last = nn.select_last })[pooling](hidden)
  for _, layer in ipairs(layers) do
    local name = layer.folder .. ".linear"
    nn.checkpoint { folders = { layer.folder } }
    y = nn.linear(y, nn.weight(name .. ".weight", { layer.outputs, layer.inputs }),
                  layer.bias and nn.weight(name .. ".bias", { layer.outputs }))
    y = nn.act(y, layer.activation)
  end
  nn.vectors(hidden, y)
end

-- pooling, layers and normalize of the model, from modules.json; none if -D pooling= is given.
local function sentences(checkout)
  local made = { layers = {} }
  if ftx.override("pooling") then return made end
  for i, module in ipairs(checkout.modules or {}) do
    local kind = type(module) == "table" and type(module.type) == "string" and module.type or "nothing"
    if string.sub(kind, -8) == ".Pooling" then
      made.pooling = pooling(hf.file(checkout.pooling_path, checkout.pooling))
    elseif string.sub(kind, -6) == ".Dense" and made.pooling and not made.normalize then
      table.insert(made.layers, dense(checkout.dense[#made.layers + 1]))
    elseif string.sub(kind, -10) == ".Normalize" then
      made.normalize = true
    elseif string.sub(kind, -12) ~= ".Transformer" then
      ftx.refuse(checkout.modules_path, string.format("module %d is %s; Transformer, Pooling, Dense and Normalize are read, " ..
        "in this order; -D pooling= says what to make without them", i, kind))
    end
  end
  return made
end

return function(checkout)
  local config = hf.file(checkout.config_path, checkout.config, "", not ftx.override("weights") and checkout.tensors)
  local name = name_of(config)
  config, name = text_of(config, name, decoders.types, decoders.harmless)
  config.gguf = checkout.gguf -- the fields are those of lib/gguf.lua
  -- If there is a generation_config.json, it alone names the end ids, as in Hugging Face.
  local generation = checkout.generation and hf.file(checkout.generation_path, checkout.generation) or config
  config.vectors = checkout.modules ~= nil or ftx.override("pooling") ~= nil
  local read, module = architecture(config, name, config.vectors)
  local model = check_result(module, read(config))
  local seq2seq = model.source ~= nil
  local vector = model.encoder and sentences(checkout) or { layers = {} }
  if #vector.layers > 0 then
    through(vector.layers, vector.pooling, model.graph)
    vector.pooling, model.labels = nil, nil
  end
  refuse_unknown_meaning(config, seq2seq or rawget(seq2seqs, name) ~= nil, model.encoder)
  local vocab = model.vocab or config:count("vocab_size", 2, 2 ^ 24)
  local first = generation:value("bos_token_id") and generation or config
  local bos = first:value("bos_token_id") and first:count("bos_token_id", 0, vocab - 1) or -1
  if not checkout.weights and checkout.pickled then
    ftx.refuse(checkout.path .. "pytorch_model.bin", "pickled weights are not read; save the model as safetensors")
  end
  local function id(key)
    local file = generation:value(key) and generation or config
    return file:value(key) and file:count(key, 0, vocab - 1) or nil
  end
  local context = hf.context(model.positions)
  local source = seq2seq and model.source ~= model.positions and (tonumber(ftx.override("limits.source") or nil) or
    math.min(model.source, 4096)) or nil
  ftx.model {
    name = checkout.name,
    graph = model.graph,
    weights = checkout.weights,
    tokenizer = checkout.tokenizer,
    bos = bos,
    eos = ends(generation, vocab),
    precision = { weights = config:word(config:value("dtype") and "dtype" or "torch_dtype", types, "float32") },
    limits = { sequences = SEQUENCES, context = context,
               tokens = math.max(512, (seq2seq or model.encoder or model.whole) and context or 0, source or 0), source = source },
    start = seq2seq and (id("decoder_start_token_id") or id("bos_token_id")) or nil,
    pad = id("pad_token_id"),
    pooling = vector.pooling,
    normalize = vector.normalize,
    labels = model.labels,
    scoring = model.scoring,
    decode = not model.encoder and decode(generation, seq2seq, vocab) or nil,
  }
end
