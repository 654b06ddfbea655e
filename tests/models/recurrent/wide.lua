-- wide.lua - recurrences with heads as large as models have: the gated delta rule (Qwen3-Next) and Mamba-2, for the gates.
local ftx = require "ftx"
local nn = require "nn"

local V, D = 256, 256
local h = nn.embed(nn.ids(), nn.weight("embed", { V, D }))                          -- [T, D]

local function linear(x, name, n) return nn.linear(x, nn.weight(name, { n, nn.width(x) })) end

-- G heads of keys of K elements, H heads of values of E elements.
local function layer(name, G, H, K, E, delta)
  local x = nn.rmsnorm(h, nn.weight(name .. "norm", { D }), 1e-5)
  local function heads(part, n, size) return nn.split_heads(linear(x, name .. part, n * size), n) end
  local y = nn.recur(heads("q", G, K), heads("k", G, K), heads("v", H, E), linear(x, name .. "a", H), {
    rate = nn.weight(name .. "rate", { H }), shift = nn.weight(name .. "shift", { H }),
    beta = delta and linear(x, name .. "beta", H), unit = delta and 1e-6 or 0, scale = delta and K ^ -0.5 or 1,
  })
  h = h + linear(nn.join_heads(y), name .. "out", D)
end

layer("delta.", 2, 4, 128, 128, true)
layer("space.", 1, 4, 128, 64, false)
layer("deep.", 1, 2, 256, 64, true)
local q = nn.split_heads(linear(h, "q", 64), 1)
h = h + linear(nn.join_heads(nn.attend(q, nn.cache(q, q))), "o", D)

return ftx.model {
  name = "recur-wide",
  graph = nn.sample(linear(nn.select_last(h), "head", V)),
  precision = { weights = "bf16" },
  limits = { sequences = 4, context = 64, tokens = 64 },
}
