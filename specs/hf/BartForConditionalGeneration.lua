-- BartForConditionalGeneration.lua - config.json of a BART checkout to the family's fields.
local hf = require "lib.hf"
local bart = require "bart"

return function(config)
  local positions = config:count("max_position_embeddings", 1, 2 ^ 20, 1024)
  config:only("normalize_before", "false", false)
  config:only("add_final_layer_norm", "false", false)
  return {
    positions = positions,
    source = positions,
    graph = bart {
      vocab = config:count("vocab_size", 2, 2 ^ 24),
      hidden = config:count("d_model", 1, 2 ^ 17, 1024),
      encoder_layers = config:count("encoder_layers", 1, 1024, 12),
      decoder_layers = config:count("decoder_layers", 1, 1024, 12),
      encoder_heads = config:count("encoder_attention_heads", 1, 1024, 16),
      heads = config:count("decoder_attention_heads", 1, 1024, 16),
      encoder_ffn = config:count("encoder_ffn_dim", 1, 2 ^ 20, 4096),
      ffn = config:count("decoder_ffn_dim", 1, 2 ^ 20, 4096),
      positions = positions,
      activation = config:word("activation_function", hf.activations, "gelu"),
      scale_embedding = config:flag("scale_embedding", false),
      tie_embeddings = config:flag("tie_word_embeddings", true),
      logits_bias = config:stored("final_logits_bias") == false and "none" or nil,
    },
  }
end
