-- bert.lua - encoder: learned positions, token types, LayerNorm after each residual sum, GELU. Devlin et al.
-- 2018.
--
-- T tokens of all texts, S texts, D hidden. Results: a vector for each token and one for each text (pooling).
local nn = require "nn"
local config = require "lib.config"
local blocks = require "lib.blocks"
local encoder = require "lib.encoder"

local fields = encoder.fields {
  first_position = config.count(0, 2 ^ 20, 0),                      -- row of the first token's position
  types = config.count(1, 1024, 2),
  -- pooler: tanh of a linear of the first token; head: the same with the weights of RoBERTa's classifier
  pooling = config.word({ "pooler", "head", "first", "mean", "none" }, "pooler"),
}

local heads = {
  pooler = { product = "pooler.dense", activation = "tanh", classifier = "classifier" },
  head = { product = "classifier.dense", activation = "tanh", classifier = "classifier.out_proj" },
}

local function names(i)
  local layer = "encoder.layer." .. i
  local self = layer .. ".attention.self."
  return {
    q = self .. "query", k = self .. "key", v = self .. "value", out = layer .. ".attention.output.dense",
    attention_norm = layer .. ".attention.output.LayerNorm",
    up = layer .. ".intermediate.dense", down = layer .. ".output.dense", norm = layer .. ".output.LayerNorm",
  }
end

return function(given)
  local c = config.read("bert", given, fields)
  config.split_hidden("bert", c)
  nn.checkpoint {
    prefixes = { "bert.", "roberta." },
    renamed = { "LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta" },
    heads = { "cls.", "lm_head.", "classifier.", "qa_outputs." },
    unused = { "embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias" },
  }
  local h = nn.embed(nn.ids(), nn.weight("embeddings.word_embeddings.weight", { c.vocab, c.hidden }))
    + nn.types(nn.weight("embeddings.token_type_embeddings.weight", { c.types, c.hidden }))
    + nn.positions(nn.weight("embeddings.position_embeddings.weight", { c.positions, c.hidden }), c.first_position)
  h = blocks.norm(h, "embeddings.LayerNorm", c.norm_eps)            -- [T, D]
  h = encoder.layers(c, h, names)
  return nn.vectors(h, encoder.pool(c, h, heads))
end
