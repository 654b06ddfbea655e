-- stack_twice.lua:4: stack experts.*.w: it has another shape on line 3
local nn = require "nn"
local a = nn.stack("experts.*.w", { 4, 8, 8 })
return nn.stack("experts.*.w", { 8, 4, 8 })
