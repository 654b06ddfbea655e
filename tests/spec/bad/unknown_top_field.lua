-- unknown_top_field.lua:4: ftx.model has no field 'wieghts'; the fields are: name, graph, weights, tokenizer, bos, eos, start, pad, pooling, normalize, states, labels, scoring, precision, limits, parallel, kv, decode
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, wieghts = "x.safetensors",
}
