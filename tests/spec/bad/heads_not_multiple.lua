-- heads_not_multiple.lua:6: llama: heads must be a multiple of kv_heads, got 6 and 4
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 96, layers = 1, heads = 6, kv_heads = 4, ffn = 48 },
}
