-- loop_metamethod.lua:4: the spec still runs after 50 million instructions: is this loop endless?
local ftx, nn = require "ftx", require "nn"
local t = setmetatable({}, { __index = function(t, k)
  while true do end
end })
return t.x
