-- -D graph=llama: the graph is what the spec computes; -D sets fields of its family, as in graph.layers=2
-- -D graph=llama
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
