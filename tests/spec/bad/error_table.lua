-- error_table.lua:3: error() was given a table, it takes a text
local ftx, nn = require "ftx", require "nn"
error({ "x" })
