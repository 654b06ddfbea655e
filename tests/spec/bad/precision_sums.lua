-- precision_sums.lua:4: precision.sums must be one of free, fixed, got "exact"
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, precision = { sums = "exact" },
}
