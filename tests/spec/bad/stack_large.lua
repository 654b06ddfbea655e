-- stack_large.lua:3: stack experts.*.w: [1073741824,1025] is more than 2^40 elements
local nn = require "nn"
return nn.stack("experts.*.w", { 1024, 2 ^ 20, 1025 })
