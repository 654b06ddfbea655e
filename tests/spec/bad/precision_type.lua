-- precision_type.lua:4: precision.kv must be one of auto, fp32, fp16, bf16, int8, fp8, got 16
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, precision = { kv = 16 },
}
