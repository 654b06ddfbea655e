-- masks.lua - a decoder with next to nothing between its embedding and 128,256 logits: what masks cost (bench_masks.c).
local ftx = require "ftx"
local llama = require "llama"

return ftx.model {
  name = "masks",
  graph = llama {
    vocab = 128256, hidden = 32, layers = 1, heads = 2, kv_heads = 1, head_dim = 16, ffn = 32,
    rope = { theta = 10000 }, norm_eps = 1e-5, tie_embeddings = true,
  },
  limits = { sequences = 64, context = 128, tokens = 64 },
  kv = { block_size = 16 },
  decode = ftx.sample { temperature = 1.0 },
}
