-- recur.lua - a decoder of recurrences and attention, for test_recurrent.c: the gated delta rule behind a convolution of its
-- queries, keys and values, attention, and the state spaces of Mamba-2 and Mamba.
local ftx = require "ftx"
local nn = require "nn"

local V, D = 67, 48
local h = nn.embed(nn.ids(), nn.weight("embed", { V, D }))                          -- [T, D]

local function linear(x, name, n) return nn.linear(x, nn.weight(name, { n, nn.width(x) })) end
local function norm(x, name) return nn.rmsnorm(x, nn.weight(name .. ".weight", { D }), 1e-5) end

local function delta(x)
  local G, H, K, E = 2, 4, 16, 24
  local row = linear(x, "delta.in", 2 * G * K + H * E)
  row = nn.act(nn.convolve(row, nn.weight("delta.taps", { nn.width(row), 4 })), "silu")
  local y = nn.recur(
    nn.split_heads(nn.slice(row, 0, G * K), G), nn.split_heads(nn.slice(row, G * K, G * K), G),
    nn.split_heads(nn.slice(row, 2 * G * K, H * E), H), linear(x, "delta.a", H),
    { rate = nn.weight("delta.rate", { H }), shift = nn.weight("delta.shift", { H }), beta = linear(x, "delta.beta", H),
      unit = 1e-6, scale = K ^ -0.5 })                                              -- [T, H, E]
  return linear(nn.join_heads(y), "delta.out", D)
end

local function attention(x)
  local H, G, E = 4, 2, 16
  local q = nn.rope(nn.split_heads(linear(x, "q", H * E), H))
  local k = nn.rope(nn.split_heads(linear(x, "k", G * E), G))
  local y = nn.attend(q, nn.cache(k, nn.split_heads(linear(x, "v", G * E), G)))
  return linear(nn.join_heads(y), "o", D)
end

local function space(x)
  local G, H, K, E = 1, 2, 32, 16
  local y = nn.recur(
    nn.split_heads(linear(x, "space.c", G * K), G), nn.split_heads(linear(x, "space.b", G * K), G),
    nn.split_heads(linear(x, "space.x", H * E), H), linear(x, "space.a", H),
    { rate = nn.weight("space.rate", { H }), shift = nn.weight("space.shift", { H }), low = 0.01, high = 2 })
  return linear(nn.join_heads(y), "space.out", D)
end

local function selective(x)
  local H, K = 28, 24                                                               -- H: as many columns, each a head
  local values = linear(x, "scan.x", H)
  local y = nn.recur(
    nn.split_heads(linear(x, "scan.c", K), 1), nn.split_heads(linear(x, "scan.b", K), 1), nn.split_heads(values, H),
    linear(x, "scan.a", H), { rate = nn.weight("scan.rate", { H, K }), shift = nn.weight("scan.shift", { H }), scale = 0.5 })
  return linear(nn.join_heads(y) + values * nn.weight("scan.skip", { H }), "scan.out", D)
end

h = h + delta(norm(h, "norm1"))
h = h + attention(norm(h, "norm2"))
h = h + space(norm(h, "norm3"))
h = h + selective(norm(h, "norm4"))

return ftx.model {
  name = "recur",
  graph = nn.sample(linear(nn.select_last(norm(h, "norm")), "head", V)),
  precision = { weights = "fp32" },
  limits = { sequences = 6, context = 208, tokens = 20 },
  kv = { block_size = 8 },
}
