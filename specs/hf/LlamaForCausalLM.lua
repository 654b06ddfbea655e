-- LlamaForCausalLM.lua - config.json of a LLaMA checkout to the family's fields.
local hf = require "lib.hf"
local llama = require "llama"
local harmless = require("lib.harmless").decoders

-- window: keys that a token sees, for MistralForCausalLM.lua
return function(config, window)
  local hidden = config:count("hidden_size", 1, 2 ^ 17)
  local heads = config:count("num_attention_heads", 1, 1024)
  local head_dim = config:count("head_dim", 1, 1024, hidden // heads)
  local positions = config:count("max_position_embeddings", 1, 2 ^ 24, 2048)
  config:only("pretraining_tp", "1", 1)
  local model = {
    positions = positions,
    graph = llama {
      vocab = config:count("vocab_size", 2, 2 ^ 24),
      hidden = hidden,
      layers = config:count("num_hidden_layers", 1, 1024),
      heads = heads,
      kv_heads = config:count("num_key_value_heads", 1, 1024, heads),
      head_dim = head_dim,
      ffn = config:count("intermediate_size", 1, 2 ^ 20),
      rope = hf.rope(config, head_dim, positions, nil, {}),
      norm_eps = config:number("rms_norm_eps", 1e-30, 1, 1e-6),
      activation = config:word("hidden_act", hf.activations, "silu"),
      window = window or 0,
      attention_bias = config:flag("attention_bias", false),
      mlp_bias = config:flag("mlp_bias", false),
      tie_embeddings = config:flag("tie_word_embeddings", false),
    },
  }
  config:known(harmless)
  return model
end
