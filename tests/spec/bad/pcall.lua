-- pcall.lua:3: pcall is not there: a spec runs without files, clock, randomness, text patterns and loaded code
local ftx, nn = require "ftx", require "nn"
pcall(error, "x")
