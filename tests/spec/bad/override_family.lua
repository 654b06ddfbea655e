-- -D graph.layer=2: the graph's family has no field 'layer'
-- -D graph.layer=2
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
