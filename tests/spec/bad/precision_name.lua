-- precision_name.lua:4: precision.weights must be one of fp32, fp16, bf16, int8, int4, fp8, got "fp15"
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, precision = { weights = "fp15" },
}
