-- two_caches.lua:7: graph has 2 caches, of which attends read 1; each must be read
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local h = nn.split_heads(x, 2)
local unused = nn.cache(h, h)
local y = nn.join_heads(nn.attend(h, nn.cache(h, h)))
return ftx.model { graph = nn.sample(nn.linear(nn.select_last(y), nn.weight("e", { 64, 32 }))), limits = { context = 16 } }
