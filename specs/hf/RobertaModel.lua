-- RobertaModel.lua - BERT whose first position is pad_token_id + 1.
local bert = require "hf/BertModel"

return function(config, more)
  local fields = { first_position = config:count("pad_token_id", 0, 2 ^ 24, 1) + 1 }
  for k, v in pairs(more or {}) do fields[k] = v end
  return bert(config, fields)
end
