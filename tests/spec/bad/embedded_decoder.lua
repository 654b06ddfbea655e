-- embedded_decoder.lua:6: entry: %3 is not an inner value of an encoder
local ftx = require "ftx"
local nn = require "nn"
local llama = require "llama"
nn.embedded(nn.embed(nn.ids(), nn.weight("w", { 64, 32 })))
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
