-- eos_out_of_vocab.lua:4: eos must be token ids from 0 to 63, got 64
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, eos = { 1, 64 },
}
