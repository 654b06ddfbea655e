-- beam_groups_odd.lua:4: decode.beam_groups must be a divisor of decode.width (4): groups are of one size, got 3
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.beam { width = 4, beam_groups = 3, diversity_rate = 0.5 },
}
