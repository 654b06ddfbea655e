-- specs/llama.lua:35: rope: scaling.kind is "yarn", it must be none, linear or llama3 (from rope_yarn.lua:6)
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, rope = { scaling = { kind = "yarn", factor = 4 } } },
}
