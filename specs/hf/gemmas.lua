-- gemmas.lua - as decoders.lua, for Gemma.
local hf = require "lib.hf"
local ropes = require "lib.rope"
local altup = require "lib.altup"
local fields = require "lib.fields"
local windows, window, cap, same_bias, with =
  fields.windows, fields.window, fields.cap, fields.same_bias, fields.with

-- Gemma's first files say gelu for its tanh form.
local tanh_activations = {}
for name, kind in pairs(hf.activations) do tanh_activations[name] = name == "gelu" and "gelu_tanh" or kind end

-- RMSNorm with a gain of 1 + w; embeddings are multiplied by sqrt(hidden) as their type holds it.
local function gemma(config, c)
  same_bias(config, c, "attention_bias")
  c.norm_plus = not config.gguf -- GGUF has 1 + w
  c.embedding_scale = hf.rounded(config, c.hidden ^ 0.5)
end

local function one_way(config) config:only("use_bidirectional_attention", "false: its masks are not computed", false) end

-- EmbeddingGemma: a token sees all of its text, in windowed layers half of the window on either side.
local function both_ways(config, c, window)
  if not config:flag("use_bidirectional_attention", false) then return window end
  if not c.attention then config:refuse("use_bidirectional_attention", "false for a model that generates text") end
  if window < 2 then config:refuse("sliding_window", "2 or more with use_bidirectional_attention") end
  c.attention = "full"
  return window // 2
end

local function gemma2(config, c)
  gemma(config, c)
  one_way(config)
  config:value("hidden_act") -- hidden_activation is read
  config:only("sliding_window_size", "the value of sliding_window", window(config, 4096))
  c.scale = config:count("query_pre_attn_scalar", 1, 2 ^ 20, 256) ^ -0.5
  c.windows = windows(config, c.layers, window(config, 4096), function(i) return i % 2 == 0 end)
  c.scores_cap = cap(config, "attn_logit_softcapping", 50.0)
  c.logits_cap = cap(config, "final_logit_softcapping", 30.0)
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

local gemma_norms = { after_attention = "post_attention_layernorm", ffn_norm = "pre_feedforward_layernorm",
                      after_ffn = "post_feedforward_layernorm", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" }
local layer_inputs = { layer_embedding = "model.embed_tokens_per_layer", layer_projection = "model.per_layer_model_projection",
                       layer_projection_norm = "model.per_layer_projection_norm", layer_gate = "per_layer_input_gate",
                       layer_out = "per_layer_projection", after_layer = "post_per_layer_input_norm" }

return {
  GemmaForCausalLM = {
    type = "gemma", kv_heads = 16, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 8192,
    activations = tanh_activations,
    set = function(config, c)
      gemma(config, c)
      one_way(config)
      config:only("hidden_activation", "gelu_pytorch_tanh: hidden_act is read", "gelu_pytorch_tanh")
    end,
  },
  Gemma2ForCausalLM = {
    type = "gemma2", kv_heads = 4, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 8192,
    fields = { activation = "hidden_activation" },
    names = { after_attention = "post_attention_layernorm", ffn_norm = "pre_feedforward_layernorm",
              after_ffn = "post_feedforward_layernorm" },
    set = gemma2,
  },
  -- Gemma 2 without norms behind its blocks
  VaultGemmaForCausalLM = {
    type = "vaultgemma", kv_heads = 4, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true, positions = 8192,
    fields = { activation = "hidden_activation" },
    names = { ffn_norm = "pre_feedforward_layernorm" },
    set = gemma2,
  },
  Gemma3ForCausalLM = {
    type = "gemma3_text", text = "Gemma3Text", kv_heads = 4, head_dim = 256, activation = "gelu_pytorch_tanh", tie = true,
    positions = 131072,
    fields = { activation = "hidden_activation", theta = false },
    names = with(gemma_norms),
    set = function(config, c, positions)
      gemma(config, c)
      config:value("hidden_act") -- hidden_activation is read
      c.norm_heads = true
      c.scale = config:count("query_pre_attn_scalar", 1, 2 ^ 20, 256) ^ -0.5
      local pattern = config:count("sliding_window_pattern", 1, 1024, config:count("_sliding_window_pattern", 1, 1024, 6))
      local size = both_ways(config, c, window(config, 4096))
      c.windows = windows(config, c.layers, size, function(i) return (i + 1) % pattern ~= 0 end)
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
}
