-- latent.lua - multi-head latent attention: keys and values of all heads are made of one short vector, for decoder.lua.
--
-- This is the plain form: the cache holds keys and values, not the vector. DeepSeek-AI 2024 (DeepSeek-V2).
--
-- c.latent, a table:
--   q        size of the queries' vector; nil: queries are made of the hidden state
--   kv       size of the vector of keys and values
--   nope     elements of a head that are not rotated; v: elements of a value
--   rotated  elements of a head that are; those of keys are shared by all heads
--   bias     biases of the products that make the vectors
--   eps      of the norms of the vectors
--
-- T tokens, D hidden, H heads.
local nn = require "nn"

local function project(x, name, outputs, bias)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }),
                   bias and nn.weight(name .. ".bias", { outputs }))
end

local function normed(x, name, eps)
  return nn.rmsnorm(x, nn.weight(name .. ".weight", { nn.width(x) }), eps)
end

-- x [T, D]; gives [T, H*v]
return function(c, x, name)
  local n, l = c.names, c.latent
  local size = l.nope + l.rotated
  local q = l.q and project(normed(project(x, name .. n.q_a, l.q, l.bias), name .. n.q_a_norm, l.eps), name .. n.q_b,
                            c.heads * size) or project(x, name .. n.q, c.heads * size)
  local both = project(x, name .. n.kv_a, l.kv + l.rotated, l.bias) -- the vector, and the keys that are rotated
  local kv = normed(nn.slice(both, 0, l.kv), name .. n.kv_a_norm, l.eps)
  local w = nn.weight(name .. n.kv_b .. ".weight", { c.heads * (l.nope + l.v), l.kv })

  q = nn.split_heads(q, c.heads)
  q = nn.join(nn.slice(q, 0, l.nope), nn.rope(nn.slice(q, l.nope, l.rotated), c.rope))
  local turned = nn.rope(nn.split_heads(nn.slice(both, l.kv, l.rotated), 1), c.rope)
  local k = nn.join(nn.split_heads(nn.linear(kv, nn.rows(w, 0, l.nope, l.nope + l.v)), c.heads), turned)
  -- Keys and values in the cache have one size: v stands behind the last columns of the keys, which nobody reads.
  local v = nn.split_heads(nn.linear(kv, nn.rows(w, l.v - l.rotated, size, l.nope + l.v)), c.heads)
  local y = c.attention == "cache" and nn.attend(q, nn.cache(k, v), { scale = c.scale }) or
            nn.attend_full(q, k, v, { scale = c.scale, causal = c.attention == "causal" })
  y = nn.join_heads(y)
  return nn.join_heads(nn.slice(nn.split_heads(y, c.heads), size - l.v, l.v))
end
