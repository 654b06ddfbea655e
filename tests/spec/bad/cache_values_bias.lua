-- cache_values_bias.lua:6: attend: values that are inside the keys are not read with slopes
local ftx = require "ftx"
local nn = require "nn"
local h = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
local k = nn.split_heads(h, 2)
local y = nn.attend(k, nn.cache(k), { slopes = nn.alibi(2) })
return ftx.model { limits = { context = 64 }, graph = nn.sample(nn.linear(nn.select_last(nn.join_heads(y)), nn.weight("o", { 64, 32 }))) }
