-- negative_layers.lua:6: llama: layers must be a whole number from 1 to 1024, got -1
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = -1, heads = 2, ffn = 48 },
}
