-- fields.lua - fields of config.json that decoders of several classes have.
local hf = require "lib.hf"
local ropes = require "lib.rope"

local fields = {}

-- A layer's window by layer_types; without that list `windowed(i)` says whether layer i (from 0) has one.
function fields.windows(config, layers, window, windowed)
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
function fields.window(config, missing)
  if config.values.sliding_window == nil then return missing end
  return config:count("sliding_window", 0, 2 ^ 24, 0)
end

function fields.same_window(config, c)
  c.windows = fields.windows(config, c.layers, fields.window(config, 0), function() return true end)
end

-- A number that null turns off: 0; a missing field is the class's default.
function fields.cap(config, key, missing)
  if config.values[key] == nil then return missing end
  return config:value(key) and config:number(key, 1e-6, 2 ^ 20) or nil
end

-- The bound of queries, keys and values; nil: there is none.
function fields.clip(config)
  local bound = config:value("clip_qkv") and config:number("clip_qkv", 0, 1e6) or 0
  return bound > 0 and bound or nil
end

function fields.same_bias(config, c, key, missing)
  c.qkv_bias = config:flag(key, missing or false)
  c.out_bias = c.qkv_bias
end

function fields.granite(config, c)
  config:only("normalization_function", "rmsnorm", "rmsnorm")
  c.qkv_bias = config:flag("attention_bias", false)
  c.out_bias = c.qkv_bias
  c.scale = config:number("attention_multiplier", 1e-6, 1024, 1.0)
  c.embedding_scale = config:number("embedding_multiplier", 1e-6, 2 ^ 20, 1.0)
  c.residual_scale = config:number("residual_multiplier", 1e-6, 2 ^ 20, 1.0)
  c.logits_scale = 1 / config:number("logits_scaling", 1e-6, 1e6, 1.0)
end

-- Granite with windows: a sink for each head, and a theta of their own for each layer, 0 for one without RoPE.
function fields.granite_windows(config, c, positions)
  local thetas, at = config:value("layer_rope_theta"), hf.rope_object(config)
  c.windows = fields.windows(config, c.layers, fields.window(config, 128), function(i) return i % 4 ~= 0 end)
  if thetas == nil then return end
  c.own = {}
  for i = 1, c.layers do
    local theta = type(thetas) == "table" and #thetas == c.layers and thetas[i] or nil
    if not math.type(theta) or theta < 0 then
      config:refuse("layer_rope_theta", "a list of numbers of 0 or more, one for each layer")
    end
    local values = fields.with(at and at.values or {}, { rope_theta = theta, partial_rotary_factor = c.rope.dim / c.head_dim })
    c.unrotated[i] = theta == 0
    c.own[i] = theta > 0 and
      { rope = hf.rope(hf.file(config.path, { rope_parameters = values }), c.head_dim, positions, nil, {}) } or {}
  end
end

-- Cohere: one LayerNorm without bias before attention and feed-forward.
function fields.cohere(config, c)
  fields.same_bias(config, c, "attention_bias")
  c.norm_bias, c.parallel = false, true
  c.logits_scale = config:number("logit_scale", 1e-6, 2 ^ 20, 0.0625)
end

-- EXAONE 4: layers with a window have RoPE, the others none if there are any with a window.
function fields.exaone_windows(config, c)
  local size, pattern = fields.window(config, 4096), 4
  if type(config:value("sliding_window_pattern")) ~= "string" or not config:value("layer_types") then
    pattern = config:count("sliding_window_pattern", size > 0 and 1 or 0, 1024, 4) -- "LLLG" says what layer_types says
  end
  c.windows = fields.windows(config, c.layers, size, function(i) return size > 0 and (i + 1) % pattern ~= 0 end)
  for i = 1, c.layers do c.unrotated[i] = size > 0 and c.windows[i] == 0 end
  c.norm_heads = true
end

-- LLaMA with multipliers; null turns one off. own: the class's values.
function fields.minicpm(config, c, own)
  local function number(key, missing, null)
    if config.values[key] ~= nil and config:value(key) == nil then return null end
    return config:number(key, 1e-6, 2 ^ 20, missing)
  end
  c.embedding_scale = config:number("scale_emb", 1e-6, 2 ^ 20, own.embedding)
  c.residual_scale = number("scale_depth", own.depth, c.layers ^ 0.5) * c.layers ^ -0.5
  c.logits_scale = number("dim_model_base", own.base, c.hidden) / c.hidden
  config:only("pretraining_tp", "1", 1)
end

-- Heads are normed behind RoPE. "dynamic" with alpha is a larger theta, whatever the length of the text.
fields.hunyuan_rope = { "alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "factor" }
function fields.hunyuan(config, c)
  local at = hf.rope_object(config)
  fields.same_bias(config, c, "attention_bias")
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

-- Bounds of the time step, nil: none. Infinity is an object in files of transformers 5, and else the largest number there is.
function fields.time_steps(config)
  local list = config:value("time_step_limit")
  if list == nil then return nil, nil end
  local low, high = type(list) == "table" and list[1], type(list) == "table" and list[2]
  if type(high) == "table" and high.__float__ == "Infinity" then high = math.huge end
  if not math.type(low) or not math.type(high) or low < 0 or high <= low then
    config:refuse("time_step_limit", "a list of two numbers, 0 or more and a larger one")
  end
  return low > 0 and low or nil, high < 1e300 and high or nil
end

-- All that tables have, in one.
function fields.with(...)
  local made = {}
  for _, part in ipairs { ... } do
    for key, name in pairs(part) do made[key] = name end
  end
  return made
end

return fields
