-- model_twice.lua:7: ftx.model was called twice; a spec describes one model
local ftx, nn = require "ftx", require "nn"
ftx.model {
  graph = require "llama" { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 16 },
}
return ftx.model { limits = { context = 16 } }
