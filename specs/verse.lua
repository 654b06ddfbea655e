-- verse.lua - 9 million parameters that translate English to German; its weights lie beside this file.
local ftx = require "ftx"
local seq2seq = require "seq2seq"

return ftx.model {
  name = "verse",
  graph = seq2seq {
    vocab = 8000, hidden = 256, encoder_layers = 4, decoder_layers = 4, heads = 4, ffn = 1024,
    activation = "silu", logits_bias = "final_logits_bias",
  },
  weights = "verse/model.safetensors",
  tokenizer = "verse/tokenizer.json",
  eos = 0,
  start = 7999,
  pad = 7999,
  precision = { weights = "bf16", compute = "auto", kv = "auto" },
  limits = { sequences = 32, context = 256, source = 256, tokens = 1024 },
  kv = { block_size = 16 },
  decode = ftx.beam { width = 4, max_new = 255, forced_eos = 0, bad_words = { 7999 } },
}
