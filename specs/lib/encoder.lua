-- encoder.lua - what BERT-like encoders share: fields, layers with LayerNorm after each residual sum, the vector
-- of a text from its first token or the mean, perhaps with a classifier.
--
-- T tokens of all texts, S texts, D hidden.
local nn = require "nn"
local config = require "lib.config"
local blocks = require "lib.blocks"

local encoder = {}

-- The fields that all of them have, and those of `more`.
function encoder.fields(more)
  local fields = {
    vocab = config.count(2, 2 ^ 24),
    hidden = config.count(1, 2 ^ 17),
    layers = config.count(1, 1024),
    heads = config.count(1, 1024),
    ffn = config.count(1, 2 ^ 20),
    positions = config.count(1, 2 ^ 20),
    norm_eps = config.number(0, 1, 1e-12),
    activation = config.word(config.activations, "gelu_erf"),
    labels = config.count(0, 2 ^ 20, 0),                            -- classes of a classifier; 0: none
  }
  for k, v in pairs(more) do fields[k] = v end
  return fields
end

-- h [T, D] through all layers. names(i): the checkpoint's for q, k, v, out, up, down, and the two norms.
function encoder.layers(c, h, names)
  h = nn.embedded(h)
  for i = 0, c.layers - 1 do
    local n = names(i)
    h = blocks.norm(h + blocks.attend_full(h, n, c.heads), n.attention_norm, c.norm_eps)
    h = blocks.norm(h + blocks.feed_forward(h, n.up, n.down, c.ffn, c.activation), n.norm, c.norm_eps)
  end
  return h
end

-- The vector of each text, by c.pooling: none, mean, first, or a key of `heads`, which names the weights of a
-- linear of the first token, its activation, and the weights of the classifier.
function encoder.pool(c, h, heads)                                  -- h [T, D]
  if c.pooling == "none" then return nil end
  if c.pooling == "mean" then return nn.pool_mean(h) end
  local y, head = nn.select_first(h), heads[c.pooling]              -- [S, D]
  if head then y = nn.act(blocks.project(y, head.product, c.hidden), head.activation) end
  if c.labels == 0 then return y end
  return blocks.project(y, head and head.classifier or "classifier", c.labels)
end

return encoder
