-- Lua as a spec has it: this file asserts what differs from the usual one.
local ftx = require "ftx"
local nn = require "nn"
local llama = require "llama"

-- pairs: numbers, then texts, then booleans, each in order, whatever order they came in
local t = {}
for _, k in ipairs { "b", 2.5, "a", true, 10, "", -1, false, "ab" } do t[k] = k end
local seen = {}
for k, v in pairs(t) do
  assert(k == v)
  table.insert(seen, tostring(k))
end
assert(table.concat(seen, " ") == "-1 2.5 10  a ab b false true", table.concat(seen, " "))

-- elements may be taken away during the walk
for k in pairs(t) do t[k], t.b = nil, nil end
for _ in pairs(t) do error("not empty") end

-- sort is stable, and quiet about comparisons that make no sense
local list = {}
for i = 1, 200 do list[i] = { key = i * 7 % 10, i = i } end
table.sort(list, function(a, b) return a.key < b.key end)
for i = 2, 200 do
  local a, b = list[i - 1], list[i]
  assert(a.key < b.key or a.key == b.key and a.i < b.i)
end
table.sort(list, function() return true end)
assert(#list == 200)
local words = { "pear", "fig", "apple", "date", "cherry" }
table.sort(words)
assert(table.concat(words, ",") == "apple,cherry,date,fig,pear")

-- no addresses
assert(tostring({}) == "table" and tostring(tostring) == "function")
assert(string.format("%s %d %5.2f %%", {}, 3, 1.5) == "table 3  1.50 %")
assert(tostring(0 / 0) == "nan")

-- texts and tables
assert(("x"):rep(3, "-") == "x-x-x" and ("Ab"):upper() == "AB" and #"abc" == 3)
assert(table.remove({ 1, 2, 3 }) == 3 and select("#", table.unpack({ 1, 2, 3 })) == 3)

-- values
local x = nn.embed(nn.ids(), nn.weight("e", { 8, 16 }))
assert(nn.width(x) == 16 and tostring(x) == "embed [T,16]")
assert(tostring(2 * x) == "scale [T,16]" and tostring(x * x) == "mul [T,16]" and tostring(x + x) == "add [T,16]")

-- what is not used does not come into the graph: one layer, and no "e"
nn.linear(x, nn.weight("w", { 4, 16 }))

return ftx.model {
  graph = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 },
  limits = { context = 32 },
}
