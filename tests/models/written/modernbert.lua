-- modernbert.lua - encoder: RoPE, windows in every second layer, gated GELU, no biases. Warner et al. 2024.
local ftx = require "ftx"
local nn = require "nn"

local vocab, hidden, layers, heads, ffn, eps = 101, 48, 2, 3, 88, 1e-3
local window = 8 // 2  -- tokens on either side

local function norm(x, name) return nn.layernorm(x, nn.weight(name .. ".weight", { hidden }), nil, eps) end

local function matrix(name, outputs, inputs) return nn.weight(name .. ".weight", { outputs, inputs }) end

local function attention(x, name, rope, options)                         -- x [T, D]
  local w = matrix(name .. ".Wqkv", 3 * hidden, hidden)
  local function part(i) return nn.split_heads(nn.linear(x, nn.rows(w, i * hidden, hidden)), heads) end
  local y = nn.attend_full(nn.rope(part(0), rope), nn.rope(part(1), rope), part(2), options)
  return nn.linear(nn.join_heads(y), matrix(name .. ".Wo", hidden, hidden))
end

local function mlp(x, name)                                              -- x [T, D]
  local w = matrix(name .. ".Wi", 2 * ffn, hidden)
  local y = nn.glu(nn.linear(x, nn.rows(w, 0, ffn)), nn.linear(x, nn.rows(w, ffn, ffn)), "gelu_erf")
  return nn.linear(y, matrix(name .. ".Wo", hidden, ffn))
end

local h = nn.embed(nn.ids(), nn.weight("embeddings.tok_embeddings.weight", { vocab, hidden }))
h = norm(h, "embeddings.norm")
for i = 0, layers - 1 do
  local layer, full = "layers." .. i, i % 2 == 0
  local x = i == 0 and h or norm(h, layer .. ".attn_norm")               -- the first layer has no norm of its own
  h = h + attention(x, layer .. ".attn", { theta = full and 3000 or 40 }, { window = full and 0 or window })
  h = h + mlp(norm(h, layer .. ".mlp_norm"), layer .. ".mlp")
end

return ftx.model {
  graph = nn.vectors(norm(h, "final_norm")),
  precision = { weights = "fp32" },
  limits = { context = 72 },
}
