local ftx = require "ftx"
local gpt2 = require "gpt2"
return ftx.model { graph = gpt2 { vocab = 61, hidden = 24, layers = 1, heads = 3, positions = 64 },
                   limits = { sequences = 2, context = 64, tokens = 20 }, decode = ftx.greedy {} }
