-- global.lua:3: 'limits' would be a global: say `local limits`
local ftx, nn = require "ftx", require "nn"
limits = { context = 5 }
