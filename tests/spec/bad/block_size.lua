-- block_size.lua:4: kv.block_size must be a multiple of 8 from 8 to 256, got 12
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, kv = { block_size = 12 },
}
