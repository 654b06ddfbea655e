-- blocks.lua - linears, norms, attention and feed-forward of encoders, by names of weights.
--
-- T tokens, D hidden, H heads, E head_dim, F ffn.
local nn = require "nn"

local blocks = {}

-- x * w^T + b; bias false: without b
function blocks.project(x, name, outputs, bias)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }),
                   bias ~= false and nn.weight(name .. ".bias", { outputs }))
end

function blocks.norm(x, name, eps, bias)
  local d = nn.width(x)
  return nn.layernorm(x, nn.weight(name .. ".weight", { d }), bias ~= false and nn.weight(name .. ".bias", { d }), eps)
end

-- [T, H, E] of x [T, D]
function blocks.heads(x, name, heads)
  return nn.split_heads(blocks.project(x, name, nn.width(x)), heads)
end

-- Every token attends to all of its text. names: of the weights of q, k, v, out.
function blocks.attend_full(x, names, heads)                        -- x [T, D]
  local q, k, v = blocks.heads(x, names.q, heads), blocks.heads(x, names.k, heads), blocks.heads(x, names.v, heads)
  return blocks.project(nn.join_heads(nn.attend_full(q, k, v)), names.out, nn.width(x))
end

-- A linear to F, the activation, a linear back to D.
function blocks.feed_forward(x, up, down, ffn, activation)
  return blocks.project(nn.act(blocks.project(x, up, ffn), activation), down, nn.width(x))
end

return blocks
