-- samples_too_many.lua:4: decode.samples must be at most limits.sequences (2), got 3
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64, sequences = 2 }, decode = ftx.sample { samples = 3 },
}
