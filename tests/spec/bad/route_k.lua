-- route_k.lua:4: route: k is missing
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
return nn.route(nn.linear(x, nn.weight("g", { 4, 32 })), { renorm = true })
