-- scale_by_position.lua:4: scale_by_position takes a table with the fields by and every
local nn = require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
return nn.scale_by_position(x)
