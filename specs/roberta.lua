-- roberta.lua - encoder: BERT whose positions begin after the row of the padding. Liu et al. 2019.
local bert = require "bert"

return function(given)
  local c = { first_position = 2, types = 1, norm_eps = 1e-5 }
  for k, v in pairs(type(given) == "table" and given or {}) do c[k] = v end
  return bert(c)
end
