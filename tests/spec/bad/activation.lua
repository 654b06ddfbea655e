-- activation.lua:6: llama: activation must be one of silu, gelu_erf, gelu_tanh, quick_gelu, relu, tanh, relu2, sigmoid, got "gelo"
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, activation = "gelo" },
}
