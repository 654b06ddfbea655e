-- wrappers.lua - classes that read images, too: their config.json holds that of a text model, which is what is compiled.
local nn = require "nn"

-- model_type of the text model, where text_config has none.
local classes = {
  Gemma3ForConditionalGeneration = "gemma3_text", Gemma4ForConditionalGeneration = "gemma4_text",
  Gemma3nForConditionalGeneration = "gemma3n_text",
  Llama4ForConditionalGeneration = "llama4_text",
  Mistral3ForConditionalGeneration = "mistral",
}

-- Fields that the text model has from outside of text_config, where it has none of its own.
local shared = { "dtype", "torch_dtype", "quantization_config", "bos_token_id", "eos_token_id", "pad_token_id" }

-- Fields that no text depends on.
local images = {
  audio_config = true, audio_soft_tokens_per_image = true, audio_token_id = true, boa_token_id = true, boi_token_id = true, eoa_token_id = true,
  eoa_token_index = true, eoi_token_id = true, video_token_id = true, vision_soft_tokens_per_image = true,
  boi_token_index = true, eoi_token_index = true, image_token_id = true, image_token_index = true,
  mm_tokens_per_image = true, multimodal_projector_bias = true, projector_hidden_act = true, spatial_merge_size = true,
  vision_config = true, vision_feature_layer = true, vision_feature_select_strategy = true,
}

-- The File of the text model and the architecture that reads it; other classes as they are. types: architectures by
-- model_type; harmless: fields that change no logits.
return function(config, name, types, harmless)
  if not rawget(classes, name) then return config, name end
  local text = config:inside("text_config") or config:refuse("text_config", "the text model's fields")
  local kind = text:value("model_type") or classes[name]
  if not rawget(types, kind) then text:refuse("model_type", "that of a decoder that ftxc reads") end
  text.tensors = config.tensors
  for _, key in ipairs(shared) do
    if text:value(key) == nil then text.values[key] = config:value(key) end
  end
  -- The matrix of the head is the embedding as the fields outside say, unless the checkpoint has one.
  local tied = config:value("tie_word_embeddings")
  if config:stored("lm_head.weight") then tied = false end
  if tied ~= nil then text.values.tie_word_embeddings = tied end
  for key in pairs(harmless) do images[key] = true end
  config:known(images)
  nn.checkpoint {
    prefixes = { "language_model.", "model.language_model." },       -- transformers 4, 5
    heads = { "vision_tower.", "vision_model.", "multi_modal_projector.", "model.vision_tower.", "model.vision_model.",
              "model.multi_modal_projector.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio." },
  }
  return text, types[kind]
end
