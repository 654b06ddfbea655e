-- top_k_over_maximum.lua:4: decode.top_k must be at most decode.max_top_k (20), got 50
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.sample { top_k = 50, max_top_k = 20 },
}
