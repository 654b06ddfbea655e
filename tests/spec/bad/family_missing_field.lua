-- family_missing_field.lua:6: llama: ffn is missing; it must be a whole number from 1 to 1048576
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2 },
}
