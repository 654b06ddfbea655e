-- qwen3.lua - decoder: RMSNorm of the heads of queries and keys, RoPE, SwiGLU. Qwen team 2025.
local ftx = require "ftx"
local nn = require "nn"

local vocab, hidden, layers, heads, kv_heads, head_dim, ffn = 101, 56, 2, 6, 2, 24, 88
local eps, rope = 1e-3, { theta = 1000000 }

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }))
end

local function norm(x, name)
  return nn.rmsnorm(x, nn.weight(name .. ".weight", { nn.width(x) }), eps)
end

local function attention(x, name)                                        -- x [T, D]
  local q = nn.split_heads(project(x, name .. ".q_proj", heads * head_dim), heads)
  local k = nn.split_heads(project(x, name .. ".k_proj", kv_heads * head_dim), kv_heads)
  local v = nn.split_heads(project(x, name .. ".v_proj", kv_heads * head_dim), kv_heads)
  q = nn.rope(norm(q, name .. ".q_norm"), rope)                          -- [T, H, E]
  k = nn.rope(norm(k, name .. ".k_norm"), rope)                          -- [T, G, E]
  return project(nn.join_heads(nn.attend(q, nn.cache(k, v))), name .. ".o_proj", hidden)
end

local function mlp(x, name)                                              -- x [T, D]
  local y = nn.glu(project(x, name .. ".gate_proj", ffn), project(x, name .. ".up_proj", ffn), "silu")
  return project(y, name .. ".down_proj", hidden)
end

local h = nn.embed(nn.ids(), nn.weight("model.embed_tokens.weight", { vocab, hidden }))
for i = 0, layers - 1 do
  local layer = "model.layers." .. i
  h = h + attention(norm(h, layer .. ".input_layernorm"), layer .. ".self_attn")
  h = h + mlp(norm(h, layer .. ".post_attention_layernorm"), layer .. ".mlp")
end
local logits = project(norm(nn.select_last(h), "model.norm"), "lm_head", vocab)

return ftx.model {
  graph = nn.sample(logits),
  eos = 2,
  precision = { weights = "fp32" },
  limits = { context = 72 },
}
