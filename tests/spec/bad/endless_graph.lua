-- endless_graph.lua:5: the graph has more than 200000 values
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
while true do
  x = x + x
end
