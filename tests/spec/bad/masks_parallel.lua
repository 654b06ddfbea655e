-- masks_parallel.lua:5: limits.masks: not with parallel; the host applies the masks of several ranks
-- -D limits.masks=true parallel=2
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
