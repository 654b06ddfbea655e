-- add_shape.lua:4: add: a is [T,16], b is [T,24]; they must be equal
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
local y = x + nn.linear(x, nn.weight("w", { 24, 16 }))
