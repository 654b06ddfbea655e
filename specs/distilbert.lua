-- distilbert.lua - encoder: BERT without token types and pooler, under other names. Sanh et al. 2019.
--
-- T tokens of all texts, S texts, D hidden.
local nn = require "nn"
local config = require "lib.config"
local blocks = require "lib.blocks"
local encoder = require "lib.encoder"

local fields = encoder.fields {
  pooling = config.word({ "head", "first", "mean", "none" }, "none"),
}

local heads = { head = { product = "pre_classifier", activation = "relu", classifier = "classifier" } }

local function names(i)
  local layer = "transformer.layer." .. i
  local self = layer .. ".attention."
  return {
    q = self .. "q_lin", k = self .. "k_lin", v = self .. "v_lin", out = self .. "out_lin",
    attention_norm = layer .. ".sa_layer_norm",
    up = layer .. ".ffn.lin1", down = layer .. ".ffn.lin2", norm = layer .. ".output_layer_norm",
  }
end

return function(given)
  local c = config.read("distilbert", given, fields)
  config.split_hidden("distilbert", c)
  nn.checkpoint {
    prefixes = { "distilbert." },
    unused = { "embeddings.position_ids" },
    heads = { "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "pre_classifier.", "classifier.",
              "qa_outputs." },
  }
  local h = nn.embed(nn.ids(), nn.weight("embeddings.word_embeddings.weight", { c.vocab, c.hidden }))
    + nn.positions(nn.weight("embeddings.position_embeddings.weight", { c.positions, c.hidden }))
  h = blocks.norm(h, "embeddings.LayerNorm", c.norm_eps)            -- [T, D]
  h = encoder.layers(c, h, names)
  return nn.vectors(h, encoder.pool(c, h, heads))
end
