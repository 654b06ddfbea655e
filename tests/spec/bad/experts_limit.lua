-- experts_limit.lua:6: experts: limit is for experts with a gate
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local r = nn.route(nn.linear(x, nn.weight("g", { 4, 32 })), { k = 2 })
local gate, down = nn.stack("x.*.gate", { 4, 8, 32 }), nn.stack("x.*.down", { 4, 32, 8 })
return nn.experts(x, r, { up = gate, down = down, limit = 7 })
