-- hybrids.lua - as decoders.lua, for decoders some of whose layers keep a state of fixed size (lib/recurrent.lua) in place of
-- keys and values.
local nn = require "nn"
local hf = require "lib.hf"
local fields = require "lib.fields"
local shared = require "lib.experts"

-- What stands in place of attention in each layer, by a list of words; kinds: for each word that, or false. Without a list
-- missing(i) says it of layer i (from 0).
local function mixers(config, c, kinds, missing)
  local list, words = config:value("layer_types"), {}
  for word in pairs(kinds) do table.insert(words, word) end
  table.sort(words)
  c.mixers = {}
  for i = 1, c.layers do
    local kind
    if list == nil then kind = missing(i - 1)
    elseif type(list) == "table" and #list == c.layers then kind = kinds[list[i] or ""] end
    if kind == nil then config:refuse("layer_types", "a list of " .. table.concat(words, ", ") .. ", one for each layer") end
    c.mixers[i] = kind
  end
end

-- A list of numbers of layers, from 0: by layer (from 0) whether it is there; nil: there is none.
local function set_of_layers(config, key)
  local list, found = config:value(key), {}
  if list == nil then return nil end
  if type(list) ~= "table" then config:refuse(key, "a list of layers") end
  for _, i in ipairs(list) do
    if math.type(i) ~= "integer" then config:refuse(key, "a list of layers") end
    found[i] = true
  end
  return found
end

-- A list of n numbers; nil: there is none.
local function numbers(config, key, n)
  local list = config:value(key)
  if list == nil then return nil end
  for i = 1, n do
    if type(list) ~= "table" or #list ~= n or not math.type(list[i]) then config:refuse(key, "a list of " .. n .. " numbers") end
  end
  return list
end

local function ignore(config, ...)
  for _, name in ipairs { ... } do config:value(name) end
end

-- Bounds of the time step, nil: none. Infinity is an object in files of transformers 5, and else the largest number there is.
local function time_steps(config)
  local list = config:value("time_step_limit")
  if list == nil then return nil, nil end
  local low, high = type(list) == "table" and list[1], type(list) == "table" and list[2]
  if type(high) == "table" and high.__float__ == "Infinity" then high = math.huge end
  if not math.type(low) or not math.type(high) or low < 0 or high <= low then
    config:refuse("time_step_limit", "a list of two numbers, 0 or more and a larger one")
  end
  return low > 0 and low or nil, high < 1e300 and high or nil
end

-- Mamba's fields as Bamba has them. inner: elements of all heads
local function mamba(config, c, inner)
  local heads, size = config:count("mamba_n_heads", 1, 2 ^ 16, 128), config:value("mamba_d_head")
  if inner % heads ~= 0 then config:refuse("mamba_n_heads", "a divisor of " .. inner) end
  if size ~= nil and size ~= "auto" and size ~= inner // heads then
    config:refuse("mamba_d_head", "\"auto\" or " .. inner // heads .. ", so that all heads have " .. inner .. " elements")
  end
  ignore(config, "mamba_chunk_size")
  local low, high = time_steps(config)
  c.mamba = {
    heads = heads, head_dim = inner // heads, groups = config:count("mamba_n_groups", 1, heads, 1),
    state = config:count("mamba_d_state", 1, 2 ^ 16, 256), width = config:count("mamba_d_conv", 1, 1024, 4),
    bias = config:flag("mamba_proj_bias", false), conv_bias = config:flag("mamba_conv_bias", true),
    low = low, high = high, norm = "gated", eps = c.norm_eps, activation = c.activation,
  }
  c.mamba.out_bias = c.mamba.bias
end

local function expanded(config, c)
  return config:count("mamba_expand", 1, 64, 2) * c.hidden
end

local mamba_names = {
  mamba_in = "mamba.in_proj", mamba_conv = "mamba.conv1d", mamba_rate = "mamba.A_log", mamba_shift = "mamba.dt_bias",
  mamba_skip = "mamba.D", mamba_norm = "mamba.norm.weight", mamba_out = "mamba.out_proj",
}

local conv_names = {
  final_norm = "model.embedding_norm", attention_norm = "operator_norm", ffn_norm = "ffn_norm", q_norm = "self_attn.q_layernorm",
  k_norm = "self_attn.k_layernorm", out = "self_attn.out_proj", gate = "feed_forward.w1", up = "feed_forward.w3",
  down = "feed_forward.w2", conv_in = "conv.in_proj", conv = "conv.conv", conv_out = "conv.out_proj",
}

-- What LFM2's classes have in common.
local function lfm2(config, c)
  c.norm_heads = true
  c.conv = { width = config:count("conv_L_cache", 1, 1024, 3), bias = config:flag("conv_bias", false) }
  if config.values.tie_embedding ~= nil then c.tie_embeddings = config:flag("tie_embedding", false) end
  for _, name in ipairs { "block_dim", "conv_dim", "conv_dim_out" } do
    config:only(name, "hidden_size " .. c.hidden, c.hidden)
  end
  config:only("num_heads", "num_attention_heads " .. c.heads, c.heads)
  config:only("block_use_swiglu", "true", true)
  config:only("use_pos_enc", "true", true)
  ignore(config, "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init")
  config:only("theta", "rope_theta " .. c.rope.theta, c.rope.theta)
end

local conv_words = { conv = "conv", full_attention = false }
local delta_words = { linear_attention = "delta", full_attention = false }

local delta_names = {
  delta_conv = "linear_attn.conv1d", delta_rate = "linear_attn.A_log", delta_shift = "linear_attn.dt_bias",
  delta_norm = "linear_attn.norm", delta_out = "linear_attn.out_proj", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm",
}
local apart = {
  delta_qkv = "linear_attn.in_proj_qkv", delta_z = "linear_attn.in_proj_z", delta_b = "linear_attn.in_proj_b",
  delta_a = "linear_attn.in_proj_a",
}

-- A gated delta net. own: the class's values.
local function delta(config, c, own)
  local k_heads = config:count("linear_num_key_heads", 1, 4096, own.k_heads)
  local k_dim = config:count("linear_key_head_dim", 1, 65536, own.k_dim or math.floor(0.75 * c.hidden / k_heads))
  c.delta = {
    k_heads = k_heads, k_dim = k_dim, v_heads = config:count("linear_num_value_heads", 1, 4096, own.v_heads),
    v_dim = config:count("linear_value_head_dim", 1, 65536, own.v_dim or 2 * k_dim),
    width = config:count("linear_conv_kernel_dim", 1, 1024, 4), eps = own.eps or c.norm_eps, activation = c.activation,
  }
  if c.delta.v_heads % k_heads ~= 0 then
    config:refuse("linear_num_value_heads", "a multiple of linear_num_key_heads " .. k_heads)
  end
end

-- What Qwen3-Next and Qwen3.5 have in common.
local function qwen(config, c)
  local every = config:count("full_attention_interval", 1, 1024, 4)
  delta(config, c, { k_heads = 16, k_dim = 128, v_heads = 32, v_dim = 128 })
  mixers(config, c, delta_words, function(i) return (i + 1) % every ~= 0 and "delta" end)
  fields.same_bias(config, c, "attention_bias")
  c.norm_plus, c.norm_heads, c.query_gate = true, true, true
  c.left_out = { "mtp." }                                           -- layers that predict further tokens
  config:only("attn_output_gate", "true", true)
  ignore(config, "mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
end

local gated_shared = {
  shared_router = "mlp.shared_expert_gate", shared_gate = "mlp.shared_expert.gate_proj",
  shared_up = "mlp.shared_expert.up_proj", shared_down = "mlp.shared_expert.down_proj",
}

-- Layers of Nemotron-H have one part each: by a list of words, or letters of a pattern.
local nemotron_parts = { linear_attention = "mamba", mamba = "mamba", full_attention = false, attention = false, mlp = "mlp",
                         moe = "moe" }
local nemotron_letters = { M = "linear_attention", ["*"] = "full_attention", ["-"] = "mlp", E = "moe" }

local function nemotron_layers(config)
  local key = config.values.layers_block_type ~= nil and "layers_block_type" or "layer_types"
  local list, pattern = config:value(key), config:value("hybrid_override_pattern")
  if list == nil and type(pattern) == "string" then
    key, list = "hybrid_override_pattern", {}
    for i = 1, #pattern do list[i] = nemotron_letters[string.sub(pattern, i, i)] or "" end
  end
  if type(list) ~= "table" or #list == 0 then config:refuse(key, "a list of the layers' parts") end
  for _, word in ipairs(list) do
    if nemotron_parts[word] == nil then config:refuse(key, "of mamba, attention, mlp and moe") end
  end
  return list
end

-- Experts without gates, beside a shared one; between two products that make them narrower, or not.
local function nemotron_experts(config, c)
  local count, width = config:count("n_routed_experts", 1, 1024, 8), config:value("moe_latent_size")
  local groups = config:count("n_group", 1, count, 1)
  return {
    count = count, k = config:count("num_experts_per_tok", 1, count, 2), ffn = config:count("moe_intermediate_size", 1, 2 ^ 20, 7688),
    shared = config:count("moe_shared_expert_intermediate_size", 1, 2 ^ 20, 7688), shared_bias = c.ffn_bias,
    width = width and config:count("moe_latent_size", 1, 2 ^ 17), scale = config:number("routed_scaling_factor", 1e-6, 1e6, 1.0),
    groups = groups, groups_kept = config:count("topk_group", 1, groups, 1), score = "sigmoid", group_by = "sum2",
    choice_bias = true, renorm = config:flag("norm_topk_prob", true), dense = {},
  }
end

return {
  Lfm2ForCausalLM = {
    type = "lfm2", eps = 1e-5, kv_heads = 8, theta = 1000000.0, tie = true, positions = 128000,
    fields = { eps = "norm_eps", activation = false }, older = { ffn = "block_ff_dim" }, names = conv_names,
    set = function(config, c)
      local full, all = set_of_layers(config, "full_attn_idxs"), config:value("full_attn_idxs") == nil
      mixers(config, c, conv_words, function(i) return not (all or full[i]) and "conv" end)
      lfm2(config, c)
      ignore(config, "intermediate_size")                           -- block_ff_dim, where it is, goes before it
      local adjust, step = config:flag("block_auto_adjust_ff_dim", true), config:count("block_multiple_of", 1, 2 ^ 20, 256)
      local by = config:value("block_ffn_dim_multiplier")
      if by or config.values.block_ffn_dim_multiplier == nil then by = config:number("block_ffn_dim_multiplier", 1e-6, 1024, 1.0) end
      if not adjust then return end
      c.ffn = math.tointeger(2 * c.ffn // 3)
      if by then c.ffn = math.tointeger((math.floor(by * c.ffn) + step - 1) // step * step) end
    end,
  },
  Lfm2MoeForCausalLM = {
    type = "lfm2_moe", eps = 1e-5, kv_heads = 8, theta = 1000000.0, tie = true, positions = 128000,
    fields = { eps = "norm_eps", activation = false },
    names = fields.with(conv_names, {
      router = "feed_forward.gate", router_choice = "feed_forward.expert_bias", expert_gate = "feed_forward.experts.*.w1",
      expert_up = "feed_forward.experts.*.w3", expert_down = "feed_forward.experts.*.w2",
    }),
    set = function(config, c)
      mixers(config, c, conv_words, function() return nil end)
      lfm2(config, c)
      local e, first = shared.experts(config, 32, 4, config:count("moe_intermediate_size", 1, 2 ^ 20, 1792)),
                       config:count("num_dense_layers", 0, 1024, 2)
      e.score, e.choice_bias, e.renorm = "sigmoid", config:flag("use_expert_bias", true), config:flag("norm_topk_prob", true)
      e.scale, e.dense = config:number("routed_scaling_factor", 1e-6, 1e6, 1.0), {}
      for i = 1, c.layers do e.dense[i] = i <= first end
      c.experts = e
    end,
  },
  Qwen3NextForCausalLM = {
    type = "qwen3_next", kv_heads = 2, head_dim = 256, partial = 0.25, positions = 32768,
    names = fields.with(delta_names, gated_shared, shared.expert_names {
      delta_qkvz = "linear_attn.in_proj_qkvz", delta_ba = "linear_attn.in_proj_ba",
    }),
    set = function(config, c)
      qwen(config, c)
      shared.qwen_experts(config, c, 512, 10, 512, true)
      c.experts.shared = config:count("shared_expert_intermediate_size", 1, 2 ^ 20, 512)
    end,
  },
  Qwen3_5ForCausalLM = {
    type = "qwen3_5_text", kv_heads = 4, head_dim = 256, partial = 0.25, positions = 32768, mrope = true,
    names = fields.with(delta_names, apart),
    set = qwen,
  },
  Qwen3_5MoeForCausalLM = {
    type = "qwen3_5_moe_text", kv_heads = 2, head_dim = 256, partial = 0.25, positions = 32768, mrope = true,
    fields = { ffn = false },
    names = fields.with(delta_names, apart, gated_shared, shared.expert_names {}),
    set = function(config, c)
      qwen(config, c)
      c.experts = shared.experts(config, 256, 8, config:count("moe_intermediate_size", 1, 2 ^ 20, 512))
      c.experts.renorm, c.experts.shared = true, config:count("shared_expert_intermediate_size", 1, 2 ^ 20, 512)
      config:only("norm_topk_prob", "true", true)
      ignore(config, "intermediate_size")                           -- all layers have experts
      if config:stored("layers.0.mlp.experts.gate_up_proj") then -- one tensor for all experts of a layer
        c.experts.suffix, c.names.expert_gate, c.names.expert_up = "", false, false
        c.names.expert_gate_up, c.names.expert_down = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
      end
    end,
  },
  -- Granite 4: layers have Mamba or attention
  GraniteMoeHybridForCausalLM = {
    type = "granitemoehybrid", names = fields.with(mamba_names, shared.granite_names),
    set = function(config, c)
      if config.values.layer_types == nil then config.values.layer_types = config:value("layers_block_type") end
      mixers(config, c, { mamba = "mamba", linear_attention = "mamba", attention = false, full_attention = false },
             function() return "mamba" end)
      for i = 1, c.layers do c.unrotated[i] = config:value("position_embedding_type") ~= "rope" end
      config:only("position_embedding_type", "rope, or null or nope: no positions", "rope", "nope")
      local state = false
      for i = 1, c.layers do state = state or c.mixers[i] end
      if state then mamba(config, c, expanded(config, c))
      else
        for key in pairs(config.values) do
          if string.sub(key, 1, 6) == "mamba_" or key == "time_step_limit" then config:value(key) end
        end
      end
      local width = config:count("shared_intermediate_size", 1, 2 ^ 20, 1024)
      if config:value("num_local_experts") == 0 then
        fields.granite(config, c)
        c.ffn, c.names.gate_up, c.names.down = width, c.names.shared_gate_up, c.names.shared_down
        config:value("num_experts_per_tok")
      else
        shared.granite_experts(config, c)
        c.experts.shared = width
      end
    end,
  },
  BambaForCausalLM = {
    type = "bamba", eps = 1e-5, kv_heads = 8, partial = 0.5, positions = 262144,
    names = fields.with(mamba_names, {
      final_norm = "model.final_layernorm", ffn_norm = "pre_ff_layernorm", gate = "feed_forward.gate_proj",
      up = "feed_forward.up_proj", down = "feed_forward.down_proj",
    }),
    set = function(config, c)
      local full = set_of_layers(config, "attn_layer_indices") or {}
      c.mixers = {}
      for i = 1, c.layers do c.mixers[i] = not full[i - 1] and "mamba" end
      mamba(config, c, expanded(config, c))
      fields.same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      config:only("partial_rotary_factor", "0.5: the class reads another only in rope_parameters", 0.5)
      config:only("attn_rotary_emb", "the rotated part of head_dim, " .. c.rope.dim, c.rope.dim)
      ignore(config, "num_logits_to_keep", "z_loss_coefficient")
    end,
  },
  -- Mamba beside attention in each layer
  FalconH1ForCausalLM = {
    type = "falcon_h1", eps = 1e-5, kv_heads = 8, positions = 8192,
    names = fields.with(mamba_names, {
      final_norm = "model.final_layernorm", ffn_norm = "pre_ff_layernorm", gate = "feed_forward.gate_proj",
      up = "feed_forward.up_proj", down = "feed_forward.down_proj",
    }),
    set = function(config, c)
      local function factor(key) return config:number(key, -1e6, 1e6, 1.0) end
      local inner = config:value("mamba_d_ssm")
      if inner == nil and config.values.mamba_d_ssm ~= nil then inner = expanded(config, c)
      else inner = config:count("mamba_d_ssm", 1, 2 ^ 20, 1024) end
      ignore(config, "mamba_expand", "num_logits_to_keep", "mlp_expansion_factor", "attn_layer_indices")
      mamba(config, c, inner)
      local m, ffn = c.mamba, numbers(config, "mlp_multipliers", 2) or { 1.0, 1.0 }
      m.out_bias = config:flag("projectors_bias", false)
      local first = config:flag("mamba_norm_before_gate", true)
      m.norm = config:flag("mamba_rms_norm", false) and (first and "first" or "gated") or ""
      m.scale, m.scales = factor "ssm_in_multiplier", numbers(config, "ssm_multipliers", 5)
      c.beside = { attention_in = factor "attention_in_multiplier", attention_out = factor "attention_out_multiplier",
                   mamba_out = factor "ssm_out_multiplier" }
      c.mixers = {}
      for i = 1, c.layers do c.mixers[i] = "both" end
      fields.same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      c.gate_scale, c.ffn_scale = ffn[1], ffn[2]
      c.scale = c.scale * factor "key_multiplier"
      c.embedding_scale, c.logits_scale = factor "embedding_multiplier", factor "lm_head_multiplier"
      config:only("mamba_use_mlp", "true", true)
    end,
  },
  NemotronHForCausalLM = {
    type = "nemotron_h", eps = 1e-5, kv_heads = 8, head_dim = 128, activation = "relu2", positions = 4096,
    fields = { eps = "layer_norm_epsilon", activation = "mlp_hidden_act", theta = false },
    names = {
      embedding = "model.embeddings", final_norm = "model.norm_f", attention_norm = "norm", ffn_norm = "norm", gate = false,
      q = "mixer.q_proj", k = "mixer.k_proj", v = "mixer.v_proj", out = "mixer.o_proj", up = "mixer.up_proj",
      down = "mixer.down_proj", mamba_in = "mixer.in_proj", mamba_conv = "mixer.conv1d", mamba_rate = "mixer.A_log",
      mamba_shift = "mixer.dt_bias", mamba_skip = "mixer.D", mamba_norm = "mixer.norm.weight", mamba_out = "mixer.out_proj",
      router = "mixer.gate", router_choice = "mixer.gate.e_score_correction_bias", expert_up = "mixer.experts.*.up_proj",
      expert_down = "mixer.experts.*.down_proj", shared_up = "mixer.shared_experts.up_proj",
      shared_down = "mixer.shared_experts.down_proj", expert_in = "mixer.fc1_latent_proj", expert_out = "mixer.fc2_latent_proj",
    },
    before = function(config) config.values.num_hidden_layers = #nemotron_layers(config) end, -- whatever that field says
    set = function(config, c)
      local function older(name, key) return config.values[name] ~= nil and name or key end
      nn.checkpoint { prefixes = { "backbone." } }                  -- in place of "model."
      c.ffn_bias = config:flag("mlp_bias", false)
      c.mixers, c.only = {}, {}
      for i, word in ipairs(nemotron_layers(config)) do
        local part = nemotron_parts[word]
        c.mixers[i], c.only[i], c.unrotated[i] = part == "mamba" and part, (part == "mlp" or part == "moe") and "ffn" or "mixer", true
        if part == "moe" then c.experts = c.experts or nemotron_experts(config, c) end
      end
      for i, word in ipairs(c.experts and nemotron_layers(config) or {}) do c.experts.dense[i] = word ~= "moe" end
      local heads, bias = config:count("mamba_num_heads", 1, 2 ^ 16, 128), config:flag("use_bias", false)
      c.mamba = {
        heads = heads, head_dim = config:count("mamba_head_dim", 1, 65536, 64),
        groups = config:count(older("mamba_n_groups", "n_groups"), 1, heads, 8), state = config:count("ssm_state_size", 1, 65536, 128),
        width = config:count(older("mamba_d_conv", "conv_kernel"), 1, 1024, 4),
        bias = bias, out_bias = bias, conv_bias = config:flag(older("mamba_conv_bias", "use_conv_bias"), true),
        norm = "gated", eps = c.norm_eps, activation = config:word("mamba_hidden_act", hf.activations, "silu"),
      }
      local low = config:number(older("mamba_dt_min", "time_step_min"), 0, 1e6, 0.001)
      c.mamba.low = low > 0 and low or nil
      c.left_out = { "mtp." }
      if c.tie_embeddings then config:refuse("tie_word_embeddings", "false: the class does not read it") end
      config:only("attention_bias", "false: the class does not read it", false)
      config:only("sliding_window", "null: windows are not computed")
      config:only("attention_head_dim", "the value of head_dim", c.head_dim)
      ignore(config, "chunk_size", "expand", "hybrid_override_pattern", "layer_types", "mamba_chunk_size", "mamba_dt_init_floor",
             "mamba_dt_limit", "mamba_dt_max", "mamba_expand", "mamba_proj_bias", "mamba_ssm_cache_dtype", "moe_intermediate_size",
             "moe_latent_size", "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "mtp_layers_block_type",
             "mtp_hybrid_override_pattern", "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob", "num_experts_per_tok",
             "num_logits_to_keep", "num_nextn_predict_layers", "rescale_prenorm_residual", "residual_in_fp32",
             "routed_scaling_factor", "time_step_floor", "time_step_limit", "time_step_max", "time_step_rank", "topk_group", "use_mamba_kernels",
             "norm_eps", "num_query_groups", "partial_rotary_factor", "rms_norm_eps", "rope_theta")
    end,
  },
  -- All layers are Mamba-2; heads are those of the state
  Mamba2ForCausalLM = {
    type = "mamba2", eps = 1e-5, head_dim = 64, positions = 2 ^ 20,
    fields = { heads = "num_heads", kv_heads = false, ffn = false, eps = "layer_norm_epsilon", theta = false },
    names = {
      prefix = "backbone.", embedding = "backbone.embeddings", layers = "backbone.layers.", final_norm = "backbone.norm_f",
      attention_norm = "norm", mamba_in = "mixer.in_proj", mamba_conv = "mixer.conv1d", mamba_rate = "mixer.A_log",
      mamba_shift = "mixer.dt_bias", mamba_skip = "mixer.D", mamba_norm = "mixer.norm.weight", mamba_out = "mixer.out_proj",
    },
    set = function(config, c)
      local inner = config:number("expand", 1e-6, 1024, 2) * c.hidden
      if inner ~= c.heads * c.head_dim then config:refuse("expand", "so that all heads have hidden_size * expand elements") end
      local low, high = time_steps(config)
      local bias = config:flag("use_bias", false)
      c.mixers, c.only = {}, {}
      for i = 1, c.layers do c.mixers[i], c.only[i] = "mamba", "mixer" end
      c.mamba = {
        heads = c.heads, head_dim = c.head_dim, groups = config:count("n_groups", 1, c.heads, 8),
        state = config:count("state_size", 1, 65536, 128), width = config:count("conv_kernel", 1, 1024, 4),
        bias = bias, out_bias = bias, conv_bias = config:flag("use_conv_bias", true), low = low, high = high,
        norm = "gated", norm_whole = true, eps = c.norm_eps, activation = c.activation,
      }
      ignore(config, "chunk_size", "norm_before_gate", "rescale_prenorm_residual", "residual_in_fp32", "rms_norm", "time_step_floor",
             "time_step_max", "time_step_min", "time_step_rank", "intermediate_size")
    end,
  },
  -- Layers with attention have norms behind their parts, the others before them
  OlmoHybridForCausalLM = {
    type = "olmo_hybrid", positions = 65536, fields = { head_dim = false },
    names = {
      attention_norm = false, ffn_norm = false, after_attention = "post_attention_layernorm", after_ffn = "post_feedforward_layernorm",
      q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm", delta_q = "linear_attn.q_proj", delta_k = "linear_attn.k_proj",
      delta_v = "linear_attn.v_proj", delta_q_conv = "linear_attn.q_conv1d", delta_k_conv = "linear_attn.k_conv1d",
      delta_v_conv = "linear_attn.v_conv1d", delta_z = "linear_attn.g_proj", delta_b = "linear_attn.b_proj",
      delta_a = "linear_attn.a_proj", delta_rate = "linear_attn.A_log", delta_shift = "linear_attn.dt_bias",
      delta_norm = "linear_attn.o_norm", delta_out = "linear_attn.o_proj",
    },
    set = function(config, c)
      local last = c.layers < 4 and c.layers - 1 or nil
      mixers(config, c, delta_words, function(i) return i % 4 ~= 3 and i ~= last and "delta" end)
      delta(config, c, { k_heads = c.heads, v_heads = c.heads, eps = 1e-5 })
      c.delta.doubled = config:flag("linear_allow_neg_eigval", true)
      fields.same_bias(config, c, "attention_bias")
      nn.checkpoint { renamed = {                                   -- as some versions of transformers write them
        "post_attention_layernorm.weight", "feedforward_layer_norm.weight", "feedforward_layer_norm.weight",
        "post_attention_layernorm.weight", "attention_layer_norm.weight", "input_layernorm.weight" } }
      local before = setmetatable({
        attention_norm = "attention_layer_norm", ffn_norm = "feedforward_layer_norm", after_attention = false, after_ffn = false,
      }, { __index = c.names })
      local at = hf.rope_object(config)
      at = at and at.values.rope_theta ~= nil and at or config
      local turned = at.values.rope_theta == nil or at:value("rope_theta") ~= nil -- null: no RoPE
      c.own = {}
      for i = 1, c.layers do
        c.own[i] = c.mixers[i] and { names = before } or {}
        c.unrotated[i] = not turned
      end
      ignore(config, "linear_a_log_max", "linear_a_log_min", "linear_dt_init_floor", "linear_dt_max", "linear_dt_min")
    end,
  },
}
