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

-- The same, of runs of columns and of rows: run i of x times rows i*N/groups to (i+1)*N/groups - 1 of w [N, K/groups].
function blocks.project_groups(x, name, outputs, bias, groups)
  if groups == 1 then return blocks.project(x, name, outputs, bias) end
  local K, N, y = nn.width(x) // groups, outputs // groups, nil
  local w, b = nn.weight(name .. ".weight", { outputs, K }), bias ~= false and nn.weight(name .. ".bias", { outputs })
  for i = 0, groups - 1 do
    local part = nn.linear(nn.slice(x, i * K, K), nn.rows(w, i * N, N), b and nn.rows(b, i * N, N))
    y = y and nn.join(y, part) or part
  end
  return y
end

-- x * weight + bias, element by element
function blocks.affine(x, name)
  local d = nn.width(x)
  local bias = nn.layernorm(0 * x, nil, nn.weight(name .. ".bias", { d }), 1) -- a norm of zeros is its bias
  return x * nn.weight(name .. ".weight", { d }) + bias
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
