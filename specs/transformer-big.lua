-- transformer-big.lua - the shape of the big model of Vaswani et al. 2017; weights are random.
local ftx = require "ftx"
local seq2seq = require "seq2seq"

return ftx.model {
  name = "transformer-big",
  graph = seq2seq { vocab = 30000, hidden = 1024, encoder_layers = 6, decoder_layers = 6, heads = 16, ffn = 4096 },
  eos = 0,
  start = 1,
  precision = { weights = "fp16" },
  limits = { sequences = 256, context = 256, source = 256, tokens = 4096 },
  decode = ftx.beam { width = 4 },
}
