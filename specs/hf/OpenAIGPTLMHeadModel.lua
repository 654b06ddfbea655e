-- OpenAIGPTLMHeadModel.lua - config.json of a checkout of the first GPT to the fields of gpt2.lua.
local gpt2 = require "gpt2"
local harmless = require("lib.harmless").decoders

local activations = { gelu = "gelu_tanh", relu = "relu", silu = "silu", swish = "silu" }

-- encoder: the options of gpt2.lua without the head that gives logits: see hf/decoders.lua
return function(config, encoder)
  encoder = encoder or {}
  local positions = config:count("n_positions", 1, 2 ^ 20, 512)
  local model = {
    positions = positions,
    graph = gpt2 {
      vocab = config:count("vocab_size", 2, 2 ^ 24, 40478),
      hidden = config:count("n_embd", 1, 2 ^ 17, 768),
      layers = config:count("n_layer", 1, 1024, 12),
      heads = config:count("n_head", 1, 1024, 12),
      positions = positions,
      norm_eps = config:number("layer_norm_epsilon", 1e-30, 1, 1e-5),
      activation = config:word("afn", activations, "gelu"),
      tie_embeddings = config:flag("tie_word_embeddings", true),
      norm_after = true,
      names = { tokens = "transformer.tokens_embed", positions = "transformer.positions_embed" },
      attention = encoder.attention,
      classes = encoder.classes,
      classes_of = encoder.classes_of,
      classifier = encoder.classifier,
    },
  }
  config:known(harmless)
  return model
end
