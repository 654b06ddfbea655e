local nn = require "nn"
return nn.linear(nn.weight("\0\xff\xfe\n\"\\", { 2, 2 }), nn.weight(string.rep("x", 70000), { 2, 2 }))
