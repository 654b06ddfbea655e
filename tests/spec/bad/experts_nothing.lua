-- experts_nothing.lua:5: experts takes a table with the fields gate, up, down and kind
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local r = nn.route(nn.linear(x, nn.weight("g", { 4, 32 })), { k = 2 })
return nn.experts(x, r)
