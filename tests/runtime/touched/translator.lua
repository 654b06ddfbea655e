-- translator.lua - a source whose keys and values are not from one product, attended in parts.
local ftx = require "ftx"
local nn = require "nn"
local D, H, E, V = 32, 2, 16, 67
local w = nn.weight("embed", { V, D })

local function heads(x, name) return nn.split_heads(nn.linear(x, nn.weight(name, { H * E, D })), H) end
local function out(y, name) return nn.linear(nn.join_heads(y), nn.weight(name, { D, H * E })) end

local s = nn.embed(nn.ids(), w)
for i = 1, 2 do -- with sinks no other kernel than attend computes it
  s = s + out(nn.attend_full(nn.rope(heads(s, "eq" .. i)), nn.rope(heads(s, "ek" .. i)), heads(s, "ev" .. i),
    { bias = nn.weight("bias" .. i, { H, 7 }), slopes = nn.weight("slopes" .. i, { H }), window = 4,
      sinks = i == 2 and nn.weight("esinks", { H }) or nil }), "eo" .. i)
end

s = s + nn.linear(nn.neighbours(s, { from = -1, count = 3 }), nn.weight("conv", { D, 3 * D }))
s = nn.previous(s, nn.weight("before", { 1, D }))
local by = heads(s, "eq3")
s = s + out(nn.attend_full(by, heads(s, "ek3"), heads(s, "ev3"),
  { by_query = nn.head_linear(by, nn.weight("by_query", { H, E })), by_key = nn.head_linear(by, nn.weight("by_key", { H, E })) }), "eo3")

local h = nn.embed(nn.ids(), w)
h = h + out(nn.attend(heads(h, "q"), nn.cache(heads(h, "k"), heads(h, "v"))), "o")
local k = nn.rmsnorm(heads(s, "sk"), nn.weight("gk", { E }), 1e-5)
h = h + out(nn.attend_cross(heads(h, "sq"), nn.cross_cache(k, heads(s, "sv")), { sinks = nn.weight("sinks", { H }) }), "so")

return ftx.model {
  name = "touched-translator",
  graph = nn.sample(nn.linear(nn.select_last(h), w)),
  bos = 1, eos = 2, start = 1, precision = { weights = "fp32" },
  limits = { sequences = 4, context = 32, source = 24, tokens = 48 }, kv = { block_size = 16 },
}
