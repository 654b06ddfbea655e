-- decoder.lua - decoders that differ in their parts: norms and their places, biases, fused matrices, positions,
-- windows, multipliers. hf/decoders.lua says which parts an architecture of Hugging Face has.
--
-- `names` has the names of the tensors, without ".weight" and ".bias". A name that is missing or false is a part that
-- the model does not have.
--
-- T tokens of a step, S sequences, D hidden, H heads, G kv_heads, E head_dim, F ffn, V vocab.
local nn = require "nn"
local config = require "lib.config"
local altup = require "lib.altup"
local latent = require "lib.latent"
local mixture = require "lib.mixture"
local recurrent = require "lib.recurrent"

local fields = {
  vocab = config.count(2, 2 ^ 24),
  hidden = config.count(1, 2 ^ 17),
  layers = config.count(1, 1024),
  heads = config.count(1, 1024),
  kv_heads = config.count(1, 1024),
  head_dim = config.count(1, 1024),
  ffn = config.count(1, 2 ^ 20),
  experts = config.options({}),                                     -- see lib/mixture.lua
  latent = config.options({}),                                      -- see lib/latent.lua
  mixers = config.options({}),                                      -- by layer, in place of attention: conv, delta, mamba or selective of
                                                                    -- lib/recurrent.lua; "both": mamba and attention, added
  conv = config.options({}), delta = config.options({}), mamba = config.options({}), selective = config.options({}),
  beside = config.options({}),                                      -- of "both": factors attention_in, attention_out, mamba_out
  only = config.options({}),                                        -- by layer its only part: "mixer" or "ffn"; else both
  absorbed = config.flag(true),                                     -- latent attention in the absorbed form, where that is shorter
  own = config.options({}),                                         -- by layer: a table of fields that it has otherwise, and
                                                                    -- shared: the layer (from 0) whose keys and values it reads
  names = config.options(),
  norm = config.word { "rms", "layer" },
  norm_eps = config.number(0, 1),
  norm_gain = config.flag(true),
  norm_bias = config.flag(true),                                    -- of "layer"
  norm_plus = config.flag(false),                                   -- the gain is 1 + the tensor
  activation = config.word(config.activations),
  parallel = config.flag(false),                                    -- h + attention + feed-forward, both of h
  normed_residual = config.number(-1, 2 ^ 20, 0),                   -- so many times the block's normed input is what it adds to; 0: h
  rope = config.options({}),                                        -- see nn.rope; not with learned positions
  rope_twice = config.flag(false),                                  -- halves of a head turn within the prefix, and behind it
  rope_windowed = config.options({}),                               -- of layers with a window; empty: as the others
  unrotated = config.options({}),                                   -- by layer: true if it has no RoPE
  positions = config.count(0, 2 ^ 20, 0),                           -- rows of learned positions
  sinusoid = config.options({}),                                    -- of positions that are not learned: see nn.sinusoid
  first_position = config.count(0, 1024, 0),
  embedding_width = config.count(0, 2 ^ 17, 0),                     -- of names.embedding, with embedding_in and _out; 0: hidden
  scale = config.number(0, 1024, 1),                                -- scores * scale
  scores_cap = config.number(0, 2 ^ 20, 0),                         -- cap * tanh(score / cap); 0: none
  alibi = config.flag(false),                                       -- slopes in place of rope
  alibi_most = config.number(0, 1024, 8),                           -- the slopes are 2 ^ (-alibi_most * part of heads)
  alibi_rounded = config.flag(false),                               -- as Falcon has them
  clip_qkv = config.number(0, 2 ^ 20, 0),                           -- bound of queries, keys and values; 0: none
  clip_first = config.flag(false),                                  -- before they are normed
  windows = config.options({}),                                     -- keys that a token sees, by layer; 0: all
  chunks = config.options({}),                                      -- runs of keys of which it sees its own, likewise
  q_scales = config.options({}),                                    -- of queries: nn.scale_by_position, or false, likewise
  prefix_tail = config.count(-1, 2 ^ 20, -1),                       -- a prompt's last tokens that others do not see; -1: no prefix
  -- cache: a decoder; else an encoder, of whose text a token sees the part up to itself (causal) or all (full)
  attention = config.word({ "cache", "causal", "full" }, "cache"),
  norm_heads = config.flag(false),                                  -- names.q_norm, k_norm: of each head, not of all
  norm_each = config.word({ "", "matrix", "stack" }, ""),           -- each head has its own gain: rows of a matrix; tensors norms.*
  norm_rotated = config.flag(false),                                -- rotated heads are normed; without names.q_norm without gain
  norm_values = config.flag(false),                                 -- heads of values are normed, without gain
  v_head_dim = config.count(0, 1024, 0),                            -- elements of a value, fewer than of a key; 0: head_dim
  values_scale = config.number(0, 2 ^ 20, 1),                       -- values * scale
  values_of_keys = config.flag(false),                              -- the product that gives keys gives values, too
  layer_width = config.count(0, 2 ^ 16, 0),                         -- of what a layer reads of the tokens' embeddings beside h
  layer_rows = config.count(0, 2 ^ 24, 0),                          -- of the table for these, for all layers
  layer_scale = config.number(0, 2 ^ 20, 1),                        -- of the rows of that table
  altup = config.options({}),                                       -- several rows of a token: see lib/altup.lua
  laurel = config.count(0, 2 ^ 16, 0),                              -- rank of what is added to a block's input; 0: nothing is
  ffn_cut = config.number(-64, 64, -64),                            -- gates count from so many deviations above their mean; -64: all
  groups = config.count(1, 1024, 1),                                -- blocks of heads in names.qkv, each q, k, v
  values_first = config.flag(false),                                -- each q, v, k
  qkv_bias = config.flag(false),
  out_bias = config.flag(false),
  ffn_bias = config.flag(false),
  head_bias = config.flag(false),
  query_gate = config.flag(false),                                  -- of names.q a head's second half is a gate of its result
  gate_scale = config.number(0, 2 ^ 20, 1),                         -- of a feed-forward's gate, before the activation
  ffn_scale = config.number(0, 2 ^ 20, 1),                          -- of its result
  head_unit = config.flag(false),                                   -- rows of the head's matrix are divided by their lengths
  embedding_scale = config.number(0, 2 ^ 20, 1),
  residual_scale = config.number(0, 2 ^ 20, 1),                     -- of what a block adds
  logits_scale = config.number(0, 2 ^ 20, 1),
  logits_cap = config.number(0, 2 ^ 20, 0),                         -- cap * tanh(logit / cap); 0: none
  tie_embeddings = config.flag(false),
  head_dense_bias = config.flag(false),                             -- of names.head_dense, a linear before the head with an
  head_activation = config.word(config.activations, "gelu_erf"),    -- activation and a norm, names.head_norm
  source = config.options({}),                                      -- fields of the encoder of a model that reads a source
  classes = config.count(0, 2 ^ 20, 0),                             -- of an encoder: rows of names.classifier; 0: none
  classes_of = config.word({ "text", "first", "mean", "tokens" }, "text"), -- of its last token, first one, of all, or of each.
                                                                    -- With names.dense a linear and gelu are before them
  dense_first = config.flag(false),                                 -- before the mean is taken
  unused = config.options({}),                                      -- tensors that older checkpoints have
  left_out = config.options({}),                                    -- beginnings of names that are not read
}

-- Weight and bias of a linear layer.
local function weights(name, outputs, inputs, bias)
  return nn.weight(name .. ".weight", { outputs, inputs }), bias and nn.weight(name .. ".bias", { outputs })
end

local function project(x, name, outputs, bias)
  return nn.linear(x, weights(name, outputs, nn.width(x), bias))
end

local function norm(c, x, name)
  local d = nn.width(x)
  local g = c.norm_gain and nn.weight(name .. ".weight", { d })
  if c.norm_plus then g = nn.plus(g, 1) end
  if c.norm == "rms" then return nn.rmsnorm(x, g, c.norm_eps) end
  return nn.layernorm(x, g, c.norm_bias and nn.weight(name .. ".bias", { d }), c.norm_eps)
end

-- x [T, H, E], each head normed.
local function norm_of_heads(c, x, name, heads)
  if c.norm_each == "" then return norm(c, x, name) end
  if c.norm_each == "matrix" then
    return nn.layernorm(x, nn.weight(name .. ".weight", { heads, c.head_dim }), nil, c.norm_eps)
  end
  local gain = nn.stack(name .. ".norms.*.weight", { heads, c.head_dim }) -- [H*E]
  return nn.split_heads(nn.join_heads(nn.layernorm(x, nil, nil, c.norm_eps)) * gain, heads)
end

-- q [T, H*E], k and v [T, G*E]; of a layer that reads those of another one q alone. With query_gate its gate, too
local function projections(c, x, name)
  local q, kv, n = c.heads * c.head_dim, c.kv_heads * c.head_dim, c.names
  local of_v = c.v_head_dim > 0 and c.kv_heads * c.v_head_dim or kv
  if c.shared then return project(x, name .. n.q, q, c.qkv_bias) end
  if c.values_of_keys then
    local k = project(x, name .. n.k, kv, c.qkv_bias)
    return project(x, name .. n.q, q, c.qkv_bias), k, k
  end
  if c.query_gate then
    local w, b = weights(name .. n.q, 2 * q, nn.width(x), c.qkv_bias)
    local function half(from)
      return nn.linear(x, nn.rows(w, from, c.head_dim, 2 * c.head_dim), b and nn.rows(b, from, c.head_dim, 2 * c.head_dim))
    end
    return half(0), project(x, name .. n.k, kv, c.qkv_bias), project(x, name .. n.v, kv, c.qkv_bias), half(c.head_dim)
  end
  if not n.qkv then
    return project(x, name .. n.q, q, c.qkv_bias), project(x, name .. n.k, kv, c.qkv_bias),
           project(x, name .. n.v, of_v, c.qkv_bias)
  end
  local w, b = weights(name .. n.qkv, q + 2 * kv, c.hidden, c.qkv_bias)
  local block, of_q, of_kv = (q + 2 * kv) // c.groups, q // c.groups, kv // c.groups
  local function part(from, count)
    local every = c.groups > 1 and block or nil
    return nn.linear(x, nn.rows(w, from, count, every), b and nn.rows(b, from, count, every))
  end
  local k, v = of_q, of_q + of_kv
  if c.values_first then k, v = v, k end
  return part(0, of_q), part(k, of_kv), part(v, of_kv)
end

local function clipped(c, x)
  return c.clip_qkv > 0 and nn.clamp(x, -c.clip_qkv, c.clip_qkv) or x
end

-- q, k [T, H, E]: the first half of a head turns with positions within the prefix, the other with those behind it.
local function rotate_twice(c, x)
  local half, options = c.head_dim // 2, {}
  for key, value in pairs(c.rope) do options[key] = value end
  options.tail = c.prefix_tail
  local function turned(from, count)
    options.count = count
    return nn.rope(nn.slice(x, from, half), options)
  end
  return nn.join(turned(0, "prefix"), turned(half, "rest"))
end

local function attention(c, x, name, layer)                         -- x [T, D]
  local q, k, v, gate = projections(c, x, name)
  local function normed(of_heads)
    if not c.names.q_norm or c.norm_heads ~= of_heads then return q, k end
    if not of_heads then return norm(c, q, name .. c.names.q_norm), k and norm(c, k, name .. c.names.k_norm) end
    return norm_of_heads(c, q, name .. c.names.q_norm, c.heads),
           k and norm_of_heads(c, k, name .. c.names.k_norm, c.kv_heads)
  end
  if c.clip_first then q, k, v = clipped(c, q), clipped(c, k), clipped(c, v) end
  q, k = normed(false)
  if c.shared then q = nn.split_heads(clipped(c, q), c.heads)
  else
    if not c.clip_first then q, k, v = clipped(c, q), clipped(c, k), clipped(c, v) end
    q, k, v = nn.split_heads(q, c.heads), nn.split_heads(k, c.kv_heads), nn.split_heads(v, c.kv_heads)
  end
  if c.v_head_dim > 0 then v = nn.join(v, nn.slice(k, 0, c.head_dim - c.v_head_dim)) end -- as long as a key; nobody reads the end
  if not c.norm_rotated then q, k = normed(true) end
  if v and c.norm_values then v = nn.rmsnorm(v, nil, c.norm_eps) end
  local window = c.windows[layer + 1] or 0
  local near = c.rope_windowed
  local rope = window > 0 and (near.theta or near.freqs) and near or c.rope
  local turned = not (c.names.positions or c.sinusoid.dim or c.alibi or c.unrotated[layer + 1])
  if turned and c.rope_twice then q, k = rotate_twice(c, q), rotate_twice(c, k)
  elseif turned then q, k = nn.rope(q, rope), k and nn.rope(k, rope) end
  if turned and c.norm_rotated then
    if c.names.q_norm then q, k = normed(true)
    else q, k = nn.rmsnorm(q, nil, c.norm_eps), nn.rmsnorm(k, nil, c.norm_eps) end
  end
  if c.q_scales[layer + 1] then
    q = nn.split_heads(nn.scale_by_position(nn.join_heads(q), c.q_scales[layer + 1]), c.heads)
  end
  local options = {
    scale = c.scale, window = window, softcap = c.scores_cap, slopes = c.alibi and nn.alibi(c.heads, c.alibi_most),
    sinks = c.names.sinks and nn.weight(name .. c.names.sinks, { c.heads }),
  }
  if c.chunks[layer + 1] then options.chunk = c.chunks[layer + 1] end
  if c.prefix_tail >= 0 then options.prefix, options.tail = true, c.prefix_tail end
  if c.alibi_rounded then options.rounded = true end
  if c.attention == "causal" then options.causal = true end
  local y
  if c.attention == "cache" then
    c.caches[layer] = c.shared and c.caches[c.shared] or nn.cache(k, v)
    y = nn.attend(q, c.caches[layer], options)
  else
    if not c.shared then c.caches[layer] = { k, v } end
    k, v = table.unpack(c.caches[c.shared or layer])
    y = nn.attend_full(q, k, v, options)
  end
  if c.v_head_dim > 0 then y = nn.slice(y, 0, c.v_head_dim) end
  y = c.values_scale * nn.join_heads(y)                             -- [T, H*E]
  if gate then y = y * nn.act(gate, "sigmoid") end
  if c.names.out_norm then y = norm(c, y, name .. c.names.out_norm) end
  if c.names.attention_gate then y = y * nn.act(project(x, name .. c.names.attention_gate, nn.width(y)), "sigmoid") end
  return project(y, name .. c.names.out, c.hidden, c.out_bias)
end

local function feed_forward(c, x, name)                             -- x [T, D]
  local n, y = c.names, nil
  if n.gate_up then
    local w, b = weights(name .. n.gate_up, 2 * c.ffn, c.hidden, c.ffn_bias)
    local function half(from) return nn.linear(x, nn.rows(w, from, c.ffn), b and nn.rows(b, from, c.ffn)) end
    y = nn.glu(half(0), half(c.ffn), c.activation)
  elseif n.gate then
    local gate = project(x, name .. n.gate, c.ffn, c.ffn_bias)
    if c.gate_scale ~= 1 then gate = c.gate_scale * gate end
    if c.ffn_cut > -64 then                                         -- relu(gate - (mean + ffn_cut * deviation))
      gate = nn.act(nn.layernorm(gate, nil, -c.ffn_cut, 1e-12), "relu") * nn.row_rms(gate, { centred = true })
    end
    y = nn.glu(gate, project(x, name .. n.up, c.ffn, c.ffn_bias), c.activation)
  elseif n.xielu then
    local function number(part) return nn.weight(name .. n.xielu .. part, { 1 }) end
    y = nn.xielu(project(x, name .. n.up, c.ffn, c.ffn_bias), nn.concat(number ".alpha_p", number ".alpha_n", number ".beta"))
  else
    y = nn.act(project(x, name .. n.up, c.ffn, c.ffn_bias), c.activation)
  end
  if n.down_norm then y = norm(c, y, name .. n.down_norm) end
  y = project(y, name .. n.down, c.hidden, c.ffn_bias)              -- [T, D]
  return c.ffn_scale ~= 1 and c.ffn_scale * y or y
end

-- Mamba and attention of the same rows.
local function both(c, x, name, i)
  local by = c.beside
  return by.mamba_out * recurrent.mamba(c, x, name) + by.attention_out * attention(c, by.attention_in * x, name, i)
end

-- Attention, or what stands in its place.
local function mixer(c, x, name, i)                                 -- x [T, D]
  local kind = c.mixers[i + 1]
  if kind == "both" then return both(c, x, name, i) end
  if kind then return recurrent[kind](c, x, name) end
  return c.latent.kv and project(latent(c, x, name), name .. c.names.out, c.hidden, c.out_bias) or attention(c, x, name, i)
end

-- What layers have of the tokens' embeddings, one layer's after another's: [T, layers * layer_width].
local function layer_inputs(c, h)
  local n, width = c.names, c.layers * c.layer_width
  local rows = nn.weight(n.layer_embedding .. ".weight", { c.layer_rows, width })
  if c.layer_rows < c.vocab then                                    -- further ids have the first row
    rows = nn.concat(rows, nn.repeat_rows(nn.rows(rows, 0, 1), c.vocab - c.layer_rows))
  end
  local of_ids = nn.embed(nn.ids(), rows)
  local of_h = nn.split_heads(c.hidden ^ -0.5 * project(h, n.layer_projection, width), c.layers)
  return 2 ^ -0.5 * (nn.join_heads(norm(c, of_h, n.layer_projection_norm)) + c.layer_scale * of_ids)
end

-- What a layer adds of its own inputs, made of h [T, D].
local function of_inputs(c, h, i, inputs)
  local n, name = c.names, c.names.layers .. i .. "."
  local y = nn.act(project(h, name .. n.layer_gate, c.layer_width), c.activation)
  y = project(y * nn.slice(inputs, i * c.layer_width, c.layer_width), name .. n.layer_out, c.hidden)
  return norm(c, y, name .. n.after_layer)
end

-- A layer of several rows of a token, with a second way around attention (laurel).
local function layer_of_rows(c, rows, i, inputs)
  local n, name, tools = c.names, c.names.layers .. i .. ".", { norm = norm }
  if c.own[i + 1] then c = setmetatable(c.own[i + 1], { __index = c }) end
  rows = altup.predict(c, tools, rows, name)
  local h = rows[c.altup.active + 1]
  local x = norm(c, h, name .. n.attention_norm)
  local way = project(project(x, name .. n.laurel_left, c.laurel), name .. n.laurel_right, c.hidden)
  local y = norm(c, attention(c, x, name, i), name .. n.after_attention)
  h = 2 ^ -0.5 * (h + y + (x + norm(c, way, name .. n.laurel_norm)))
  y = feed_forward(c, norm(c, h, name .. n.ffn_norm), name)
  h = h + norm(c, y, name .. n.after_ffn)
  rows = altup.correct(c, tools, rows, h, name)
  h = rows[c.altup.active + 1]
  if c.altup.scaled then h = h * nn.weight(name .. n.altup_scale, { c.hidden }) end
  y = of_inputs(c, h, i, inputs)
  for k = 2, c.altup.count do rows[k] = rows[k] + y end
  return rows
end

-- Every token sees all of its source, the encoder's states.
local function attention_to_source(c, x, name)                      -- x [T, D]
  local n = c.names
  local function heads(x, part, count)
    return nn.split_heads(project(x, name .. part, count * c.head_dim, c.qkv_bias), count)
  end
  local source = nn.cross_cache(heads(c.states, n.source_k, c.kv_heads), heads(c.states, n.source_v, c.kv_heads))
  local y = nn.attend_cross(heads(x, n.source_q, c.heads), source, { scale = c.scale, softcap = c.scores_cap })
  return project(nn.join_heads(y), name .. n.source_out, c.hidden, c.out_bias)
end

local function layer(c, h, i, inputs)                               -- h [T, D]
  if c.own[i + 1] then c = setmetatable(c.own[i + 1], { __index = c }) end
  local n, name = c.names, c.names.layers .. i .. "."
  if c.only[i + 1] == "mixer" then return h + mixer(c, norm(c, h, name .. n.attention_norm), name, i) end
  local dense = not c.experts.count or (c.experts.dense and c.experts.dense[i + 1])
  local ffn = dense and feed_forward or mixture
  if c.only[i + 1] == "ffn" then return h + ffn(c, norm(c, h, name .. n.ffn_norm), name) end
  local x = n.attention_norm and norm(c, h, name .. n.attention_norm) or h
  local y = mixer(c, x, name, i)
  if n.after_attention then y = norm(c, y, name .. n.after_attention) end
  local sum = (c.normed_residual > 0 and c.normed_residual * x or h) + c.residual_scale * y
  if n.attention_sum_norm then sum = norm(c, sum, name .. n.attention_sum_norm) end
  if c.states then
    y = attention_to_source(c, norm(c, sum, name .. n.source_norm), name)
    sum = sum + norm(c, y, name .. n.after_source)
  end
  if not c.parallel then x = sum end
  if n.ffn_norm then x = norm(c, c.parallel and h or sum, name .. n.ffn_norm) end
  y = ffn(c, x, name)
  if n.after_ffn then y = norm(c, y, name .. n.after_ffn) end
  if c.normed_residual > 0 then sum = c.normed_residual * x end
  h = sum + c.residual_scale * y
  if n.ffn_sum_norm then h = norm(c, h, name .. n.ffn_sum_norm) end
  if inputs then h = h + of_inputs(c, h, i, inputs) end
  if n.layer_scalar then h = h * nn.repeat_rows(nn.weight(name .. n.layer_scalar, { 1 }), c.hidden) end
  return h
end

-- What the layers make of the tokens, [T, D]; the embedding, and its columns.
local function states(c)
  local n = c.names
  local width = c.embedding_width > 0 and c.embedding_width or c.hidden
  local embedding = nn.weight(n.embedding .. ".weight", { c.vocab, width })
  local h = c.embedding_scale * nn.embed(nn.ids(), embedding)
  if n.embedding_in then h = project(h, n.embedding_in, c.hidden) end -- [T, D]
  if n.positions then
    h = h + nn.positions(nn.weight(n.positions .. ".weight", { c.positions, c.hidden }), c.first_position)
  elseif c.sinusoid.dim then
    h = h + nn.positions(nn.sinusoid(c.sinusoid), c.first_position)
  end
  if n.embedding_norm then h = norm(c, h, n.embedding_norm) end
  local inputs = c.layer_width > 0 and layer_inputs(c, h) or nil
  c.caches = {}                                                     -- by layer: of a decoder its cache, else { k, v }
  if c.altup.count then
    local rows = altup.rows(c, h)
    for i = 0, c.layers - 1 do rows = layer_of_rows(c, rows, i, inputs) end
    h = altup.sum(c, rows)
  else
    for i = 0, c.layers - 1 do h = layer(c, h, i, inputs) end
  end
  return h, embedding, width
end

return function(given)
  local c = config.read("decoder", given, fields)
  local n = c.names
  config.check_heads("decoder", c)

  local encoder = c.attention ~= "cache"
  local unused = { (c.tie_embeddings or encoder) and n.head .. ".weight" or nil }
  if encoder and c.head_bias then table.insert(unused, n.head .. ".bias") end
  for _, name in ipairs(c.unused) do table.insert(unused, name) end
  nn.checkpoint {
    prefixes = { n.prefix }, unused = unused, heads = c.left_out,
    copies = c.tie_embeddings and not encoder and { n.head .. ".weight", n.embedding .. ".weight" } or nil,
  }
  if c.source.names then
    nn.checkpoint { prefixes = { c.source.names.prefix } }
    local of_source = setmetatable(c.source, { __index = c })
    c.states = norm(of_source, states(of_source), of_source.names.final_norm) -- [T, D]
  end
  local h, embedding, width = states(c)                             -- [T, D]
  if not encoder then h = nn.select_last(h) end                     -- [S, D]
  if n.final_norm then h = norm(c, h, n.final_norm) end
  if n.embedding_out then h = project(h, n.embedding_out, width) end
  if n.head_dense and not encoder then
    h = norm(c, nn.act(project(h, n.head_dense, c.hidden, c.head_dense_bias), c.head_activation), n.head_norm)
  end
  if encoder and c.classes > 0 then
    if c.classes_of == "tokens" then return nn.vectors(project(h, n.classifier, c.classes, true)) end
    local function dense(x) return n.dense and nn.act(project(x, n.dense, c.hidden, true), "gelu_erf") or x end
    local y = c.dense_first and dense(h) or h
    y = ({ text = nn.select_last, first = nn.select_first, mean = nn.pool_mean })[c.classes_of](y) -- [S, D]
    return nn.vectors(h, project(c.dense_first and y or dense(y), n.classifier, c.classes, n.dense and true))
  end
  if encoder then                                                   -- [T, D]
    return nn.vectors(h, c.attention == "causal" and nn.select_last(h) or nn.pool_mean(h))
  end
  local head = c.tie_embeddings and embedding or nn.weight(n.head .. ".weight", { c.vocab, width })
  if c.head_unit then head = nn.unit_rows(head) end
  local logits = nn.linear(h, head, c.head_bias and nn.weight(n.head .. ".bias", { c.vocab }))
  logits = c.logits_scale * logits                                  -- [S, V]
  if c.logits_cap > 0 then logits = c.logits_cap * nn.act(1 / c.logits_cap * logits, "tanh") end
  return nn.sample(logits)                                          -- [S] tokens
end
