-- qwen3.5-text.lua - decoder: gated delta nets and gated attention, gains of 1 + w. Qwen team 2026.
local ftx = require "ftx"
local nn = require "nn"

local vocab, hidden, heads, kv_heads, head_dim, ffn = 101, 48, 3, 1, 32, 88
local nets, keys, values, taps, eps = 2, 16, 24, 2, 1e-6                 -- heads of a net, elements of its keys and values
local rope = { theta = 300, dim = 8 }

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }))
end

local function norm(x, name)
  return nn.rmsnorm(x, nn.plus(nn.weight(name .. ".weight", { nn.width(x) }), 1), eps)
end

local function attention(x, name)                                        -- x [T, D]
  local w = nn.weight(name .. ".q_proj.weight", { 2 * heads * head_dim, hidden })
  local gate = nn.linear(x, nn.rows(w, head_dim, head_dim, 2 * head_dim))
  local q = nn.split_heads(nn.linear(x, nn.rows(w, 0, head_dim, 2 * head_dim)), heads)
  local k = nn.split_heads(project(x, name .. ".k_proj", kv_heads * head_dim), kv_heads)
  local v = nn.split_heads(project(x, name .. ".v_proj", kv_heads * head_dim), kv_heads)
  q, k = nn.rope(norm(q, name .. ".q_norm"), rope), nn.rope(norm(k, name .. ".k_norm"), rope)
  local y = nn.join_heads(nn.attend(q, nn.cache(k, v)))
  return project(y * nn.act(gate, "sigmoid"), name .. ".o_proj", hidden)
end

local function delta_net(x, name)                                        -- x [T, D]
  local columns = nets * (2 * keys + values)
  local qkv = project(x, name .. ".in_proj_qkv", columns)
  qkv = nn.act(nn.convolve(qkv, nn.weight(name .. ".conv1d.weight", { columns, taps })), "silu")
  local q, k = nn.slice(qkv, 0, nets * keys), nn.slice(qkv, nets * keys, nets * keys)
  local y = nn.recur(nn.split_heads(q, nets), nn.split_heads(k, nets),
                     nn.split_heads(nn.slice(qkv, 2 * nets * keys, nets * values), nets), project(x, name .. ".in_proj_a", nets),
                     { rate = nn.weight(name .. ".A_log", { nets }), shift = nn.weight(name .. ".dt_bias", { nets }),
                       beta = project(x, name .. ".in_proj_b", nets), unit = 1e-6, scale = keys ^ -0.5 })
  y = nn.join_heads(nn.rmsnorm(y, nn.weight(name .. ".norm.weight", { values }), eps))
  return project(nn.glu(project(x, name .. ".in_proj_z", nets * values), y, "silu"), name .. ".out_proj", hidden)
end

local h = nn.embed(nn.ids(), nn.weight("model.embed_tokens.weight", { vocab, hidden }))
for i, part in ipairs { { delta_net, ".linear_attn" }, { attention, ".self_attn" } } do
  local layer = "model.layers." .. i - 1
  h = h + part[1](norm(h, layer .. ".input_layernorm"), layer .. part[2])
  local x = norm(h, layer .. ".post_attention_layernorm")
  local y = nn.glu(project(x, layer .. ".mlp.gate_proj", ffn), project(x, layer .. ".mlp.up_proj", ffn), "silu")
  h = h + project(y, layer .. ".mlp.down_proj", hidden)
end

return ftx.model {
  graph = nn.sample(project(norm(nn.select_last(h), "model.norm"), "lm_head", vocab)),
  eos = 2,
  precision = { weights = "fp32" },
  limits = { context = 72 },
}
