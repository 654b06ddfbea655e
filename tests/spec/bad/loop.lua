-- loop.lua:3: the spec still runs after 50 million instructions: is this loop endless?
local ftx, nn = require "ftx", require "nn"
while true do end
