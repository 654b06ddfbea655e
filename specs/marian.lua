-- marian.lua - translation: a transformer with sinusoidal positions; source, target and head share one
-- embedding. Junczys-Dowmunt et al. 2018.
local transformer = require "transformer"

return function(given)
  local c = { logits_bias = "final_logits_bias" }
  for k, v in pairs(type(given) == "table" and given or {}) do c[k] = v end
  return transformer(c)
end
