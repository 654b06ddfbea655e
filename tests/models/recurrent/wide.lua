-- wide.lua - recurrences with heads as large as models have, for the gates: the gated delta rule (Qwen3-Next), Mamba-2, and
-- keys of 256 elements. All linear layers have one shape.
local ftx = require "ftx"
local nn = require "nn"

local D = 256
local h = nn.embed(nn.ids(), nn.weight("embed", { D, D }))                          -- [T, D]

local function linear(x, name) return nn.linear(x, nn.weight(name, { D, D })) end

-- One head of queries and keys of K elements, values of D elements in H heads.
local function layer(name, K, H, delta)
  local function part(of, n) return n == D and linear(h, name .. of) or nn.slice(linear(h, name .. of), 0, n) end
  local y = nn.recur(
    nn.split_heads(part("q", K), 1), nn.split_heads(part("k", K), 1), nn.split_heads(part("v", D), H), part("a", H),
    { rate = nn.weight(name .. "rate", { H }), shift = nn.weight(name .. "shift", { H }), beta = delta and part("beta", H),
      unit = delta and 1e-6 or 0, scale = delta and K ^ -0.5 or 1 })                -- [T, H, D / H]
  h = h + linear(nn.join_heads(y), name .. "out")
end

layer("delta.", 128, 2, true)
layer("space.", 128, 4, false)
layer("deep.", 256, 4, true)
local heads = nn.split_heads(linear(h, "qkv"), 4)
h = h + linear(nn.join_heads(nn.attend(heads, nn.cache(heads, heads))), "o")

return ftx.model {
  name = "recur-wide",
  graph = nn.sample(linear(nn.select_last(h), "head")),
  precision = { weights = "bf16" },
  limits = { sequences = 2, context = 64, tokens = 32 },
  kv = { block_size = 16 },
}
