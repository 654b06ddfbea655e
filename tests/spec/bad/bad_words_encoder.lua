-- bad_words_encoder.lua:4: decode.bad_words: an encoder writes no words
local ftx = require "ftx"
local bert = require "bert"
return ftx.model {
  graph = bert { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, positions = 64 },
  limits = { context = 64 }, decode = { bad_words = { 3 } },
}
