-- error_far.lua:4: llama takes a table with the fields activation, attention_bias, ffn, head_dim, heads, hidden, kv_heads, layers, mlp_bias, norm_eps, rope, tie_embeddings, vocab, window, got 7
local ftx, nn = require "ftx", require "nn"
local llama = require "llama"
llama(7)
