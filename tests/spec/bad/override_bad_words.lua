-- -D decode.bad_words=3,4;x: decode.bad_words must be words of token ids: 1 or 1,2;3
-- -D decode.bad_words=3,4;x
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 },
}
