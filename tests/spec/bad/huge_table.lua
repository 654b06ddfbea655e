-- huge_table.lua:5: the spec wants more memory than it may have: 256 MB, and 16 MB for one text or table
local ftx, nn = require "ftx", require "nn"
local t = {}
for i = 1, 1e9 do
  t[i] = i
end
