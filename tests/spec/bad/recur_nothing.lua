-- recur_nothing.lua:6: recur takes a table with the fields rate and shift
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local h = nn.split_heads(x, 2)
local a = nn.slice(x, 0, 2)
local y = nn.recur(h, h, h, a)
return ftx.model { graph = nn.sample(nn.linear(nn.select_last(nn.join_heads(y)), nn.weight("e", { 64, 32 }))), limits = { context = 16 } }
