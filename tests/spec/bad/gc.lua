-- gc.lua:3: setmetatable: a spec has no __gc
local ftx, nn = require "ftx", require "nn"
setmetatable({}, { __gc = function() end })
