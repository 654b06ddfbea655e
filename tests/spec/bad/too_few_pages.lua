-- too_few_pages.lua:4: kv.pages must be at least 40, the pages of one sequence of limits.context tokens, got 8
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 640 }, kv = { block_size = 16, pages = 8 },
}
