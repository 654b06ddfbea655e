local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 10, 16 }))
local function linear(x, name, n) return nn.linear(x, nn.weight(name, { n, nn.width(x) })) end
local q, k, v = linear(x, "q", 16), linear(x, "k", 8), linear(x, "v", 8)
local y = nn.attend(nn.split_heads(q, 2), nn.cache(nn.split_heads(k, 1), nn.split_heads(v, 1)), { window = 3 })
x = nn.add(x, nn.join_heads(y))
x = nn.rmsnorm(x, nn.weight("g", { 16 }), 1e-5)
return ftx.model { graph = nn.sample(linear(nn.select_last(x), "head", 10)),
                   limits = { sequences = 2, context = 16, tokens = 4 }, decode = ftx.greedy {} }
