-- scoring.lua:4: scoring must be one of none, sigmoid, softmax, got "best"
local ftx = require "ftx"
local bert = require "bert"
return ftx.model {
  graph = bert { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, positions = 64, labels = 3 },
  scoring = "best",
  limits = { context = 64 },
}
