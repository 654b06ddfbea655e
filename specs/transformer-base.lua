-- transformer-base.lua - the shape of the base model of Vaswani et al. 2017; weights are random.
local ftx = require "ftx"
local seq2seq = require "seq2seq"

return ftx.model {
  name = "transformer-base",
  graph = seq2seq { vocab = 30000, hidden = 512, encoder_layers = 6, decoder_layers = 6, heads = 8, ffn = 2048 },
  eos = 0,
  start = 1,
  precision = { weights = "fp16" },
  limits = { sequences = 512, context = 64, source = 64, tokens = 4096 },
  decode = ftx.beam { width = 4 },
}
