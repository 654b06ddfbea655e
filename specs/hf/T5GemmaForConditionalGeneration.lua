-- T5GemmaForConditionalGeneration.lua - Gemma 2 twice: an encoder whose tokens see all of the source, and a decoder that reads it.
local decoders = require "hf/decoders"

local gemma2 = decoders.classes.Gemma2ForCausalLM

-- Gemma 2 in an object of config.json.
local function side(name)
  local layers = "model." .. name .. ".layers."
  return setmetatable({
    names = setmetatable({
      prefix = "model.", embedding = "model." .. name .. ".embed_tokens", layers = layers, final_norm = "model." .. name .. ".norm",
      head = "lm_head.out_proj", attention_norm = "pre_self_attn_layernorm", after_attention = "post_self_attn_layernorm",
      source_norm = "pre_cross_attn_layernorm", after_source = "post_cross_attn_layernorm", source_q = "cross_attn.q_proj",
      source_k = "cross_attn.k_proj", source_v = "cross_attn.v_proj", source_out = "cross_attn.o_proj",
    }, { __index = gemma2.names }),
  }, { __index = gemma2 })
end

return function(config)
  local outside, harmless = {}, decoders.harmless
  local function parts(name)
    local at = config:inside(name) or config:refuse(name, "an object")
    for _, key in ipairs { "dtype", "torch_dtype" } do
      if at.values[key] == nil then at.values[key] = config:value(key) end
    end
    local c, positions = decoders.parts(at, side(name))
    for _, key in ipairs { "classifier_dropout_rate", "dropout_rate" } do at:value(key) end
    at:known(harmless)
    return c, positions, at
  end
  local source, longest = parts "encoder"
  local c, positions, at = parts "decoder"
  at:only("cross_attention_hidden_size", "the encoder's hidden_size", source.hidden)
  source.scores_cap = source.scores_cap or 0                        -- none; what is missing would be the decoder's
  source.attention, c.source = "full", source
  c.tie_embeddings = config:flag("tie_word_embeddings", true)
  config:only("is_encoder_decoder", "true", true)
  for _, key in ipairs { "classifier_dropout_rate", "dropout_rate" } do outside[key] = true end
  for key in pairs(harmless) do outside[key] = true end
  config:known(outside)
  return { positions = positions, source = longest, vocab = c.vocab, graph = require "decoder"(c) }
end
