-- transformer.lua - encoder and decoder of Vaswani et al. 2017: norms after each residual sum or before each
-- block, sinusoidal or learned positions. Marian and BART are this (specs/marian.lua, specs/bart.lua).
--
-- T tokens of a step: of all sources in the encoder, of all texts that are generated in the decoder. S
-- sequences, D hidden.
local nn = require "nn"
local config = require "lib.config"
local blocks = require "lib.blocks"

local fields = {
  vocab = config.count(2, 2 ^ 24),
  source_vocab = config.count(0, 2 ^ 24, 0),                        -- 0: one embedding for both sides
  hidden = config.count(1, 2 ^ 17),
  encoder_layers = config.count(1, 1024),
  decoder_layers = config.count(1, 1024),
  heads = config.count(1, 1024),                                    -- of the decoder
  encoder_heads = config.count(0, 1024, 0),                         -- 0: as the decoder
  ffn = config.count(1, 2 ^ 20),                                    -- of the decoder
  encoder_ffn = config.count(0, 2 ^ 20, 0),                         -- 0: as the decoder
  activation = config.word(config.activations, "relu"),
  norm = config.word({ "post", "pre" }, "post"),                    -- after each residual sum, or before each block
  norm_eps = config.number(0, 1, 1e-5),
  norm_embedding = config.flag(false),                              -- a norm after the embedding
  final_norm = config.flag(false),                                  -- a norm after the last layer (with pre)
  positions = config.count(0, 2 ^ 20, 0),                           -- rows of the learned table; 0: sinusoidal
  first_position = config.count(0, 2 ^ 20, 0),                      -- row of the first position
  sinusoid = config.options({}),                                    -- theta, span, style: see nn.sinusoid
  scale_embedding = config.flag(true),                              -- by sqrt(D)
  tie_embeddings = config.flag(true),                               -- of the decoder and its head
  logits_bias = config.word({ "none", "final_logits_bias", "lm_head.bias" }, "none"),
}

-- The embedded tokens of a side ("encoder", "decoder").      [T, D]
local function embed(c, side, embedding)
  local h = nn.embed(nn.ids(), embedding)
  if c.scale_embedding then h = h * math.sqrt(c.hidden) end
  if c.positions > 0 then
    local w = nn.weight(side .. ".embed_positions.weight", { c.positions, c.hidden })
    h = h + nn.positions(w, c.first_position)
  else
    local options = { dim = c.hidden }
    for k, v in pairs(c.sinusoid) do options[k] = v end
    h = h + nn.positions(nn.sinusoid(options), c.first_position)
  end
  return c.norm_embedding and blocks.norm(h, side .. ".layernorm_embedding", c.norm_eps) or h
end

-- h + block(h), with the norm before the block or after the sum
local function add(c, h, norm, block)
  if c.norm == "pre" then return h + block(blocks.norm(h, norm, c.norm_eps)) end
  return blocks.norm(h + block(h), norm, c.norm_eps)
end

local function names(attention)
  return { q = attention .. ".q_proj", k = attention .. ".k_proj", v = attention .. ".v_proj",
           out = attention .. ".out_proj" }
end

local function encoder(c, embedding)
  local h = embed(c, "encoder", embedding)
  for i = 0, c.encoder_layers - 1 do
    local layer = "encoder.layers." .. i
    h = add(c, h, layer .. ".self_attn_layer_norm", function(x)
      return blocks.attend_full(x, names(layer .. ".self_attn"), c.encoder_heads)
    end)
    h = add(c, h, layer .. ".final_layer_norm", function(x)
      return blocks.feed_forward(x, layer .. ".fc1", layer .. ".fc2", c.encoder_ffn, c.activation)
    end)
  end
  return c.final_norm and blocks.norm(h, "encoder.layer_norm", c.norm_eps) or h
end

local function decoder(c, embedding, source)
  local h = embed(c, "decoder", embedding)
  for i = 0, c.decoder_layers - 1 do
    local layer = "decoder.layers." .. i
    h = add(c, h, layer .. ".self_attn_layer_norm", function(x)
      return blocks.attend_causal(x, names(layer .. ".self_attn"), c.heads)
    end)
    h = add(c, h, layer .. ".encoder_attn_layer_norm", function(x)
      return blocks.attend_source(x, source, names(layer .. ".encoder_attn"), c.heads)
    end)
    h = add(c, h, layer .. ".final_layer_norm", function(x)
      return blocks.feed_forward(x, layer .. ".fc1", layer .. ".fc2", c.ffn, c.activation)
    end)
  end
  h = nn.select_last(h)                                             -- [S, D]
  return c.final_norm and blocks.norm(h, "decoder.layer_norm", c.norm_eps) or h
end

return function(given)
  local c = config.read("transformer", given, fields)
  config.split_hidden("transformer", c)
  if c.encoder_heads == 0 then c.encoder_heads = c.heads end
  if c.encoder_ffn == 0 then c.encoder_ffn = c.ffn end

  nn.checkpoint {
    prefixes = { "model." },
    unused = { -- copies of the shared embedding, and tables that are computed
      "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "shared.weight", "lm_head.weight",
      "encoder.embed_positions.weight", "decoder.embed_positions.weight",
      c.logits_bias == "none" and "final_logits_bias" or nil,
    },
  }
  local target, source
  if c.source_vocab == 0 then
    target = nn.weight("shared.weight", { c.vocab, c.hidden })
    source = target
  else
    target = nn.weight("decoder.embed_tokens.weight", { c.vocab, c.hidden })
    source = nn.weight("encoder.embed_tokens.weight", { c.source_vocab, c.hidden })
  end
  local h = decoder(c, target, encoder(c, source))                  -- [S, D]
  local head = c.tie_embeddings and target or nn.weight("lm_head.weight", { c.vocab, c.hidden })
  local bias = c.logits_bias ~= "none" and nn.weight(c.logits_bias, { c.vocab })
  return nn.sample(nn.linear(h, head, bias))                        -- [S, V] logits, then tokens
end
