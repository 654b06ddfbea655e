-- latent.lua - multi-head latent attention: keys and values of all heads are made of one short vector, for decoder.lua.
--
-- In the absorbed form the cache holds the vector and the rotated keys, one row for all heads, which are keys and, in their
-- first elements, values: the product that makes keys of the vector is applied to queries, that of values to the result. In the
-- plain form the cache holds keys and values of every head. DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.
--
-- c.absorbed: the absorbed form, where its rows of the cache are shorter (not in encoders, which have no cache).
--
-- c.latent, a table:
--   q        size of the queries' vector; nil: queries are made of the hidden state
--   kv       size of the vector of keys and values
--   nope     elements of a head that are not rotated; v: elements of a value
--   rotated  elements of a head that are; those of keys are shared by all heads
--   bias     biases of the products that make the vectors
--   eps      of the norms of the vectors
--   q_scale  of queries: nn.scale_by_position; nil: none
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

-- Whether the absorbed form is computed: nn.cache takes its keys, and they are shorter than the plain form's keys and values.
local function absorbs(c)
  local l = c.latent
  local elements = l.kv + l.rotated
  return c.absorbed and c.attention == "cache" and elements % 8 == 0 and elements >= 16 and elements <= 576 and
         elements < 2 * c.heads * (l.nope + l.rotated)
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

  q = nn.split_heads(l.q_scale and nn.scale_by_position(q, l.q_scale) or q, c.heads)
  local nope, rotated = nn.slice(q, 0, l.nope), nn.rope(nn.slice(q, l.nope, l.rotated), c.rope)
  local turned = nn.rope(nn.split_heads(nn.slice(both, l.kv, l.rotated), 1), c.rope)
  if absorbs(c) then
    -- k = w_k kv, so q . k = (transpose(w_k) q) . kv; and the sum of values w_v kv is w_v times the sum of kv.
    local w_k = nn.transpose(nn.rows(w, 0, l.nope, l.nope + l.v), c.heads)           -- [H*kv, nope]
    local w_v = nn.rows(w, l.nope, l.v, l.nope + l.v)                                -- [H*v, kv]
    local keys = nn.cache(nn.join(nn.split_heads(kv, 1), turned), l.kv)              -- [T, 1, kv+rotated]
    local y = nn.attend(nn.join(nn.head_linear(nope, w_k), rotated), keys, { scale = c.scale })
    return nn.join_heads(nn.head_linear(y, w_v))
  end
  q = nn.join(nope, rotated)
  local k = nn.join(nn.split_heads(nn.linear(kv, nn.rows(w, 0, l.nope, l.nope + l.v)), c.heads), turned)
  -- Keys and values in the cache have one size: v stands behind the last columns of the keys, which nobody reads.
  local v = nn.split_heads(nn.linear(kv, nn.rows(w, l.v - l.rotated, size, l.nope + l.v)), c.heads)
  local y = c.attention == "cache" and nn.attend(q, nn.cache(k, v), { scale = c.scale }) or
            nn.attend_full(q, k, v, { scale = c.scale, causal = c.attention == "causal" })
  y = nn.join_heads(y)
  return nn.join_heads(nn.slice(nn.split_heads(y, c.heads), size - l.v, l.v))
end
