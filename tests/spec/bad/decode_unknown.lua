-- decode_unknown.lua:6: ftx.sample: there is no field 'temprature'; the fields are: max_new, min_new, temperature, top_k, top_p, min_p, typical_p, repetition_penalty, repetition_window, presence_penalty, frequency_penalty, no_repeat_ngram, samples, beams, length_penalty, early_stopping, n_best, beam_groups, diversity_rate, max_top_k, width, bad_words, forced_bos, forced_eos
local ftx = require "ftx"
local llama = require "llama"
return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 64 }, decode = ftx.sample { temprature = 1 },
}
