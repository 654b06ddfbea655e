-- -D graph.layers=many: layers must be a whole number from 1 to 1024
-- -D graph.layers=many
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
