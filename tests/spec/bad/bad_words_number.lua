-- bad_words_number.lua:4: decode.bad_words must be a list of words, each a token id or a list of ids, got 3
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.greedy { bad_words = 3 },
}
