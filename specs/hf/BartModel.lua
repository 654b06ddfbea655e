-- BartModel.lua - a BART checkout without a head, read as BartForConditionalGeneration: the embedding is the head.
return require "hf/BartForConditionalGeneration"
