-- MarianMTModel.lua - config.json of a Marian checkout to the family's fields.
local hf = require "lib.hf"
local marian = require "marian"

return function(config)
  local positions = config:count("max_position_embeddings", 1, 2 ^ 20, 1024)
  local vocab = config:count("vocab_size", 2, 2 ^ 24)
  local target = config:count("decoder_vocab_size", 2, 2 ^ 24, vocab)
  config:only("static_position_embeddings", "true", true)
  config:only("normalize_before", "false", false)
  config:only("normalize_embedding", "false", false)
  config:only("add_final_layer_norm", "false", false)
  return {
    positions = positions,
    source = positions,
    graph = marian {
      vocab = target,
      source_vocab = config:flag("share_encoder_decoder_embeddings", true) and 0 or vocab,
      hidden = config:count("d_model", 1, 2 ^ 17, 1024),
      encoder_layers = config:count("encoder_layers", 1, 1024, 12),
      decoder_layers = config:count("decoder_layers", 1, 1024, 12),
      encoder_heads = config:count("encoder_attention_heads", 1, 1024, 16),
      heads = config:count("decoder_attention_heads", 1, 1024, 16),
      encoder_ffn = config:count("encoder_ffn_dim", 1, 2 ^ 20, 4096),
      ffn = config:count("decoder_ffn_dim", 1, 2 ^ 20, 4096),
      activation = config:word("activation_function", hf.activations, "gelu"),
      scale_embedding = config:flag("scale_embedding", false),
      tie_embeddings = config:flag("tie_word_embeddings", true),
    },
  }
end
