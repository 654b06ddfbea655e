-- loop_sort.lua:4: the spec still runs after 50 million instructions: is this loop endless?
local ftx, nn = require "ftx", require "nn"
table.sort({ 3, 2, 1 }, function(a, b)
  while true do end
end)
