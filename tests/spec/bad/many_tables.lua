-- many_tables.lua:5: the spec wants more memory than it may have: 256 MB, and 16 MB for one text or table
local ftx, nn = require "ftx", require "nn"
local t
while true do
  t = { t, "x" }
end
