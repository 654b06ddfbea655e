-- recursion.lua:4: stack overflow
local ftx, nn = require "ftx", require "nn"
local function f(n)
  return 1 + f(n + 1)
end
f(1)
