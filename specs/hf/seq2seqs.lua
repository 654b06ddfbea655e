-- seq2seqs.lua - config.json of encoder-decoders that seq2seq.lua computes: by architecture the class's defaults, and the
-- fields that only it has.
local ftx = require "ftx"
local hf = require "lib.hf"
local longformer = require "lib.longformer"
local seq2seq = require "seq2seq"
local harmless = require("lib.harmless").seq2seqs

-- BART's; a class has its own where it differs.
local bart = {
  scale_embedding = false, activation = "gelu", logits_bias = "final_logits_bias",
  pre = false, embedding_norm = true, fixed = false,                -- of fields that older files have; see `read_bart`
  first = 2,                                                        -- row of the first position
  tied = true,
  fields = { positions = "max_position_embeddings", vocab = "vocab_size" },
  sizes = { hidden = 1024, encoder_layers = 12, decoder_layers = 12, heads = 16, ffn = 4096, positions = 1024 },
}

-- What older files say of a class must be true of it.
local function only(config, key, value)
  config:only(key, tostring(value), value)
end

local function read_bart(config, class)
  local positions = config:count(class.fields.positions, 1, 2 ^ 20, class.sizes.positions)
  local vocab = config:count(class.fields.vocab, 2, 2 ^ 24)
  only(config, "normalize_before", class.pre)
  only(config, "add_final_layer_norm", class.pre)
  only(config, "normalize_embedding", class.embedding_norm)
  only(config, "static_position_embeddings", class.fixed)
  only(config, "add_bias_logits", false)
  local c = {
    vocab = vocab,
    hidden = config:count("d_model", 1, 2 ^ 17, class.sizes.hidden),
    encoder_layers = config:count("encoder_layers", 1, 1024, class.sizes.encoder_layers),
    decoder_layers = config:count("decoder_layers", 1, 1024, class.sizes.decoder_layers),
    encoder_heads = config:count("encoder_attention_heads", 1, 1024, class.sizes.heads),
    heads = config:count("decoder_attention_heads", 1, 1024, class.sizes.heads),
    encoder_ffn = config:count("encoder_ffn_dim", 1, 2 ^ 20, class.sizes.ffn),
    ffn = config:count("decoder_ffn_dim", 1, 2 ^ 20, class.sizes.ffn),
    activation = config:word("activation_function", hf.activations, class.activation),
    norm = class.pre and "pre" or "post",
    final_norm = class.pre,
    norm_embedding = class.embedding_norm,
    scale_embedding = config:flag("scale_embedding", class.scale_embedding),
    tie_embeddings = config:flag("tie_word_embeddings", class.tied),
    logits_bias = class.logits_bias,
  }
  config:only("num_hidden_layers", "encoder_layers, " .. c.encoder_layers, c.encoder_layers)
  if not class.fixed then
    c.positions, c.first_position = positions + class.first, class.first
  end
  if c.logits_bias == "final_logits_bias" and config:stored("final_logits_bias") == false then c.logits_bias = "none" end
  local source = class.set and class.set(config, c, positions)
  return c, positions, source
end

-- The longest source that sees all of itself, as `why` has it; -D limits.source may not be longer.
local function short_source(config, key, longest, why)
  local given = tonumber(ftx.override("limits.source") or nil)
  if given and given > longest then config:refuse(key, "such that a source of " .. given .. " tokens sees all of itself: " .. why) end
  return longest
end

-- Of LED and BigBird-Pegasus
local encoder_names = { q = "query", k = "key", v = "value", out = "output" }
local function in_encoder(inside)
  local made = { out = "output" }
  for _, part in ipairs { "q", "k", "v" } do made[part] = inside .. encoder_names[part] end
  return made
end

-- T5's class of activations: "relu", or "gated-silu" for a gated feed-forward. "gated-gelu" means the tanh form.
local function activation(config, missing)
  local text = config:get("feed_forward_proj", missing, "an activation, or gated- and an activation", function(v)
    return type(v) == "string"
  end)
  local gated, name = string.sub(text, 1, 6) == "gated-", text
  if gated then name = string.sub(text, 7) end
  if text == "gated-gelu" then name = "gelu_new" end
  if rawget(hf.activations, name) == nil then config:refuse("feed_forward_proj", "an activation that nn.act knows") end
  config:only("dense_act_fn", name .. ", as feed_forward_proj says", name)
  config:only("is_gated_act", tostring(gated) .. ", as feed_forward_proj says", gated)
  return hf.activations[name], gated
end

-- T5 has no limit of positions: n_positions is what it was trained with.
local function read_t5(config, class)
  local heads = config:count("num_heads", 1, 1024, class.attention_heads)
  local layers = config:count("num_layers", 1, 1024, class.layers)
  if class.before then class.before(config) end
  local kind, gated = activation(config, class.activation)
  local tied = config:flag("tie_word_embeddings", true)
  local stored = config:stored("lm_head.weight")
  local c = {
    vocab = config:count("vocab_size", 2, 2 ^ 24),
    hidden = config:count("d_model", 1, 2 ^ 17, class.hidden or 512),
    encoder_layers = layers,
    decoder_layers = config:count("num_decoder_layers", 1, 1024, layers),
    heads = heads,
    head_dim = config:count("d_kv", 1, 1024, 64),
    ffn = config:count("d_ff", 1, 2 ^ 20, class.ffn),
    activation = kind,
    gated = gated,
    norm = "pre", norm_kind = "rms", final_norm = true,
    norm_eps = config:number("layer_norm_epsilon", 1e-30, 1, 1e-6),
    bias = false, scale_scores = false, scale_embedding = false,
    buckets = config:count("relative_attention_num_buckets", 4, 2 ^ 16, 32),
    max_distance = config:count("relative_attention_max_distance", 2, 2 ^ 20, 128),
    buckets_each = class.buckets_each,
    tie_embeddings = not stored,
    names = {
      layers = ".block.", final_norm = ".final_layer_norm",
      attention_norm = "layer.0.layer_norm", attention = "layer.0.SelfAttention.",
      buckets = "layer.0.SelfAttention.relative_attention_bias",
      source_norm = "layer.1.layer_norm", source = "layer.1.EncDecAttention.",
      q = "q", k = "k", v = "v", out = "o",
      encoder_ffn_norm = "layer.1.layer_norm", encoder_ffn = "layer.1.DenseReluDense.",
      decoder_ffn_norm = "layer.2.layer_norm", decoder_ffn = "layer.2.DenseReluDense.",
      gate = "wi_0", up = gated and "wi_1" or "wi", down = "wo",
    },
    unused = { "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" },
  }
  -- The head is the embedding unless the file has one. tie_word_embeddings says whether its input is scaled.
  if stored == nil then c.tie_embeddings = tied end
  if class.scaled then c.scale_output = config:flag("scale_decoder_outputs", tied) end
  if class.set then class.set(config, c) end
  return c, config:count("n_positions", 1, 2 ^ 20, 512)
end

-- Layers of a side whose feed-forward has experts, by the field that counts them.
local function sparse(config, key, layers)
  local count, made = config:count(key, 0, 1024, 3), {}
  local step = layers // math.max(count, 1)
  for i = 0, layers - 1 do made[i + 1] = step > 0 and (step == 1 or i % step == 1) end
  return made
end

-- What may follow the name of a class that has them: the part of it, of which the head makes classes.
local heads = {
  EncoderModel = { part = "encoder" },
  ForTokenClassification = { part = "encoder", classifier = "classifier" },
  ForSequenceClassification = { part = "reader", classifier = "classification_head.out_proj" },
  ForQuestionAnswering = { part = "reader", classifier = "qa_outputs" },
}

local t5_heads = { "EncoderModel", "ForTokenClassification", "ForSequenceClassification", "ForQuestionAnswering" }

local classes = {
  BartForConditionalGeneration = { type = "bart", heads = { "ForSequenceClassification", "ForQuestionAnswering" } },
  BartModel = {},                                                   -- without a head: the embedding is the head
  MarianMTModel = {
    type = "marian", embedding_norm = false, fixed = true,
    set = function(config, c)
      local target = config:count("decoder_vocab_size", 2, 2 ^ 24, c.vocab)
      local shared = config:flag("share_encoder_decoder_embeddings", true)
      if shared and target ~= c.vocab then config:refuse("decoder_vocab_size", "vocab_size " .. c.vocab) end
      c.source_vocab, c.vocab = shared and 0 or c.vocab, target
    end,
  },
  MBartForConditionalGeneration = {                                 -- texts end with the end id and that of the language
    type = "mbart", pre = true, wraps = true, heads = { "ForSequenceClassification", "ForQuestionAnswering" },
  },
  BlenderbotForConditionalGeneration = {
    type = "blenderbot", pre = true, embedding_norm = false, first = 0,
    sizes = { hidden = 2560, encoder_layers = 2, decoder_layers = 24, heads = 32, ffn = 10240, positions = 128 },
    set = function(config) config:value("layernorm_variant") end,
  },
  BlenderbotSmallForConditionalGeneration = {
    type = "blenderbot-small", first = 0,
    sizes = { hidden = 512, encoder_layers = 8, decoder_layers = 8, heads = 16, ffn = 2048, positions = 512 },
    set = function(config, c)
      c.norm_words = true
      config:value("layernorm_variant")
    end,
  },
  PLBartForConditionalGeneration = {
    type = "plbart", scale_embedding = true,
    sizes = { hidden = 768, encoder_layers = 6, decoder_layers = 6, heads = 12, ffn = 3072, positions = 1024 },
  },
  MvpForConditionalGeneration = {
    type = "mvp",
    set = function(config)
      config:only("use_prompt", "false: prompts that were trained are not read", false)
      for _, name in ipairs { "prompt_length", "prompt_mid_dim" } do config:value(name) end
    end,
  },
  PegasusForConditionalGeneration = { type = "pegasus", pre = true, embedding_norm = false, fixed = true },
  M2M100ForConditionalGeneration = {
    type = "m2m_100", pre = true, embedding_norm = false, fixed = true, scale_embedding = true, activation = "relu",
    logits_bias = "none",
    set = function(config, c)                                       -- fairseq's sines; the first is for the pad id + 1
      if c.hidden % 2 ~= 0 or c.hidden < 4 then config:refuse("d_model", "an even number of 4 or more") end
      c.sinusoid = { span = c.hidden // 2 - 1 }
      c.first_position = config:count("pad_token_id", 0, c.vocab - 1, 1) + 1
    end,
  },
  -- Windows alone: no token sees all of the source
  LEDForConditionalGeneration = {
    type = "led", first = 0,
    fields = { positions = "max_decoder_position_embeddings", vocab = "vocab_size" },
    set = function(config, c)
      c.encoder_names = in_encoder "longformer_self_attn."
      c.windows, c.unused = longformer(config, c.encoder_layers, "encoder.layers.*.self_attn.longformer_self_attn.")
      c.source_positions = config:count("max_encoder_position_embeddings", 1, 2 ^ 20, 16384)
      return c.source_positions
    end,
  },
  -- Short sources see all of themselves; longer ones have blocks that are drawn
  BigBirdPegasusForConditionalGeneration = {
    type = "bigbird_pegasus", pre = true, embedding_norm = false, first = 0, scale_embedding = true, activation = "gelu_new",
    sizes = { hidden = 1024, encoder_layers = 16, decoder_layers = 16, heads = 16, ffn = 4096, positions = 4096 },
    set = function(config, c, positions)
      local size, drawn = config:count("block_size", 1, 2 ^ 20, 64), config:count("num_random_blocks", 0, 2 ^ 20, 3)
      local full = config:word("attention_type", { block_sparse = false, original_full = true }, "block_sparse")
      c.encoder_names = in_encoder "self."
      c.attention_bias = config:flag("use_bias", false)
      c.names = { final_norm = ".layernorm_embedding" }
      if full then return positions end
      return short_source(config, "num_random_blocks", math.min(positions, (5 + 2 * drawn) * size), "blocks that are drawn are not computed")
    end,
  },
  -- of WMT 19: a vocabulary and an embedding for each side
  FSMTForConditionalGeneration = {
    type = "fsmt", embedding_norm = false, fixed = true, scale_embedding = true, activation = "relu", tied = false,
    logits_bias = "none",
    fields = { positions = "max_position_embeddings", vocab = "tgt_vocab_size" },
    set = function(config, c)
      if c.hidden % 2 ~= 0 or c.hidden < 4 then config:refuse("d_model", "an even number of 4 or more") end
      c.source_vocab, c.apart = config:count("src_vocab_size", 2, 2 ^ 24, 42024), true
      c.sinusoid = { span = c.hidden // 2 - 1 }
      c.first_position = config:count("pad_token_id", 0, c.vocab - 1, 1) + 1
      c.names = { head = "decoder.output_projection" }
      for _, name in ipairs { "langs", "vocab_size" } do config:value(name) end
    end,
  },
  T5ForConditionalGeneration = {
    type = "t5", layers = 6, attention_heads = 8, ffn = 2048, activation = "relu", scaled = true, heads = t5_heads,
  },
  T5WithLMHeadModel = { layers = 6, attention_heads = 8, ffn = 2048, activation = "relu", scaled = true },
  MT5ForConditionalGeneration = {
    type = "mt5", layers = 8, attention_heads = 6, ffn = 1024, activation = "gated-gelu", heads = t5_heads,
  },
  SwitchTransformersForConditionalGeneration = {
    type = "switch_transformers", hidden = 768, layers = 12, attention_heads = 12, ffn = 2048, activation = "relu",
    before = function(config)
      if config.values.num_decoder_layers == nil then config.values.num_decoder_layers = 12 end
      if config.values.feed_forward_proj == nil then config.values.feed_forward_proj = config:value("dense_act_fn") end
    end,
    set = function(config, c)
      only(config, "tie_word_embeddings", true)                     -- else each side has an embedding of its own
      c.scale_output = true
      c.experts = { count = config:count("num_experts", 1, 1024, 8), bias = config:flag("router_bias", false),
                    encoder = sparse(config, "num_sparse_encoder_layers", c.encoder_layers),
                    decoder = sparse(config, "num_sparse_decoder_layers", c.decoder_layers) }
      c.names.encoder_ffn, c.names.decoder_ffn = "layer.1.mlp.", "layer.2.mlp."
      c.names.router, c.names.experts = "router.classifier", "experts.expert_*."
      config:only("router_dtype", "float32: the router's product is summed in it", "float32")
      for _, name in ipairs { "add_router_probs", "decoder_sparse_step", "encoder_sparse_step", "expert_capacity", -- no token is left out
                              "router_ignore_padding_tokens", "router_z_loss_coef" } do config:value(name) end
    end,
  },
  UMT5ForConditionalGeneration = {
    type = "umt5", layers = 8, attention_heads = 6, ffn = 1024, activation = "gated-gelu", scaled = true, buckets_each = true,
    heads = t5_heads,
  },
}

-- The class without its decoder's head.
local function read_part(config, class, of_t5, head)
  local part, model = heads[head], { encoder = true }
  if part.part == "reader" then only(config, "is_encoder_decoder", true) end
  local c, positions = (of_t5 and read_t5 or read_bart)(config, class)
  c.part, c.names = part.part, c.names or {}
  c.wraps = class.wraps
  c.start = config:count("decoder_start_token_id", 0, c.vocab - 1, not of_t5 and 2 or 0)
  if c.wraps then c.end_id = config:count("eos_token_id", 0, c.vocab - 1, 2) end
  if not of_t5 then only(config, "tie_word_embeddings", true) end   -- else each side has an embedding of its own
  if head == "ForSequenceClassification" then hf.classifier(config, model)
  elseif part.classifier and not config.vectors then
    hf.token_classifier(config, head, model)
    c.classes_of = "tokens"
  end
  if model.labels then c.classes, c.names.classifier = #model.labels, part.classifier end
  config:known(harmless)
  model.positions, model.graph = positions, seq2seq(c)
  return model
end

-- A function of config for each architecture; types: architectures by model_type.
local readers = { types = {}, classes = classes }
for name, class in pairs(classes) do
  local of_t5 = class.attention_heads ~= nil
  if not of_t5 then setmetatable(class, { __index = bart }) end
  readers[name] = function(config)
    config:only("is_encoder_decoder", "true", true)
    local c, positions, source = (of_t5 and read_t5 or read_bart)(config, class)
    config:known(harmless)
    return { positions = positions, source = source or positions, vocab = c.vocab, graph = seq2seq(c) }
  end
  if class.type then readers.types[class.type] = name end
  for _, head in ipairs(class.heads or {}) do
    readers[string.sub(name, 1, -#"ForConditionalGeneration" - 1) .. head] = function(config)
      return read_part(config, class, of_t5, head)
    end
  end
end
return readers
