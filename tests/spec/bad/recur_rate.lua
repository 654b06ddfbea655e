-- recur_rate.lua:6: recur: rate is missing
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local h = nn.split_heads(x, 2)
local a = nn.slice(x, 0, 2)
local y = nn.recur(h, h, h, a, { shift = nn.weight("s", { 2 }) })
return ftx.model { graph = nn.sample(nn.linear(nn.select_last(nn.join_heads(y)), nn.weight("e", { 64, 32 }))), limits = { context = 16 } }
