-- family_unknown_field.lua:6: llama: there is no field 'moe'; the fields are: activation, attention_bias, ffn, head_dim, heads, hidden, kv_heads, layers, mlp_bias, norm_eps, rope, tie_embeddings, vocab, window
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  limits = { context = 64 },
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, moe = 4 },
}
