-- loop_iterator.lua:3: the spec still runs after 50 million instructions: is this loop endless?
local ftx, nn = require "ftx", require "nn"
for i in function() return 1 end do
end
