-- returns_nothing.lua: the spec must return ftx.model { ... }, it returned nil
local ftx, nn = require "ftx", require "nn"
local x = 1
