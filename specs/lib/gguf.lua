-- gguf.lua - a GGUF file to a model: its keys become the fields of a config.json, which specs/hf/ reads; its tensors get
-- the names that a checkpoint has. ftxc calls this with what compiler/spec/gguf.c lists.
local ftx = require "ftx"
local nn = require "nn"
local hf = require "lib.hf"
local checkout = require "lib.checkout"

-- Tensors outside of layers and in layer N (blk.N.), and their names in a checkpoint.
local top = { token_embd = "model.embed_tokens", output_norm = "model.norm", output = "lm_head" }
local layer = {
  attn_norm = "input_layernorm", attn_q = "self_attn.q_proj", attn_k = "self_attn.k_proj", attn_v = "self_attn.v_proj",
  attn_qkv = "self_attn.qkv_proj", attn_output = "self_attn.o_proj", attn_q_norm = "self_attn.q_norm",
  attn_k_norm = "self_attn.k_norm", ffn_norm = "post_attention_layernorm", ffn_gate = "mlp.gate_proj",
  ffn_up = "mlp.up_proj", ffn_down = "mlp.down_proj", ffn_gate_inp = "mlp.gate",
  ffn_gate_exps = "mlp.experts.gate_proj", ffn_up_exps = "mlp.experts.up_proj",
  ffn_down_exps = "mlp.experts.down_proj", ffn_gate_inp_shexp = "mlp.shared_expert_gate",
  ffn_gate_shexp = "mlp.shared_expert.gate_proj", ffn_up_shexp = "mlp.shared_expert.up_proj",
  ffn_down_shexp = "mlp.shared_expert.down_proj",
}

local function but(names, changed)
  for from, to in pairs(names) do changed[from] = changed[from] or to end
  return changed
end

local post_norms = but(layer, { post_attention_norm = "post_attention_layernorm",
                                post_ffw_norm = "post_feedforward_layernorm" })
local gemma_norms = but(post_norms, { ffn_norm = "pre_feedforward_layernorm" })
local mixtral = but(layer, {
  ffn_gate_inp = "block_sparse_moe.gate", ffn_gate_exps = "block_sparse_moe.experts.w1",
  ffn_up_exps = "block_sparse_moe.experts.w3", ffn_down_exps = "block_sparse_moe.experts.w2",
})

-- llama.cpp takes the scale of Gemma's largest model from hidden / heads.
local function gemma_scale(largest)
  return function(k, c)
    c.query_pre_attn_scalar = c.num_hidden_layers == largest and c.hidden_size // c.num_attention_heads or c.head_dim
    c.sliding_window = k:count("attention.sliding_window", 0, 2 ^ 24)
    c.attn_logit_softcapping = k:value("attn_logit_softcapping")
    c.final_logit_softcapping = k:value("final_logit_softcapping")
  end
end

-- How many experts a layer has, and how many a token sees. renorm: whether their weights are divided by their sum, as
-- llama.cpp does it for the architecture.
local function experts(k, renorm)
  local n = k:count("expert_count", 1, 1024)
  k:only("expert_gating_func", "1: softmax", 1)
  k:only("expert_weights_norm", tostring(renorm), renorm)
  k:only("expert_weights_scale", "1", 1.0)
  return n, k:count("expert_used_count", 1, n)
end

local function qwen_experts(renorm, shared)
  return function(k, c)
    c.num_experts, c.num_experts_per_tok = experts(k, renorm)
    c.moe_intermediate_size = k:count("expert_feed_forward_length", 1, 2 ^ 20)
    c.norm_topk_prob = renorm
    if shared then c.shared_expert_intermediate_size = k:count("expert_shared_feed_forward_length", 1, 2 ^ 20) end
  end
end

-- By general.architecture: the class that reads the fields, names of tensors, and more fields of its own. eps: the key
-- and the field of the norms' epsilon. paired: rows of q and k lie as neighbouring pairs. fields: other names.
local architectures = {
  llama = {
    class = "LlamaForCausalLM", paired = true,
    set = function(k, c, has)
      c.attention_bias, c.mlp_bias = has("blk.0.attn_q.bias"), has("blk.0.ffn_up.bias")
      local window = k:count("attention.sliding_window", 0, 2 ^ 24, 0)
      if k:count("expert_count", 0, 1024, 0) > 0 then
        c.architectures[1], c.layer_names = "MixtralForCausalLM", mixtral
        c.num_local_experts, c.num_experts_per_tok = experts(k, true)
        c.attention_bias, c.mlp_bias, c.sliding_window = nil, nil, window
        return
      end
      k:only("expert_used_count", "0 without expert_count", 0)
      if window > 0 then c.architectures[1], c.sliding_window = "MistralForCausalLM", window end
    end,
  },
  qwen2 = { class = "Qwen2ForCausalLM", set = function() end },
  qwen2moe = { class = "Qwen2MoeForCausalLM", set = qwen_experts(false, true) },
  qwen3 = { class = "Qwen3ForCausalLM", set = function() end },
  qwen3moe = { class = "Qwen3MoeForCausalLM", set = qwen_experts(true, false) },
  gemma = { class = "GemmaForCausalLM", set = function() end },
  gemma2 = { class = "Gemma2ForCausalLM", names = gemma_norms, set = gemma_scale(46) },
  gemma3 = {
    class = "Gemma3ForCausalLM", names = gemma_norms, theta = 1000000.0,
    set = function(k, c)
      gemma_scale(62)(k, c)
      c.sliding_window_pattern = k:count("attention.sliding_window_pattern", 1, 1024, 6)
      c.rope_local_base_freq = k:number("rope.freq_base_swa", 1, 1e12, 10000.0)
    end,
  },
  granite = {
    class = "GraniteForCausalLM", paired = true,
    set = function(k, c, has)
      c.attention_bias, c.mlp_bias = has("blk.0.attn_q.bias"), has("blk.0.ffn_up.bias")
      c.attention_multiplier = k:number("attention.scale", 1e-6, 1024)
      c.embedding_multiplier = k:number("embedding_scale", 1e-6, 2 ^ 20)
      c.residual_multiplier = k:number("residual_scale", 1e-6, 2 ^ 20)
      c.logits_scaling = k:number("logit_scale", 1e-6, 1e6)
    end,
  },
  smollm3 = {
    class = "SmolLM3ForCausalLM", paired = true,
    set = function(_, c) c.no_rope_layer_interval = 4 end, -- llama.cpp's constant
  },
  ["command-r"] = {
    class = "CohereForCausalLM", eps = { "attention.layer_norm_epsilon", "layer_norm_eps" },
    set = function(k, c)
      c.logit_scale = k:number("logit_scale", 1e-6, 2 ^ 20)
      if c.head_dim * c.num_attention_heads ~= c.hidden_size then
        k:refuse("attention.key_length", "embedding_length / attention.head_count")
      end
      c.head_dim = nil -- the class has no such field
    end,
  },
  olmo2 = { class = "Olmo2ForCausalLM", names = post_norms, set = function() end },
  phi3 = {
    class = "Phi3ForCausalLM", names = but(layer, { ffn_up = "mlp.gate_up_proj" }),
    set = function(k, c)
      c.sliding_window = k:count("attention.sliding_window", 0, 2 ^ 24, 0)
      c.original_max_position_embeddings = k:count("rope.scaling.original_context_length", 1, 2 ^ 30,
                                                   c.max_position_embeddings)
    end,
  },
  starcoder2 = {
    class = "Starcoder2ForCausalLM", eps = { "attention.layer_norm_epsilon", "norm_epsilon" },
    names = but(layer, { ffn_up = "mlp.c_fc", ffn_down = "mlp.c_proj" }),
    set = function(k, c, has)
      c.use_bias = has("blk.0.attn_q.bias")
      c.sliding_window = k:count("attention.sliding_window", 0, 2 ^ 24, 0)
    end,
  },
  gpt2 = {
    class = "GPT2LMHeadModel", eps = { "attention.layer_norm_epsilon", "layer_norm_epsilon" }, rotated = false,
    top = { token_embd = "transformer.wte", position_embd = "transformer.wpe", output_norm = "transformer.ln_f",
            output = "lm_head" },
    layers = "transformer.h.",
    names = { attn_norm = "ln_1", attn_qkv = "attn.c_attn", attn_output = "attn.c_proj", ffn_norm = "ln_2",
              ffn_up = "mlp.c_fc", ffn_down = "mlp.c_proj" },
    fields = { hidden_size = "n_embd", num_hidden_layers = "n_layer", num_attention_heads = "n_head",
               intermediate_size = "n_inner", max_position_embeddings = "n_positions" },
    set = function() end,
  },
}

local types = { F32 = "float32", F16 = "float16", BF16 = "bfloat16" }

-- The type of the matrices: of most of them, where they differ; of a file with codes float32, which rounds none of them.
local function main_type(file)
  local count, best = {}, "float32"
  for name, kind in pairs(file.types) do
    if not types[kind] then return "float32" end
    if string.sub(name, 1, 4) == "blk." and types[kind] ~= "float32" then
      count[types[kind]] = (count[types[kind]] or 0) + 1
    end
  end
  for kind, n in pairs(count) do
    if n > (count[best] or 0) then best = kind end
  end
  return best
end

-- rope_scaling of a config.json; nil: none. Frequencies' divisors may lie in tensors: rope_freqs those of llama3.
local function scaling(k, file, positions)
  local kind = k:word("rope.scaling.type", { none = "none", linear = "linear", yarn = "yarn", longrope = "longrope" },
                      "none")
  local original = k:value("rope.scaling.original_context_length") and
    k:count("rope.scaling.original_context_length", 1, 2 ^ 30) or nil
  local freqs = file.vectors["rope_freqs.weight"]
  local short, long = file.vectors["rope_factors_short.weight"], file.vectors["rope_factors_long.weight"]
  local function factor(default) return k:number("rope.scaling.factor", 1e-6, 1e6, default) end
  if short and long then
    return { rope_type = "longrope", short_factor = short, long_factor = long,
             original_max_position_embeddings = original,
             attention_factor = k:number("rope.scaling.attn_factor", 1e-6, 1e6, 1.0) }
  end
  if kind == "longrope" then k:refuse("rope.scaling.type", "of a file with rope_factors_short and rope_factors_long") end
  k:only("rope.scaling.attn_factor", "1 without rope_factors_short", 1.0)
  if freqs then
    if kind ~= "none" then k:refuse("rope.scaling.type", "none beside rope_freqs.weight") end
    return { rope_type = "longrope", short_factor = freqs, long_factor = freqs, factor = 1.0,
             original_max_position_embeddings = positions }
  end
  if kind == "linear" then return { rope_type = "linear", factor = factor() } end
  if kind == "yarn" then
    return { rope_type = "yarn", factor = factor(), original_max_position_embeddings = original }
  end
  if factor(1.0) ~= 1 then k:refuse("rope.scaling.factor", "1 without rope.scaling.type") end
end

-- Ids that end a text: those of the keys, and control tokens by the names that end a turn.
local function ends(all, control)
  local list, known = {}, {}
  local function add(id)
    if id and not known[id] then
      known[id] = true
      table.insert(list, id)
    end
  end
  for _, key in ipairs { "eos", "eot", "eom" } do
    local name = "tokenizer.ggml." .. key .. "_token_id"
    add(all:value(name) and all:count(name, 0, 2 ^ 24))
  end
  for _, text in ipairs { "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<end_of_turn>",
                          "<|end_of_text|>", "<EOT>" } do
    add(rawget(control, text))
  end
  return list
end

-- The keys of the architecture, without its name before them.
local function own_keys(file, name)
  local own = {}
  for key, v in pairs(file.keys) do
    if string.sub(key, 1, #name + 1) == name .. "." then own[string.sub(key, #name + 2)] = v end
  end
  return hf.file(file.path, own, name .. ".")
end

local function fields(file, all, k, arch)
  local heads = k:count("attention.head_count", 1, 1024)
  local hidden = k:count("embedding_length", 1, 2 ^ 17)
  local head_dim = k:count("attention.key_length", 1, 1024, hidden // heads)
  local positions = k:count("context_length", 1, 2 ^ 24)
  local eps = arch.eps or { "attention.layer_norm_rms_epsilon", "rms_norm_eps" }
  local function has(name) return rawget(file.types, name) ~= nil end
  k:only("attention.value_length", "attention.key_length, " .. head_dim, head_dim)
  k:only("attention.causal", "true", true)
  local c = {
    architectures = { arch.class },
    vocab_size = file.vocab,
    hidden_size = hidden,
    num_hidden_layers = k:count("block_count", 1, 1024),
    num_attention_heads = heads,
    num_key_value_heads = k:count("attention.head_count_kv", 1, heads, heads),
    head_dim = head_dim,
    intermediate_size = k:count("feed_forward_length", 1, 2 ^ 20),
    max_position_embeddings = positions,
    [eps[2]] = k:number(eps[1], 1e-30, 1),
    tie_word_embeddings = not has("output.weight"),
    torch_dtype = main_type(file),
    bos_token_id = all:value("tokenizer.ggml.bos_token_id"),
    eos_token_id = ends(all, file.control),
  }
  if arch.rotated ~= false then
    local dim = k:count("rope.dimension_count", 2, head_dim, head_dim)
    c.rope_theta = k:number("rope.freq_base", 1, 1e12, arch.theta or 10000.0)
    -- a quarter more, so that the product with head_dim, rounded down, is dim
    if dim < head_dim then c.partial_rotary_factor = (dim + 0.25) / head_dim end
    c.rope_scaling = scaling(k, file, positions)
  end
  arch.set(k, c, has)
  for name, other in pairs(arch.fields or {}) do c[other] = c[name] end
  k:known { vocab_size = true, ["rope.dimension_count"] = true, ["rope.freq_base"] = true,
            ["rope.scaling.finetuned"] = true, tensor_data_layout = true }
  return c
end

-- Both lists of nn.checkpoint: a tensor's name and the weight's, and tensors with rows in pairs.
local function name_tensors(arch, names)
  local stored, paired = {}, {}
  local function add(from, to)
    table.insert(stored, from)
    table.insert(stored, to)
  end
  for from, to in pairs(arch.top or top) do add(from, to) end
  for from, to in pairs(names) do add("blk.*." .. from, (arch.layers or "model.layers.") .. "*." .. to) end
  if arch.paired then paired = { "blk.*.attn_q", "blk.*.attn_k" } end
  nn.checkpoint { stored = stored, paired = paired,
                  unused = { "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight" } }
end

return function(file)
  local all = hf.file(file.path, file.keys)
  local name = all:get("general.architecture", nil, "a text", function(v) return type(v) == "string" end)
  local arch = rawget(architectures, name)
  if not arch then
    local known = {}
    for other in pairs(architectures) do table.insert(known, other) end
    ftx.refuse(file.path, string.format("general.architecture: %s is not read; these are: %s", name,
                                        table.concat(known, ", ")))
  end
  all:only("general.type", "model: adapters and projectors are not read", "model")
  if file.vocab < 2 then ftx.refuse(file.path, "tensor token_embd.weight is missing, or is no matrix") end
  local k = own_keys(file, name)
  local config = fields(file, all, k, arch)
  local names = config.layer_names or arch.names or layer
  config.layer_names = nil
  name_tensors(arch, names)
  local model = all:value("tokenizer.ggml.model")
  checkout {
    gguf = true, path = file.path, name = file.name, config_path = file.path, config = config, weights = file.file,
    tokenizer = model and model ~= "none" and model ~= "no_vocab" and file.file or nil,
  }
end
