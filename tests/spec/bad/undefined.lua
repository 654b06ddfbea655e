-- undefined.lua:3: 'contxt' is not defined here
local ftx, nn = require "ftx", require "nn"
local x = contxt + 1
