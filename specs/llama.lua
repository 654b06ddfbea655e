-- llama.lua - decoder: RMSNorm, RoPE, grouped-query attention, SwiGLU. Touvron et al. 2023.
-- Mistral is this with a sliding window (Jiang et al. 2023).
--
-- T tokens of a step, S sequences, D hidden, H heads, G kv_heads, E head_dim, F ffn, V vocab.
local nn = require "nn"
local config = require "lib.config"

local fields = {
  vocab = config.count(2, 2 ^ 24),
  hidden = config.count(1, 2 ^ 17),
  layers = config.count(1, 1024),
  heads = config.count(1, 1024),
  kv_heads = config.count(1, 1024, 0),                              -- 0: as many as heads
  head_dim = config.count(1, 1024, 0),                              -- 0: hidden / heads
  ffn = config.count(1, 2 ^ 20),
  rope = config.options({}),                                        -- theta, dim, scaling: see nn.rope
  norm_eps = config.number(0, 1, 1e-5),
  activation = config.word(config.activations, "silu"),
  window = config.count(0, 2 ^ 24, 0),                              -- keys that a token sees; 0: all before it
  attention_bias = config.flag(false),
  mlp_bias = config.flag(false),
  tie_embeddings = config.flag(false),
}

-- x * w^T (+ b)
local function project(x, name, outputs, bias)
  local w = nn.weight(name .. ".weight", { outputs, nn.width(x) })
  return nn.linear(x, w, bias and nn.weight(name .. ".bias", { outputs }))
end

local function attention(c, x, name)                                -- x [T, D]
  local q = project(x, name .. ".q_proj", c.heads * c.head_dim, c.attention_bias)
  local k = project(x, name .. ".k_proj", c.kv_heads * c.head_dim, c.attention_bias)
  local v = project(x, name .. ".v_proj", c.kv_heads * c.head_dim, c.attention_bias)
  q = nn.rope(nn.split_heads(q, c.heads), c.rope)                   -- [T, H, E]
  k = nn.rope(nn.split_heads(k, c.kv_heads), c.rope)                -- [T, G, E]
  v = nn.split_heads(v, c.kv_heads)                                 -- [T, G, E]
  local y = nn.attend(q, nn.cache(k, v), { window = c.window })     -- [T, H, E]
  return project(nn.join_heads(y), name .. ".o_proj", c.hidden, c.attention_bias)
end

local function mlp(c, x, name)                                      -- x [T, D]
  local gate = project(x, name .. ".gate_proj", c.ffn, c.mlp_bias)  -- [T, F]
  local up = project(x, name .. ".up_proj", c.ffn, c.mlp_bias)      -- [T, F]
  return project(nn.glu(gate, up, c.activation), name .. ".down_proj", c.hidden, c.mlp_bias)
end

local function norm(c, x, name)
  return nn.rmsnorm(x, nn.weight(name .. ".weight", { c.hidden }), c.norm_eps)
end

return function(given)
  local c = config.read("llama", given, fields)
  if c.kv_heads == 0 then c.kv_heads = c.heads end
  if c.head_dim == 0 then c.head_dim = c.hidden // c.heads end
  config.check_heads("llama", c)

  nn.checkpoint {
    prefixes = { "model." },
    unused = { "model.layers.*.self_attn.rotary_emb.inv_freq", c.tie_embeddings and "lm_head.weight" or nil },
    copies = c.tie_embeddings and { "lm_head.weight", "model.embed_tokens.weight" } or nil,
  }
  local embedding = nn.weight("model.embed_tokens.weight", { c.vocab, c.hidden })
  local h = nn.embed(nn.ids(), embedding)                           -- [T, D]
  for i = 0, c.layers - 1 do
    local layer = "model.layers." .. i
    h = h + attention(c, norm(c, h, layer .. ".input_layernorm"), layer .. ".self_attn")
    h = h + mlp(c, norm(c, h, layer .. ".post_attention_layernorm"), layer .. ".mlp")
  end
  h = norm(c, nn.select_last(h), "model.norm")                      -- [S, D]
  local head = c.tie_embeddings and embedding or nn.weight("lm_head.weight", { c.vocab, c.hidden })
  return nn.sample(nn.linear(h, head))                              -- [S, V] logits, then tokens
end
