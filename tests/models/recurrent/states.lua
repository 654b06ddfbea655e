-- states.lua - a decoder without attention: a convolution, and the state spaces of Mamba-2 and Mamba. Its pages have no bytes.
local ftx = require "ftx"
local nn = require "nn"

local V, D = 96, 48
local embedding = nn.weight("embedding", { V, D })
local h = nn.embed(nn.ids(), embedding)                                             -- [T, D]

local function linear(x, name, n) return nn.linear(x, nn.weight(name, { n, nn.width(x) })) end
local function norm(x, name) return nn.rmsnorm(x, nn.weight(name, { D }), 1e-5) end

local function convolution(x)
  return linear(nn.convolve(linear(x, "conv.in", D), nn.weight("conv.taps", { D, 4 })), "conv.out", D)
end

local function space(x)
  local H, K = 2, 16
  local y = nn.recur(
    nn.split_heads(linear(x, "space.c", K), 1), nn.split_heads(linear(x, "space.b", K), 1), nn.split_heads(x, H),
    linear(x, "space.a", H), { rate = nn.weight("space.rate", { H }), shift = nn.weight("space.shift", { H }) })
  return linear(nn.join_heads(y), "space.out", D)
end

local function selective(x)
  local K = 16
  local y = nn.recur(
    nn.split_heads(linear(x, "scan.c", K), 1), nn.split_heads(linear(x, "scan.b", K), 1), nn.split_heads(x, D),
    linear(x, "scan.a", D), { rate = nn.weight("scan.rate", { D, K }), shift = nn.weight("scan.shift", { D }) })
  return linear(nn.join_heads(y), "scan.out", D)
end

h = h + convolution(norm(h, "norm1"))
h = h + space(norm(h, "norm2"))
h = h + selective(norm(h, "norm3"))

return ftx.model {
  name = "states",
  graph = nn.sample(nn.linear(norm(nn.select_last(h), "norm"), embedding)),
  limits = { sequences = 4, context = 48, tokens = 12 },
  kv = { block_size = 8, pages = 12 },
  decode = ftx.greedy {},
}
