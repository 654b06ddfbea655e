-- width_over_vocab.lua:4: decode.width must be at most the size of the vocabulary, 16, got 32
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 16, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64, sequences = 64 }, decode = ftx.beam { width = 32 },
}
