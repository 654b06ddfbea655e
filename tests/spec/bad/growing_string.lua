-- growing_string.lua:5: the spec wants more memory than it may have: 256 MB, and 16 MB for one text or table
local ftx, nn = require "ftx", require "nn"
local s = "x"
while true do
  s = s .. s
end
