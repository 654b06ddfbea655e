-- precision_activations.lua:4: precision.activations must be one of auto, fp8, got "int8"
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, precision = { activations = "int8" },
}
