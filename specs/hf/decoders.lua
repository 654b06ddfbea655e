-- decoders.lua - config.json of decoders that decoder.lua computes: by architecture the class's defaults, its names of
-- fields and tensors, and the fields that only it has.
local ftx = require "ftx"
local hf = require "lib.hf"
local ropes = require "lib.rope"
local altup = require "lib.altup"
local decoder = require "decoder"
local mixtures = require "hf/mixtures"
local harmless = require("lib.harmless").decoders

-- LLaMA's; a class has its own where it differs. false: it has no such field or tensor.
local llama = {
  norm = "rms", eps = 1e-6, activation = "silu", activations = hf.activations, tie = false, positions = 2048,
  theta = 10000.0, partial = 1.0, style = "half",
  unused = { "model.layers.*.self_attn.rotary_emb.inv_freq" },
  older = {},                                                       -- other names of fields, which win where they are
  fields = {                                                        -- of config.json
    vocab = "vocab_size", hidden = "hidden_size", layers = "num_hidden_layers", heads = "num_attention_heads", ffn = "intermediate_size",
    kv_heads = "num_key_value_heads", head_dim = "head_dim", eps = "rms_norm_eps", activation = "hidden_act",
    positions = "max_position_embeddings", theta = "rope_theta", partial = "partial_rotary_factor",
  },
  names = {                                                         -- of tensors: see decoder.lua
    prefix = "model.", embedding = "model.embed_tokens", layers = "model.layers.", final_norm = "model.norm",
    head = "lm_head", attention_norm = "input_layernorm", ffn_norm = "post_attention_layernorm",
    q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", out = "self_attn.o_proj",
    gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj",
  },
}

-- A layer's window by layer_types; without that list `windowed(i)` says whether layer i (from 0) has one.
local function windows(config, layers, window, windowed)
  local list, made = config:value("layer_types"), {}
  local kinds = { full_attention = false, sliding_attention = true }
  for i = 0, layers - 1 do
    local has = windowed(i)
    if list then
      has = type(list) == "table" and kinds[list[i + 1] or ""]
      if has == nil or #list ~= layers then
        config:refuse("layer_types", "a list of full_attention and sliding_attention, one for each layer")
      end
    end
    made[i + 1] = has and window or 0
  end
  return made
end

-- The field as it stands: null is not the class's default.
local function window(config, missing)
  if config.values.sliding_window == nil then return missing end
  return config:count("sliding_window", 0, 2 ^ 24, 0)
end

local function same_window(config, c)
  c.windows = windows(config, c.layers, window(config, 0), function() return true end)
end

-- A number that null turns off: 0; a missing field is the class's default.
local function cap(config, key, missing)
  if config.values[key] == nil then return missing end
  return config:value(key) and config:number(key, 1e-6, 2 ^ 20) or nil
end

-- The bound of queries, keys and values; nil: there is none.
local function clip(config)
  local bound = config:value("clip_qkv") and config:number("clip_qkv", 0, 1e6) or 0
  return bound > 0 and bound or nil
end

local function same_bias(config, c, key)
  c.qkv_bias = config:flag(key, false)
  c.out_bias = c.qkv_bias
end

-- Gemma's first files say gelu for its tanh form.
local tanh_activations = {}
for name, kind in pairs(hf.activations) do tanh_activations[name] = name == "gelu" and "gelu_tanh" or kind end

-- RMSNorm with a gain of 1 + w; embeddings are multiplied by sqrt(hidden) as their type holds it.
local function gemma(config, c)
  same_bias(config, c, "attention_bias")
  c.norm_plus = not config.gguf -- GGUF has 1 + w
  c.embedding_scale = hf.rounded(config, c.hidden ^ 0.5)
  config:only("use_bidirectional_attention", "false: it is for embeddings", false)
end

-- One LayerNorm without bias before attention and feed-forward.
local function cohere(config, c)
  same_bias(config, c, "attention_bias")
  c.norm_bias, c.parallel = false, true
  c.logits_scale = config:number("logit_scale", 1e-6, 2 ^ 20, 0.0625)
end

local function glm(config, c) c.qkv_bias = config:flag("attention_bias", true) end

local function granite(config, c)
  c.qkv_bias = config:flag("attention_bias", false)
  c.out_bias = c.qkv_bias
  c.scale = config:number("attention_multiplier", 1e-6, 1024, 1.0)
  c.embedding_scale = config:number("embedding_multiplier", 1e-6, 2 ^ 20, 1.0)
  c.residual_scale = config:number("residual_multiplier", 1e-6, 2 ^ 20, 1.0)
  c.logits_scale = 1 / config:number("logits_scaling", 1e-6, 1e6, 1.0)
end

-- Heads are normed behind RoPE. "dynamic" with alpha is a larger theta, whatever the length of the text.
local hunyuan_rope = { "alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "factor" }
local function hunyuan(config, c)
  local at = hf.rope_object(config)
  same_bias(config, c, "attention_bias")
  c.norm_heads, c.norm_rotated = true, true
  c.names.q_norm, c.names.k_norm = "self_attn.query_layernorm", "self_attn.key_layernorm"
  if at and (at:value("rope_type") or at:value("type")) == "dynamic" and at:value("alpha") then
    local theta = (at:value("rope_theta") and at or config):number("rope_theta", 1, 1e12, 10000.0)
    c.rope = ropes.ntk(theta, c.head_dim, at:number("alpha", 1e-6, 1e6))
  end
  config:only("pretraining_tp", "1", 1)
  config:only("use_qk_norm", "true: heads are normed", true)
  config:only("use_rotary_pos_emb", "true", true)
  config:only("norm_type", "rms", "rms")
  config:only("attention_head_dim", "the value of head_dim", c.head_dim)
  for _, name in ipairs {
    "add_classification_head", "cla_share_factor", "class_num", "dense_list", "enable_lm_head_fp32", "eod_token_id",
    "im_end_id", "im_newline_id", "im_start_id", "mask_init_id", "num_media_embeds", "org_vocab_size", "pad_id",
    "pool_type", "text_end_id", "text_start_id",
  } do config:value(name) end
end

local function qwen_windows(config, c)
  local use = config:flag("use_sliding_window", false)
  local first = config:count("max_window_layers", 0, 1024, 28)
  local size = window(config, 4096)
  c.windows = windows(config, c.layers, use and size or 0, function(i) return i >= first end)
end

-- The numbers of Gemma 4's layer i (from 0) that others do not have: per_layer_config, or in older files those of all layers
-- that see the whole text.
local function gemma4_layer(config, c, i, whole, keys_give_values)
  local own = { head_dim = c.head_dim, kv_heads = c.kv_heads }
  local by_layer = config:inside("per_layer_config")
  if by_layer then
    local at = by_layer:inside(tostring(i))
    if not at then return own end
    own.head_dim = at:count("head_dim", 1, 1024, c.head_dim)
    own.kv_heads = at:count("num_key_value_heads", 1, 1024, c.kv_heads)
    at:known {}
  elseif whole then
    own.head_dim = config:count("global_head_dim", 1, 1024, 512)
    if keys_give_values then own.kv_heads = config:count("num_global_key_value_heads", 1, 1024, c.kv_heads) end
  end
  return own
end

-- The layer whose keys and values layer i reads; last: the last ones with their own, by kind.
local function shared_layer(config, c, last, whole, i)
  for _, part in ipairs { "k_proj", "v_proj", "k_norm" } do         -- of some files, and not read
    table.insert(c.unused, "model.layers." .. i .. ".self_attn." .. part .. ".weight")
  end
  return last[whole] or config:refuse("num_kv_shared_layers", "so that a layer of each kind comes before them")
end

-- The last layers read keys and values of the last one of their kind before them. Layers that see the whole text have heads of
-- another size, and RoPE on a part of each.
local function gemma4_layers(config, c, positions)
  local keys_give_values = config:flag("attention_k_eq_v", false)
  for _, key in ipairs { "global_head_dim", "num_global_key_value_heads" } do config:value(key) end -- perhaps not read below
  local first = c.layers - config:count("num_kv_shared_layers", 0, c.layers - 1, 0)
  local wide = config:flag("use_double_wide_mlp", false)
  local last, whole_dim, near_dim = {}, c.head_dim, c.head_dim
  c.own, c.unused = {}, { table.unpack(c.unused) }
  for i = 0, c.layers - 1 do
    local whole = c.windows[i + 1] == 0
    local own = gemma4_layer(config, c, i, whole, keys_give_values)
    if whole then whole_dim = own.head_dim else near_dim = own.head_dim end
    own.values_of_keys = whole and keys_give_values
    if i >= first then
      own.shared = shared_layer(config, c, last, whole, i)
      own.ffn = c.ffn * (wide and 2 or 1)
      local from = c.own[own.shared + 1]
      if own.head_dim ~= from.head_dim or own.kv_heads ~= from.kv_heads then
        config:refuse("per_layer_config", "the same for layer " .. i .. " and layer " .. own.shared ..
                      ", whose keys and values it reads")
      end
    else
      last[whole] = i
    end
    c.own[i + 1] = own
  end
  for i, own in ipairs(c.own) do -- one table of frequencies for each kind
    if own.head_dim ~= (c.windows[i] == 0 and whole_dim or near_dim) then
      config:refuse("per_layer_config", "the same head_dim for layers of one kind")
    end
  end
  return whole_dim, near_dim
end

-- A field with a number for each layer, or one for all.
local function by_layer(config, key, layers, missing, read)
  local given, made = config:value(key), {}
  if type(given) == "table" and #given ~= layers then config:refuse(key, "a list with a number for each layer") end
  for i = 1, layers do
    local one = type(given) == "table" and given[i] or given
    if one == nil then one = missing(i) end
    if not read(one) then config:refuse(key, "numbers for all layers, or one") end
    made[i] = one
  end
  return made
end

-- Feed-forwards of their own size, of whose gates only those far above the mean count; the last layers read keys and values of
-- the last one of their kind before them.
local function gemma3n_layers(config, c)
  local first = c.layers - config:count("num_kv_shared_layers", 0, c.layers - 1, 15)
  local ffn = by_layer(config, "intermediate_size", c.layers, function() return 16384 end, function(n)
    return math.type(n) == "integer" and n >= 1 and n <= 2 ^ 20
  end)
  local cut = by_layer(config, "activation_sparsity_pattern", c.layers, function(i)
    return c.layers > 10 and i <= 10 and 0.95 or 0.0
  end, function(p) return type(p) == "number" and p >= 0 and p <= 1 - 1e-9 end)
  local last = {}
  c.own, c.unused = {}, { table.unpack(c.unused) }
  for i = 0, c.layers - 1 do
    local whole, own = c.windows[i + 1] == 0, { ffn = ffn[i + 1] }
    if cut[i + 1] > 0 then own.ffn_cut = altup.quantile(cut[i + 1]) end
    if i < first then last[whole] = i
    else own.shared = shared_layer(config, c, last, whole, i) end
    c.own[i + 1] = own
  end
end

-- All that tables have, in one.
local function with(...)
  local made = {}
  for _, part in ipairs { ... } do
    for key, name in pairs(part) do made[key] = name end
  end
  return made
end

local gemma_norms = { after_attention = "post_attention_layernorm", ffn_norm = "pre_feedforward_layernorm",
                      after_ffn = "post_feedforward_layernorm", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" }
local layer_inputs = { layer_embedding = "model.embed_tokens_per_layer", layer_projection = "model.per_layer_model_projection",
                       layer_projection_norm = "model.per_layer_projection_norm", layer_gate = "per_layer_input_gate",
                       layer_out = "per_layer_projection", after_layer = "post_per_layer_input_norm" }
local head_norms = { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" }
local post_norms = { attention_norm = false, ffn_norm = false, after_attention = "post_attention_layernorm",
                     after_ffn = "post_feedforward_layernorm", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" }

local classes = {
  LlamaForCausalLM = {                                              -- as an encoder; LlamaForCausalLM.lua is the decoder
    type = "llama",
    set = function(config, c)
      config:only("pretraining_tp", "1", 1)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  MistralForCausalLM = {                                            -- as LlamaForCausalLM
    type = "mistral", kv_heads = 8, positions = 131072,
    set = function(config, c)
      c.windows = windows(config, c.layers, window(config, 4096), function() return true end)
    end,
  },
  Qwen2ForCausalLM = {
    type = "qwen2", kv_heads = 32, positions = 32768,
    set = function(config, c)
      qwen_windows(config, c)
      c.qkv_bias = true
    end,
  },
  Qwen3ForCausalLM = {
    type = "qwen3", kv_heads = 32, head_dim = 128, positions = 32768, names = head_norms,
    set = function(config, c)
      qwen_windows(config, c)
      c.norm_heads = true
      same_bias(config, c, "attention_bias")
    end,
  },
  Olmo2ForCausalLM = {
    type = "olmo2", eps = 1e-5, names = post_norms,
    set = function(config, c) same_bias(config, c, "attention_bias") end,
  },
  Olmo3ForCausalLM = {
    type = "olmo3", eps = 1e-5, names = post_norms, fields = { theta = false },
    set = function(config, c, positions)
      same_bias(config, c, "attention_bias")
      c.windows = windows(config, c.layers, window(config, 4096), function(i) return (i + 1) % 4 ~= 0 end)
      c.rope, c.rope_windowed = hf.two_ropes(config, c.head_dim, positions, c.head_dim, 500000.0)
    end,
  },
  Exaone4ForCausalLM = {
    type = "exaone4", eps = 1e-5, kv_heads = 32, names = post_norms,
    set = function(config, c)
      local size, pattern = window(config, 4096), 4
      if type(config:value("sliding_window_pattern")) ~= "string" or not config:value("layer_types") then
        pattern = config:count("sliding_window_pattern", size > 0 and 1 or 0, 1024, 4) -- "LLLG" says what layer_types says
      end
      c.windows = windows(config, c.layers, size, function(i) return size > 0 and (i + 1) % pattern ~= 0 end)
      for i = 1, c.layers do c.unrotated[i] = size > 0 and c.windows[i] == 0 end
      c.norm_heads = true
    end,
  },
  -- EXAONE 3 and 3.5
  ExaoneForCausalLM = {
    type = "exaone", eps = 1e-5, kv_heads = 8, theta = 500000.0,
    older = { layers = "num_layers", eps = "layer_norm_epsilon", activation = "activation_function" },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.h.",
              final_norm = "transformer.ln_f", attention_norm = "ln_1", ffn_norm = "ln_2",
              q = "attn.attention.q_proj", k = "attn.attention.k_proj", v = "attn.attention.v_proj",
              out = "attn.attention.out_proj", gate = "mlp.c_fc_0", up = "mlp.c_fc_1", down = "mlp.c_proj" },
    unused = { "transformer.h.*.attn.attention.rotary_emb.inv_freq" },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      config:value("embed_dropout")
    end,
  },
  Ernie4_5ForCausalLM = {
    type = "ernie4_5", eps = 1e-5, kv_heads = 2, head_dim = 128, tie = true, theta = 500000.0, style = "neighbour",
    positions = 131072,
    set = function(config, c)
      same_bias(config, c, "use_bias")
      c.ffn_bias = c.qkv_bias
      config:only("compression_ratio", "1: positions are not divided", 1)
    end,
  },
  HunYuanDenseV1ForCausalLM = {
    type = "hunyuan_v1_dense", eps = 1e-5, rope_fields = hunyuan_rope,
    set = function(config, c)
      hunyuan(config, c)
      config:only("num_experts", "1", 1)
    end,
  },
  SeedOssForCausalLM = {
    type = "seed_oss", kv_heads = 8, head_dim = 128, positions = 524288,
    set = function(config, c)
      c.qkv_bias = config:flag("attention_bias", true)
      c.out_bias = config:flag("attention_out_bias", false)
      c.ffn_bias = config:flag("mlp_bias", false)
      config:only("pretraining_tp", "1", 1)
    end,
  },
  HeliumForCausalLM = {
    type = "helium", eps = 1e-8, kv_heads = 20, head_dim = 128, theta = 100000.0, style = "neighbour", positions = 4096,
    set = function(config, c)
      c.qkv_bias = config:flag("attention_bias", false)
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  ArceeForCausalLM = {
    type = "arcee", eps = 1e-5, activation = "relu2", positions = 4096, names = { gate = false },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  InternLM3ForCausalLM = {
    type = "internlm3", eps = 1e-5, kv_heads = 2, head_dim = 128, positions = 32768,
    set = function(config, c)
      same_bias(config, c, config.values.qkv_bias == nil and "attention_bias" or "qkv_bias")
      c.ffn_bias = config:flag(config.values.bias == nil and "mlp_bias" or "bias", false)
    end,
  },
  InternLM2ForCausalLM = {
    type = "internlm2",
    names = { embedding = "model.tok_embeddings", head = "output", attention_norm = "attention_norm", ffn_norm = "ffn_norm",
              qkv = "attention.wqkv", out = "attention.wo", gate = "feed_forward.w1", up = "feed_forward.w3",
              down = "feed_forward.w2" },
    set = function(config, c)
      c.groups = c.kv_heads
      same_bias(config, c, "bias")
      if config.values.bias == nil then c.qkv_bias, c.out_bias = true, true end
      config:only("pretraining_tp", "1", 1)
      config:value("attn_implementation")
    end,
  },
  -- LLaMA with multipliers
  MiniCPMForCausalLM = {
    type = "minicpm", tie = true,
    set = function(config, c)
      c.embedding_scale = config:number("scale_emb", 1e-6, 2 ^ 20, 1)
      c.residual_scale = config:number("scale_depth", 1e-6, 2 ^ 20, 1) * c.layers ^ -0.5
      c.logits_scale = config:number("dim_model_base", 1e-6, 2 ^ 20, 1) / c.hidden
      same_bias(config, c, "attention_bias")
      config:only("pretraining_tp", "1", 1)
    end,
  },
  CwmForCausalLM = {
    type = "cwm", eps = 1e-5, kv_heads = 8, head_dim = 128, theta = 1000000.0, positions = 131072,
    set = function(config, c)
      if not hf.rope_object(config) then config:refuse("rope_parameters", "an object") end
      c.windows = windows(config, c.layers, window(config, 8192), function(i) return i % 4 ~= 0 end)
      c.ffn_bias = config:flag("mlp_bias", false)
      config:only("pretraining_tp", "1", 1)
    end,
  },
  MinistralForCausalLM = {
    type = "ministral", kv_heads = 8, positions = 131072,
    set = function(config, c)
      c.windows = windows(config, c.layers, window(config, 4096), function() return true end)
    end,
  },
  Phi3ForCausalLM = {
    type = "phi3", eps = 1e-5, positions = 4096,
    names = { qkv = "self_attn.qkv_proj", gate_up = "mlp.gate_up_proj" },
    set = same_window,
  },
  GlmForCausalLM = {
    type = "glm", kv_heads = 2, head_dim = 128, eps = 1.5625e-7, partial = 0.5, style = "neighbour",
    positions = 131072, names = { gate_up = "mlp.gate_up_proj" }, set = glm,
  },
  Glm4ForCausalLM = {
    type = "glm4", kv_heads = 2, head_dim = 128, eps = 1.5625e-7, partial = 0.5, style = "neighbour",
    positions = 131072, set = glm,
    names = { gate_up = "mlp.gate_up_proj", after_attention = "post_self_attn_layernorm",
              after_ffn = "post_mlp_layernorm" },
  },
  GraniteForCausalLM = {
    type = "granite",
    set = function(config, c)
      granite(config, c)
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  StableLmForCausalLM = {
    type = "stablelm", norm = "layer", eps = 1e-5, kv_heads = 32, partial = 0.25, positions = 4096,
    fields = { eps = "layer_norm_eps", head_dim = false },
    set = function(config, c)
      c.qkv_bias = config:flag("use_qkv_bias", false)
      c.parallel = config:flag("use_parallel_residual", false)
      if c.parallel then c.names.ffn_norm = false end
      if config:flag("qk_layernorm", false) then
        c.norm_heads, c.norm_each, c.names.q_norm, c.names.k_norm = true, "stack", "self_attn.q_layernorm", "self_attn.k_layernorm"
      end
    end,
  },
  Starcoder2ForCausalLM = {
    type = "starcoder2", norm = "layer", eps = 1e-5, kv_heads = 2, activation = "gelu_pytorch_tanh", tie = true,
    positions = 4096, fields = { eps = "norm_epsilon" },
    names = { gate = false, up = "mlp.c_fc", down = "mlp.c_proj" },
    set = function(config, c)
      same_window(config, c)
      config:only("norm_type", "layer_norm", "layer_norm")
      config:only("mlp_type", "default", "default")
      c.qkv_bias = config:flag("use_bias", true)
      c.out_bias, c.ffn_bias = c.qkv_bias, c.qkv_bias
    end,
  },
  PhiForCausalLM = {
    type = "phi", norm = "layer", eps = 1e-5, activation = "gelu_new", partial = 0.5,
    fields = { eps = "layer_norm_eps" },
    names = { ffn_norm = false, gate = false, out = "self_attn.dense", up = "mlp.fc1", down = "mlp.fc2",
              final_norm = "model.final_layernorm" },
    set = function(config, c)
      c.parallel, c.qkv_bias, c.out_bias, c.ffn_bias, c.head_bias = true, true, true, true, true
      if config:flag("qk_layernorm", false) then
        c.norm_heads, c.names.q_norm, c.names.k_norm = true, "self_attn.q_layernorm", "self_attn.k_layernorm"
      end
    end,
  },
  GPTJForCausalLM = {
    type = "gptj", norm = "layer", eps = 1e-5, activation = "gelu_new", style = "neighbour", widening = 4,
    fields = { hidden = "n_embd", layers = "n_layer", heads = "n_head", ffn = "n_inner", kv_heads = false,
               head_dim = false, eps = "layer_norm_epsilon", activation = "activation_function",
               positions = "n_positions", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.h.",
              attention_norm = "ln_1", ffn_norm = false, q = "attn.q_proj", k = "attn.k_proj", v = "attn.v_proj",
              out = "attn.out_proj",
              gate = false, up = "mlp.fc_in", down = "mlp.fc_out", final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias" },
    set = function(config, c)
      config:only("rotary", "true", true)
      if config.values.rotary_dim ~= nil and config:value("rotary_dim") == nil then
        config:refuse("rotary_dim", "an even number up to n_embd / n_head")
      end
      c.rope.dim = config:count("rotary_dim", 2, c.head_dim, 64)
      c.parallel, c.ffn_bias, c.head_bias = true, true, true
    end,
  },
  CodeGenForCausalLM = {
    type = "codegen", norm = "layer", eps = 1e-5, activation = "gelu_new", style = "neighbour", widening = 4,
    fields = { hidden = "n_embd", layers = "n_layer", heads = "n_head", ffn = "n_inner", kv_heads = false,
               head_dim = false, eps = "layer_norm_epsilon", activation = "activation_function",
               positions = "n_positions", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.h.",
              attention_norm = "ln_1", ffn_norm = false, qkv = "attn.qkv_proj", out = "attn.out_proj",
              gate = false, up = "mlp.fc_in", down = "mlp.fc_out", final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.causal_mask" },
    set = function(config, c)
      if config.values.rotary_dim ~= nil and config:value("rotary_dim") == nil then
        config:refuse("rotary_dim", "an even number up to n_embd / n_head")
      end
      c.rope.dim = config:count("rotary_dim", 2, c.head_dim, 64)
      if c.heads % 4 ~= 0 then config:refuse("n_head", "a multiple of 4: the class cuts its matrix so") end
      c.groups, c.values_first = 4, true
      c.parallel, c.ffn_bias, c.head_bias = true, true, true
      config:value("n_ctx")
    end,
  },
  GPTNeoForCausalLM = {
    type = "gpt_neo", norm = "layer", eps = 1e-5, activation = "gelu_new", tie = true, widening = 4,
    fields = { layers = "num_layers", heads = "num_heads", kv_heads = false, head_dim = false,
               eps = "layer_norm_epsilon", activation = "activation_function", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", positions = "transformer.wpe",
              layers = "transformer.h.", attention_norm = "ln_1", ffn_norm = "ln_2", q = "attn.attention.q_proj",
              k = "attn.attention.k_proj", v = "attn.attention.v_proj", out = "attn.attention.out_proj", gate = false,
              up = "mlp.c_fc", down = "mlp.c_proj", final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.attention.bias", "transformer.h.*.attn.attention.masked_bias" },
    set = function(config, c, positions)
      local size, kinds = config:count("window_size", 1, 2 ^ 24, 256), config:value("attention_types")
      local whole = "pairs of a list of global and local and how often it stands in a row, num_layers in all"
      c.positions, c.scale, c.windows = positions, 1, {}
      c.out_bias, c.ffn_bias = true, true
      for _, name in ipairs { "attention_layers", "embed_dropout", "resid_dropout" } do config:value(name) end
      for _, run in ipairs(kinds == nil and { { { "global", "local" }, 12 } } or type(kinds) == "table" and kinds or {}) do
        local list, times = table.unpack(type(run) == "table" and run or {})
        if type(list) ~= "table" or math.type(times) ~= "integer" or times < 1 or times > 1024 then
          config:refuse("attention_types", whole)
        end
        for _ = 1, times do
          for _, kind in ipairs(list) do
            if kind ~= "global" and kind ~= "local" then config:refuse("attention_types", whole) end
            table.insert(c.windows, kind == "local" and size or 0)
          end
        end
      end
      if #c.windows ~= c.layers then config:refuse("attention_types", whole) end
    end,
  },
  BioGptForCausalLM = {
    type = "biogpt", norm = "layer", eps = 1e-5, activation = "gelu", tie = true,
    fields = { kv_heads = false, head_dim = false, eps = false, theta = false },
    names = { prefix = "biogpt.", embedding = "biogpt.embed_tokens", positions = "biogpt.embed_positions",
              layers = "biogpt.layers.", attention_norm = "self_attn_layer_norm", ffn_norm = "final_layer_norm",
              out = "self_attn.out_proj", gate = false, up = "fc1", down = "fc2", final_norm = "biogpt.layer_norm",
              head = "output_projection" },
    set = function(config, c, positions)
      c.positions, c.first_position = positions + 2, 2
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      if config:flag("scale_embedding", true) then c.embedding_scale = c.hidden ^ 0.5 end
      config:value("layer_norm_eps")                                -- the class does not read it
      for _, name in ipairs { "hidden_dropout_prob", "attention_probs_dropout_prob" } do config:value(name) end
    end,
  },
  GPTNeoXForCausalLM = {
    type = "gpt_neox", norm = "layer", eps = 1e-5, activation = "gelu", partial = 0.25,
    fields = { kv_heads = false, head_dim = false, eps = "layer_norm_eps", theta = "rotary_emb_base",
               partial = "rotary_pct" },
    names = { prefix = "gpt_neox.", embedding = "gpt_neox.embed_in", layers = "gpt_neox.layers.", head = "embed_out",
              qkv = "attention.query_key_value", out = "attention.dense", gate = false, up = "mlp.dense_h_to_4h",
              down = "mlp.dense_4h_to_h", final_norm = "gpt_neox.final_layer_norm" },
    unused = { "gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
               "gpt_neox.layers.*.attention.rotary_emb.inv_freq" },
    set = function(config, c)
      c.groups = c.heads
      c.parallel = config:flag("use_parallel_residual", true)
      c.qkv_bias = config:flag("attention_bias", true)
      c.out_bias, c.ffn_bias = c.qkv_bias, true
      -- some versions of transformers write both names, and read these
      config:only("rope_theta", "the value of rotary_emb_base", c.rope.theta)
      config:only("partial_rotary_factor", "the value of rotary_pct", c.rope.dim / c.head_dim)
    end,
  },
  FalconForCausalLM = {
    type = "falcon", norm = "layer", eps = 1e-5, activation = "gelu", tie = true, widening = 4,
    fields = { ffn = "ffn_hidden_size", kv_heads = false, head_dim = false, eps = "layer_norm_epsilon",
               activation = "activation" },
    names = { prefix = "transformer.", embedding = "transformer.word_embeddings", layers = "transformer.h.",
              qkv = "self_attention.query_key_value", out = "self_attention.dense", gate = false,
              up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h", final_norm = "transformer.ln_f" },
    set = function(config, c)
      local new = config:flag("new_decoder_architecture", false)
      local one = config:flag("multi_query", true)
      local kv_heads = config:count("num_kv_heads", 1, 1024, c.heads)
      local norms = config:count("num_ln_in_parallel_attn", 1, 2, new and 2 or 1)
      c.alibi = config:flag("alibi", false)
      c.alibi_rounded = c.alibi
      c.kv_heads = new and kv_heads or one and 1 or c.heads
      c.groups = c.kv_heads
      c.parallel = config:flag("parallel_attn", true)
      if new and not c.parallel then config:refuse("parallel_attn", "true with new_decoder_architecture") end
      if not new and norms == 2 then config:refuse("num_ln_in_parallel_attn", "1 without new_decoder_architecture") end
      if norms == 2 then c.names.attention_norm, c.names.ffn_norm = "ln_attn", "ln_mlp"
      elseif c.parallel then c.names.ffn_norm = false end
      c.qkv_bias = config:flag("bias", false)
      c.out_bias, c.ffn_bias = c.qkv_bias, c.qkv_bias
    end,
  },
  GemmaForCausalLM = {
    type = "gemma", kv_heads = 16, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 8192,
    activations = tanh_activations,
    set = function(config, c)
      gemma(config, c)
      config:only("hidden_activation", "gelu_pytorch_tanh: hidden_act is read", "gelu_pytorch_tanh")
    end,
  },
  Gemma2ForCausalLM = {
    type = "gemma2", kv_heads = 4, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 8192,
    fields = { activation = "hidden_activation" },
    names = { after_attention = "post_attention_layernorm", ffn_norm = "pre_feedforward_layernorm",
              after_ffn = "post_feedforward_layernorm" },
    set = function(config, c)
      gemma(config, c)
      config:value("hidden_act") -- hidden_activation is read
      c.scale = config:count("query_pre_attn_scalar", 1, 2 ^ 20, 256) ^ -0.5
      c.windows = windows(config, c.layers, window(config, 4096), function(i) return i % 2 == 0 end)
      c.scores_cap = cap(config, "attn_logit_softcapping", 50.0)
      c.logits_cap = cap(config, "final_logit_softcapping", 30.0)
    end,
  },
  Gemma3ForCausalLM = {
    type = "gemma3_text", kv_heads = 4, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 131072,
    fields = { activation = "hidden_activation", theta = false },
    names = with(gemma_norms),
    set = function(config, c, positions)
      gemma(config, c)
      config:value("hidden_act") -- hidden_activation is read
      c.norm_heads = true
      c.scale = config:count("query_pre_attn_scalar", 1, 2 ^ 20, 256) ^ -0.5
      local pattern = config:count("sliding_window_pattern", 1, 1024, config:count("_sliding_window_pattern", 1, 1024, 6))
      c.windows = windows(config, c.layers, window(config, 4096), function(i) return (i + 1) % pattern ~= 0 end)
      config:only("attn_logit_softcapping", "null: the class does not read it")
      c.logits_cap = cap(config, "final_logit_softcapping", nil)
      c.rope, c.rope_windowed = hf.two_ropes(config, c.head_dim, positions)
    end,
  },
  Gemma4ForCausalLM = {
    type = "gemma4_text", kv_heads = 4, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 131072,
    fields = { activation = "hidden_activation", theta = false },
    names = with(gemma_norms, layer_inputs, { layer_scalar = "layer_scalar" }),
    set = function(config, c, positions)
      same_bias(config, c, "attention_bias")
      c.embedding_scale = hf.rounded(config, c.hidden ^ 0.5)
      c.norm_heads, c.norm_values = true, true
      c.scale = 1
      config:only("use_bidirectional_attention", "null, or vision: all is for embeddings", "vision")
      config:only("enable_moe_block", "false: experts beside the feed-forward are not read", false)
      for _, key in ipairs { "num_experts", "top_k_experts", "moe_intermediate_size" } do config:value(key) end
      local size = config:count("sliding_window", 1, 2 ^ 24, 512)
      c.windows = windows(config, c.layers, size, function(i) return (i + 1) % 6 ~= 0 end)
      c.windows[c.layers] = 0                                       -- whatever layer_types says
      local whole_dim, near_dim = gemma4_layers(config, c, positions)
      if config:value("rope_parameters") then
        c.rope, c.rope_windowed = hf.two_ropes(config, whole_dim, positions, near_dim)
      else
        c.rope, c.rope_windowed = ropes.proportional(1000000.0, whole_dim, 0.25), { theta = 10000.0 }
      end
      c.logits_cap = cap(config, "final_logit_softcapping", nil)
      c.layer_width = config:count("hidden_size_per_layer_input", 0, 2 ^ 16, 256)
      config:value("vocab_size_per_layer_input")                    -- not read below without layer_width
      if c.layer_width > 0 then
        c.layer_scale = hf.rounded(config, c.layer_width ^ 0.5)
        c.layer_rows = config:count("vocab_size_per_layer_input", c.vocab, 2 ^ 24, 262144)
      end
    end,
  },
  Gemma3nForCausalLM = {
    type = "gemma3n_text", kv_heads = 2, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 32768,
    fields = { activation = "hidden_activation", theta = false, ffn = false },
    names = with(gemma_norms, layer_inputs, {
      altup_in = "model.altup_projections", altup_out = "model.altup_unembed_projections",
      altup_norm = "altup.router_norm", altup_router = "altup.modality_router", altup_scale = "altup.correct_output_scale",
      altup_predict = "altup.prediction_coefs", altup_correct = "altup.correction_coefs", laurel_left = "laurel.linear_left",
      laurel_right = "laurel.linear_right", laurel_norm = "laurel.post_laurel_norm",
    }),
    set = function(config, c, positions)
      same_bias(config, c, "attention_bias")
      c.embedding_scale = hf.rounded(config, c.hidden ^ 0.5)
      c.norm_heads, c.norm_values = true, true
      c.scale = 1
      local size = config:count("sliding_window", 1, 2 ^ 24, 512)
      c.windows = windows(config, c.layers, size, function(i) return (i + 1) % 5 ~= 0 end)
      c.rope, c.rope_windowed = hf.two_ropes(config, c.head_dim, positions)
      c.logits_cap = cap(config, "final_logit_softcapping", 30.0)
      gemma3n_layers(config, c)
      local count = config:count("altup_num_inputs", 1, 64, 4)
      c.altup = { count = count, active = config:count("altup_active_idx", 0, count - 1, 0),
                  scaled = config:flag("altup_correct_scale", true) }
      if not c.altup.scaled then table.insert(c.unused, "model.layers.*.altup.correct_output_scale") end
      config:value("altup_coef_clip")                               -- of training
      c.laurel = config:count("laurel_rank", 1, 2 ^ 16, 64)
      c.layer_width = config:count("hidden_size_per_layer_input", 1, 2 ^ 16, 256)
      c.layer_scale = hf.rounded(config, c.layer_width ^ 0.5)
      c.layer_rows = config:count("vocab_size_per_layer_input", 1, 2 ^ 24, 262144)
    end,
  },
  OlmoForCausalLM = {
    type = "olmo", norm = "layer", eps = 1e-5, fields = { eps = false },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.norm_gain, c.norm_bias = false, false
      c.clip_qkv = clip(config)
    end,
  },
  CohereForCausalLM = {
    type = "cohere", norm = "layer", eps = 1e-5, tie = true, theta = 500000.0, style = "neighbour", positions = 8192,
    fields = { eps = "layer_norm_eps" },
    names = { ffn_norm = false },
    set = function(config, c)
      cohere(config, c)
      if config:flag("use_qk_norm", false) then
        c.norm_heads, c.norm_each, c.names.q_norm, c.names.k_norm = true, "matrix", "self_attn.q_norm", "self_attn.k_norm"
      end
    end,
  },
  Cohere2ForCausalLM = {
    type = "cohere2", norm = "layer", eps = 1e-5, tie = true, style = "neighbour", positions = 8192,
    fields = { eps = "layer_norm_eps" },
    names = { ffn_norm = false },
    set = function(config, c)
      local every = config:count("sliding_window_pattern", 1, 1024, 4)
      cohere(config, c)
      c.windows = windows(config, c.layers, window(config, 4096), function(i) return (i + 1) % every ~= 0 end)
      for i = 1, c.layers do c.unrotated[i] = c.windows[i] == 0 end
    end,
  },
  NemotronForCausalLM = {
    type = "nemotron", norm = "layer", eps = 1e-5, activation = "relu2", partial = 0.5, positions = 4096,
    fields = { eps = "norm_eps" },
    names = { gate = false },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      c.norm_plus = true
    end,
  },
  SmolLM3ForCausalLM = {
    type = "smollm3", kv_heads = 4, tie = true, theta = 2000000.0, positions = 32768,
    set = function(config, c)
      local every = config:count("no_rope_layer_interval", 1, 1024, 4)
      local list = config:value("no_rope_layers")
      local use = config:flag("use_sliding_window", false)
      local size = window(config, 0)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      for i = 1, c.layers do
        local rotated = i % every == 0 and 0 or 1
        if list then rotated = type(list) == "table" and #list >= c.layers and list[i] end
        if rotated ~= 0 and rotated ~= 1 then
          config:refuse("no_rope_layers", "a list with 1 for each layer that has RoPE, 0 for each that has none")
        end
        c.unrotated[i] = rotated == 0
      end
      c.windows = windows(config, c.layers, use and size or 0, function(i) return c.unrotated[i + 1] end)
    end,
  },
  GPTBigCodeForCausalLM = {
    type = "gpt_bigcode", norm = "layer", eps = 1e-5, activation = "gelu_pytorch_tanh", tie = true, positions = 1024,
    widening = 4,
    fields = { hidden = "n_embd", layers = "n_layer", heads = "n_head", ffn = "n_inner", kv_heads = false,
               head_dim = false, eps = "layer_norm_epsilon", activation = "activation_function",
               positions = "n_positions", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", positions = "transformer.wpe",
              layers = "transformer.h.", attention_norm = "ln_1", ffn_norm = "ln_2", qkv = "attn.c_attn",
              out = "attn.c_proj", gate = false, up = "mlp.c_fc", down = "mlp.c_proj",
              final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias" },
    set = function(config, c, positions)
      c.positions = positions
      c.kv_heads = config:flag("multi_query", true) and 1 or c.heads
      c.groups = c.kv_heads
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      if not config:flag("scale_attn_weights", true) then c.scale = 1.0 end
      config:only("num_key_value_heads", "as many as multi_query says, " .. c.kv_heads, c.kv_heads)
    end,
  },
  MptForCausalLM = {
    type = "mpt", norm = "layer", eps = 1e-5, activation = "gelu", tie = true, widening = 4,
    fields = { hidden = "d_model", layers = "n_layers", heads = "n_heads", kv_heads = false, head_dim = false,
               ffn = false, eps = "layer_norm_epsilon", activation = false, positions = "max_seq_len", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.blocks.",
              attention_norm = "norm_1", ffn_norm = "norm_2", qkv = "attn.Wqkv", out = "attn.out_proj", gate = false,
              up = "ffn.up_proj", down = "ffn.down_proj", final_norm = "transformer.norm_f" },
    -- transformers' class reads less of this than MosaicML's own code, which these fields come from
    set = function(config, c, positions, harmless)
      local at = config:inside("attn_config") or hf.file(config.path, {}, "attn_config.")
      local bias, norms = not config:flag("no_bias", true), { layernorm = "layer", rmsnorm = "rms" }
      for _, name in ipairs { "layernorm", "rmsnorm" } do norms["low_precision_" .. name] = norms[name] end
      c.norm = config:word("norm_type", norms, "low_precision_layernorm")
      c.norm_bias, c.qkv_bias, c.out_bias, c.ffn_bias = bias, bias, bias, bias
      c.clip_qkv, c.clip_first = clip(at), true
      if at:value("softmax_scale") then c.scale = at:number("softmax_scale", 1e-6, 1024) end
      if at:flag("qk_ln", false) then c.names.q_norm, c.names.k_norm = "attn.q_ln", "attn.k_ln" end
      local learned = config:flag("learned_pos_emb", true)
      c.alibi, c.alibi_most = at:flag("alibi", true), at:number("alibi_bias_max", 1e-6, 1024, 8)
      if not c.alibi and learned then c.names.positions, c.positions = "transformer.wpe", positions end
      for i = 1, c.layers do c.unrotated[i] = true end
      local groups = at:count("kv_n_heads", 1, 1024, c.heads)
      c.kv_heads = at:word("attn_type", { multihead_attention = c.heads, multiquery_attention = 1,
                                          grouped_query_attention = groups }, "multihead_attention")
      at:only("prefix_lm", "false", false)
      at:only("attn_uses_sequence_id", "false", false)
      at:only("rope", "false: rotary positions are not computed", false)
      at:only("qk_gn", "false: norms of each head are not computed", false)
      at:only("sliding_window_size", "-1: windows are not computed", -1)
      for _, name in ipairs { "attn_impl", "rope_theta", "rope_impl", "rope_dail_config", "rope_hf_config" } do
        at:value(name)
      end
      at:known(harmless)
      c.ffn = math.tointeger(math.floor(config:number("expansion_ratio", 1e-3, 64, 4) * c.hidden))
      if config:value("logit_scale") == "inv_sqrt_d_model" then c.logits_scale = c.hidden ^ -0.5
      elseif config:value("logit_scale") then c.logits_scale = config:number("logit_scale", 1e-6, 2 ^ 20) end
      local other = config:inside("ffn_config") or hf.file(config.path, {}, "ffn_config.")
      other:only("ffn_type", "mptmlp", "mptmlp")
      other:known {}
      config:only("fc_type", "torch", "torch")
      config:only("residual_modification", "null")
      for _, name in ipairs { "embedding_fraction", "init_config", "init_device", "tokenizer_name", "verbose", "emb_pdrop",
                              "use_pad_tok_in_ffn", "residual_coeff" } do config:value(name) end
    end,
  },
  Ministral3ForCausalLM = {
    type = "ministral3", eps = 1e-5, kv_heads = 8, head_dim = 128, positions = 262144,
    rope_fields = { "llama_4_scaling_beta", "max_position_embeddings" },
    set = function(config, c)
      local at = hf.rope_object(config)
      if not at then config:refuse("rope_parameters", "an object") end
      local scale = { by = at:number("llama_4_scaling_beta", 0, 1e6),
                      every = at:count("original_max_position_embeddings", 1, 2 ^ 30) }
      for i = 1, c.layers do c.q_scales[i] = scale.by > 0 and scale end
      c.windows = windows(config, c.layers, window(config, 0), function() return true end)
    end,
  },
  -- ChatGLM2, ChatGLM3, GLM-4 in their own format
  ChatGLMModel = {
    type = "chatglm", eps = 1e-5, activation = "silu", style = "neighbour", partial = 0.5, positions = 2048,
    fields = { vocab = "padded_vocab_size", layers = "num_layers", ffn = "ffn_hidden_size", kv_heads = false,
               head_dim = "kv_channels", eps = "layernorm_epsilon", activation = false, positions = "seq_length",
               theta = false },
    names = { prefix = "transformer.", embedding = "transformer.embedding.word_embeddings",
              layers = "transformer.encoder.layers.", final_norm = "transformer.encoder.final_layernorm",
              head = "transformer.output_layer", qkv = "self_attention.query_key_value", out = "self_attention.dense",
              gate_up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h" },
    unused = { "transformer.rotary_pos_emb.inv_freq" },
    instead = function(config)
      return (config:value("inner_hidden_size") or config:value("position_encoding_2d")) and "ChatGLM6B"
    end,
    set = function(config, c)
      local one = config:flag("multi_query_attention", false)
      local groups = config:count("multi_query_group_num", 1, 1024, 1)
      c.kv_heads = one and groups or c.heads
      c.rope = { theta = 10000.0 * config:number("rope_ratio", 1e-6, 1e6, 1.0), dim = c.head_dim // 2,
                 style = "neighbour" }
      c.qkv_bias = config:flag("add_qkv_bias", false)
      config:only("add_bias_linear", "false: biases are not computed", false)
      config:only("rmsnorm", "true", true)
      config:only("post_layer_norm", "true", true)
      config:only("original_rope", "true", true)
      config:only("interleaved_qkv", "false", false)
      config:only("quantization_bit", "0", 0)
      config:only("vocab_size", "padded_vocab_size " .. c.vocab, c.vocab)
      config:only("apply_residual_connection_post_layernorm", "false", false)
      for _, name in ipairs { "apply_query_key_layer_scaling", "bias_dropout_fusion", "prefix_projection" } do
        config:value(name)
      end
    end,
  },
  -- ChatGLM-6B: all of a prompt but its last token, <sop>, is seen by all tokens; the one before it is [gMASK]
  ChatGLM6B = {
    type = "chatglm-6b", norm = "layer", eps = 1e-5, activation = "gelu_new", positions = 2048,
    fields = { layers = "num_layers", ffn = "inner_hidden_size", kv_heads = false, head_dim = false,
               eps = "layernorm_epsilon", activation = false, positions = "max_sequence_length", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.word_embeddings", layers = "transformer.layers.",
              final_norm = "transformer.final_layernorm", qkv = "attention.query_key_value", out = "attention.dense",
              gate = false, up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h" },
    unused = { "transformer.layers.*.attention.rotary_emb.inv_freq" },
    set = function(config, c)
      config:only("position_encoding_2d", "true: positions in one dimension are not computed", true)
      config:only("quantization_bit", "0", 0)
      config:only("quantization_embeddings", "false", false)
      config:only("pre_seq_len", "null: prompts that were trained are not read")
      for _, name in ipairs { "prefix_projection", "mask_token_id", "gmask_token_id" } do config:value(name) end
      if c.head_dim % 4 ~= 0 then config:refuse("num_attention_heads", "so that halves of a head can turn") end
      c.rope = { theta = 10000.0, dim = c.head_dim // 2 }
      c.rope_twice, c.prefix_tail, c.groups = true, 1, c.heads
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      c.normed_residual = math.sqrt(2.0 * c.layers)
    end,
  },
  BloomForCausalLM = {
    type = "bloom", norm = "layer", eps = 1e-5, activation = "gelu_pytorch_tanh", tie = true, widening = 4,
    fields = { layers = "n_layer", heads = "n_head", kv_heads = false, head_dim = false, ffn = false,
               eps = "layer_norm_epsilon", activation = false, positions = false, theta = false },
    older = { hidden = "n_embed", layers = "num_hidden_layers", heads = "num_attention_heads" },
    names = { prefix = "transformer.", embedding = "transformer.word_embeddings", layers = "transformer.h.",
              embedding_norm = "transformer.word_embeddings_layernorm", qkv = "self_attention.query_key_value",
              out = "self_attention.dense", gate = false, up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h",
              final_norm = "transformer.ln_f" },
    set = function(config, c)
      config:only("apply_residual_connection_post_layernorm", "false", false)
      for _, name in ipairs {
        "pretraining_tp", "slow_but_exact", "seq_length", "bias_dropout_fusion", "masked_softmax_fusion",
        "offset_alibi", "skip_bias_add",
      } do config:value(name) end
      c.alibi, c.groups = true, c.heads
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
    end,
  },
  OPTForCausalLM = {
    type = "opt", norm = "layer", eps = 1e-5, activation = "relu", tie = true,
    fields = { ffn = "ffn_dim", kv_heads = false, head_dim = false, eps = false, activation = "activation_function",
               theta = false },
    names = { prefix = "model.", embedding = "model.decoder.embed_tokens", positions = "model.decoder.embed_positions",
              layers = "model.decoder.layers.", attention_norm = "self_attn_layer_norm", ffn_norm = "final_layer_norm",
              out = "self_attn.out_proj", gate = false, up = "fc1", down = "fc2",
              final_norm = "model.decoder.final_layer_norm" },
    set = function(config, c, positions)
      local names = c.names
      local before = config:flag("do_layer_norm_before", true)      -- 350m: of the sums
      if not before then
        names.attention_sum_norm, names.ffn_sum_norm = names.attention_norm, names.ffn_norm
        names.attention_norm, names.ffn_norm = false, false
      end
      if config:flag("_remove_final_layer_norm", false) or not before then names.final_norm = false end
      c.norm_gain = config:flag("layer_norm_elementwise_affine", true)
      c.norm_bias = c.norm_gain
      c.embedding_width = config:count("word_embed_proj_dim", 1, 2 ^ 17, c.hidden)
      if c.embedding_width ~= c.hidden then
        names.embedding_in, names.embedding_out = "model.decoder.project_in", "model.decoder.project_out"
      end
      c.first_position, c.positions = 2, positions + 2
      c.qkv_bias = config:flag("enable_bias", true)
      c.out_bias, c.ffn_bias = c.qkv_bias, c.qkv_bias
    end,
  },
}

for name, class in pairs(mixtures {
  hunyuan = hunyuan,
  windows = windows, window = window, same_window = same_window, same_bias = same_bias, clip = clip, granite = granite,
}) do
  classes[name] = class
end
classes.HunYuanMoEV1ForCausalLM.rope_fields = hunyuan_rope
classes.MPTForCausalLM, classes.ChatGLMForConditionalGeneration = classes.MptForCausalLM, classes.ChatGLMModel

-- "mlp.experts.*.up_proj" to "mlp.experts.up_proj"
local function without_star(name)
  for i = 1, #name do
    if string.sub(name, i, i + 1) == "*." then return string.sub(name, 1, i - 1) .. string.sub(name, i + 2) end
  end
  return name
end

local readers = {}                                                  -- a function of config for each architecture

-- What the tokens of an encoder see: its text up to themselves, or all of it.
function readers.attention(config)
  return config:flag("is_causal", true) and "causal" or "full"
end

-- encoder: the class without its head
local function read(config, class, encoder)
  local field = setmetatable({}, { __index = class.fields })
  local other = class.instead and class.instead(config)
  if other then return read(config, classes[other], encoder) end
  if class.before then class.before(config) end
  for name, old in pairs(class.older) do
    if config.values[old] ~= nil then field[name] = old end
  end
  local hidden = config:count(field.hidden, 1, 2 ^ 17)
  local heads = config:count(field.heads, 1, 1024)
  -- A missing field is the class's default, null the value of a LLaMA.
  local function head_field(name, plain)
    if not field[name] then return plain end
    if config.values[field[name]] == nil then return class[name] or plain end
    return config:count(field[name], 1, 1024, plain)
  end
  if not field.head_dim and hidden % heads ~= 0 then
    config:refuse(field.heads, "a divisor of " .. field.hidden .. " " .. hidden)
  end
  local head_dim = head_field("head_dim", hidden // heads)
  local positions = config:count(field.positions, 1, 2 ^ 24, class.positions)
  local rope = { theta = 10000.0 }
  if field.theta then rope = hf.rope(config, head_dim, positions, field, class) end
  rope.style = class.style
  local c = {
    vocab = config:count(field.vocab, 2, 2 ^ 24),
    hidden = hidden,
    layers = config:count(field.layers, 1, 1024),
    heads = heads,
    kv_heads = head_field("kv_heads", heads),
    head_dim = head_dim,
    -- of layers with feed-forwards of their own sizes set() reads them
    ffn = (field.ffn or class.widening) and config:count(field.ffn, 1, 2 ^ 20, class.widening and class.widening * hidden) or 1,
    names = setmetatable({}, { __index = class.names }),
    norm = class.norm,
    norm_eps = field.eps and config:number(field.eps, 1e-30, 1, class.eps) or class.eps,
    activation = config:word(field.activation, class.activations, class.activation),
    rope = rope,
    unrotated = {}, chunks = {}, q_scales = {}, left_out = {},
    scale = head_dim ^ -0.5,
    tie_embeddings = config:flag("tie_word_embeddings", class.tie),
    unused = class.unused,
    attention = encoder and readers.attention(config) or nil,
  }
  class.set(config, c, positions, harmless)
  if encoder and c.prefix_tail then
    local by = ftx.override("pooling")
    ftx.refuse(by and "-D pooling=" .. by or config.path, "tokens of this model see all of a prompt but its end; " ..
      "vectors of texts are not made of that, so it can only generate text")
  end
  if config.gguf then -- all experts of a layer are one tensor
    for _, part in ipairs { "expert_gate", "expert_up", "expert_down" } do
      local at = c.names[part]
      if at then c.names[part] = without_star(at) end
    end
  end
  config:known(harmless)
  local whole = c.prefix_tail and true or nil
  return { positions = positions, vocab = c.vocab, encoder = encoder, whole = whole, graph = decoder(c) }
end

-- Parts that nn.* does not have, by the beginning of an architecture's name.
local lacking = {
  Apertus = "the activation xIELU", Baichuan = "a head whose rows are normed",
  Lfm2 = "convolutions", Lfm3 = "convolutions", PhiMoE = "experts that are chosen by two softmaxes",
  Phimoe = "experts that are chosen by two softmaxes",
}
for _, name in ipairs { "Bamba", "FalconH1", "FalconMamba", "GraniteMoeHybrid", "Jamba", "KimiLinear", "Mamba", "MiniMaxForCausalLM",
                        "MiniMaxText01", "NemotronH", "OlmoHybrid", "Qwen3Next", "Qwen3_5", "RecurrentGemma", "Rwkv", "Zamba" } do
  lacking[name] = "a recurrent state"
end

-- types: architectures by model_type
readers.types, readers.classes, readers.lacking, readers.harmless = {}, classes, lacking, harmless
for name, class in pairs(classes) do
  setmetatable(class, { __index = llama })
  if class.fields ~= llama.fields then setmetatable(class.fields, { __index = llama.fields }) end
  if class.names ~= llama.names then setmetatable(class.names, { __index = llama.names }) end
  readers[name] = function(config) return read(config, class, config.vectors) end
  if string.sub(name, -11) == "ForCausalLM" then
    readers[string.sub(name, 1, -12) .. "Model"] = function(config) return read(config, class, true) end
  end
  readers.types[class.type] = name
end
return readers
