-- encoder.lua - encoders that differ in their parts: where the norms stand, tables of positions or RoPE, windows, gated
-- feed-forwards, biases, what is made of a text's vector. hf/encoders.lua says which parts an architecture of Hugging Face
-- has.
--
-- `names` has the names of the tensors, without ".weight" and ".bias". A name that is missing or false is a part that
-- the model does not have. Without names.layers those of a layer have "%d" for its number.
--
-- T tokens of all texts, S texts, D hidden, H heads, E head_dim, F ffn.
local nn = require "nn"
local config = require "lib.config"
local blocks = require "lib.blocks"
local bottleneck = require "lib.bottleneck"

local fields = {
  vocab = config.count(2, 2 ^ 24),
  hidden = config.count(1, 2 ^ 17),
  layers = config.count(1, 1024),
  heads = config.count(1, 1024),
  ffn = config.count(1, 2 ^ 20),
  names = config.options(),
  prefixes = config.options({}),                                    -- a beginning of names that a checkpoint may lack
  unused = config.options({}),                                      -- tensors that checkpoints may have
  dropped = config.options({}),                                     -- beginnings of the tensors of heads that are left out
  embedding = config.count(0, 2 ^ 17, 0),                           -- columns of the embeddings; 0: hidden
  embedding_scale = config.number(0, 2 ^ 20, 1),
  project = config.flag(false),                                     -- names.project, also where they have hidden columns
  project_first = config.flag(false),                               -- that stands before types and positions are added
  neighbours = config.flag(false),                                  -- then it reads the next token's row, the token's, the one's before it
  bottleneck = config.options({}),                                  -- narrow layers: see lib/bottleneck.lua; empty: none
  groups = config.options({}),                                      -- of names.q, k, v, out, up, down: runs of columns and rows that
                                                                    -- are multiplied alone; missing: 1
  shared = config.options({}),                                      -- by layer: what its names begin with, if not layers .. i
  positions = config.count(0, 2 ^ 20, 0),                           -- rows of learned positions
  first_position = config.count(0, 2 ^ 20, 0),                      -- row of the first token's position
  types = config.count(0, 1024, 0),
  tasks = config.count(0, 1024, 0),                                 -- rows of names.tasks, of which all tokens have the first
  norm_first = config.flag(false),                                  -- norms before the blocks and at the end; else after sums
  first_norm = config.flag(true),                                   -- with norm_first: the first block has a norm
  norm_eps = config.number(0, 1, 1e-12),
  norm_bias = config.flag(true),
  activation = config.word(config.activations, "gelu_erf"),
  up_first = config.flag(false),                                    -- names.gate_up has the rows of up before the gate's
  qkv_bias = config.flag(true),
  out_bias = config.flag(true),
  up_bias = config.flag(true),
  down_bias = config.flag(true),
  rope = config.options({}),                                        -- see nn.rope; empty: none
  rope_windowed = config.options({}),                               -- of layers with a window
  windows = config.options({}),                                     -- keys that a token sees on either side; 0: all
  -- names.relative, an embedding of relative positions, of which each layer makes numbers of queries and of keys: max_distance,
  -- buckets and reach of nn.distance_heads; norm: its rows are normed (names.relative_norm); queries, keys: whether there are
  -- numbers of them. Empty: none
  relative = config.options({}),
  alibi_reach = config.count(0, 2 ^ 24, 0),                         -- slopes of ALiBi to both sides, for texts of one token more; 0: none
  scale = config.number(0, 1024, 0),                                -- of scores; 0: E^-1/2
  project_bias = config.flag(true),                                 -- of names.project
  norm_projected = config.flag(false),                              -- names.embedding_norm stands behind names.project
  qkv_heads = config.flag(false),                                   -- names.qkv has the rows of a head's q, k and v together;
                                                                    -- names.q_bias and v_bias are its biases
  buckets = config.count(0, 1024, 0),                               -- rows of names.distances, biases by distance; 0: none
  -- of the embeddings, added to what the first layer gives, which is then normed (names.convolution, convolution_norm): size, the
  -- tokens that it reads, and activation. Empty: none
  convolution = config.options({}),
  causal = config.flag(false),                                      -- a token sees its text up to itself
  -- tokens: no vector of a text, and those of the tokens are what the head makes of them
  pooling = config.word({ "none", "first", "last", "mean", "id", "tokens" }, "none"),
  end_id = config.count(-1, 2 ^ 31 - 1, -1),                        -- pooling "id": of the token; -1: the largest of a text
  dense_activation = config.word(config.activations, "tanh"),       -- of names.dense, a linear of what is pooled
  dense_bias = config.flag(true),
  outputs = config.count(0, 2 ^ 20, 0),                             -- rows of names.output, the last linear; 0: none
  output_bias = config.flag(true),
}

-- The linear names[part] of a layer.
local function project(c, x, name, part, outputs, bias)
  return blocks.project_groups(x, name .. c.names[part], outputs, bias, c.groups[part] or 1)
end

local function norm(c, x, name)
  if c.bottleneck.width then return blocks.affine(x, name) end
  return blocks.norm(x, name, c.norm_eps, c.norm_bias)
end

-- q, k, v [T, D]
local function projections(c, x, name)
  local n = c.names
  local function one(part) return project(c, x, name, part, c.hidden, c.qkv_bias) end
  if not n.qkv then return one "q", one "k", one "v" end
  local w = nn.weight(name .. n.qkv .. ".weight", { 3 * c.hidden, c.hidden })
  if c.qkv_heads then
    local E = c.hidden // c.heads
    local function of_heads(i, bias)
      return nn.linear(x, nn.rows(w, i * E, E, 3 * E), bias and nn.weight(name .. bias, { c.hidden }))
    end
    return of_heads(0, n.q_bias), of_heads(1), of_heads(2, n.v_bias)
  end
  local b = c.qkv_bias and nn.weight(name .. n.qkv .. ".bias", { 3 * c.hidden })
  local function part(i)
    return nn.linear(x, nn.rows(w, i * c.hidden, c.hidden), b and nn.rows(b, i * c.hidden, c.hidden))
  end
  return part(0), part(1), part(2)
end

-- Numbers of q and k for each distance: what the linear layers of keys and of queries make of its embedding, times q and k.
local function by_distance(c, q, k, name)                           -- q, k [T, H, E]
  local n, at = c.names, c.relative
  local r = nn.weight(n.relative .. ".weight", { 2 * (at.buckets > 0 and at.buckets or at.max_distance), c.hidden })
  if at.norm then
    local norm = n.relative_norm
    r = nn.norm_rows(r, nn.weight(norm .. ".weight", { c.hidden }), nn.weight(norm .. ".bias", { c.hidden }), c.norm_eps)
  end
  local function times(heads, part, bias)
    local w = nn.weight(name .. part .. ".weight", { c.hidden, c.hidden })
    local b = bias and nn.weight(name .. part .. ".bias", { c.hidden })
    return nn.head_linear(heads, nn.distance_heads(w, b, r, {
      heads = c.heads, max_distance = at.max_distance, buckets = at.buckets, reach = at.reach,
    }))
  end
  local of_q = at.queries and times(q, n.relative_k or n.k, not c.qkv_heads) -- [T, H, 2 * reach + 1]
  local of_k = at.keys and times(k, n.relative_q or n.q, true)
  return of_q or 0 * of_k, of_k or 0 * of_q
end

local function attention(c, x, name, layer)                         -- x [T, D]
  local q, k, v = projections(c, x, name)
  if c.names.q_norm then q, k = norm(c, q, name .. c.names.q_norm), norm(c, k, name .. c.names.k_norm) end
  q, k, v = nn.split_heads(q, c.heads), nn.split_heads(k, c.heads), nn.split_heads(v, c.heads)
  local window = c.windows[layer + 1] or 0
  local rope = window > 0 and c.rope_windowed or c.rope
  if rope.theta or rope.freqs then q, k = nn.rope(q, rope), nn.rope(k, rope) end
  local bias = c.buckets > 0 and nn.distance_bias(nn.weight(c.names.distances .. ".weight", { c.buckets, c.heads }))
  if c.alibi_reach > 0 then bias = nn.alibi(c.heads, nil, c.alibi_reach) end
  local options = { causal = c.causal, window = window, bias = bias }
  if c.scale > 0 then options.scale = c.scale end
  if c.relative.reach then options.by_query, options.by_key = by_distance(c, q, k, name) end
  local y = nn.attend_full(q, k, v, options)
  return project(c, nn.join_heads(y), name, "out", c.hidden, c.out_bias)
end

local function convolve(c, x)                                       -- x [T, D]
  local at = c.convolution
  local around = nn.neighbours(x, { from = -(at.size // 2), count = at.size })
  return nn.act(blocks.project(around, c.names.convolution, c.hidden, true), at.activation)
end

local function feed_forward(c, x, name)                             -- x [T, D]
  local n, y = c.names, nil
  if n.gate_up then
    local w = nn.weight(name .. n.gate_up .. ".weight", { 2 * c.ffn, c.hidden })
    local b = c.up_bias and nn.weight(name .. n.gate_up .. ".bias", { 2 * c.ffn })
    local function half(i) return nn.linear(x, nn.rows(w, i * c.ffn, c.ffn), b and nn.rows(b, i * c.ffn, c.ffn)) end
    y = c.up_first and nn.glu(half(1), half(0), c.activation) or nn.glu(half(0), half(1), c.activation)
  elseif n.gate then
    y = nn.glu(blocks.project(x, name .. n.gate, c.ffn, c.up_bias), blocks.project(x, name .. n.up, c.ffn, c.up_bias),
               c.activation)
  else
    y = nn.act(project(c, x, name, "up", c.ffn, c.up_bias), c.activation)
  end
  return project(c, y, name, "down", c.hidden, c.down_bias)         -- [T, D]
end

-- The same fields with the names of layer i: "attentions.%d.q_lin".
local function numbered(c, i)
  local names = setmetatable({}, { __index = function(_, part)
    local name = c.names[part]
    return name and string.format(name, i)
  end })
  return setmetatable({ names = names }, { __index = c })
end

local function layer(c, h, i)                                       -- h [T, D]
  if not c.names.layers then c = numbered(c, i) end
  local n, name = c.names, c.shared[i + 1] or c.names.layers and c.names.layers .. i .. "." or ""
  if c.bottleneck.width then return bottleneck(c, h, name) end
  if c.norm_first then
    local x = (i > 0 or c.first_norm) and norm(c, h, name .. n.attention_norm) or h
    h = h + attention(c, x, name, i)
    return h + feed_forward(c, norm(c, h, name .. n.ffn_norm), name)
  end
  local y = norm(c, h + attention(c, h, name, i), name .. n.attention_norm)
  h = n.attention_sum_norm and norm(c, h + y, name .. n.attention_sum_norm) or y
  return norm(c, h + feed_forward(c, h, name), name .. n.ffn_norm)
end

-- Perhaps a linear and its activation, a norm, a last linear, of each row of y.
local function head(c, y)
  local n = c.names
  if n.dense then y = nn.act(blocks.project(y, n.dense, c.hidden, c.dense_bias), c.dense_activation) end
  if n.dense_norm then y = norm(c, y, n.dense_norm) end
  return c.outputs > 0 and blocks.project(y, n.output, c.outputs, c.output_bias) or y
end

-- The vector of each text.                                             [S, D]
local function pool(c, h)                                           -- h [T, D]
  if c.pooling == "mean" then return nn.pool_mean(h) end
  if c.pooling == "id" then return nn.select_id(h, c.end_id >= 0 and c.end_id or nil) end
  return c.pooling == "first" and nn.select_first(h) or nn.select_last(h)
end

return function(given)
  local c = config.read("encoder", given, fields)
  local n = c.names
  config.split_hidden("encoder", c)
  local columns = c.embedding > 0 and c.embedding or c.hidden
  nn.checkpoint {
    prefixes = c.prefixes, heads = c.dropped,
    unused = { "embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias", table.unpack(c.unused) },
    renamed = { "LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta" },
  }
  local function table_of(name, rows) return nn.weight(name .. ".weight", { rows, columns }) end
  local h = c.embedding_scale * nn.embed(nn.ids(), table_of(n.embedding, c.vocab)) -- [T, columns]
  if c.project_first then
    local function beside(from) return nn.neighbours(h, { from = from, count = 1 }) end
    if c.neighbours then h = nn.join(nn.join(beside(1), h), beside(-1)) end
    h, columns = blocks.project(h, n.project, c.hidden), c.hidden
  end
  if c.types > 0 then h = h + nn.types(table_of(n.types, c.types)) end
  if n.positions then h = h + nn.positions(table_of(n.positions, c.positions), c.first_position) end
  if c.tasks > 0 then                                               -- a norm of zeros is its bias
    local first = nn.rows(nn.stack(n.tasks .. ".weight", { c.tasks, columns }), 0, columns)
    h = h + nn.layernorm(0 * h, nil, first, 1)
  end
  local normed = n.embedding_norm
  if normed and not c.norm_projected then h = norm(c, h, normed) end
  if c.project and not c.project_first or columns ~= c.hidden then h = blocks.project(h, n.project, c.hidden, c.project_bias) end
  if normed and c.norm_projected then h = norm(c, h, normed) end
  h = nn.embedded(h)                                                -- [T, D]
  local embedded = h
  for i = 0, c.layers - 1 do
    h = layer(c, h, i)
    if i == 0 and c.convolution.size then h = norm(c, h + convolve(c, embedded), n.convolution_norm) end
  end
  if c.norm_first and n.final_norm then h = norm(c, h, n.final_norm) end
  if c.pooling == "none" then return nn.vectors(h) end
  if c.pooling == "tokens" then return nn.vectors(head(c, h)) end   -- [T, outputs]
  return nn.vectors(h, head(c, pool(c, h)))
end
