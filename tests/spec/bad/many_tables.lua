-- many_tables.lua:5: the spec wants more memory than it may have: 256 MB, and 16 MB for one text or table
local ftx, nn = require "ftx", require "nn"
local t
while true do
  t = { t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 }
end
