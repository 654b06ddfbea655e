-- stack_shape.lua:3: stack experts.*.w: the shape must be {n, N} or {n, N, K}, got another table
local nn = require "nn"
return nn.stack("experts.*.w", { 4 })
