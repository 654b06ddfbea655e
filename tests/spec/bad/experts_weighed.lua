-- experts_weighed.lua:7: experts: down_bias cannot stand beside weigh_input
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local r = nn.route(nn.linear(x, nn.weight("g", { 4, 32 })), { k = 2 })
local both, down = nn.stack("x.both", { 4, 16, 32 }), nn.stack("x.*.down", { 4, 32, 8 })
local bias = nn.stack("x.*.bias", { 4, 32 })
return nn.experts(x, r, { gate_up = both, down = down, down_bias = bias, kind = "silu", weigh_input = true })
