-- bart.lua - encoder and decoder: a transformer with learned positions and a norm after the embedding.
-- Lewis et al. 2019. The first two rows of the table of positions are not used.
--
-- positions: the longest text; the table has two rows more.
local transformer = require "transformer"

return function(given)
  local c = { logits_bias = "final_logits_bias", activation = "gelu_erf", norm_embedding = true,
              first_position = 2, scale_embedding = false }
  for k, v in pairs(type(given) == "table" and given or {}) do c[k] = v end
  if math.type(c.positions) then c.positions = c.positions + 2 end
  return transformer(c)
end
