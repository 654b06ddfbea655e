-- bert-base.lua - the shape of BERT-base, 110 million parameters. Weights come with
-- `ftxc compile CHECKOUT`, or are random.
local ftx = require "ftx"
local bert = require "bert"

return ftx.model {
  name = "bert-base",
  graph = bert { vocab = 30522, hidden = 768, layers = 12, heads = 12, ffn = 3072, positions = 512 },
  pad = 0,
  precision = { weights = "fp16" },
  limits = { sequences = 128, context = 512, tokens = 16384 },
}
