-- bert.lua - encoder: learned positions, token types, LayerNorm after each sum, GELU. Devlin et al.
-- 2018. RoBERTa is this with positions that begin at 2 (specs/roberta.lua).
--
-- T packed tokens, S texts, D hidden. Gives a vector a token, and one a text: see pooling.
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
  first_position = config.count(0, 2 ^ 20, 0),                      -- row of the first token's position
  types = config.count(1, 1024, 2),
  norm_eps = config.number(0, 1, 1e-12),
  activation = config.word(config.activations, "gelu_erf"),
  -- pooler: tanh of a product with the first token; head: the same by RoBERTa's classifier
  pooling = config.word({ "pooler", "head", "first", "mean", "none" }, "pooler"),
  labels = config.count(0, 2 ^ 20, 0),                              -- a classifier over the pooled vector
}

local function pool(c, h)                                           -- h [T, D]
  if c.pooling == "none" then return nil end
  if c.pooling == "mean" then return nn.pool_mean(h) end
  local y = nn.select_first(h)                                      -- [S, D]
  if c.pooling == "pooler" then y = nn.act(blocks.project(y, "pooler.dense", c.hidden), "tanh") end
  if c.pooling == "head" then y = nn.act(blocks.project(y, "classifier.dense", c.hidden), "tanh") end
  if c.labels == 0 then return y end
  return blocks.project(y, c.pooling == "head" and "classifier.out_proj" or "classifier", c.labels)
end

return function(given)
  local c = config.read("bert", given, fields)
  if c.hidden % c.heads ~= 0 then
    error(string.format("bert: hidden must be a multiple of heads, got %d and %d", c.hidden, c.heads), 2)
  end
  c.kv_heads, c.head_dim = c.heads, c.hidden // c.heads
  config.check_heads("bert", c)

  nn.checkpoint {
    prefixes = { "bert.", "roberta." },
    unused = { "embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias" },
  }
  local h = nn.embed(nn.ids(), nn.weight("embeddings.word_embeddings.weight", { c.vocab, c.hidden }))
    + nn.types(nn.weight("embeddings.token_type_embeddings.weight", { c.types, c.hidden }))
    + nn.positions(nn.weight("embeddings.position_embeddings.weight", { c.positions, c.hidden }), c.first_position)
  h = blocks.norm(h, "embeddings.LayerNorm", c.norm_eps)            -- [T, D]
  for i = 0, c.layers - 1 do
    local layer = "encoder.layer." .. i
    local self = layer .. ".attention.self."
    local names = { q = self .. "query", k = self .. "key", v = self .. "value", out = layer .. ".attention.output.dense" }
    h = blocks.norm(h + blocks.attend_full(h, names, c.heads), layer .. ".attention.output.LayerNorm", c.norm_eps)
    h = blocks.norm(h + blocks.feed_forward(h, layer .. ".intermediate.dense", layer .. ".output.dense", c.ffn,
                                            c.activation), layer .. ".output.LayerNorm", c.norm_eps)
  end
  return nn.vectors(h, pool(c, h))
end
