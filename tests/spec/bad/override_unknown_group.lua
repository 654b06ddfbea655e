-- -D speed.fast=32: a model has no field 'speed.fast'; the fields are: name, graph, weights, tokenizer, bos, eos, start, pad, pooling, normalize, states, labels, scoring, precision, limits, parallel, kv, decode
-- -D speed.fast=32
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
