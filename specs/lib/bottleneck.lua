-- bottleneck.lua - layers of MobileBERT (Sun et al. 2020) for encoder.lua: attention and several feed-forwards of rows that are
-- narrower than those between layers, with a factor and a summand of each element in place of norms.
--
-- c.bottleneck, a table:
--   width       of the narrow rows
--   values      values are made of the narrow rows, too; else of the wide ones
--   apart       queries and keys have narrow rows of their own
--   count       feed-forwards, one after another
-- width is hidden in a model without bottlenecks, and `between` is false: its layers begin and end with their rows as they are.
--
-- T tokens of all texts, D hidden, W width, F ffn.
local nn = require "nn"
local blocks = require "lib.blocks"

return function(c, h, name)                                         -- h [T, D]
  local at = c.bottleneck
  local function narrowed(part)
    part = name .. "bottleneck." .. part
    return at.between and blocks.affine(blocks.project(h, part .. ".dense", at.width), part .. ".LayerNorm") or h
  end
  local function summed(x, y, part) return blocks.affine(blocks.project(x, part .. ".dense", nn.width(y)) + y, part .. ".LayerNorm") end
  local function feed_forward(x, name)
    local y = nn.act(blocks.project(x, name .. "intermediate.dense", c.ffn), c.activation)
    return summed(y, x, name .. "output")
  end
  local x = narrowed "input"                                        -- [T, W]
  local of_keys = at.apart and narrowed "attention" or x
  local function heads(rows, part)
    return nn.split_heads(blocks.project(rows, name .. "attention.self." .. part, at.width), c.heads)
  end
  local y = nn.attend_full(heads(of_keys, "query"), heads(of_keys, "key"), heads(at.values and x or h, "value"))
  y = summed(nn.join_heads(y), x, name .. "attention.output")
  for i = 0, at.count - 2 do y = feed_forward(y, name .. "ffn." .. i .. ".") end
  y = feed_forward(y, name)
  return at.between and summed(y, h, name .. "output.bottleneck") or y -- [T, D]
end
