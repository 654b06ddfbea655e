-- head_dim_large.lua:6: llama: head_dim must be a multiple of 8 from 16 to 576, got 584
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, head_dim = 584, ffn = 48 },
}
