-- family_nan.lua:6: llama: norm_eps must be a number above 0 and up to 1, got nan
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, norm_eps = 0/0 },
}
