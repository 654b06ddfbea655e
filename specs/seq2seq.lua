-- seq2seq.lua - encoders and decoders that differ in their parts: norms and their places, positions, biases, gates.
-- Without options it is Vaswani et al. 2017. hf/seq2seqs.lua says which parts an architecture of Hugging Face has.
--
-- T tokens of a step: of all sources in the encoder, of all texts that are generated in the decoder. Without `part` the
-- encoder's; a decoder that reads its source's text, too, has the same tokens. S sequences, D hidden, H heads, E head_dim, F ffn, V vocab.
local nn = require "nn"
local config = require "lib.config"

-- Names of tensors, without ".weight" and ".bias", behind "encoder" or "decoder".
local names = {
  layers = ".layers.", final_norm = ".layer_norm", positions = ".embed_positions",
  embedding_norm = ".layernorm_embedding",
  attention_norm = "self_attn_layer_norm", attention = "self_attn.",
  source_norm = "encoder_attn_layer_norm", source = "encoder_attn.",
  q = "q_proj", k = "k_proj", v = "v_proj", out = "out_proj",
  encoder_ffn_norm = "final_layer_norm", encoder_ffn = "", decoder_ffn_norm = "final_layer_norm", decoder_ffn = "",
  up = "fc1", down = "fc2", gate = "",
  dense = "classification_head.dense", classifier = "classification_head.out_proj",
  buckets = "",                                                     -- the table of biases, in a layer
  head = "lm_head",
}

local fields = {
  vocab = config.count(2, 2 ^ 24),
  source_vocab = config.count(0, 2 ^ 24, 0),                        -- 0: one embedding for both sides
  hidden = config.count(1, 2 ^ 17),
  encoder_layers = config.count(1, 1024),
  decoder_layers = config.count(1, 1024),
  heads = config.count(1, 1024),                                    -- of the decoder
  encoder_heads = config.count(0, 1024, 0),                         -- 0: as the decoder
  head_dim = config.count(0, 1024, 0),                              -- 0: hidden / heads
  ffn = config.count(1, 2 ^ 20),                                    -- of the decoder
  encoder_ffn = config.count(0, 2 ^ 20, 0),                         -- 0: as the decoder
  activation = config.word(config.activations, "relu"),
  experts = config.options({}),                                     -- count; encoder, decoder: by layer, true if its feed-forward is
                                                                    -- that expert of names.experts ("*": its number) which
                                                                    -- names.router chooses; bias: the router has one. Empty: none
  gated = config.flag(false),                                       -- activation(gate) * up
  norm = config.word({ "post", "pre" }, "post"),                    -- after each residual sum, or before each block
  norm_kind = config.word({ "layer", "rms" }, "layer"),
  norm_eps = config.number(0, 1, 1e-5),
  norm_embedding = config.flag(false),                              -- a norm after the embedding
  norm_words = config.flag(false),                                  -- in the decoder it stands before the positions
  final_norm = config.flag(false),                                  -- a norm after the last layer (with pre)
  bias = config.flag(true),                                         -- of linears
  scale_scores = config.flag(true),                                 -- by E^-1/2
  attention_bias = config.flag(true),                               -- of those around attention
  encoder_names = config.options({}),                               -- names of the encoder's attention that differ
  windows = config.options({}),                                     -- keys on either side that the encoder's layers see; 0: all
  apart = config.flag(false),                                       -- each side has an embedding of its own
  source_positions = config.count(0, 2 ^ 20, 0),                    -- of the encoder's learned table; 0: as the decoder's
  positions = config.count(0, 2 ^ 20, 0),                           -- rows of the learned table; 0: sinusoidal
  first_position = config.count(0, 2 ^ 20, 0),                      -- row of the first position
  sinusoid = config.options({}),                                    -- theta, span, style: see nn.sinusoid
  buckets = config.count(0, 2 ^ 16, 0),                             -- biases by distance in place of positions; 0: none
  max_distance = config.count(2, 2 ^ 20, 128),                      -- see nn.distance_bias
  buckets_each = config.flag(false),                                -- each layer has its own biases, not one for all
  scale_embedding = config.flag(true),                              -- by sqrt(D)
  scale_output = config.flag(false),                                -- of the decoder, by 1 / sqrt(D)
  tie_embeddings = config.flag(true),                               -- of the decoder and its head
  logits_bias = config.word({ "none", "final_logits_bias", "lm_head.bias" }, "none"),
  part = config.word({ "both", "encoder", "reader" }, "both"),      -- encoder: without the decoder; reader: the decoder reads
                                                                    -- the source's text, one token later
  start = config.count(0, 2 ^ 24, 0),                               -- the token before the first one, of a reader
  wraps = config.flag(false),                                       -- it is the last one of the text
  end_id = config.count(-1, 2 ^ 31 - 1, -1),                        -- classes of a text: those of this token; -1: of its last
  classes = config.count(0, 2 ^ 20, 0),                             -- rows of names.classifier; 0: none
  classes_of = config.word({ "text", "tokens" }, "text"),           -- of one token, through names.dense; or of each token
  names = config.options({}),                                       -- those that differ from the table above
  unused = config.options({}),                                      -- tensors that older checkpoints have
}

local function project(c, x, name, outputs, bias)
  local w = nn.weight(name .. ".weight", { outputs, nn.width(x) })
  return nn.linear(x, w, c.bias and bias ~= false and nn.weight(name .. ".bias", { outputs }))
end

local function norm(c, x, name)
  local g = nn.weight(name .. ".weight", { c.hidden })
  if c.norm_kind == "rms" then return nn.rmsnorm(x, g, c.norm_eps) end
  return nn.layernorm(x, g, nn.weight(name .. ".bias", { c.hidden }), c.norm_eps)
end

-- One of the two sides: name is "encoder" or "decoder", width H*E.
local function side(c, name, heads, ffn)
  local own = name == "encoder" and c.encoder_names or {}
  return { name = name, names = setmetatable(own, { __index = c.names }), heads = heads,
           width = c.head_dim > 0 and c.head_dim * heads or c.hidden, ffn = ffn,
           scale = not c.scale_scores and 1 or nil }                -- of scores; nil: E^-1/2
end

-- The embedded tokens of a side.                                      [T, D]
local function embed(c, s, embedding)
  local h = nn.embed(nn.ids(), embedding)
  if c.part == "reader" and s.name == "decoder" then
    h = c.wraps and nn.neighbours(h, { from = -1, count = 1, ring = true })
      or nn.previous(h, nn.rows(embedding, c.start, 1))
  end
  if c.scale_embedding then h = h * math.sqrt(c.hidden) end
  local normed = not c.norm_embedding
  if c.norm_words and s.name == "decoder" then h, normed = norm(c, h, s.name .. c.names.embedding_norm), true end
  if c.positions > 0 then
    local rows = s.name == "encoder" and c.source_positions > 0 and c.source_positions or c.positions
    local w = nn.weight(s.name .. c.names.positions .. ".weight", { rows, c.hidden })
    h = h + nn.positions(w, c.first_position)
  elseif c.buckets == 0 then
    local options = { dim = c.hidden }
    for k, v in pairs(c.sinusoid) do options[k] = v end
    h = h + nn.positions(nn.sinusoid(options), c.first_position)
  end
  return normed and h or norm(c, h, s.name .. c.names.embedding_norm)
end

-- h + block(h), with the norm before the block or after the sum
local function add(c, h, name, block)
  if c.norm == "pre" then return h + block(norm(c, h, name)) end
  return norm(c, h + block(h), name)
end

-- One of q, k, v of x [T, D] or of the source.                         [T, H, E]
local function heads(c, s, x, name) return nn.split_heads(project(c, x, name, s.width, c.attention_bias), s.heads) end

-- Every token attends to all of its text, in the decoder to itself and the tokens before it.
local function attention(c, s, x, layer, i)                         -- x [T, D]
  local n, options, y = layer .. s.names.attention, { scale = s.scale }, nil
  if c.buckets > 0 then
    if c.buckets_each or not s.bias then
      local w = nn.weight(layer .. c.names.buckets .. ".weight", { c.buckets, s.heads })
      s.bias = nn.distance_bias(w, { max_distance = c.max_distance, causal = s.name == "decoder" })
    end
    options.bias = s.bias
  end
  local q, k, v = heads(c, s, x, n .. s.names.q), heads(c, s, x, n .. s.names.k), heads(c, s, x, n .. s.names.v)
  if s.name == "encoder" then
    options.window = c.windows[i + 1]
    y = nn.attend_full(q, k, v, options)
  elseif c.part == "reader" then
    options.causal = true
    y = nn.attend_full(q, k, v, options)
  else
    y = nn.attend(q, nn.cache(k, v), options)
  end
  return project(c, nn.join_heads(y), n .. s.names.out, c.hidden, c.attention_bias)
end

-- Every token attends to all of its source, the encoder's output.
local function attention_to_source(c, s, x, source, layer)
  local n = layer .. c.names.source
  local q, k, v = heads(c, s, x, n .. c.names.q), heads(c, s, source, n .. c.names.k), heads(c, s, source, n .. c.names.v)
  local options, y = { scale = s.scale }, nil
  if c.part == "reader" then y = nn.attend_full(q, k, v, options)
  else y = nn.attend_cross(q, nn.cross_cache(k, v), options) end
  return project(c, nn.join_heads(y), n .. c.names.out, c.hidden, c.attention_bias)
end

-- The expert of each token, times its probability.
local function expert(c, s, x, name)                                -- x [T, D]
  local n, e = c.names, c.experts
  local logits = nn.linear(x, nn.weight(name .. n.router .. ".weight", { e.count, c.hidden }),
                           e.bias and nn.weight(name .. n.router .. ".bias", { e.count }))
  local function stack(part, rows, columns)
    return nn.stack(name .. n.experts .. part .. ".weight", { e.count, rows, columns })
  end
  return nn.experts(x, nn.route(logits, { k = 1 }), {
    up = stack(n.up, s.ffn, c.hidden), down = stack(n.down, c.hidden, s.ffn), kind = c.activation,
  })
end

local function feed_forward(c, s, x, layer, i)
  local n, y = layer .. c.names[s.name .. "_ffn"], nil
  if c.experts.count and c.experts[s.name][i + 1] then return expert(c, s, x, n) end
  if c.gated then
    y = nn.glu(project(c, x, n .. c.names.gate, s.ffn), project(c, x, n .. c.names.up, s.ffn), c.activation)
  else
    y = nn.act(project(c, x, n .. c.names.up, s.ffn), c.activation)
  end
  return project(c, y, n .. c.names.down, c.hidden)
end

local function encoder(c, s, embedding)
  local h = embed(c, s, embedding)
  for i = 0, c.encoder_layers - 1 do
    local layer = s.name .. c.names.layers .. i .. "."
    h = add(c, h, layer .. c.names.attention_norm, function(x) return attention(c, s, x, layer, i) end)
    h = add(c, h, layer .. c.names.encoder_ffn_norm, function(x) return feed_forward(c, s, x, layer, i) end)
  end
  return c.final_norm and norm(c, h, s.name .. c.names.final_norm) or h
end

local function decoder(c, s, embedding, source)
  local h = embed(c, s, embedding)
  for i = 0, c.decoder_layers - 1 do
    local layer = s.name .. c.names.layers .. i .. "."
    h = add(c, h, layer .. c.names.attention_norm, function(x) return attention(c, s, x, layer, i) end)
    h = add(c, h, layer .. c.names.source_norm, function(x) return attention_to_source(c, s, x, source, layer) end)
    h = add(c, h, layer .. c.names.decoder_ffn_norm, function(x) return feed_forward(c, s, x, layer, i) end)
  end
  if c.part == "both" then h = nn.select_last(h) end                -- [S, D]
  return c.final_norm and norm(c, h, s.name .. c.names.final_norm) or h
end

-- The result of an encoder: its states, or the classes of tokens or of texts.
local function vectors(c, h)                                        -- h [T, D]
  local function linear(x, name, outputs)
    return nn.linear(x, nn.weight(name .. ".weight", { outputs, c.hidden }), nn.weight(name .. ".bias", { outputs }))
  end
  if c.classes == 0 then return nn.vectors(h) end
  if c.classes_of == "tokens" then return nn.vectors(linear(h, c.names.classifier, c.classes)) end
  local of = c.end_id >= 0 and nn.select_id(h, c.end_id) or nn.select_last(h)
  local y = nn.act(linear(of, c.names.dense, c.hidden), "tanh")
  return nn.vectors(h, linear(y, c.names.classifier, c.classes))
end

return function(given)
  local c = config.read("seq2seq", given, fields)
  if c.head_dim == 0 then
    config.split_hidden("seq2seq", { hidden = c.hidden, heads = c.heads })
  else
    config.check_heads("seq2seq", { heads = c.heads, kv_heads = c.heads, head_dim = c.head_dim })
  end
  c.names = setmetatable(c.names, { __index = names })

  local unused = { -- copies of the shared embedding, and tables that are computed
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "shared.weight", c.names.head .. ".weight",
    "encoder.embed_positions.weight", "decoder.embed_positions.weight",
    (c.logits_bias == "none" or c.part ~= "both") and "final_logits_bias" or nil,
  }
  for _, name in ipairs(c.unused) do table.insert(unused, name) end
  nn.checkpoint {
    prefixes = { "model.", "transformer.", "led." }, unused = unused,
    heads = c.part == "encoder" and { "decoder.", "classifier.", "classification_head.", "qa_outputs." } or nil,
  }
  local target, source
  if c.source_vocab == 0 and not c.apart then
    target = nn.weight("shared.weight", { c.vocab, c.hidden })
    source = target
  else
    target = nn.weight("decoder.embed_tokens.weight", { c.vocab, c.hidden })
    source = nn.weight("encoder.embed_tokens.weight", { c.source_vocab > 0 and c.source_vocab or c.vocab, c.hidden })
  end
  local of_source = side(c, "encoder", c.encoder_heads > 0 and c.encoder_heads or c.heads,
                         c.encoder_ffn > 0 and c.encoder_ffn or c.ffn)
  local h = encoder(c, of_source, source)                           -- [T, D]
  if c.part == "encoder" then return vectors(c, h) end
  h = decoder(c, side(c, "decoder", c.heads, c.ffn), target, h)     -- [S, D], of a reader [T, D]
  if c.part == "reader" then return vectors(c, h) end
  if c.scale_output then h = c.hidden ^ -0.5 * h end
  local head = c.tie_embeddings and target or nn.weight(c.names.head .. ".weight", { c.vocab, c.hidden })
  local bias = c.logits_bias ~= "none" and nn.weight(c.logits_bias, { c.vocab })
  return nn.sample(nn.linear(h, head, bias))                        -- [S, V] logits, then tokens
end
