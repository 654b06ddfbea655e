-- keys.lua - attention whose values are the first elements of its keys, for test_inside.c. -D graph.form=beside stores them as
-- values of their own; -D graph.elements= is their number, of 40 (0: all).
local ftx = require "ftx"
local nn = require "nn"

local V <const>, D <const>, H <const>, G <const>, E <const> = 67, 48, 6, 2, 40
local beside = ftx.override("graph.form") == "beside"
local elements = tonumber(ftx.override("graph.elements") or "0")
local value = elements > 0 and elements or E

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name, { outputs, nn.width(x) }))
end

local function attention(x, i)                                      -- x [T, D]
  local name = "layers." .. i .. "."
  local q = nn.rope(nn.split_heads(project(x, name .. "q", H * E), H), { dim = 16 })
  local k = nn.rope(nn.split_heads(project(x, name .. "k", G * E), G), { dim = 16 })
  local options = { scale = 0.3 }
  if i == 1 then options = { scale = 0.3, window = 7, softcap = 3, sinks = nn.weight(name .. "sinks", { H }) } end
  local y
  if beside then
    y = nn.slice(nn.attend(q, nn.cache(k, k), options), 0, value)
  elseif elements > 0 then
    y = nn.attend(q, nn.cache(k, elements), options)
  else
    y = nn.attend(q, nn.cache(k), options)
  end
  return project(nn.join_heads(y), name .. "out", D)
end

local table_of_ids = nn.weight("embed", { V, D })
local h = nn.embed(nn.ids(), table_of_ids)                          -- [T, D]
for i = 0, 2 do
  local g = nn.weight("layers." .. i .. ".norm", { D })
  h = h + attention(nn.rmsnorm(h, g, 1e-5), i)
end
h = nn.rmsnorm(nn.select_last(h), nn.weight("norm", { D }), 1e-5)

return ftx.model {
  name = "keys",
  graph = nn.sample(nn.linear(h, table_of_ids)),
  precision = { weights = "fp32" },
  limits = { sequences = 6, context = 96, tokens = 40 },
  kv = { block_size = 8 },
  decode = ftx.beam { width = 3 },
}
