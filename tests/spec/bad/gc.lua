-- gc.lua:3: setmetatable: __gc is not there in a spec
local ftx, nn = require "ftx", require "nn"
setmetatable({}, { __gc = function() end })
