-- graph_missing.lua:3: graph must be what a family returns, as in graph = llama { ... }, got nothing
local ftx, nn = require "ftx", require "nn"
return ftx.model { limits = { context = 16 } }
