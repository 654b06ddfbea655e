-- loop_nested.lua:3: the spec still runs after 50 million instructions: is this loop endless?
local ftx, nn = require "ftx", require "nn"
local function inner() local function deep() while true do end end deep() end
local function outer() inner() end
outer()
