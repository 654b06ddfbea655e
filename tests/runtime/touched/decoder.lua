-- decoder.lua - kernels that the checkouts of tests/models do not have: norms of heads, attention computed in parts, values inside keys, experts.
local ftx = require "ftx"
local nn = require "nn"
local D, H, G, E, V, N, F = 48, 4, 2, 16, 101, 5, 24
local h = nn.embed(nn.ids(), nn.weight("embed", { V, D }))

local function heads(x, name, n) return nn.split_heads(nn.linear(x, nn.weight(name, { n * E, D })), n) end

local layers = {
  { norm = function(x, name) return nn.rmsnorm(x, nn.weight(name, { E }), 1e-5) end, dim = E },
  { norm = function(x, name, n) return nn.layernorm(x, nn.weight(name, { n, E }), nn.weight(name .. "b", { n, E }), 1e-5) end,
    dim = 8, options = { slopes = nn.weight("slopes", { H }), sinks = nn.weight("sinks", { H }), window = 5 } },
  { norm = function(x) return x end, dim = 8, options = { bias = nn.weight("bias", { H, 9 }), softcap = 3 } },
}
for i, layer in ipairs(layers) do
  local x = nn.rmsnorm(h, nn.weight("norm" .. i, { D }), 1e-5)
  local q = nn.rope(layer.norm(heads(x, "q" .. i, H), "gq" .. i, H), { dim = layer.dim })
  local k = nn.rope(layer.norm(heads(x, "k" .. i, G), "gk" .. i, G), { dim = layer.dim })
  local y = nn.attend(q, nn.cache(k, heads(x, "v" .. i, G)), layer.options or {})

  h = h + nn.linear(nn.join_heads(y), nn.weight("o" .. i, { D, H * E }))
end

local own = nn.rmsnorm(h, nn.weight("norm4", { D }), 1e-5)
local inside = nn.attend(heads(own, "q4", H), nn.cache(heads(own, "k4", G), 10), { sinks = nn.weight("sinks4", { H }) })
inside = nn.head_linear(inside, nn.weight("w4", { H * 7, 10 }))     -- [T, H, 7]
h = h + nn.linear(nn.join_heads(inside), nn.weight("o4", { D, H * 7 }))

local x = nn.rmsnorm(h, nn.weight("norm", { D }), 1e-5)
local function stack(name, rows, columns) return nn.stack("experts.*." .. name, { N, rows, columns }) end

for _, routes in ipairs {
  nn.route(nn.linear(x, nn.weight("router", { N, D })), { k = 2, renorm = true }),
  nn.route(nn.linear(x, nn.weight("router2", { N, D })), { k = 3, score = "sigmoid", bias = nn.weight("router_bias", { N }) }),
} do
  h = h + nn.experts(x, routes, { gate = stack("gate", F, D), up = stack("up", F, D), down = stack("down", D, F), kind = "silu" })
end

return ftx.model {
  name = "touched-decoder",
  graph = nn.sample(nn.linear(nn.select_last(h), nn.weight("head", { V, D }))),
  bos = 1, eos = 2, precision = { weights = "fp32" },
  limits = { sequences = 6, context = 48, tokens = 16 }, kv = { block_size = 16 },
}
