-- bart.lua - a transformer with learned positions, whose table begins with two rows that nobody
-- reads, and a norm behind the embedding. Lewis et al. 2019.
--
-- positions: as many as a text may have.
local transformer = require "transformer"

return function(given)
  local c = { logits_bias = "final_logits_bias", activation = "gelu_erf", norm_embedding = true,
              first_position = 2, scale_embedding = false }
  for k, v in pairs(type(given) == "table" and given or {}) do c[k] = v end
  if math.type(c.positions) then c.positions = c.positions + 2 end
  return transformer(c)
end
