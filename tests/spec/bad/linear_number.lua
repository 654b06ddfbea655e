-- linear_number.lua:4: linear: w must be a graph value, got the number 16
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
local y = nn.linear(x, 16)
