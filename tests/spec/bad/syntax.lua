-- syntax.lua:3: unexpected symbol near '='
local ftx, nn = require "ftx", require "nn"
local x = = 3
