local ftx = require "ftx"
local t = {}
t.graph, t.limits, t.decode = t, t, setmetatable(t, { __index = function(s, k) return s end })
return ftx.model(t)
