-- pattern.lua:3: string.match is not there: a spec runs without files, clock, randomness, text patterns and loaded code
local ftx, nn = require "ftx", require "nn"
local s = ("aaaa"):match("a-b")
