-- cache_values.lua:6: cache: elements of a value must be a whole number from 1 to 16, got the number 17
local ftx = require "ftx"
local nn = require "nn"
local h = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local k = nn.split_heads(h, 2)
local y = nn.attend(k, nn.cache(k, 17))
return ftx.model { limits = { context = 64 }, graph = nn.sample(nn.linear(nn.select_last(nn.join_heads(y)), nn.weight("o", { 64, 32 }))) }
