-- llama-3.1-8b.lua - the published shape of Llama 3.1 8B, for benchmarks. Its weights are random unless
-- `-D weights=FOLDER -D tokenizer=FOLDER/tokenizer.json` names a checkpoint.
local ftx = require "ftx"
local llama = require "llama"

return ftx.model {
  name = "llama-3.1-8b",
  graph = llama {
    vocab = 128256, hidden = 4096, layers = 32, heads = 32, kv_heads = 8, head_dim = 128, ffn = 14336,
    rope = { theta = 500000, scaling = { kind = "llama3", factor = 8, low = 1, high = 4, original = 8192 } },
    norm_eps = 1e-5, tie_embeddings = false,
  },
  bos = 128000,
  eos = { 128001, 128008, 128009 },
  precision = { weights = "bf16" },
  limits = { sequences = 64, context = 2304, tokens = 2048 },
  kv = { block_size = 16 },
  decode = ftx.sample { temperature = 0.6, top_p = 0.9 },
}
