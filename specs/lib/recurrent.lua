-- recurrent.lua - layers that keep a state of fixed size in place of keys and values, for decoder.lua.
--
-- c.conv, a gated convolution of few tokens (LFM2):
--   width       tokens that it reads
--   bias        its products and the convolution have biases
--
-- c.delta, a gated delta net (Yang et al. 2024):
--   k_heads, k_dim, v_heads, v_dim    heads of queries and keys, and of values
--   width       of the convolution of q, k and v
--   eps         of the norm of the result's heads
--   doubled     a key takes the place of twice the share: eigenvalues of the state down to -1
-- Its products are names.delta_qkvz and delta_ba (rows of each key's head one after another), or delta_qkv, or delta_q,
-- delta_k and delta_v with a convolution of each, and delta_z, delta_b and delta_a.
--
-- c.mamba, Mamba-2 (Dao and Gu 2024):
--   heads, head_dim    of values
--   groups, state      heads of B and C, and their elements
--   width       of the convolution of x, B and C
--   bias, conv_bias, out_bias         of the products and the convolution
--   low, high   bounds of the time step; nil: none
--   norm        "gated": the gated result is normed, "first": it is normed and then gated, "": not at all
--   eps         of that norm, which is of each group; norm_groups: as many groups for the norm as these
--   activation  behind the convolution
--   scale       of its input; scales: of z, x, B, C and dt; nil: 1
--
-- c.selective, Mamba (Gu and Dao 2023):
--   inner       columns of x, each a head of one value
--   state       elements of B and C
--   rank        columns of which the time step is made
--   width       of the convolution of x
--   bias, conv_bias, out_bias    of the products and the convolution
--   eps         of norms of the time step's columns, B and C; nil: they are not normed. Gains: names.selective_dt_norm, _b_norm, _c_norm
--   activation  behind the convolution, and of the gate
--
-- T tokens, D hidden, H heads of values.
local nn = require "nn"

local function linear(x, name, outputs, bias)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }),
                   bias and nn.weight(name .. ".bias", { outputs }))
end

-- Columns of x [T, C] as heads.
local function heads_of(x, from, heads, size)
  return nn.split_heads(nn.slice(x, from, heads * size), heads)
end

local recurrent = {}

function recurrent.conv(c, x, name)                                 -- x [T, D]
  local n, D, bias = c.names, c.hidden, c.conv.bias
  local w, b = nn.weight(name .. n.conv_in .. ".weight", { 3 * D, D }), bias and nn.weight(name .. n.conv_in .. ".bias", { 3 * D })
  local function part(i) return nn.linear(x, nn.rows(w, i * D, D), b and nn.rows(b, i * D, D)) end
  local y = nn.convolve(part(0) * part(2), nn.weight(name .. n.conv .. ".weight", { D, c.conv.width }),
                        bias and nn.weight(name .. n.conv .. ".bias", { D }))
  return linear(part(1) * y, name .. n.conv_out, D, bias)
end

-- Weights of what makes q, k and v of all heads, [2*G*K + H*V, D], of its convolution, of z [H*V, D], of b and a [H, D].
local function delta_weights(c, name)
  local n, o, D = c.names, c.delta, c.hidden
  local q, v = o.k_heads * o.k_dim, o.v_heads * o.v_dim
  local function matrix(part, rows, columns) return nn.weight(name .. n[part] .. ".weight", { rows, columns or D }) end
  if n.delta_q then
    return nn.concat(matrix("delta_q", q), matrix("delta_k", q), matrix("delta_v", v)),
           nn.concat(matrix("delta_q_conv", q, o.width), matrix("delta_k_conv", q, o.width), matrix("delta_v_conv", v, o.width)),
           matrix("delta_z", v), matrix("delta_b", o.v_heads), matrix("delta_a", o.v_heads)
  end
  local taps = matrix("delta_conv", 2 * q + v, o.width)
  if not n.delta_qkvz then
    return matrix("delta_qkv", 2 * q + v), taps, matrix("delta_z", v), matrix("delta_b", o.v_heads), matrix("delta_a", o.v_heads)
  end
  local w, ba = matrix("delta_qkvz", 2 * q + 2 * v), matrix("delta_ba", 2 * o.v_heads)
  local k, own, numbers = o.k_dim, v // o.k_heads, o.v_heads // o.k_heads -- rows of a key's head
  local function part(from, count) return nn.rows(w, from, count, 2 * k + 2 * own) end
  return nn.concat(part(0, k), part(k, k), part(2 * k, own)), taps, part(2 * k + own, own),
         nn.rows(ba, 0, numbers, 2 * numbers), nn.rows(ba, numbers, numbers, 2 * numbers)
end

function recurrent.delta(c, x, name)                                -- x [T, D]
  local n, o = c.names, c.delta
  local qkv, taps, z, b, a = delta_weights(c, name)
  local all, columns, H = nn.linear(x, nn.concat(qkv, b, a)), 2 * o.k_heads * o.k_dim + o.v_heads * o.v_dim, o.v_heads
  local mixed = nn.act(nn.convolve(nn.slice(all, 0, columns), taps), c.activation)
  local q, k = heads_of(mixed, 0, o.k_heads, o.k_dim), heads_of(mixed, o.k_heads * o.k_dim, o.k_heads, o.k_dim)
  local v = heads_of(mixed, 2 * o.k_heads * o.k_dim, o.v_heads, o.v_dim)
  local options = {
    rate = nn.weight(name .. n.delta_rate, { o.v_heads }), shift = nn.weight(name .. n.delta_shift, { o.v_heads }),
    beta = nn.slice(all, columns, H), unit = 1e-6, scale = o.k_dim ^ -0.5,
  }
  if o.doubled then                                                 -- the product of k and v is doubled, the state is not
    local function unit(x, scale) return scale * o.k_dim ^ -0.5 * nn.rmsnorm(x, nil, 1e-6 / o.k_dim) end
    q, k, v, options.unit = unit(q, 1), unit(k, 2 ^ 0.5), 2 ^ 0.5 * v, nil
  end
  local y = nn.recur(q, k, v, nn.slice(all, columns + H, H), options)             -- [T, H, V]
  y = nn.join_heads(nn.rmsnorm(y, nn.weight(name .. n.delta_norm .. ".weight", { o.v_dim }), o.eps))
  return linear(nn.glu(nn.linear(x, z), y, "silu"), name .. n.delta_out, c.hidden)
end

-- z [T, H*V], x, B and C [T, H*V + 2*G*N], dt [T, H]
local function mamba_parts(c, x, name)
  local n, o = c.names, c.mamba
  local inner, group = o.heads * o.head_dim, o.groups * o.state
  local outputs = 2 * inner + 2 * group + o.heads
  local w, b = nn.weight(name .. n.mamba_in .. ".weight", { outputs, c.hidden }),
               o.bias and nn.weight(name .. n.mamba_in .. ".bias", { outputs })
  local scales = o.scales
  local function part(from, count, i)
    local y = nn.linear(x, nn.rows(w, from, count), b and nn.rows(b, from, count))
    return scales and i and scales[i] * y or y
  end
  local z, columns = part(0, inner, 1), inner + 2 * group
  if not scales then
    local rest = part(inner, columns + o.heads)                     -- read in place by the convolution and by the recurrence
    return z, nn.slice(rest, 0, columns), nn.slice(rest, columns, o.heads)
  end
  return z, nn.join(nn.join(part(inner, inner, 2), part(2 * inner, group, 3)), part(2 * inner + group, group, 4)),
         part(2 * inner + 2 * group, o.heads, 5)
end

function recurrent.mamba(c, x, name)                                -- x [T, D]
  local n, o = c.names, c.mamba
  local inner, group = o.heads * o.head_dim, o.groups * o.state
  local function vector(part, size) return nn.weight(name .. n[part], { size }) end
  local z, mixed, dt = mamba_parts(c, o.scale and o.scale * x or x, name)
  local columns = inner + 2 * group
  mixed = nn.act(nn.convolve(mixed, nn.weight(name .. n.mamba_conv .. ".weight", { columns, o.width }),
                             o.conv_bias and nn.weight(name .. n.mamba_conv .. ".bias", { columns })), o.activation)
  local B, C = heads_of(mixed, inner, o.groups, o.state), heads_of(mixed, inner + group, o.groups, o.state)
  local y = nn.recur(C, B, heads_of(mixed, 0, o.heads, o.head_dim), dt, {
    rate = vector("mamba_rate", o.heads), shift = vector("mamba_shift", o.heads), low = o.low, high = o.high,
  })
  y = nn.join_heads(y) + nn.slice(mixed, 0, inner) * nn.repeat_rows(vector("mamba_skip", o.heads), o.head_dim)
  if o.norm ~= "first" then y = nn.glu(z, y, "silu") end
  if o.norm ~= "" then                                              -- [T, H*V], each group normed
    y = nn.join_heads(nn.rmsnorm(nn.split_heads(y, o.norm_groups or o.groups), nil, o.eps)) * vector("mamba_norm", inner)
  end
  if o.norm == "first" then y = nn.glu(z, y, "silu") end
  return linear(y, name .. n.mamba_out, c.hidden, o.out_bias)
end

function recurrent.selective(c, x, name)                            -- x [T, D]
  local n, o = c.names, c.selective
  local I = o.inner
  local w, b = nn.weight(name .. n.mamba_in .. ".weight", { 2 * I, c.hidden }),
               o.bias and nn.weight(name .. n.mamba_in .. ".bias", { 2 * I })
  local function half(from) return nn.linear(x, nn.rows(w, from, I), b and nn.rows(b, from, I)) end
  local values, z = half(0), half(I)                                -- [T, I]
  values = nn.act(nn.convolve(values, nn.weight(name .. n.mamba_conv .. ".weight", { I, o.width }),
                              o.conv_bias and nn.weight(name .. n.mamba_conv .. ".bias", { I })), o.activation)
  local all = linear(values, name .. n.selective_in, o.rank + 2 * o.state)
  local function part(from, count, norm)
    local y = nn.slice(all, from, count)
    return o.eps and nn.rmsnorm(y, n[norm] and nn.weight(name .. n[norm] .. ".weight", { count }), o.eps) or y
  end
  local steps = part(0, o.rank, "selective_dt_norm")                -- [T, rank]
  local B, C = part(o.rank, o.state, "selective_b_norm"), part(o.rank + o.state, o.state, "selective_c_norm")
  local y = nn.recur(
    nn.split_heads(C, 1), nn.split_heads(B, 1), nn.split_heads(values, I),
    nn.linear(steps, nn.weight(name .. n.selective_dt .. ".weight", { I, o.rank })),
    { rate = nn.weight(name .. n.mamba_rate, { I, o.state }), shift = nn.weight(name .. n.selective_dt .. ".bias", { I }) })
  y = nn.join_heads(y) + values * nn.weight(name .. n.mamba_skip, { I })
  return linear(nn.glu(z, y, o.activation), name .. n.mamba_out, c.hidden, o.out_bias)
end

return recurrent
