-- context_over_positions.lua:3: limits.context must be at most 128, the number of the model's learned positions, got 256
local ftx, nn = require "ftx", require "nn"
return ftx.model {
  graph = require "gpt2" { vocab = 64, hidden = 32, layers = 1, heads = 2, positions = 128 },
  limits = { context = 256 },
}
