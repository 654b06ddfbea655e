-- wide.lua - latent attention with the sizes of DeepSeek's heads, for the gates of CUDA kernels: 512 elements of a vector,
-- 64 that are rotated.
local ftx = require "ftx"
local decoder = require "decoder"

return ftx.model {
  name = "wide",
  graph = decoder {
    vocab = 64, hidden = 64, layers = 1, heads = 16, kv_heads = 16, head_dim = 192, ffn = 64,
    latent = { kv = 512, nope = 128, rotated = 64, v = 128, bias = false, eps = 1e-6 },
    names = {
      prefix = "model.", embedding = "embed", layers = "layers.", final_norm = "norm", head = "head",
      attention_norm = "norm1", ffn_norm = "norm2", q = "q", kv_a = "kv_a", kv_a_norm = "kv_norm", kv_b = "kv_b",
      out = "out", gate = "gate", up = "up", down = "down",
    },
    norm = "rms", norm_eps = 1e-6, activation = "silu", scale = 192 ^ -0.5, rope = { theta = 1e4, style = "neighbour" },
  },
  precision = { weights = "bf16" },
  limits = { sequences = 2, context = 64, tokens = 32 },
  kv = { block_size = 16 },
}
