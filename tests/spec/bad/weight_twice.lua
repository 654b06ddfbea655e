-- weight_twice.lua:4: weight w: the shape is [16,8] here and [8,16] on line 3
local ftx, nn = require "ftx", require "nn"
local a = nn.weight("w", { 8, 16 })
local b = nn.weight("w", { 16, 8 })
