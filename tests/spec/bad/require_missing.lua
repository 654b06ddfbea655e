-- require_missing.lua:3: require: there is no module 'bert': no file bert.lua, and ftxc has no specs/bert.lua
local ftx, nn = require "ftx", require "nn"
local bert = require "bert"
