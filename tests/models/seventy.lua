-- seventy.lua - the published shape of Llama 3.1 70B, to see how several ranks divide it; it has no weights.
local ftx = require "ftx"
local llama = require "llama"

return ftx.model {
  name = "seventy",
  graph = llama {
    vocab = 128256, hidden = 8192, layers = 80, heads = 64, kv_heads = 8, head_dim = 128, ffn = 28672,
    rope = { theta = 500000 }, norm_eps = 1e-5, tie_embeddings = false,
  },
  precision = { weights = "bf16" },
  limits = { sequences = 16, context = 2048, tokens = 512 },
  kv = { block_size = 16 },
  decode = ftx.sample { temperature = 0.6 },
}
