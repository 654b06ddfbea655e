-- labels.lua:4: labels must be 3 texts, one for each number of the pooled vector, got a table
local ftx = require "ftx"
local bert = require "bert"
return ftx.model {
  graph = bert { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, positions = 64, labels = 3 },
  labels = { "yes", "no" },
  limits = { context = 64 },
}
