-- bloom.lua - decoder: ALiBi in place of positions, LayerNorm, one matrix for q, k and v. BigScience 2022.
local ftx = require "ftx"
local nn = require "nn"

local vocab, hidden, layers, heads = 101, 96, 2, 6
local head_dim, eps = hidden // heads, 1e-3

local function project(x, name, outputs)
  local w, b = nn.weight(name .. ".weight", { outputs, nn.width(x) }), nn.weight(name .. ".bias", { outputs })
  return nn.linear(x, w, b)
end

local function norm(x, name)
  return nn.layernorm(x, nn.weight(name .. ".weight", { hidden }), nn.weight(name .. ".bias", { hidden }), eps)
end

local function attention(x, name)                                        -- x [T, D]
  local w = nn.weight(name .. ".query_key_value.weight", { 3 * hidden, hidden })
  local b = nn.weight(name .. ".query_key_value.bias", { 3 * hidden })
  local function part(i)  -- the rows of each head are those of q, then of k, then of v
    local function rows(of) return nn.rows(of, i * head_dim, head_dim, 3 * head_dim) end
    return nn.split_heads(nn.linear(x, rows(w), rows(b)), heads)         -- [T, H, E]
  end
  local y = nn.attend(part(0), nn.cache(part(1), part(2)), { slopes = nn.alibi(heads) })
  return project(nn.join_heads(y), name .. ".dense", hidden)
end

local function mlp(x, name)                                              -- x [T, D]
  return project(nn.act(project(x, name .. ".dense_h_to_4h", 4 * hidden), "gelu_tanh"), name .. ".dense_4h_to_h", hidden)
end

local embedding = nn.weight("transformer.word_embeddings.weight", { vocab, hidden })
local h = norm(nn.embed(nn.ids(), embedding), "transformer.word_embeddings_layernorm")
for i = 0, layers - 1 do
  local layer = "transformer.h." .. i
  h = h + attention(norm(h, layer .. ".input_layernorm"), layer .. ".self_attention")
  h = h + mlp(norm(h, layer .. ".post_attention_layernorm"), layer .. ".mlp")
end
local logits = nn.linear(norm(nn.select_last(h), "transformer.ln_f"), embedding)

return ftx.model {
  graph = nn.sample(logits),
  eos = 2,
  precision = { weights = "fp32" },
  limits = { context = 72 },
}
