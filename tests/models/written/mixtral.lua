-- mixtral.lua - decoder: each token takes 2 of 5 experts, weighted by the softmax of their scores. Jiang et al. 2024.
local ftx = require "ftx"
local nn = require "nn"

local vocab, hidden, layers, heads, kv_heads, head_dim, ffn = 101, 56, 2, 6, 2, 24, 88
local experts, chosen, window, eps, rope = 5, 2, 6, 1e-3, { theta = 10000 }

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }))
end

local function norm(x, name)
  return nn.rmsnorm(x, nn.weight(name .. ".weight", { hidden }), eps)
end

local function attention(x, name)                                        -- x [T, D]
  local q = nn.rope(nn.split_heads(project(x, name .. ".q_proj", heads * head_dim), heads), rope)
  local k = nn.rope(nn.split_heads(project(x, name .. ".k_proj", kv_heads * head_dim), kv_heads), rope)
  local v = nn.split_heads(project(x, name .. ".v_proj", kv_heads * head_dim), kv_heads)
  local y = nn.attend(q, nn.cache(k, v), { window = window })            -- [T, H, E]
  return project(nn.join_heads(y), name .. ".o_proj", hidden)
end

local function mixture(x, name)                                          -- x [T, D]
  local routes = nn.route(project(x, name .. ".gate", experts), { k = chosen, renorm = true })
  return nn.experts(x, routes, {
    gate = nn.stack(name .. ".experts.*.w1.weight", { experts, ffn, hidden }),
    up = nn.stack(name .. ".experts.*.w3.weight", { experts, ffn, hidden }),
    down = nn.stack(name .. ".experts.*.w2.weight", { experts, hidden, ffn }),
    kind = "silu",
  })
end

local h = nn.embed(nn.ids(), nn.weight("model.embed_tokens.weight", { vocab, hidden }))
for i = 0, layers - 1 do
  local layer = "model.layers." .. i
  h = h + attention(norm(h, layer .. ".input_layernorm"), layer .. ".self_attn")
  h = h + mixture(norm(h, layer .. ".post_attention_layernorm"), layer .. ".block_sparse_moe")
end
local logits = project(norm(nn.select_last(h), "model.norm"), "lm_head", vocab)

return ftx.model {
  graph = nn.sample(logits),
  eos = 2,
  precision = { weights = "fp32" },
  limits = { context = 72 },
}
