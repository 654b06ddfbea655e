-- MistralForCausalLM.lua - a LLaMA whose tokens see `sliding_window` keys: 4096 if the field is missing, all of
-- them if it is null.
local llama = require "hf/LlamaForCausalLM"

return function(config)
  config:only("layer_types", "missing: layers of different kinds are not read")
  local missing = config.values.sliding_window == nil
  return llama(config, config:count("sliding_window", 0, 2 ^ 24, missing and 4096 or 0))
end
