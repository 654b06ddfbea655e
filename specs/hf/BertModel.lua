-- BertModel.lua - config.json of a BERT checkout to the family's fields.
local hf = require "lib.hf"
local bert = require "bert"
local harmless = require("lib.harmless").encoders

-- more: fields that another architecture sets
return function(config, more)
  local positions = config:count("max_position_embeddings", 1, 2 ^ 20, 512)
  config:only("position_embedding_type", "absolute", "absolute")
  local fields = {
    vocab = config:count("vocab_size", 2, 2 ^ 24),
    hidden = config:count("hidden_size", 1, 2 ^ 17, 768),
    layers = config:count("num_hidden_layers", 1, 1024, 12),
    heads = config:count("num_attention_heads", 1, 1024, 12),
    ffn = config:count("intermediate_size", 1, 2 ^ 20, 3072),
    positions = positions,
    types = config:count("type_vocab_size", 1, 1024, 2),
    norm_eps = config:number("layer_norm_eps", 1e-30, 1, 1e-12),
    activation = config:word("hidden_act", hf.activations, "gelu"),
    pooling = config:stored("pooler.dense.weight") == false and "none" or nil,
  }
  for k, v in pairs(more or {}) do fields[k] = v end
  config:known(harmless)
  return { encoder = true, positions = positions - (fields.first_position or 0), graph = bert(fields) }
end
