-- stack_stars.lua:3: stack layers.*.experts.*.w: one * stands for the number of an expert, not two
local nn = require "nn"
return nn.stack("layers.*.experts.*.w", { 4, 8, 8 })
