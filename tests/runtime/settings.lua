-- settings.lua - the smallest decoder that takes every decoding setting at its largest value.
local ftx = require "ftx"
local llama = require "llama"

return ftx.model {
  name = "settings",
  graph = llama {
    vocab = 64, hidden = 16, layers = 1, heads = 2, kv_heads = 1, head_dim = 16, ffn = 16,
    rope = { theta = 10000 }, norm_eps = 1e-5, tie_embeddings = true,
  },
  limits = { sequences = 4096, context = 8, tokens = 4096 },
  kv = { block_size = 8 },
  decode = ftx.sample { max_top_k = 1024, width = 64 },
}
