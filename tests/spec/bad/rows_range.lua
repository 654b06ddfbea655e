-- rows_range.lua:3: rows: count is 32, it must be 1 to 16
local ftx, nn = require "ftx", require "nn"
local w = nn.rows(nn.weight("w", { 48, 16 }), 32, 32)
