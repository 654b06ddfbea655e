-- mixtures.lua - as decoders.lua, for decoders with experts.
local hf = require "lib.hf"
local fields = require "lib.fields"
local shared = require "lib.experts"
local experts, qwen_experts, expert_names, granite_names, granite_experts =
  shared.experts, shared.qwen_experts, shared.expert_names, shared.granite_names, shared.granite_experts

-- A number of groups: null is one.
local function groups(config, key, most, missing)
  if config.values[key] == nil then return missing end
  return config:count(key, 1, most, 1)
end

-- Some dense layers, then experts in groups beside shared ones. own: the class's values.
local function deepseek_experts(config, c, own)
  local first = config:count("first_k_dense_replace", 0, 1024, own.first)
  local count = config:count(own.key or "n_routed_experts", 1, 1024, own.count)
  local ffn = config:count("moe_intermediate_size", 1, 2 ^ 20, own.ffn)
  local all = groups(config, "n_group", count, own.groups)
  c.experts = {
    count = count, k = config:count("num_experts_per_tok", 1, count, own.k), ffn = ffn, dense = {},
    shared = ffn * config:count(own.shared_key or "n_shared_experts", 1, 1024, own.shared),
    scale = config:number("routed_scaling_factor", 1e-6, 1e6, own.scale),
    groups = all, groups_kept = groups(config, "topk_group", all, math.min(own.kept, all)),
  }
  for i = 1, c.layers do c.experts.dense[i] = i <= first end
  -- Layers behind the last one, which predict further tokens, are not computed.
  for i = 0, config:count("num_nextn_predict_layers", 0, 64, own.further) - 1 do
    c.left_out[i + 1] = "model.layers." .. c.layers + i .. "."
  end
end

-- Which layers have experts, as mlp_layer_types says; else all but the first ones.
local function sparse_layers(config, c)
  local list, kinds = config:value("mlp_layer_types"), { dense = true, sparse = false }
  if list == nil then return end
  for i = 1, c.layers do
    local dense = nil
    if type(list) == "table" and #list == c.layers then dense = kinds[list[i] or ""] end
    if dense == nil then config:refuse("mlp_layer_types", "a list of dense and sparse, one for each layer") end
    c.experts.dense[i] = dense
  end
end

-- Sigmoids; a bias for the choice; groups by their best two.
local function sigmoid_experts(config, c)
  local e = c.experts
  e.score, e.group_by, e.choice_bias, e.renorm = "sigmoid", "sum2", true, config:flag("norm_topk_prob", true)
end

-- A number, or a list with the same number for each layer.
local function one_for_all(config, key, layers, missing)
  local list = config:value(key)
  if type(list) ~= "table" then return config:count(key, 1, 2 ^ 20, missing) end
  for i = 1, math.max(layers, 1) do
    if math.type(list[i]) ~= "integer" or list[i] < 1 or list[i] ~= list[1] then
      config:refuse(key, "one number, or a list with the same one for each layer")
    end
  end
  return list[1]
end

local shared_names = {
  router_choice = "mlp.gate.e_score_correction_bias", shared_gate = "mlp.shared_experts.gate_proj",
  shared_up = "mlp.shared_experts.up_proj", shared_down = "mlp.shared_experts.down_proj",
}

local function with(names, more)
  for key, name in pairs(more) do names[key] = name end
  return names
end

-- Latent attention. Positions scaled by yarn make the scores larger, too. own: the class's values.
-- whole: head_dim means all elements of a head.
local function latent(config, c, own)
  local at = hf.rope_object(config)
  own = own or { q = 1536, kv = 512, nope = 128, v = 128 }
  c.latent = {
    q = config.values.q_lora_rank == nil and own.q or config:value("q_lora_rank") and
        config:count("q_lora_rank", 1, 2 ^ 17),
    kv = config:count("kv_lora_rank", 1, 2 ^ 17, own.kv),
    nope = config:count("qk_nope_head_dim", 1, 1024, own.nope), rotated = c.head_dim,
    v = config:count("v_head_dim", 1, 1024, own.v), q_scale = own.q_scale,
    bias = config:flag("attention_bias", false), eps = 1e-6,
  }
  c.out_bias, c.head_dim = c.latent.bias, c.latent.nope + c.latent.rotated
  if c.latent.v < c.latent.rotated or c.latent.v > c.head_dim then
    config:refuse("v_head_dim", "from qk_rope_head_dim to the size of a head, " .. c.head_dim)
  end
  c.scale = c.head_dim ^ -0.5
  config:only("num_key_value_heads", "as many as num_attention_heads, " .. c.heads, c.heads)
  if own.whole then config:only("head_dim", "qk_nope_head_dim and qk_rope_head_dim, " .. c.head_dim, c.head_dim)
  else config:only("head_dim", "the value of qk_rope_head_dim", c.latent.rotated) end
  config:only("qk_head_dim", "qk_nope_head_dim and qk_rope_head_dim, " .. c.head_dim, c.head_dim)
  config:only("pretraining_tp", "1", 1)
  config:only("moe_layer_freq", "1", 1)
  for _, name in ipairs { "aux_loss_alpha", "seq_aux", "ep_size" } do config:value(name) end
  local all = at and at:value("mscale_all_dim") and at:number("mscale_all_dim", 0, 1e6) or 0
  if all == 0 or (at:value("rope_type") or at:value("type")) == "default" then return end
  c.scale = c.scale * (0.1 * all * math.log(math.max(1, at:number("factor", 1e-6, 1e6))) + 1) ^ 2
end

local latent_names = {
  q_a = "self_attn.q_a_proj", q_a_norm = "self_attn.q_a_layernorm", q_b = "self_attn.q_b_proj",
  kv_a = "self_attn.kv_a_proj_with_mqa", kv_a_norm = "self_attn.kv_a_layernorm", kv_b = "self_attn.kv_b_proj",
}
local latent_fields = { head_dim = "qk_rope_head_dim", kv_heads = false }

-- Layers whose queries see index_topk keys of their choice are those that see all, in texts of so many tokens. What chooses is
-- left out.
local function short_texts(config, c, positions)
  local most = config:count("index_topk", 1, 2 ^ 24, 2048)
  c.longest = math.min(positions, most)
  if hf.context(c.longest) > most then
    config:refuse("index_topk", "limits.context or more, " .. hf.context(c.longest) .. ": attention to keys of its choice is not computed")
  end
  for i = 0, c.layers - 1 do table.insert(c.left_out, "model.layers." .. i .. ".self_attn.indexer.") end
  for _, name in ipairs { "index_head_dim", "index_n_heads", "indexer_rope_interleave", "indexer_types", "index_skip_topk_offset",
                          "index_topk_freq", "index_topk_pattern" } do config:value(name) end
end

-- DeepSeek V3.2 and GLM-5
local function chosen_keys(config, c, positions, own)
  latent(config, c, own)
  if not c.latent.q then config:refuse("q_lora_rank", "a number") end
  deepseek_experts(config, c, own)
  sparse_layers(config, c)
  sigmoid_experts(config, c)
  short_texts(config, c, positions)
  local kinds = config:value("layer_types") or {}
  for i = 1, #kinds do
    if kinds[i] ~= "indexed_attention" then config:refuse("layer_types", "indexed_attention for each layer") end
  end
  config:only("rope_interleave", "true", true)
  config:only("topk_method", "noaux_tc", "noaux_tc")
  config:only("scoring_func", "sigmoid", "sigmoid")
end

-- Fields of the model's own code: they must say what the class computes.
local function mimo_fields(config, c)
  local function list(key, of)
    local given = config:value(key)
    for i = 1, type(given) == "table" and c.layers or 0 do
      if given[i] ~= of(i) then config:refuse(key, "a list of what layer_types and mlp_layer_types say") end
    end
  end
  list("hybrid_layer_pattern", function(i) return c.windows[i] > 0 and 1 or 0 end)
  list("moe_layer_freq", function(i) return c.experts.dense[i] and 0 or 1 end)
  config:only("add_full_attention_sink_bias", "false", false)
  config:only("add_swa_attention_sink_bias", "true", true)
  config:only("layernorm_epsilon", "the value of rms_norm_eps", c.norm_eps)
  config:only("swa_head_dim", "the value of head_dim", c.head_dim)
  config:only("swa_v_head_dim", "the value of v_head_dim", c.v_head_dim or c.head_dim)
  config:only("swa_num_attention_heads", "the value of num_attention_heads", c.heads)
  config:only("swa_num_key_value_heads", "twice num_key_value_heads", 2 * c.kv_heads)
  -- The class has these for files that have no rope_parameters
  config:only("rope_theta", "5000000 without rope_parameters", 5000000)
  config:only("swa_rope_theta", "10000 without rope_parameters", 10000)
  config:only("partial_rotary_factor", "0.334 without rope_parameters", 0.334)
  for _, name in ipairs { "attention_chunk_size", "hybrid_block_size" } do config:value(name) end
end

-- A list of a number for each layer; missing or empty: nil.
local function layer_list(config, key, layers, expected, fits)
  local list = config:value(key)
  if list == nil or type(list) == "table" and #list == 0 then return nil end
  if type(list) ~= "table" or #list < layers then config:refuse(key, expected) end
  for i = 1, layers do
    if not fits(list[i]) then config:refuse(key, expected) end
  end
  return list
end

-- Layers that have no RoPE see all of the text, the others their chunk of it.
local function chunked(config, c)
  local every = config:count("no_rope_layer_interval", 1, 1024, 4)
  local rotated = layer_list(config, "no_rope_layers", c.layers, "a list with 1 for each layer that has RoPE, 0 for each " ..
    "that has none", function(v) return v == 0 or v == 1 end)
  local kinds = layer_list(config, "layer_types", c.layers, "a list of full_attention and chunked_attention",
    function(v) return v == "full_attention" or v == "chunked_attention" end)
  local size = 8192
  if config.values.attention_chunk_size ~= nil then size = config:count("attention_chunk_size", 0, 2 ^ 24, 0) end
  for i = 1, c.layers do
    local turned = (rotated and rotated[i] or (i % every == 0 and 0 or 1)) == 1
    local own = turned
    if kinds then own = kinds[i] == "chunked_attention" end
    c.unrotated[i], c.chunks[i] = not turned, own and size or 0
  end
end

-- In older files a whole number, which 0 turns off.
local function tempered(config, c)
  local on = config:value("attn_temperature_tuning")
  local scale = { by = config:number("attn_scale", 1e-9, 1e6, 0.1), every = config:count("floor_scale", 1, 2 ^ 30, 8192),
                  offset = 1 }
  if math.type(on) == "integer" then on = on ~= 0 else on = config:flag("attn_temperature_tuning", true) end
  for i = 1, c.layers do c.q_scales[i] = on and c.unrotated[i] and scale end
end

-- Layers with experts: moe_layers, else every interleave_moe_layer_step-th.
local function interleaved_experts(config, c)
  local step, list = config:count("interleave_moe_layer_step", 1, 1024, 1), config:value("moe_layers")
  local ffn = c.ffn
  c.ffn = config:count("intermediate_size_mlp", 1, 2 ^ 20, 16384)
  local count = config:count("num_local_experts", 1, 1024, 16)
  c.experts = {
    count = count, k = config:count("num_experts_per_tok", 1, count, 1), ffn = ffn, shared = ffn, score = "sigmoid",
    weigh_input = true, transposed = true, suffix = "", dense = {},
  }
  for i = 1, c.layers do c.experts.dense[i] = list ~= nil or i % step ~= 0 end
  if list ~= nil and type(list) ~= "table" then config:refuse("moe_layers", "a list of layers") end
  for _, i in ipairs(list or {}) do
    if math.type(i) ~= "integer" then config:refuse("moe_layers", "a list of layers") end
    c.experts.dense[i + 1] = false
  end
end

-- DBRX: theta stands in attn_config; that of rope_parameters, which transformers writes and reads, must be the same.
local function dbrx_attention(config, c, at, harmless)
  local rope = config:inside("rope_parameters")
  c.kv_heads = at:count("kv_n_heads", 1, c.heads, 1)
  c.clip_qkv = fields.clip(at)
  c.rope = { theta = at:number("rope_theta", 1, 1e12, 10000.0) }
  at:known(harmless)
  config:only("num_key_value_heads", "the value of attn_config.kv_n_heads", c.kv_heads)
  if not rope then return end
  rope:only("rope_type", "default", "default")
  rope:only("rope_theta", "the value of attn_config.rope_theta", c.rope.theta)
  rope:known {}
end

local function dbrx_experts(config, c, at, harmless)
  local count, act = at:count("moe_num_experts", 1, 1024, 4), at:inside("ffn_act_fn")
  local power = at:value("moe_normalize_expert_weights")
  c.experts = { count = count, k = at:count("moe_top_k", 1, count, 1), ffn = at:count("ffn_hidden_size", 1, 2 ^ 20, 3584),
                flat = true, suffix = "", renorm = power ~= nil or at.values.moe_normalize_expert_weights == nil }
  at:only("moe_normalize_expert_weights", "1, or null: weights are not divided by their sum", 1)
  if act then
    c.activation = act:word("name", hf.activations, "silu")
    act:known {}
  end
  at:only("hidden_size", "the value of d_model", c.hidden)
  for _, name in ipairs { "moe_jitter_eps", "moe_loss_weight" } do at:value(name) end
  at:known(harmless)
end

-- Fields of how many experts there are, and shared ones: those of DeepSeek, or of the models' own files.
local function expert_keys(config)
  if config.values.n_routed_experts ~= nil then return "n_routed_experts", "n_shared_experts" end
  return "num_experts", "num_shared_experts"
end

-- Ling 2.0 and Sarvam: layers of GLM-4.5 with one matrix for queries, keys and values. own: the class's values.
local function bailing(type, own)
  return {
    type = type, kv_heads = own.kv_heads, head_dim = own.head_dim, theta = own.theta, positions = own.positions,
    names = with(expert_names {}, {
      embedding = "model.word_embeddings", qkv = "attention.query_key_value", out = "attention.dense",
      router_choice = "mlp.gate.expert_bias", shared_gate = "mlp.shared_experts.gate_proj", shared_up = "mlp.shared_experts.up_proj",
      shared_down = "mlp.shared_experts.down_proj",
    }),
    set = function(config, c)
      c.qkv_bias = config:flag("use_qkv_bias", config:flag("attention_bias", false))
      own.key, own.shared_key = expert_keys(config)
      deepseek_experts(config, c, own)
      sigmoid_experts(config, c)
      if config:flag("use_qk_norm", own.norms) then
        c.norm_heads, c.names.q_norm, c.names.k_norm = true, "attention.query_layernorm", "attention.key_layernorm"
      end
      config:only("score_function", "sigmoid", "sigmoid")
      config:only("moe_router_enable_expert_bias", "true", true)
      config:only("use_bias", "false", false)
      config:only("use_rmsnorm", "true", true)
      config:only("moe_shared_expert_intermediate_size", "moe_intermediate_size times num_shared_experts", c.experts.shared)
      for _, name in ipairs { "embedding_dropout", "output_dropout", "router_dtype", "max_window_layers", "sliding_window",
                              "use_sliding_window" } do config:value(name) end
    end,
  }
end

local gpt_oss_names = { sinks = "self_attn.sinks", router = "mlp.router", expert_gate_up = "mlp.experts.gate_up_proj",
                        expert_down = "mlp.experts.down_proj" }

local function gpt_oss(config, c)
  c.qkv_bias = config:flag("attention_bias", true)
  c.out_bias = c.qkv_bias
  c.experts = experts(config, 128, 4, c.ffn)
  c.experts.order, c.experts.router_bias, c.experts.bias = "topk_softmax", true, true
  c.experts.suffix, c.experts.transposed = "", true
end

local classes = {
  -- Ling 2.0 and Ring 2.0, as published
  BailingMoeV2ForCausalLM = bailing("bailing_moe_v2", {
    kv_heads = 4, theta = 600000.0, positions = 16384, count = 256, shared = 1,
    ffn = 512, k = 8, first = 1, scale = 2.5, groups = 8, kept = 4, further = 0, norms = true,
  }),
  SarvamMoEForCausalLM = bailing("sarvam_moe", {
    kv_heads = 4, head_dim = 64, theta = 8000000.0, positions = 131072, count = 128, shared = 1,
    ffn = 1024, k = 6, first = 1, scale = 2.5, groups = 1, kept = 1, further = 0, norms = true,
  }),
  -- DeepSeek V3 without a vector of queries
  SarvamMLAForCausalLM = {
    type = "sarvam_mla", head_dim = 64, style = "neighbour", positions = 4096, fields = latent_fields,
    names = with(expert_names {}, with(with({}, shared_names), latent_names)),
    before = function(config)
      local at = config:inside("rope_scaling")
      if at and (at:value("rope_type") or at:value("type")) == "deepseek_yarn" then at.values.rope_type = "yarn" end
      -- a derived number, which the model's own files have in another sense
      config:value("head_dim")
      config.values.head_dim = nil
    end,
    set = function(config, c)
      local key, shared_key = expert_keys(config)
      latent(config, c, { kv = 512, nope = 128, v = 128 })
      deepseek_experts(config, c, { key = key, shared_key = shared_key, first = 1, count = 128, ffn = 2048, k = 8, shared = 1, scale = 2.5,
                                    groups = 1, kept = 1, further = 0 })
      sigmoid_experts(config, c)
      config:only("q_head_dim", "qk_nope_head_dim and qk_rope_head_dim, " .. c.head_dim, c.head_dim)
      if not config:flag("rope_interleave", true) then c.rope.style = "half" end
      for _, name in ipairs { "topk_method", "scoring_func", "score_function" } do config:only(name, "noaux_tc", "noaux_tc", "sigmoid") end
    end,
  },
  Qwen3MoeForCausalLM = {
    type = "qwen3_moe", kv_heads = 4, positions = 32768,
    names = expert_names { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
    set = function(config, c)
      local use, size = config:flag("use_sliding_window", false), fields.window(config, 4096)
      c.windows = fields.windows(config, c.layers, use and size or 0, function() return true end)
      c.norm_heads = true
      fields.same_bias(config, c, "attention_bias")
      qwen_experts(config, c, 128, 8, 768)
      config:value("max_window_layers") -- all layers have the window, or none
    end,
  },
  Qwen3VLMoeForConditionalGeneration = {
    type = "qwen3_vl_moe_text", kv_heads = 16, theta = 500000.0, positions = 128000, mrope = true,
    names = with(expert_names { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
                 { expert_gate = false, expert_up = false, expert_gate_up = "mlp.experts.gate_up_proj",
                   expert_down = "mlp.experts.down_proj" }),
    set = function(config, c)
      c.norm_heads = true
      fields.same_bias(config, c, "attention_bias")
      qwen_experts(config, c, 60, 4, 1408)
      config:only("norm_topk_prob", "true", true)
      -- Experts lie with their inputs first, unless transformers 5 or later wrote the file.
      local version = config:value("transformers_version")
      local newer = type(version) == "string" and (tonumber(string.sub(version, 1, 1)) or 0) >= 5
      c.experts.renorm, c.experts.transposed, c.experts.suffix = true, not newer, ""
    end,
  },
  -- The text model of Qwen3-Omni
  Qwen3OmniMoeThinkerForConditionalGeneration = {
    type = "qwen3_omni_moe_text", kv_heads = 4, theta = 1000000.0, positions = 32768, mrope = true,
    names = expert_names { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
    set = function(config, c)
      c.norm_heads = true
      fields.same_bias(config, c, "attention_bias")
      qwen_experts(config, c, 128, 8, 768)
      c.experts.renorm = config:flag("norm_topk_prob", true)
      for _, name in ipairs { "max_window_layers", "shared_expert_intermediate_size", "sliding_window", "use_qk_norm",
                              "use_sliding_window" } do config:value(name) end -- the class does not read these
    end,
  },
  Qwen2MoeForCausalLM = {
    type = "qwen2_moe", kv_heads = 16, positions = 32768,
    names = expert_names {
      shared_router = "mlp.shared_expert_gate", shared_gate = "mlp.shared_expert.gate_proj",
      shared_up = "mlp.shared_expert.up_proj", shared_down = "mlp.shared_expert.down_proj",
    },
    set = function(config, c)
      local use, size = config:flag("use_sliding_window", false), fields.window(config, 4096)
      local first = config:count("max_window_layers", 0, 1024, 28)
      c.windows = fields.windows(config, c.layers, use and size or 0, function(i) return i % 2 == 0 and i < first end)
      c.qkv_bias = config:flag("qkv_bias", true)
      qwen_experts(config, c, 60, 4, 1408)
      c.experts.shared = config:count("shared_expert_intermediate_size", 1, 2 ^ 20, 5632)
    end,
  },
  OlmoeForCausalLM = {
    type = "olmoe", eps = 1e-5, positions = 4096,
    names = expert_names { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
    set = function(config, c)
      fields.same_bias(config, c, "attention_bias")
      c.clip_qkv = fields.clip(config)
      c.experts = experts(config, 64, 8, c.ffn)
      c.experts.renorm = config:flag("norm_topk_prob", false)
    end,
  },
  FlexOlmoForCausalLM = {
    type = "flex_olmo", theta = 500000.0, positions = 4096,
    names = expert_names { attention_norm = false, ffn_norm = false, after_attention = "post_attention_layernorm",
                           after_ffn = "post_feedforward_layernorm", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
    set = function(config, c)
      fields.same_bias(config, c, "attention_bias")
      c.experts = experts(config, 7, 5, c.ffn)
      c.experts.renorm = config:flag("norm_topk_prob", false)
    end,
  },
  -- K-EXAONE
  ExaoneMoeForCausalLM = {
    type = "exaone_moe", eps = 1e-5, kv_heads = 32,
    names = with(expert_names { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
                 with(with({}, shared_names), { router_choice = "mlp.e_score_correction_bias" })),
    set = function(config, c)
      fields.exaone_windows(config, c)
      deepseek_experts(config, c, { first = 1, key = "num_experts", count = 64, ffn = 1024, k = 8, shared_key = "num_shared_experts",
                                    shared = 1, scale = 2.5, groups = 1, kept = 1, further = 0 })
      sparse_layers(config, c)
      sigmoid_experts(config, c)
      c.left_out[#c.left_out + 1] = "mtp"
    end,
  },
  GraniteMoeForCausalLM = {
    type = "granitemoe",
    names = { router = "block_sparse_moe.router.layer", expert_gate_up = "block_sparse_moe.input_linear",
              expert_down = "block_sparse_moe.output_linear" },
    set = granite_experts,
  },
  GraniteMoeSharedForCausalLM = {
    type = "granitemoeshared",
    names = granite_names,
    set = function(config, c)
      granite_experts(config, c)
      local shared = config:count("shared_intermediate_size", 0, 2 ^ 20, 0)
      if shared > 0 then c.experts.shared = shared end
    end,
  },
  GraniteMoeSWAForCausalLM = {
    type = "granitemoe_swa",
    names = fields.with(granite_names, {
      sinks = "self_attn.sinks", router = "block_sparse_moe.router", expert_gate_up = "block_sparse_moe.experts.gate_up_proj",
      expert_down = "block_sparse_moe.experts.down_proj",
    }),
    set = function(config, c, positions)
      granite_experts(config, c)
      fields.granite_windows(config, c, positions)
      local shared = config:count("shared_intermediate_size", 0, 2 ^ 20, 0)
      if shared > 0 then c.experts.shared = shared end
      c.experts.suffix = ""
    end,
  },
  -- Command A+: the first layers may be dense, with a pattern of windows of their own
  Cohere2MoeForCausalLM = {
    type = "cohere2_moe", norm = "layer", eps = 1e-5, head_dim = 128, tie = true, style = "neighbour", positions = 8192,
    fields = { eps = "layer_norm_eps" },
    names = with(with(expert_names {}, shared_names), { ffn_norm = false }),
    set = function(config, c)
      local first = config:count("first_k_dense_replace", 0, 1024, 0)
      local every = config:count("sliding_window_pattern", 1, 1024, 4)
      local dense_every = config:count("prefix_dense_sliding_window_pattern", 1, 1024, 1)
      local e = experts(config, 8, 2, c.ffn)
      fields.cohere(config, c)
      if config:value("rms_norm_eps") then c.norm, c.norm_eps = "rms", config:number("rms_norm_eps", 1e-30, 1) end
      c.windows = fields.windows(config, c.layers, fields.window(config, 4096), function(i)
        if i < first then return (i + 1) % dense_every ~= 0 end
        return (i - first + 1) % every ~= 0
      end)
      e.dense = {}
      for i = 1, c.layers do e.dense[i] = i <= first end
      c.experts = e
      sparse_layers(config, c)
      for i = 1, c.layers do c.unrotated[i] = c.windows[i] == 0 and not (e.dense[i] and dense_every == 1) end
      local sigmoid = config:word("expert_selection_fn", { softmax = false, sigmoid = true }, "softmax")
      local renorm = config:flag("norm_topk_prob", true)            -- of sigmoids
      if sigmoid then e.score, e.renorm = "sigmoid", renorm else e.order = "topk_softmax" end
      local shared = config:count("num_shared_experts", 0, 1024, 0)
      local average = config:word("shared_expert_combination_strategy", { average = true, sum = false }, "average")
      if shared > 0 then e.shared, e.average = shared * e.ffn, average end
      if config:value("prefix_dense_intermediate_size") then
        c.ffn = config:count("prefix_dense_intermediate_size", 1, 2 ^ 20)
      end
    end,
  },
  Dots1ForCausalLM = {
    type = "dots1", kv_heads = 32,
    names = with(expert_names { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" }, shared_names),
    set = function(config, c)
      fields.same_bias(config, c, "attention_bias")
      c.norm_heads = true
      local first = config:count("max_window_layers", 0, 1024, 62)
      c.windows = fields.windows(config, c.layers, fields.window(config, 4096), function(i) return i >= first end)
      deepseek_experts(config, c, { first = 0, scale = 1.0, groups = 1, kept = 1, further = 0 })
      sigmoid_experts(config, c)
      c.experts.renorm = config:flag("norm_topk_prob", false)
      config:only("scoring_func", "noaux_tc", "noaux_tc", "sigmoid")
      config:only("topk_method", "noaux_tc", "noaux_tc")
    end,
  },
  HunYuanMoEV1ForCausalLM = {
    type = "hunyuan_v1_moe", eps = 1e-5, rope_fields = fields.hunyuan_rope,
    names = with(expert_names {
      shared_gate = "mlp.shared_mlp.gate_proj", shared_up = "mlp.shared_mlp.up_proj", shared_down = "mlp.shared_mlp.down_proj",
    }, { router = "mlp.gate.wg" }),
    set = function(config, c)
      fields.hunyuan(config, c)
      local count = config:count("num_experts", 1, 1024, 1)
      c.experts = { count = count, k = one_for_all(config, "moe_topk", c.layers, 1), ffn = c.ffn, shared = c.ffn, renorm = true }
      if c.experts.k > count then config:refuse("moe_topk", "up to num_experts " .. count) end
      if one_for_all(config, "num_shared_expert", c.layers, 1) ~= 1 then config:refuse("num_shared_expert", "1") end
      if one_for_all(config, "moe_intermediate_size", c.layers, c.ffn) ~= c.ffn then
        config:refuse("moe_intermediate_size", "intermediate_size " .. c.ffn)
      end
      config:only("use_mixed_mlp_moe", "true", true)
      for _, name in ipairs { "moe_drop_tokens", "moe_layer_num_skipped", "moe_random_routing_dropped_token" } do
        config:value(name)
      end
    end,
  },
  Ernie4_5_MoeForCausalLM = {
    type = "ernie4_5_moe", eps = 1e-5, kv_heads = 4, tie = true, theta = 500000.0, style = "neighbour", positions = 131072,
    fields = { head_dim = false },
    names = with(expert_names {}, with(with({}, shared_names), { router_choice = "mlp.moe_statics.e_score_correction_bias" })),
    set = function(config, c)
      local count, ffn = config:count("moe_num_experts", 1, 1024, 64), config:count("moe_intermediate_size", 1, 2 ^ 20, 1536)
      local shared = config:count("moe_num_shared_experts", 0, 1024, 2)
      local first, last = config:count("moe_layer_start_index", 0, 1024, 1), config:value("moe_layer_end_index")
      local every = config:count("moe_layer_interval", 1, 1024, 1)
      last = (last == nil or last == -1) and c.layers - 1 or config:count("moe_layer_end_index", 0, 1024)
      c.experts = { count = count, k = config:count("moe_k", 1, count, 6), ffn = ffn, shared = shared > 0 and ffn * shared or nil,
                    renorm = true, choice_bias = true, dense = {} }
      for i = 0, c.layers - 1 do
        c.experts.dense[i + 1] = (i + 1) % every ~= 0 or i < first or i > last
      end
      c.left_out = { "model.mtp_" }
      config:only("use_bias", "false: biases are not computed", false)
      config:only("moe_norm_min", "1e-12", 1e-12)
      config:only("moe_gate", "topk", "topk")
      config:only("moe_use_aux_free", "true", true)
      config:only("use_rmsnorm", "true", true)
      for _, name in ipairs { "moe_capacity", "moe_dropout_prob", "num_nextn_predict_layers", "multi_token_pred_lambda" } do
        config:value(name)
      end
    end,
  },
  MiniMaxM2ForCausalLM = {
    type = "minimax_m2", kv_heads = 8, head_dim = 128, theta = 5000000.0, positions = 196608,
    names = { router = "block_sparse_moe.gate", router_choice = "block_sparse_moe.e_score_correction_bias",
              expert_gate = "block_sparse_moe.experts.*.w1", expert_up = "block_sparse_moe.experts.*.w3",
              expert_down = "block_sparse_moe.experts.*.w2", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
    set = function(config, c)
      local e = experts(config, 256, 8, c.ffn)
      e.score, e.choice_bias, e.renorm = "sigmoid", true, true
      c.experts = e
      local at = hf.rope_object(config)
      if config:value("rotary_dim") and not (at and at:value("partial_rotary_factor") or config:value("partial_rotary_factor")) then
        local dim = config:count("rotary_dim", 2, c.head_dim)
        if c.rope.freqs or dim % 2 ~= 0 then config:refuse("rotary_dim", "even, without another kind of RoPE") end
        c.rope.dim = dim
      end
      config:only("use_qk_norm", "true", true)
      config:only("qk_norm_type", "per_layer", "per_layer")
      config:only("scoring_func", "sigmoid", "sigmoid")
      config:only("use_routing_bias", "true", true)
      config:only("shared_intermediate_size", "0: shared experts are not computed", 0)
      for _, at in ipairs(type(config:value("attn_type_list")) == "table" and config:value("attn_type_list") or {}) do
        if at ~= 1 then config:refuse("attn_type_list", "1 for each layer") end
      end
      for _, part in ipairs { "full_attention", "linear_attention", "mlp" } do
        config:only("layernorm_" .. part .. "_beta", "1", 1)
      end
      for _, name in ipairs { "mlp_intermediate_size", "mtp_transformer_layers", "num_mtp_modules", "shared_moe_mode",
                              "use_mtp" } do config:value(name) end
    end,
  },
  MixtralForCausalLM = {
    type = "mixtral", eps = 1e-5, kv_heads = 8, theta = 1000000.0, positions = 131072,
    names = { router = "block_sparse_moe.gate", expert_gate = "block_sparse_moe.experts.*.w1",
              expert_up = "block_sparse_moe.experts.*.w3", expert_down = "block_sparse_moe.experts.*.w2" },
    set = function(config, c)
      fields.same_window(config, c)
      c.experts = experts(config, 8, 2, c.ffn)
      c.experts.renorm = true
    end,
  },
  Glm4MoeForCausalLM = {
    type = "glm4_moe", eps = 1e-5, kv_heads = 8, partial = 0.5, positions = 131072,
    names = with(expert_names {}, shared_names),
    set = function(config, c)
      c.qkv_bias = config:flag("attention_bias", false)
      deepseek_experts(config, c, { first = 1, count = 128, ffn = 1408, k = 8, shared = 1, scale = 1.0, groups = 1,
                                    kept = 1, further = 1 })
      sigmoid_experts(config, c)
      if config:flag("use_qk_norm", false) then
        c.norm_heads, c.names.q_norm, c.names.k_norm = true, "self_attn.q_norm", "self_attn.k_norm"
      end
    end,
  },
  -- The text model of GLM-4.5V
  Glm4vMoeForConditionalGeneration = {
    type = "glm4v_moe_text", eps = 1e-5, kv_heads = 8, partial = 0.5, positions = 65536, mrope = true,
    names = with(expert_names {}, shared_names),
    set = function(config, c)
      c.qkv_bias = config:flag("attention_bias", true)
      deepseek_experts(config, c, { first = 1, count = 128, ffn = 1408, k = 8, shared = 1, scale = 1.0, groups = 1, kept = 1,
                                    further = 1 })
      sigmoid_experts(config, c)
      config:only("use_qk_norm", "false: the class does not read it", false)
    end,
  },
  SolarOpenForCausalLM = {
    type = "solar_open", eps = 1e-5, kv_heads = 8, head_dim = 128, theta = 1000000.0, positions = 131072,
    fields = { ffn = false },
    names = with(expert_names {}, shared_names),
    set = function(config, c)
      c.qkv_bias = config:flag("attention_bias", false)
      deepseek_experts(config, c, { first = 0, count = 128, ffn = 1280, k = 8, shared = 1, scale = 1.0, groups = 1, kept = 1,
                                    further = 0 })
      sigmoid_experts(config, c)
      config:only("first_k_dense_replace", "0: the class does not read it", 0)
      config:only("use_qk_norm", "false: the class does not read it", false)
      if c.rope.dim ~= c.head_dim then config:refuse("partial_rotary_factor", "1, also in rope_parameters") end
      config:value("intermediate_size")                             -- all layers have experts
    end,
  },
  DbrxForCausalLM = {
    type = "dbrx", norm = "layer", eps = 1e-5,
    fields = { hidden = "d_model", layers = "n_layers", heads = "n_heads", ffn = false, kv_heads = false, head_dim = false,
               eps = false, activation = false, positions = "max_seq_len", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.blocks.",
              final_norm = "transformer.norm_f", attention_norm = "norm_attn_norm.norm_1", ffn_norm = "norm_attn_norm.norm_2",
              qkv = "norm_attn_norm.attn.Wqkv", out = "norm_attn_norm.attn.out_proj", router = "ffn.router.layer",
              expert_gate = "ffn.experts.mlp.w1", expert_up = "ffn.experts.mlp.v1", expert_down = "ffn.experts.mlp.w2" },
    set = function(config, c, _, harmless)
      c.norm_bias = false
      dbrx_attention(config, c, config:inside("attn_config") or hf.file(config.path, {}, "attn_config."), harmless)
      dbrx_experts(config, c, config:inside("ffn_config") or hf.file(config.path, {}, "ffn_config."), harmless)
    end,
  },
  -- GLM-4.7 Flash
  Glm4MoeLiteForCausalLM = {
    type = "glm4_moe_lite", eps = 1e-5, head_dim = 64, style = "neighbour", positions = 202752, fields = latent_fields,
    names = with(expert_names {}, with(with({}, shared_names), latent_names)),
    set = function(config, c)
      latent(config, c, { q = 768, kv = 512, nope = 192, v = 256 })
      deepseek_experts(config, c, { first = 1, count = 64, ffn = 1536, k = 4, shared = 1, scale = 1.8, groups = 1, kept = 1,
                                    further = 1 })
      config:only("first_k_dense_replace", "1: the class reads mlp_layer_types", 1)
      sparse_layers(config, c)
      sigmoid_experts(config, c)
      if not config:flag("rope_interleave", true) then c.rope.style = "half" end
      config:only("topk_method", "noaux_tc", "noaux_tc")
      config:only("scoring_func", "sigmoid", "sigmoid")
    end,
  },
  -- without experts
  YoutuForCausalLM = {
    type = "youtu", head_dim = 64, tie = true, style = "neighbour", positions = 131072, fields = latent_fields,
    names = latent_names,
    set = function(config, c)
      latent(config, c)
      if not config:flag("rope_interleave", true) then c.rope.style = "half" end
      config:value("embedding_initializer_range")
    end,
  },
  DeepseekV2ForCausalLM = {
    type = "deepseek_v2", head_dim = 64, style = "neighbour", fields = latent_fields,
    names = with(expert_names {}, with(shared_names, latent_names)),
    set = function(config, c)
      latent(config, c)
      c.ffn_bias = config:flag("mlp_bias", false)
      deepseek_experts(config, c, { first = 0, count = 64, ffn = 1407, shared = 2, scale = 1.0, groups = 1, kept = 1,
                                    further = 0 })
      local in_groups = config:word("topk_method", { greedy = false, group_limited_greedy = true }, "greedy")
      c.experts.shared_bias = c.ffn_bias
      if not in_groups then c.experts.groups, c.experts.groups_kept = 1, 1 end
      config:only("norm_topk_prob", "false: the class does not read it", false)
      config:only("scoring_func", "softmax", "softmax")
    end,
  },
  MiniCPM3ForCausalLM = {
    type = "minicpm3", eps = 1e-5, head_dim = 32, tie = true, positions = 32768, fields = latent_fields, names = latent_names,
    set = function(config, c)
      latent(config, c, { q = 768, kv = 256, nope = 64, v = c.hidden // c.heads })
      fields.minicpm(config, c, { embedding = 12, depth = 1.4, base = 256 })
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  DeepseekV3ForCausalLM = {
    type = "deepseek_v3", head_dim = 64, style = "neighbour", positions = 4096, fields = latent_fields,
    names = with(expert_names {}, with(shared_names, latent_names)),
    set = function(config, c)
      latent(config, c)
      deepseek_experts(config, c, { first = 3, count = 256, ffn = 2048, k = 8, shared = 1, scale = 2.5, groups = 8,
                                    kept = 4, further = 1 })
      sigmoid_experts(config, c)
      if not config:flag("rope_interleave", true) then c.rope.style = "half" end
      config:only("topk_method", "noaux_tc", "noaux_tc")
      config:only("scoring_func", "sigmoid", "sigmoid")
    end,
  },
  DeepseekV32ForCausalLM = {
    type = "deepseek_v32", head_dim = 64, style = "neighbour", positions = 163840, fields = latent_fields,
    names = with(expert_names {}, with(with({}, shared_names), latent_names)),
    set = function(config, c, positions)
      chosen_keys(config, c, positions, { q = 1536, kv = 512, nope = 128, v = 128, first = 3, count = 256, ffn = 2048, k = 8,
                                          shared = 1, scale = 2.5, groups = 8, kept = 4, further = 1 })
      config:only("mlp_bias", "false: the class does not read it", false)
    end,
  },
  -- GLM-5
  GlmMoeDsaForCausalLM = {
    type = "glm_moe_dsa", eps = 1e-5, head_dim = 64, style = "neighbour", positions = 202752, fields = latent_fields,
    names = with(expert_names {}, with(with({}, shared_names), latent_names)),
    set = function(config, c, positions)
      chosen_keys(config, c, positions, { q = 2048, kv = 512, nope = 192, v = 256, first = 3, count = 256, ffn = 2048, k = 8,
                                          shared = 1, scale = 2.5, groups = 1, kept = 1, further = 1 })
      config:only("mlp_bias", "false: the class does not read it", false)
      config:only("moe_layer_freq", "1", 1)
    end,
  },
  -- Mistral 4: the rotated part of a head is that of rope_parameters
  Mistral4ForCausalLM = {
    type = "mistral4", head_dim = 64, style = "neighbour", positions = 1048576, fields = latent_fields,
    rope = { type = "yarn", rope_theta = 10000.0, factor = 128.0, original_max_position_embeddings = 8192, beta_fast = 32.0,
             beta_slow = 1.0, mscale_all_dim = 1.0, mscale = 1.0, llama_4_scaling_beta = 0.1 },
    rope_fields = { "llama_4_scaling_beta", "max_position_embeddings" },
    names = fields.with(expert_names {}, shared_names, latent_names,
                        { expert_gate = false, expert_up = false, expert_gate_up = "mlp.experts.gate_up_proj",
                          expert_down = "mlp.experts.down_proj" }),
    before = function(config)
      local at = hf.rope_object(config)
      if not at then return end
      local rotated, nope = config:count("qk_rope_head_dim", 1, 1024, 64), config:count("qk_nope_head_dim", 1, 1024, 64)
      at:only("partial_rotary_factor", "qk_rope_head_dim of the elements of a head", rotated / (rotated + nope))
      at.values.partial_rotary_factor = nil
    end,
    set = function(config, c)
      local at = hf.rope_object(config)
      local by = at:number("llama_4_scaling_beta", 0, 1e6, 0.0)
      local every = at:count("original_max_position_embeddings", 1, 2 ^ 30)
      latent(config, c, { q = 1024, kv = 256, nope = 64, v = 128, whole = true, q_scale = by > 0 and { by = by, every = every } or nil })
      deepseek_experts(config, c, { first = 0, count = 128, ffn = 2048, k = 4, shared = 1, scale = 1.0, groups = 1, kept = 1,
                                    further = 0 })
      c.experts.group_by, c.experts.renorm, c.experts.suffix = "sum2", config:flag("norm_topk_prob", true), ""
      if not config:flag("rope_interleave", true) then c.rope.style = "half" end
    end,
  },
  -- Windowed layers have twice the heads of keys and values, and sinks; values are shorter than keys
  MiMoV2FlashForCausalLM = {
    type = "mimo_v2_flash", eps = 1e-5, kv_heads = 4, head_dim = 192, positions = 131072, fields = { theta = false },
    rope = { full_attention = { rope_theta = 5000000.0 }, sliding_attention = { rope_theta = 10000.0 } },
    names = with(expert_names {}, { router_choice = shared_names.router_choice }),
    set = function(config, c, positions)
      c.qkv_bias = config:flag("attention_bias", false)
      c.rope, c.rope_windowed = hf.ropes_by_kind(config, c.head_dim, positions, { theta = 10000.0, partial = 0.334 })
      local size = fields.window(config, 129)
      if config:value("sliding_window_size") then size = config:count("sliding_window_size", 1, 2 ^ 24) + 1 end
      if size == 0 then config:refuse("sliding_window", "a number") end
      c.windows = fields.windows(config, c.layers, size, function(i) return i > 0 and (i + 1) % 6 ~= 0 end)
      c.own = {}
      for i = 1, c.layers do
        local near = c.windows[i] > 0
        c.own[i] = near and { kv_heads = 2 * c.kv_heads, names = setmetatable({ sinks = "self_attn.attention_sink_bias" },
                                                                              { __index = c.names }) } or {}
      end
      local v = config:count("v_head_dim", 1, c.head_dim, math.min(128, c.head_dim))
      if v < c.head_dim then c.v_head_dim = v end
      if config.values.attention_value_scale == nil then c.values_scale = 0.707
      else c.values_scale = config:value("attention_value_scale") and config:number("attention_value_scale", 1e-6, 1e6) or 1 end
      if config.values.routed_scaling_factor ~= nil and config:value("routed_scaling_factor") == nil then
        config.values.routed_scaling_factor = 1.0
      end
      deepseek_experts(config, c, { first = 1, count = 256, ffn = 2048, k = 8, shared = 1, scale = 1.0, groups = 1, kept = 1,
                                    further = 0 })
      config:only("first_k_dense_replace", "1: the class reads mlp_layer_types", 1)
      config:value("n_shared_experts")                              -- the class has none
      c.experts.shared = nil
      sparse_layers(config, c)
      sigmoid_experts(config, c)
      mimo_fields(config, c)
      table.insert(c.left_out, "model.mtp.")
      config:only("topk_method", "noaux_tc", "noaux_tc")
      config:only("scoring_func", "sigmoid", "sigmoid")
    end,
  },
  -- Phi-3.5-MoE
  PhimoeForCausalLM = {
    type = "phimoe", norm = "layer", eps = 1e-5, kv_heads = 8, theta = 1000000.0, positions = 131072,
    rope_fields = { "short_mscale", "long_mscale" },
    names = { router = "block_sparse_moe.gate", expert_gate = "block_sparse_moe.experts.*.w1",
              expert_up = "block_sparse_moe.experts.*.w3", expert_down = "block_sparse_moe.experts.*.w2" },
    set = function(config, c, positions)
      fields.same_bias(config, c, "attention_bias")
      fields.same_window(config, c)
      c.head_bias = config:flag("lm_head_bias", false)
      c.experts = experts(config, 16, 2, c.ffn)
      c.experts.order, c.experts.near = "topk_softmax", 2 * config:number("router_jitter_noise", 1e-9, 1, 0.01)
      config:only("num_experts_per_tok", "2", 2)
      config:value("input_jitter_noise")
      local at = hf.rope_object(config)
      if at and (at:value("rope_type") or at:value("type") or "default") ~= "default" then
        local original = (at:value("original_max_position_embeddings") and at or config)
          :count("original_max_position_embeddings", 1, 2 ^ 30, positions)
        c.rope.amplitude = at:number(hf.context(positions) > original and "long_mscale" or "short_mscale", 1e-6, 1e6)
        c.rope.freqs = c.rope.freqs or config:refuse("rope_scaling", "longrope")
      end
    end,
  },
  -- Hunyuan 3
  HYV3ForCausalLM = {
    type = "hy_v3", eps = 1e-5, kv_heads = 8, head_dim = 128, theta = 11158840.0, positions = 131072,
    names = with(expert_names {
      q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm", router_choice = "mlp.expert_bias",
      shared_gate = "mlp.shared_mlp.gate_proj", shared_up = "mlp.shared_mlp.up_proj", shared_down = "mlp.shared_mlp.down_proj",
    }, { router = "mlp.router.gate" }),
    set = function(config, c)
      c.norm_heads = true
      fields.same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      local e = experts(config, 192, 8, config:count("moe_intermediate_size", 1, 2 ^ 20, 1536))
      e.shared, e.shared_bias = e.ffn * config:count("num_shared_experts", 1, 1024, 1), c.ffn_bias
      e.score, e.choice_bias, e.renorm = "sigmoid", true, true
      e.scale, e.dense = config:number("router_scaling_factor", 1e-6, 1e6, 2.826), {}
      for i = 1, c.layers do e.dense[i] = i == 1 end
      c.experts = e
      sparse_layers(config, c)
      c.left_out = { "model.layers." .. c.layers .. "." }           -- a layer that predicts further tokens
      config:value("enable_moe_fp32_combine")
    end,
  },
  -- A.X K1: DeepSeek V3 with a norm of what layers with experts add, which files have of the others, too
  AXK1ForCausalLM = {
    type = "axk1", head_dim = 64, style = "neighbour", positions = 32768, fields = latent_fields,
    names = with(expert_names { after_ffn = "post_mlp_layernorm" }, with(with({}, shared_names), latent_names)),
    set = function(config, c)
      latent(config, c)
      deepseek_experts(config, c, { first = 1, count = 192, ffn = 2048, k = 8, shared = 1, scale = 2.5, groups = 8,
                                    kept = 4, further = 0 })
      sparse_layers(config, c)
      sigmoid_experts(config, c)
      c.own, c.unused = {}, { table.unpack(c.unused) }
      for i = 1, c.layers do
        local layer = "model.layers." .. i - 1 .. "."
        if c.experts.dense[i] then
          c.own[i] = { names = setmetatable({ after_ffn = false }, { __index = c.names }) }
          table.insert(c.unused, layer .. "post_mlp_layernorm.weight")
        elseif config:stored(layer .. "mlp.gate.e_score_correction_bias") == false then
          c.experts.choice_bias = false
        end
        c.own[i] = c.own[i] or {}
      end
      if not config:flag("rope_interleave", true) then c.rope.style = "half" end
      config:only("topk_method", "noaux_tc", "noaux_tc")
      config:only("scoring_func", "sigmoid", "sigmoid")
    end,
  },
  -- Mellum 2
  MellumForCausalLM = {
    type = "mellum", kv_heads = 4, head_dim = 128, positions = 131072, fields = { theta = false },
    rope = { full_attention = { rope_type = "default", rope_theta = 500000.0 },
             sliding_attention = { rope_type = "default", rope_theta = 10000.0 } },
    names = expert_names { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" },
    set = function(config, c, positions)
      c.norm_heads = true
      fields.same_bias(config, c, "attention_bias")
      c.rope, c.rope_windowed = hf.two_ropes(config, c.head_dim, positions)
      c.windows = fields.windows(config, c.layers, fields.window(config, 1024), function() return false end)
      c.experts = experts(config, 64, 8, config:count("moe_intermediate_size", 1, 2 ^ 20, 896))
      c.experts.renorm, c.experts.dense = config:flag("norm_topk_prob", true), {}
      for i = 1, c.layers do c.experts.dense[i] = false end
      sparse_layers(config, c)
      c.left_out = { "mtp." }
      for _, name in ipairs { "num_mtp_layers", "num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types" } do
        config:value(name)
      end
    end,
  },
  -- Trinity of Arcee
  AfmoeForCausalLM = {
    type = "afmoe", eps = 1e-5, head_dim = 128, positions = 16384,
    names = with(expert_names {
      attention_gate = "self_attn.gate_proj", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm",
      after_attention = "post_attention_layernorm", ffn_norm = "pre_mlp_layernorm", after_ffn = "post_mlp_layernorm",
    }, with(with({}, shared_names), { router = "mlp.router.gate", router_choice = "mlp.expert_bias" })),
    set = function(config, c)
      c.norm_heads = true
      fields.same_bias(config, c, "attention_bias")
      local every, size = config:count("global_attn_every_n_layers", 1, 1024, 4), fields.window(config, 1024)
      if size == 0 then config:refuse("sliding_window", "a number: layers that have one have RoPE") end
      c.windows = fields.windows(config, c.layers, size, function(i) return (i + 1) % every ~= 0 end)
      for i = 1, c.layers do c.unrotated[i] = c.windows[i] == 0 end
      if config:flag("mup_enabled", false) then c.embedding_scale = c.hidden ^ 0.5 end
      local e = experts(config, 64, 6, config:count("moe_intermediate_size", 1, 2 ^ 20, 1408))
      local first = config:count("num_dense_layers", 0, 1024, 1)
      e.shared = e.ffn * config:count("num_shared_experts", 1, 1024, 2)
      e.score, e.choice_bias, e.renorm = "sigmoid", true, true
      e.scale, e.dense = config:number("route_scale", 1e-6, 1e6, 1.0), {}
      for i = 1, c.layers do e.dense[i] = i <= first end
      c.experts = e
      config:only("score_func", "sigmoid", "sigmoid")
      config:only("route_norm", "true", true)
      for _, name in ipairs { "n_group", "topk_group", "num_expert_groups", "num_limited_groups" } do config:only(name, "1", 1) end
      for _, name in ipairs { "load_balance_coeff", "use_grouped_mm" } do config:value(name) end
    end,
  },
  GptOssForCausalLM = {
    type = "gpt_oss", eps = 1e-5, kv_heads = 8, head_dim = 64, theta = 150000.0, positions = 131072,
    fields = { activation = false }, names = gpt_oss_names,
    set = function(config, c)
      config:value("hidden_act") -- the class does not read it
      config:value("initial_context_length")
      if not hf.rope_object(config) then config:refuse("rope_scaling", "an object") end
      c.windows = fields.windows(config, c.layers, fields.window(config, 128), function(i) return i % 2 == 0 end)
      gpt_oss(config, c)
      config:only("experts_per_token", "the value of num_experts_per_tok", c.experts.k)
      c.experts.interleaved = true
      c.experts.alpha = config:number("swiglu_alpha", 1e-6, 1e6, 1.702)
      c.experts.limit = config:number("swiglu_limit", 1e-6, 1e6, 7.0)
    end,
  },
  OpenAIPrivacyFilter = {                                           -- an encoder: there is no class that generates
    type = "openai_privacy_filter", both = true, eps = 1e-5, kv_heads = 2, head_dim = 64, theta = 150000.0, style = "neighbour",
    positions = 131072, fields = { activation = false },
    rope = { rope_type = "yarn", rope_theta = 150000.0, factor = 32.0, beta_fast = 32.0, beta_slow = 1.0, truncate = false,
             original_max_position_embeddings = 4096 },
    names = gpt_oss_names,
    set = function(config, c)
      c.windows = fields.windows(config, c.layers, config:count("sliding_window", 1, 2 ^ 24, 128), function() return true end)
      gpt_oss(config, c)
      c.experts.alpha, c.experts.limit = 1.702, 7.0
    end,
  },
  Llama4ForCausalLM = {
    type = "llama4_text", eps = 1e-5, kv_heads = 8, head_dim = 128, theta = 500000.0, style = "neighbour",
    positions = 131072,
    names = { gate = "feed_forward.gate_proj", up = "feed_forward.up_proj", down = "feed_forward.down_proj",
              router = "feed_forward.router", expert_gate_up = "feed_forward.experts.gate_up_proj",
              expert_down = "feed_forward.experts.down_proj", shared_gate = "feed_forward.shared_expert.gate_proj",
              shared_up = "feed_forward.shared_expert.up_proj", shared_down = "feed_forward.shared_expert.down_proj" },
    set = function(config, c)
      fields.same_bias(config, c, "attention_bias")
      chunked(config, c)
      tempered(config, c)
      interleaved_experts(config, c)
      c.norm_rotated = config:flag("use_qk_norm", true)
      config:value("for_llm_compressor")
    end,
  },
}

return classes
