-- os_execute.lua:3: os is not there: a spec runs without files, clock, randomness, text patterns and loaded code
local ftx, nn = require "ftx", require "nn"
os.execute("true")
