-- specs/llama.lua:63: embed: w comes after ftx.model, when the graph is complete (from model_twice.lua:7)
local ftx, nn = require "ftx", require "nn"
local function graph()
  return require "llama" { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 }
end
ftx.model { graph = graph(), limits = { context = 16 } }
ftx.model { graph = graph(), limits = { context = 16 } }
