-- t5.lua - encoder and decoder: biases by distance in place of positions, RMSNorm, ReLU. Raffel et al. 2019.
local ftx = require "ftx"
local nn = require "nn"

local vocab, hidden, layers, heads, head_dim, ffn, eps, buckets, max_distance = 101, 48, 2, 3, 24, 88, 1e-3, 10, 12

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }))
end

local function norm(x, name)
  return nn.rmsnorm(x, nn.weight(name .. ".weight", { hidden }), eps)
end

local function part(x, name) return nn.split_heads(project(x, name, heads * head_dim), heads) end -- [T, H, E]

local function bias(side, causal)  -- that of the first layer is that of all
  local w = nn.weight(side .. ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", { buckets, heads })
  return nn.distance_bias(w, { max_distance = max_distance, causal = causal })
end

local function mlp(x, name) return project(nn.act(project(x, name .. ".wi", ffn), "relu"), name .. ".wo", hidden) end

local function self_attention(causal, of)
  return function(x, name)
    local q, k, v = part(x, name .. ".q"), part(x, name .. ".k"), part(x, name .. ".v")
    local y = causal and nn.attend(q, nn.cache(k, v), { scale = 1, bias = of })
      or nn.attend_full(q, k, v, { scale = 1, bias = of })
    return project(nn.join_heads(y), name .. ".o", hidden)
  end
end

local embedding = nn.weight("shared.weight", { vocab, hidden })
local function stack(side, causal, middle)
  local function residual(x, layer, name, f) return x + f(norm(x, layer .. ".layer_norm"), layer .. "." .. name) end
  local h, attend = nn.embed(nn.ids(), embedding), self_attention(causal, bias(side, causal))
  for i = 0, layers - 1 do
    local block = side .. ".block." .. i .. ".layer."
    h = residual(h, block .. 0, "SelfAttention", attend)
    if middle then h = residual(h, block .. 1, "EncDecAttention", middle) end
    h = residual(h, block .. (middle and 2 or 1), "DenseReluDense", mlp)
  end
  return h
end

local source = norm(stack("encoder", false), "encoder.final_layer_norm")
local h = stack("decoder", true, function(x, name)
  local memory = nn.cross_cache(part(source, name .. ".k"), part(source, name .. ".v"))
  return project(nn.join_heads(nn.attend_cross(part(x, name .. ".q"), memory, { scale = 1 })), name .. ".o", hidden)
end)
h = nn.scale(norm(nn.select_last(h), "decoder.final_layer_norm"), hidden ^ -0.5)

return ftx.model {
  graph = nn.sample(nn.linear(h, embedding)),
  start = 0, pad = 0, eos = 1,
  decode = ftx.beam { width = 4, n_best = 3, length_penalty = 0.5 },
  precision = { weights = "fp32" },
  limits = { context = 72 },
}
