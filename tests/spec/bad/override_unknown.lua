-- -D limits.contxt=32: limits has no field 'contxt'; the fields are: sequences, context, tokens, source, sources, logit_bias, end_ids, bad_words, snapshots, masks
-- -D limits.contxt=32
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
