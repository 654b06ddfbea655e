-- decode_unknown.lua:6: ftx.sample: there is no field 'temprature'; the fields are: temperature, top_k, top_p, min_p, typical_p, repetition_penalty, repetition_window, presence_penalty, frequency_penalty, no_repeat_ngram, bad_words, min_new, max_new, max_top_k, samples, width, beam_groups, diversity_rate, length_penalty, early_stopping, n_best, forced_bos, forced_eos
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.sample { temprature = 1 },
}
