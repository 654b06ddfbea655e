-- route_words.lua:4: route: score must be "softmax" or "sigmoid", got "tanh"
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
return nn.route(nn.linear(x, nn.weight("g", { 4, 32 })), { k = 2, score = "tanh" })
