-- unknown_field.lua:4: limits has no field 'sequnces'; the fields are: sequences, context, tokens, source, sources, logit_bias, end_ids, bad_words, snapshots, masks
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64, sequnces = 2 },
}
