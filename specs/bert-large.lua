-- bert-large.lua - the shape of BERT-large, 335 million parameters. Weights come with
-- `ftxc compile CHECKOUT`, or are random.
local ftx = require "ftx"
local bert = require "bert"

return ftx.model {
  name = "bert-large",
  graph = bert { vocab = 30522, hidden = 1024, layers = 24, heads = 16, ffn = 4096, positions = 512 },
  pad = 0,
  precision = { weights = "fp16" },
  limits = { sequences = 128, context = 512, tokens = 49152 },
}
