-- GPT2Model.lua - GPT-2 without its head: an encoder.
local decoders = require "hf/decoders"
local gpt2 = require "hf/GPT2LMHeadModel"

return function(config)
  local model = gpt2(config, decoders.attention(config))
  model.encoder = true
  return model
end
