-- io_open.lua:3: io is not there: a spec runs without files, clock, randomness, text patterns and loaded code
local ftx, nn = require "ftx", require "nn"
local f = io.open("/etc/passwd")
