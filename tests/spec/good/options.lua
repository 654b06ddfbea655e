-- What the llama family can do beside its defaults.
local ftx = require "ftx"
local llama = require "llama"

return ftx.model {
  graph = llama {
    vocab = 301, hidden = 24, layers = 2, heads = 3, kv_heads = 1, head_dim = 24, ffn = 33,
    rope = { theta = 1000, dim = 12, scaling = { kind = "linear", factor = 2 } },
    activation = "gelu_tanh", window = 12, attention_bias = true, mlp_bias = true,
  },
  limits = { sequences = 2, context = 65, tokens = 20 },
  kv = { block_size = 8, pages = 9 },
  decode = ftx.greedy { repetition_penalty = 1.2 },
}
