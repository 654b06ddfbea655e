-- route_nothing.lua:4: route takes a table with the field k
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
return nn.route(nn.linear(x, nn.weight("g", { 4, 32 })))
