-- limit_too_large.lua:4: limits.context must be a whole number from 2 to 1048576, got 1000000000000.0
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 1e12 },
}
