local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 61, hidden = 24, layers = 2, heads = 3, kv_heads = 1, head_dim = 8, ffn = 33,
                  rope = { theta = 1e4, dim = 8 }, norm_eps = 1e-5, window = 12, tie_embeddings = true },
  precision = { weights = "bf16", kv = "fp16" },
  limits = { sequences = 2, context = 64, tokens = 20 },
  kv = { block_size = 8, pages = 20 },
  decode = ftx.sample { temperature = 0.8, top_k = 40, top_p = 0.9, repetition_penalty = 1.1 },
}
