-- linear_shape.lua:4: linear: x is [T,16], w is [32,24]
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
local y = nn.linear(x, nn.weight("w", { 32, 24 }))
