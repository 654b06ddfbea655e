-- nn_unknown.lua:3: nn has no 'conv2d'
local ftx, nn = require "ftx", require "nn"
nn.conv2d()
