-- load_text.lua:3: load is not there: a spec runs without files, clock, randomness, text patterns and loaded code
local ftx, nn = require "ftx", require "nn"
load("return 1")()
