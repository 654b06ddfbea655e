-- top_k_too_large.lua:4: decode.top_k must be a whole number from 0 to 1024, got 5000
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.sample { top_k = 5000 },
}
