-- labels_number.lua:4: labels must be texts of one line each, got 3
local ftx = require "ftx"
local bert = require "bert"
return ftx.model {
  graph = bert { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, positions = 64, labels = 3 },
  labels = { "yes", "no", 3 },
  limits = { context = 64 },
}
