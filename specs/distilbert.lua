-- distilbert.lua - encoder: BERT without token types and pooler, under other names. Sanh et al. 2019.
--
-- T packed tokens, S texts, D hidden.
local nn = require "nn"
local config = require "lib.config"
local blocks = require "lib.blocks"

local fields = {
  vocab = config.count(2, 2 ^ 24),
  hidden = config.count(1, 2 ^ 17),
  layers = config.count(1, 1024),
  heads = config.count(1, 1024),
  ffn = config.count(1, 2 ^ 20),
  positions = config.count(1, 2 ^ 20),
  norm_eps = config.number(0, 1, 1e-12),
  activation = config.word(config.activations, "gelu_erf"),
  pooling = config.word({ "head", "first", "mean", "none" }, "none"),
  labels = config.count(0, 2 ^ 20, 0),
}

local function pool(c, h)                                           -- h [T, D]
  if c.pooling == "none" then return nil end
  if c.pooling == "mean" then return nn.pool_mean(h) end
  local y = nn.select_first(h)                                      -- [S, D]
  if c.pooling == "head" then y = nn.act(blocks.project(y, "pre_classifier", c.hidden), "relu") end
  return c.labels == 0 and y or blocks.project(y, "classifier", c.labels)
end

return function(given)
  local c = config.read("distilbert", given, fields)
  if c.hidden % c.heads ~= 0 then
    error(string.format("distilbert: hidden must be a multiple of heads, got %d and %d", c.hidden, c.heads), 2)
  end
  c.kv_heads, c.head_dim = c.heads, c.hidden // c.heads
  config.check_heads("distilbert", c)

  nn.checkpoint { prefixes = { "distilbert." }, unused = { "embeddings.position_ids" } }
  local h = nn.embed(nn.ids(), nn.weight("embeddings.word_embeddings.weight", { c.vocab, c.hidden }))
    + nn.positions(nn.weight("embeddings.position_embeddings.weight", { c.positions, c.hidden }))
  h = blocks.norm(h, "embeddings.LayerNorm", c.norm_eps)            -- [T, D]
  for i = 0, c.layers - 1 do
    local layer = "transformer.layer." .. i
    local self = layer .. ".attention."
    local names = { q = self .. "q_lin", k = self .. "k_lin", v = self .. "v_lin", out = self .. "out_lin" }
    h = blocks.norm(h + blocks.attend_full(h, names, c.heads), layer .. ".sa_layer_norm", c.norm_eps)
    h = blocks.norm(h + blocks.feed_forward(h, layer .. ".ffn.lin1", layer .. ".ffn.lin2", c.ffn, c.activation),
                    layer .. ".output_layer_norm", c.norm_eps)
  end
  return nn.vectors(h, pool(c, h))
end
