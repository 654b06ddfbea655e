-- shared.lua - three layers: the second has other heads than the first, and the third reads the first one's cache.
local ftx, nn = require "ftx", require "nn"
local hidden, vocab = 48, 61
local near = { kv = 2, dim = 16, window = 6 }
local far = { kv = 1, dim = 32, window = 0 }

local function project(x, name, n) return nn.linear(x, nn.weight(name .. ".weight", { n, nn.width(x) })) end
local function norm(x, name) return nn.rmsnorm(x, nn.weight(name .. ".weight", { nn.width(x) }), 1e-5) end

local function attention(x, name, heads, kind)
  local function part(of, n) return nn.split_heads(project(x, name .. of, n * kind.dim), n) end
  local q = nn.rope(norm(part("q", heads), name .. "qn"))
  kind.cache = kind.cache or nn.cache(nn.rope(norm(part("k", kind.kv), name .. "kn")), part("v", kind.kv))
  return project(nn.join_heads(nn.attend(q, kind.cache, { window = kind.window })), name .. "o", hidden)
end

local h = nn.embed(nn.ids(), nn.weight("embedding.weight", { vocab, hidden }))
for i, layer in ipairs { { 4, near }, { 2, far }, { 8, near } } do
  h = h + attention(norm(h, i .. ".norm"), i .. ".", layer[1], layer[2])
end
return ftx.model { graph = nn.sample(project(norm(nn.select_last(h), "norm"), "head", vocab)), limits = { context = 64 } }
