-- DistilBertModel.lua - config.json of a DistilBERT checkout to the family's fields.
local hf = require "lib.hf"
local distilbert = require "distilbert"
local harmless = require("lib.harmless").encoders

return function(config, more)
  local positions = config:count("max_position_embeddings", 1, 2 ^ 20, 512)
  local fields = {
    vocab = config:count("vocab_size", 2, 2 ^ 24),
    hidden = config:count("dim", 1, 2 ^ 17, 768),
    layers = config:count("n_layers", 1, 1024, 6),
    heads = config:count("n_heads", 1, 1024, 12),
    ffn = config:count("hidden_dim", 1, 2 ^ 20, 3072),
    positions = positions,
    activation = config:word("activation", hf.activations, "gelu"),
  }
  for k, v in pairs(more or {}) do fields[k] = v end
  config:known(harmless)
  return { encoder = true, positions = positions, graph = distilbert(fields) }
end
