-- gpt2-124m.lua - the published shape of GPT-2 (124 million parameters), of the family gpt2.lua.
-- Weights: as in llama-3.2-1b.lua.
local ftx = require "ftx"
local gpt2 = require "gpt2"

return ftx.model {
  name = "gpt2-124m",
  graph = gpt2 { vocab = 50257, hidden = 768, layers = 12, heads = 12, positions = 1024 },
  bos = 50256,
  eos = 50256,
  precision = { weights = "bf16" },
  limits = { sequences = 16, context = 1024, tokens = 512 },
  decode = ftx.sample { temperature = 0.8, top_k = 40 },
}
