-- linear_bias.lua:4: linear: b is [16], it must be [32]
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
local y = nn.linear(x, nn.weight("w", { 32, 16 }), nn.weight("b", { 16 }))
