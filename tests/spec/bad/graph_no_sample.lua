-- graph_no_sample.lua:4: graph must end with nn.sample(logits), it ends with embed
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
return ftx.model { graph = x, limits = { context = 16 } }
