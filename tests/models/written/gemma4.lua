-- gemma4.lua - decoder: heads by kind of layer, the last layers read caches of earlier ones, embeddings for layers. Google 2026.
local ftx, nn = require "ftx", require "nn"

local vocab, hidden, layers, heads, ffn, width, eps = 101, 56, 4, 6, 52, 12, 1e-3
local part = {}                                     -- 5 of the 20 pairs of a head turn
for i = 1, 20 do part[i] = i <= 5 and 1e6 ^ (-2 * (i - 1) / 40) or 0 end
local near = { dim = 24, kv = 2, window = 5, rope = { theta = 10000 } }
local far = { dim = 40, kv = 1, window = 0, rope = { freqs = part }, keys_are_values = true }
local kept = {}                                     -- the cache of each kind of layer

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }))
end

local function norm(x, name)
  return nn.rmsnorm(x, nn.weight(name .. ".weight", { nn.width(x) }), eps)
end

local function attention(x, name, l)                -- x [T, D]; l: near or far
  local q = nn.split_heads(project(x, name .. ".q_proj", heads * l.dim), heads)
  if not kept[l] then
    local k = project(x, name .. ".k_proj", l.kv * l.dim)
    local v = l.keys_are_values and k or project(x, name .. ".v_proj", l.kv * l.dim)
    k, v = nn.split_heads(k, l.kv), nn.split_heads(v, l.kv)
    kept[l] = nn.cache(nn.rope(norm(k, name .. ".k_norm"), l.rope), nn.rmsnorm(v, nil, eps))
  end
  local y = nn.attend(nn.rope(norm(q, name .. ".q_norm"), l.rope), kept[l], { scale = 1, window = l.window })
  return project(nn.join_heads(y), name .. ".o_proj", hidden)
end

local function repeated(w, n)                       -- the one element of w, n times
  if n == 1 then return w end
  return n % 2 == 1 and nn.concat(repeated(w, n - 1), w) or nn.concat(repeated(w, n // 2), repeated(w, n // 2))
end

local embedding = nn.weight("model.embed_tokens.weight", { vocab, hidden })
local h = hidden ^ 0.5 * nn.embed(nn.ids(), embedding)
local of_ids = nn.embed(nn.ids(), nn.weight("model.embed_tokens_per_layer.weight", { 104, layers * width }))
local of_h = hidden ^ -0.5 * project(h, "model.per_layer_model_projection", layers * width)
of_h = nn.join_heads(norm(nn.split_heads(of_h, layers), "model.per_layer_projection_norm"))
local inputs = 0.5 ^ 0.5 * (of_h + width ^ 0.5 * of_ids)
for i = 0, layers - 1 do
  local name, wide = "model.layers." .. i .. ".", i < 2 and ffn or 2 * ffn
  local y = attention(norm(h, name .. "input_layernorm"), name .. "self_attn", i % 2 == 0 and near or far)
  h = h + norm(y, name .. "post_attention_layernorm")
  y = norm(h, name .. "pre_feedforward_layernorm")
  y = nn.glu(project(y, name .. "mlp.gate_proj", wide), project(y, name .. "mlp.up_proj", wide), "gelu_tanh")
  h = h + norm(project(y, name .. "mlp.down_proj", hidden), name .. "post_feedforward_layernorm")
  y = nn.act(project(h, name .. "per_layer_input_gate", width), "gelu_tanh") * nn.slice(inputs, i * width, width)
  h = h + norm(project(y, name .. "per_layer_projection", hidden), name .. "post_per_layer_input_norm")
  h = h * repeated(nn.weight(name .. "layer_scalar", { 1 }), hidden)
end
local logits = nn.linear(norm(nn.select_last(h), "model.norm"), embedding)
logits = 2 * nn.act(0.5 * logits, "tanh")
return ftx.model { graph = nn.sample(logits), eos = 2, precision = { weights = "fp32" }, limits = { context = 72 } }
