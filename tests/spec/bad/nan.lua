-- nan.lua:4: decode.temperature must be a number from 0 to 100, got nan
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.sample { temperature = 0/0 },
}
