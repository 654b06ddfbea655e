-- random.lua:3: math.random is not there: a spec runs without files, clock, randomness, text patterns and loaded code
local ftx, nn = require "ftx", require "nn"
local x = math.random()
