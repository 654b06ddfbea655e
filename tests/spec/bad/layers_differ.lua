-- layers_differ.lua:6: this layer has 1 heads, 1 kv_heads, head_dim 32, the first has 2, 2, 16; all layers must be equal in these
local ftx, nn = require "ftx", require "nn"
local x = nn.embed(nn.ids(), nn.weight("e", { 64, 32 }))
for _, heads in ipairs { 2, 1 } do
  local h = nn.split_heads(x, heads)
  x = nn.join_heads(nn.attend(h, nn.cache(h, h)))
end
return ftx.model { graph = nn.sample(nn.linear(nn.select_last(x), nn.weight("e", { 64, 32 }))), limits = { context = 16 } }
