-- gpt2.lua - decoder: LayerNorm, learned positions, biases everywhere, GELU. Radford et al. 2019; with `norm_after` the
-- first GPT, Radford et al. 2018.
-- Its model is specs/gpt2-124m.lua.
--
-- T tokens of a step, S sequences, D hidden, H heads, E head_dim, F ffn, V vocab.
local nn = require "nn"
local config = require "lib.config"

local fields = {
  vocab = config.count(2, 2 ^ 24),
  hidden = config.count(1, 2 ^ 17),
  layers = config.count(1, 1024),
  heads = config.count(1, 1024),
  ffn = config.count(0, 2 ^ 20, 0),                                 -- 0: 4 * hidden
  positions = config.count(1, 2 ^ 20),
  norm_eps = config.number(0, 1, 1e-5),
  activation = config.word(config.activations, "gelu_tanh"),
  scale_attention = config.flag(true),                              -- scores / sqrt(E)
  scale_by_layer = config.flag(false),                              -- scores / (layer + 1)
  tie_embeddings = config.flag(true),
  norm_after = config.flag(false),                                  -- norms of the sums, and none at the end
  names = config.options({ tokens = "transformer.wte", positions = "transformer.wpe" }), -- of the embeddings
  outputs_first = config.flag(false),                               -- matrices are stored as [N, K]
  attention = config.word({ "cache", "causal", "full" }, "cache"),  -- as decoder.lua
  classes = config.count(0, 2 ^ 20, 0),                             -- so are these
  classes_of = config.word({ "text", "tokens" }, "text"),
  classifier = config.options({ "score" }),                         -- the name of its tensors
}

-- The checkpoint stores these matrices as [K, N], inputs first: y = x * w + b.
local function weights(c, name, inputs, outputs)
  local w = c.outputs_first and nn.weight(name .. ".weight", { outputs, inputs })
    or nn.transpose(nn.weight(name .. ".weight", { inputs, outputs }))
  return w, nn.weight(name .. ".bias", { outputs })
end

local function project(c, x, name, outputs)
  return nn.linear(x, weights(c, name, nn.width(x), outputs))
end

local function attention(c, x, name, layer)                         -- x [T, D]
  local w, b = weights(c, name .. ".c_attn", c.hidden, 3 * c.hidden) -- q, k, v one after another
  local function part(i)
    local from = i * c.hidden
    return nn.split_heads(nn.linear(x, nn.rows(w, from, c.hidden), nn.rows(b, from, c.hidden)), c.heads)
  end
  local q, k, v = part(0), part(1), part(2)                         -- [T, H, E] each
  local scale = (c.scale_attention and c.head_dim ^ -0.5 or 1) / (c.scale_by_layer and layer + 1 or 1)
  local y = nil                                                     -- [T, H, E]
  if c.attention == "cache" then y = nn.attend(q, nn.cache(k, v), { scale = scale })
  else y = nn.attend_full(q, k, v, { scale = scale, causal = c.attention == "causal" }) end
  return project(c, nn.join_heads(y), name .. ".c_proj", c.hidden)
end

local function mlp(c, x, name)                                      -- x [T, D]
  local y = nn.act(project(c, x, name .. ".c_fc", c.ffn), c.activation) -- [T, F]
  return project(c, y, name .. ".c_proj", c.hidden)
end

local function norm(c, x, name)
  return nn.layernorm(x, nn.weight(name .. ".weight", { c.hidden }), nn.weight(name .. ".bias", { c.hidden }),
                      c.norm_eps)
end

return function(given)
  local c = config.read("gpt2", given, fields)
  if c.ffn == 0 then c.ffn = 4 * c.hidden end
  config.split_hidden("gpt2", c)

  nn.checkpoint {
    prefixes = { "transformer." },                                  -- the oldest checkpoints have none
    unused = { "transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias", -- the causal mask
               (c.tie_embeddings or c.attention ~= "cache") and "lm_head.weight" or nil },
    heads = c.attention ~= "cache" and { "score.", "classifier.", "qa_outputs." } or nil,
    copies = c.tie_embeddings and c.attention == "cache" and { "lm_head.weight", c.names.tokens .. ".weight" } or nil,
  }
  local embedding = nn.weight(c.names.tokens .. ".weight", { c.vocab, c.hidden })
  local positions = nn.weight(c.names.positions .. ".weight", { c.positions, c.hidden })
  local h = nn.embed(nn.ids(), embedding) + nn.positions(positions) -- [T, D]
  for i = 0, c.layers - 1 do
    local layer = "transformer.h." .. i
    if c.norm_after then
      h = norm(c, h + attention(c, h, layer .. ".attn", i), layer .. ".ln_1")
      h = norm(c, h + mlp(c, h, layer .. ".mlp"), layer .. ".ln_2")
    else
      h = h + attention(c, norm(c, h, layer .. ".ln_1"), layer .. ".attn", i)
      h = h + mlp(c, norm(c, h, layer .. ".ln_2"), layer .. ".mlp")
    end
  end
  if c.attention ~= "cache" then
    if not c.norm_after then h = norm(c, h, "transformer.ln_f") end -- [T, D]
    local function classes(x, bias)
      local w = nn.weight(c.classifier[1] .. ".weight", { c.classes, c.hidden })
      return nn.linear(x, w, bias and nn.weight(c.classifier[1] .. ".bias", { c.classes }))
    end
    if c.classes > 0 and c.classes_of == "tokens" then return nn.vectors(classes(h, true)) end
    if c.classes > 0 then return nn.vectors(h, classes(nn.select_last(h))) end
    return nn.vectors(h, c.attention == "causal" and nn.select_last(h) or nn.pool_mean(h))
  end
  h = nn.select_last(h)                                             -- [S, D]
  if not c.norm_after then h = norm(c, h, "transformer.ln_f") end
  local head = c.tie_embeddings and embedding or nn.weight("lm_head.weight", { c.vocab, c.hidden })
  return nn.sample(nn.linear(h, head))                              -- [S, V] logits, then tokens
end
