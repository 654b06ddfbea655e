-- tokens_below_sequences.lua:4: limits.tokens must be at least limits.sequences (32): a step has one token of each, got 16
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64, sequences = 32, tokens = 16 },
}
