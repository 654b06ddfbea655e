-- weights_missing.lua:4: weights must be a file that is there, got "nowhere/model.safetensors"
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, weights = "nowhere/model.safetensors",
}
