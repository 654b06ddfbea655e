-- loop_close.lua:4: setmetatable: __close is not there in a spec
local ftx, nn = require "ftx", require "nn"
local function again()
  local x <close> = setmetatable({}, { __close = function() again() end })
  while true do end
end
again()
