-- require_missing.lua:3: require: there is no module 'mamba': no file mamba.lua, and ftxc has no specs/mamba.lua
local ftx, nn = require "ftx", require "nn"
local mamba = require "mamba"
