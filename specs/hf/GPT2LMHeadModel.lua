-- GPT2LMHeadModel.lua - config.json of a GPT-2 checkout to the family's fields.
local hf = require "lib.hf"
local gpt2 = require "gpt2"
local harmless = require("lib.harmless").decoders

-- encoder: the options of gpt2.lua without the head that gives logits: see hf/decoders.lua
return function(config, encoder)
  encoder = encoder or {}
  local hidden = config:count("n_embd", 1, 2 ^ 17, 768)
  local positions = config:count("n_positions", 1, 2 ^ 20, 1024)
  local model = {
    positions = positions,
    graph = gpt2 {
      vocab = config:count("vocab_size", 2, 2 ^ 24),
      hidden = hidden,
      layers = config:count("n_layer", 1, 1024, 12),
      heads = config:count("n_head", 1, 1024, 12),
      ffn = config:count("n_inner", 1, 2 ^ 20, 4 * hidden),
      positions = positions,
      norm_eps = config:number("layer_norm_epsilon", 1e-30, 1, 1e-5),
      activation = config:word("activation_function", hf.activations, "gelu_new"),
      scale_attention = config:flag("scale_attn_weights", true),
      scale_by_layer = config:flag("scale_attn_by_inverse_layer_idx", false),
      tie_embeddings = config:flag("tie_word_embeddings", true),
      outputs_first = config.gguf or false,
      attention = encoder.attention,
      classes = encoder.classes,
      classes_of = encoder.classes_of,
      classifier = encoder.classifier,
    },
  }
  if not config.gguf then config:known(harmless) end                -- lib/gguf.lua writes fields of others, too
  return model
end
