-- typical_of_greedy.lua:6: ftx.greedy takes the most likely token and has no typical_p; ftx.sample has it
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.greedy { typical_p = 0.9 },
}
