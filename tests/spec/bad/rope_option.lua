-- specs/llama.lua:35: rope has no option 'base'; it has: theta dim scaling style freqs amplitude count tail (from rope_option.lua:6)
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, rope = { base = 5 } },
}
