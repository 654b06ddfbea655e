-- route_flag.lua:4: route: renorm must be true or false, got the number 1
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
return nn.route(nn.linear(x, nn.weight("g", { 4, 32 })), { k = 2, renorm = 1 })
