-- host.lua - a decoder of fable's vocabulary that computes next to nothing: what a step takes is what the host does.
local ftx = require "ftx"
local llama = require "llama"

return ftx.model {
  name = "host",
  graph = llama {
    vocab = 4096, hidden = 16, layers = 1, heads = 1, kv_heads = 1, head_dim = 16, ffn = 16,
    rope = { theta = 10000 }, norm_eps = 1e-5, tie_embeddings = true,
  },
  tokenizer = "../../specs/fable/tokenizer.json",
  bos = 0,
  eos = 1,
  precision = { weights = "bf16", compute = "auto", kv = "auto" },
  limits = { sequences = 256, context = 1024, tokens = 2048 },
  kv = { block_size = 16 },
  decode = ftx.sample { temperature = 0 },
}
