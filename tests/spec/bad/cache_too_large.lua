-- cache_too_large.lua:3: the cache of keys and values would take 1048576 GB in fp32, at most 4096 are allowed; lower limits.sequences, limits.context or kv.pages
local ftx, llama = require "ftx", require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 4096, layers = 64, heads = 32, ffn = 48 },
  limits = { context = 1048576, sequences = 512 },
}
