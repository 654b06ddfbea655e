-- loop_close.lua:4: setmetatable: a spec has no __close
local ftx, nn = require "ftx", require "nn"
local function again()
  local x <close> = setmetatable({}, { __close = function() again() end })
  while true do end
end
again()
