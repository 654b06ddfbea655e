-- require_outside.lua:3: require: '../../../secret' is not the name of a module: letters, digits, '_', '-', and '.' or '/' between folders
local ftx, nn = require "ftx", require "nn"
local x = require "../../../secret"
