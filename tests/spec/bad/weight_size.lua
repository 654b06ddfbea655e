-- weight_size.lua:3: weight w: size 2 must be a whole number from 1 to 2147483647, got the number -16
local ftx, nn = require "ftx", require "nn"
local w = nn.weight("w", { 8, -16 })
