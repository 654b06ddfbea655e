-- value_field.lua:4: a graph value has no field 'shape'; nn.width(x) gives its last size
local ftx, nn = require "ftx", require "nn"
local x = nn.ids()
local y = x.shape
