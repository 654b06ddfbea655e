-- recurrent.lua - a small decoder with two layers of convolutions around one of attention
local nn = require "nn"
local ftx = require "ftx"

local VOCAB, HIDDEN, HEADS, HEAD_DIM, TAPS = 96, 48, 2, 24, 3

local function norm(x, name)
  return nn.rmsnorm(x, nn.weight(name, { HIDDEN }), 1e-5)
end

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name, { outputs, nn.width(x) }))
end

local function convolution(x, name)
  local y = project(x, name .. ".in", 3 * HIDDEN)
  local before, behind, value = nn.slice(y, 0, HIDDEN), nn.slice(y, HIDDEN, HIDDEN), nn.slice(y, 2 * HIDDEN, HIDDEN)
  local w, b = nn.weight(name .. ".conv", { HIDDEN, TAPS }), nn.weight(name .. ".bias", { HIDDEN })
  return project(behind * nn.convolve(before * value, w, b), name .. ".out", HIDDEN)
end

local function attention(x, name)
  local function heads(part)
    return nn.split_heads(project(x, name .. part, HEADS * HEAD_DIM), HEADS)
  end
  local y = nn.attend(nn.rope(heads(".q")), nn.cache(nn.rope(heads(".k")), heads(".v")))
  return project(nn.join_heads(y), name .. ".o", HIDDEN)
end

local embedding = nn.weight("embedding", { VOCAB, HIDDEN })
local x = nn.embed(nn.ids(), embedding)
for i, mix in ipairs { convolution, attention, convolution } do
  x = x + mix(norm(x, "norm" .. i), "layer" .. i)
end

return ftx.model {
  name = "recurrent",
  graph = nn.sample(nn.linear(norm(nn.select_last(x), "norm"), embedding)),
  limits = { sequences = 4, context = 64, tokens = 8 },
  kv = { block_size = 8 },
  decode = ftx.greedy {},
}
