-- bad_words_empty.lua:4: decode.bad_words must be words of one or more token ids from 0 to 63, together at most 65536, got a table
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.greedy { bad_words = { 3, {} } },
}
