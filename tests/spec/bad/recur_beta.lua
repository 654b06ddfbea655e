-- recur_beta.lua:6: recur: beta is [T,1], it must be [T,2], a number for each head of v
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local h, r = nn.split_heads(x, 2), nn.weight("r", { 2 })
local a = nn.slice(x, 0, 2)
local y = nn.recur(h, h, h, a, { rate = r, shift = r, beta = nn.slice(x, 0, 1) })
return ftx.model { graph = nn.sample(nn.linear(nn.select_last(nn.join_heads(y)), nn.weight("e", { 64, 32 }))), limits = { context = 16 } }
