-- wrappers.lua - classes that read images, too: their config.json holds that of a text model, which is what is compiled.
local nn = require "nn"

-- Of each class the model_type of the text model, where text_config has none. flat: the text model's fields may stand beside
-- those of images; tied: the head is the embedding if no field says it; either: it is if one of the two parts of the file says
-- so; unscaled: the class does not multiply logits with logit_scale.
local classes = {
  AyaVisionForConditionalGeneration = { "cohere2", tied = true, unscaled = true },
  Cohere2VisionForConditionalGeneration = { "cohere2", tied = true, unscaled = true },
  Gemma3ForConditionalGeneration = { "gemma3_text" },
  Gemma3nForConditionalGeneration = { "gemma3n_text" },
  Gemma4ForConditionalGeneration = { "gemma4_text" },
  Idefics3ForConditionalGeneration = { "llama" },
  InternVLForConditionalGeneration = { "qwen2", tied = true },
  Lfm2VlForConditionalGeneration = { "lfm2", tied = true },
  Llama4ForConditionalGeneration = { "llama4_text" },
  LlavaForConditionalGeneration = { "llama", either = true },
  LlavaNextForConditionalGeneration = { "llama" },
  LlavaOnevisionForConditionalGeneration = { "qwen2", either = true },
  Mistral3ForConditionalGeneration = { "mistral" },
  Qwen2VLForConditionalGeneration = { "qwen2_vl_text", flat = true, either = true },
  Qwen2_5_VLForConditionalGeneration = { "qwen2_5_vl_text", flat = true, either = true },
  Qwen3VLForConditionalGeneration = { "qwen3_vl_text", either = true },
  Qwen3VLMoeForConditionalGeneration = { "qwen3_vl_moe_text" },
  Qwen3_5ForConditionalGeneration = { "qwen3_5_text", either = true },
  Qwen3_5MoeForConditionalGeneration = { "qwen3_5_moe_text", either = true },
  SmolVLMForConditionalGeneration = { "llama" },
}

-- Sizes of the classes of text models. Some versions of transformers wrote into text_config what differs from these.
local function sizes(vocab, hidden, ffn, layers, heads)
  return { vocab_size = vocab, hidden_size = hidden, intermediate_size = ffn, num_hidden_layers = layers,
           num_attention_heads = heads }
end
local usual = {
  gemma3_text = sizes(262208, 2304, 9216, 26, 8), llama = sizes(32000, 4096, 11008, 32, 32),
  mistral = sizes(32000, 4096, 14336, 32, 32), qwen2 = sizes(151936, 4096, 22016, 32, 32),
}

-- Fields that the text model has from outside of text_config, where it has none of its own.
local shared = { "dtype", "torch_dtype", "transformers_version", "quantization_config", "bos_token_id", "eos_token_id", "pad_token_id" }

-- Fields that no text depends on.
local images = {
  adapter_layer_norm_eps = true, alignment_intermediate_size = true, downsample_factor = true, downsample_ratio = true,
  ignore_index = true, image_grid_pinpoints = true, image_seq_length = true, scale_factor = true,
  use_image_newline_parameter = true, vision_aspect_ratio = true, vision_end_token_id = true, vision_start_token_id = true,
  vision_token_id = true, video_token_index = true, _pad_token_id = true,
  do_image_splitting = true, encoder_patch_size = true, max_image_tokens = true, max_num_patches = true, max_pixels_tolerance = true,
  max_tiles = true, min_image_tokens = true, min_tiles = true, projector_bias = true, projector_hidden_size = true,
  projector_use_layernorm = true, tile_size = true, use_image_special_tokens = true, use_thumbnail = true,
  audio_config = true, audio_soft_tokens_per_image = true, audio_token_id = true, boa_token_id = true, boi_token_id = true,
  eoa_token_id = true, eoa_token_index = true, eoi_token_id = true, video_token_id = true, vision_soft_tokens_per_image = true,
  boi_token_index = true, eoi_token_index = true, image_token_id = true, image_token_index = true,
  mm_tokens_per_image = true, multimodal_projector_bias = true, projector_hidden_act = true, spatial_merge_size = true,
  vision_config = true, vision_feature_layer = true, vision_feature_select_strategy = true,
}

-- Such fields inside of text_config.
local inside = { "perceiver_config", "pixel_shuffle_factor" }

-- The fields of the text model, and its model_type.
local function text_of(config, class)
  if class.flat and config:value("text_config") == nil then
    for key in pairs(images) do config:value(key) end
    return config, class[1]
  end
  local text = config:inside("text_config") or config:refuse("text_config", "the text model's fields")
  local kind = text:value("model_type") or class[1]
  for key, size in pairs(rawget(usual, kind) or {}) do
    if text.values[key] == nil then text.values[key] = size end
  end
  for _, key in ipairs(inside) do text:value(key) end
  for _, key in ipairs(shared) do
    if text:value(key) == nil then text.values[key] = config:value(key) end
  end
  return text, kind
end

-- Whether the matrix of the head is the embedding: as the fields outside say, unless the checkpoint has one.
local function is_tied(config, text, class)
  local outside, own = config:value("tie_word_embeddings"), text:value("tie_word_embeddings")
  if config:stored("lm_head.weight") then return false end
  if class.either then return outside or own end
  if outside == nil then return class.tied or own end
  return outside
end

-- The File of the text model and the architecture that reads it; other classes as they are. types: architectures by
-- model_type; harmless: fields that change no logits.
return function(config, name, types, harmless)
  local class = rawget(classes, name)
  if not class then return config, name end
  local text, kind = text_of(config, class)
  if class.unscaled then text.values.logit_scale = 1 end
  if not rawget(types, kind) then text:refuse("model_type", "that of a decoder that ftxc reads") end
  text.tensors = config.tensors
  text.values.tie_word_embeddings = is_tied(config, text, class)
  if text ~= config then
    for key in pairs(harmless) do images[key] = true end
    config:known(images)
  end
  nn.checkpoint {
    prefixes = { "language_model.", "model.language_model.", "model.text_model." }, -- transformers 4, 5; Idefics3
    heads = { "vision_tower.", "vision_model.", "multi_modal_projector.", "model.vision_tower.", "model.vision_model.",
              "model.multi_modal_projector.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.",
              "visual.", "model.visual.", "model.connector.", "image_newline", "model.image_newline" },
  }
  return text, types[kind]
end
