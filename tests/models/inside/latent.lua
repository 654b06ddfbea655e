-- latent.lua - latent attention of 4 heads, for test_inside.c: -D graph.absorbed=, -D parallel=.
local ftx = require "ftx"
local decoder = require "decoder"

return ftx.model {
  name = "latent",
  graph = decoder {
    vocab = 67, hidden = 48, layers = 2, heads = 4, kv_heads = 4, head_dim = 24, ffn = 64,
    latent = { q = 20, kv = 40, nope = 16, rotated = 8, v = 16, bias = false, eps = 1e-6 },
    names = {
      prefix = "model.", embedding = "embed", layers = "layers.", final_norm = "norm", head = "head",
      attention_norm = "norm1", ffn_norm = "norm2", q_a = "q_a", q_a_norm = "q_norm", q_b = "q_b", kv_a = "kv_a",
      kv_a_norm = "kv_norm", kv_b = "kv_b", out = "out", gate = "gate", up = "up", down = "down",
    },
    norm = "rms", norm_eps = 1e-5, activation = "silu", scale = 24 ^ -0.5, rope = { theta = 100, style = "neighbour" },
  },
  precision = { weights = "fp32" },
  limits = { sequences = 6, context = 96, tokens = 40 },
  kv = { block_size = 8 },
}
