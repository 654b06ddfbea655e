-- after_model.lua:6: add: b: nothing can be added to the graph after ftx.model
local ftx, nn = require "ftx", require "nn"
local graph = require "llama" { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 }
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
ftx.model { graph = graph, limits = { context = 16 } }
return x + x
