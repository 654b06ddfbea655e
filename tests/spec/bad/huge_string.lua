-- huge_string.lua:3: resulting string too large
local ftx, nn = require "ftx", require "nn"
local s = ("x"):rep(1 << 34)
