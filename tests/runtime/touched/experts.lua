-- experts.lua - experts whose matrices have codes, or rows of bf16: sizes that groups of 32 divide, tiles without padding.
local ftx = require "ftx"
local nn = require "nn"
local D, V, N, F = 64, 101, 5, 64
local h = nn.embed(nn.ids(), nn.weight("embed", { V, D }))
local q = nn.split_heads(nn.linear(h, nn.weight("q", { D, D })), 4)
h = h + nn.linear(nn.join_heads(nn.attend(q, nn.cache(q, q))), nn.weight("o", { D, D }))

local x = nn.rmsnorm(h, nn.weight("norm", { D }), 1e-5)
local function stack(name, rows, columns) return nn.stack("experts.*." .. name, { N, rows, columns }) end
local routes = nn.route(nn.linear(x, nn.weight("router", { N, D })), { k = 2, renorm = true })
h = h + nn.experts(x, routes, { gate = stack("gate", F, D), up = stack("up", F, D), down = stack("down", D, F), kind = "silu" })

return ftx.model {
  name = "touched-experts",
  graph = nn.sample(nn.linear(nn.select_last(h), nn.weight("head", { V, D }))),
  bos = 1, eos = 2, limits = { sequences = 6, context = 48, tokens = 16 }, kv = { block_size = 16 },
}
