-- fable.lua - 11 million parameters that tell fairy tales; its weights lie beside this file.
local ftx = require "ftx"
local llama = require "llama"

return ftx.model {
  name = "fable",
  graph = llama {
    vocab = 4096, hidden = 384, layers = 6, heads = 6, kv_heads = 2, head_dim = 64, ffn = 1024,
    rope = { theta = 10000 }, norm_eps = 1e-5, tie_embeddings = true,
  },
  weights = "fable/model.safetensors",
  tokenizer = "fable/tokenizer.json",
  bos = 0,
  eos = 1,
  precision = { weights = "bf16", compute = "auto", kv = "auto" },
  limits = { sequences = 16, context = 1024, tokens = 512 },
  kv = { block_size = 16 },
  decode = ftx.sample { temperature = 0.8, top_k = 40, top_p = 0.95, repetition_penalty = 1.15 },
}
