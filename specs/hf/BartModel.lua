-- BartModel.lua - a BART checkout without a head: the embedding is its head, as transformers reads it into
-- BartForConditionalGeneration.
return require "hf/BartForConditionalGeneration"
