-- blocks.lua - the blocks that encoders and encoder-decoders share, over the checkpoint's names.
--
-- T tokens, D hidden, H heads, E head_dim, F ffn.
local nn = require "nn"

local blocks = {}

-- x * w^T + b
function blocks.project(x, name, outputs)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }), nn.weight(name .. ".bias", { outputs }))
end

function blocks.norm(x, name, eps)
  local d = nn.width(x)
  return nn.layernorm(x, nn.weight(name .. ".weight", { d }), nn.weight(name .. ".bias", { d }), eps)
end

-- [T, H, E] of x [T, D]
function blocks.heads(x, name, heads)
  return nn.split_heads(blocks.project(x, name, nn.width(x)), heads)
end

-- Attention of every token over all of its text. names: q, k, v, out.
function blocks.attend_full(x, names, heads)                        -- x [T, D]
  local q, k, v = blocks.heads(x, names.q, heads), blocks.heads(x, names.k, heads), blocks.heads(x, names.v, heads)
  return blocks.project(nn.join_heads(nn.attend_full(q, k, v)), names.out, nn.width(x))
end

-- Attention over what came before, through the cache.
function blocks.attend_causal(x, names, heads)
  local q, k, v = blocks.heads(x, names.q, heads), blocks.heads(x, names.k, heads), blocks.heads(x, names.v, heads)
  return blocks.project(nn.join_heads(nn.attend(q, nn.cache(k, v))), names.out, nn.width(x))
end

-- Attention over the source; `source` [T of the source, D] is the encoder's output.
function blocks.attend_source(x, source, names, heads)
  local cross = nn.cross_cache(blocks.heads(source, names.k, heads), blocks.heads(source, names.v, heads))
  return blocks.project(nn.join_heads(nn.attend_cross(blocks.heads(x, names.q, heads), cross)), names.out, nn.width(x))
end

-- F wide, then D again.
function blocks.feed_forward(x, up, down, ffn, activation)
  return blocks.project(nn.act(blocks.project(x, up, ffn), activation), down, nn.width(x))
end

return blocks
