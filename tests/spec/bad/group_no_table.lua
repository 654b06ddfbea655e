-- group_no_table.lua:4: limits must be a table with the fields sequences, context, tokens, source, sources, logit_bias, end_ids, bad_words, snapshots, masks, got 64
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = 64,
}
