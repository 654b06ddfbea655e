-- wrappers.lua - classes that read images or sounds, too: their config.json holds that of a text model, which is what is compiled.
local nn = require "nn"

local voxtral = {
  vocab_size = 131072, hidden_size = 3072, intermediate_size = 8192, num_hidden_layers = 30, num_key_value_heads = 8,
  head_dim = 128, max_position_embeddings = 131072, rms_norm_eps = 1e-5, rope_theta = 100000000.0,
}
local glm_asr = {
  vocab_size = 59264, hidden_size = 2048, intermediate_size = 6144, num_hidden_layers = 28, num_attention_heads = 16,
  num_key_value_heads = 4, max_position_embeddings = 8192, rms_norm_eps = 1e-5,
}

-- Of each class the model_type of the text model, where text_config has none. flat: the text model's fields may stand beside
-- those of images; tied: the head is the embedding if no field says it; either: it is if one of the two parts of the file says
-- so; named: another model_type that files have for it; own: what the text model has where text_config does not say it; unscaled:
-- the field by which the class, unlike the text model's, does not scale logits; part: the field that holds all of this, beside
-- those of speech; prompts: every token sees all of the prompt.
local classes = {
  AudioFlamingo3ForConditionalGeneration = { "qwen2" },
  AyaVisionForConditionalGeneration = { "cohere2", tied = true, unscaled = "logit_scale" },
  Cohere2VisionForConditionalGeneration = { "cohere2", tied = true, unscaled = "logit_scale" },
  DeepseekVLForConditionalGeneration = { "llama", tied = true },
  DeepseekVLHybridForConditionalGeneration = { "llama", tied = true },
  Exaone4_5_ForConditionalGeneration = { "exaone4", named = "exaone4_5_text" },
  FastVlmForConditionalGeneration = { "qwen2", either = true },
  Gemma3ForConditionalGeneration = { "gemma3_text" },
  Gemma3nForConditionalGeneration = { "gemma3n_text" },
  Gemma4ForConditionalGeneration = { "gemma4_text" },
  Glm46VForConditionalGeneration = { "glm4v_text" },
  Glm4vForConditionalGeneration = { "glm4v_text", either = true },
  Glm4vMoeForConditionalGeneration = { "glm4v_moe_text", either = true },
  GlmAsrForConditionalGeneration = { "llama", tied = true, own = glm_asr },
  GlmOcrForConditionalGeneration = { "glm_ocr_text", either = true },
  GotOcr2ForConditionalGeneration = { "qwen2", tied = true },
  GraniteSpeechForConditionalGeneration = { "granite", tied = true, unscaled = "logits_scaling" },
  GraniteSpeechPlusForConditionalGeneration = { "granite", tied = true, unscaled = "logits_scaling" },
  HyperCLOVAXVisionV2ForConditionalGeneration = { "hyperclovax", tied = true },
  Idefics2ForConditionalGeneration = { "mistral" },
  Idefics3ForConditionalGeneration = { "llama" },
  InternVLForConditionalGeneration = { "qwen2", tied = true },
  JanusForConditionalGeneration = { "llama", tied = true },
  Kimi_K25ForConditionalGeneration = { "deepseek_v3", named = "kimi_k2", tied = true },
  Lfm2VlForConditionalGeneration = { "lfm2", tied = true },
  LightOnOcrForConditionalGeneration = { "qwen3", tied = true },
  Llama4ForConditionalGeneration = { "llama4_text" },
  LlavaForConditionalGeneration = { "llama", either = true },
  LlavaNextForConditionalGeneration = { "llama" },
  LlavaNextVideoForConditionalGeneration = { "llama", either = true },
  LlavaOnevisionForConditionalGeneration = { "qwen2", either = true },
  Mistral3ForConditionalGeneration = { "mistral" },
  MusicFlamingoForConditionalGeneration = { "qwen2" },
  Ovis2ForConditionalGeneration = { "qwen2", tied = true },
  PaliGemmaForConditionalGeneration = { "gemma", tied = true, prompts = true },
  PaddleOCRVLForConditionalGeneration = { "paddleocr_vl_text", flat = true, either = true, tied = true },
  QianfanOCRForConditionalGeneration = { "qwen3" },
  Qwen2AudioForConditionalGeneration = { "qwen2" },
  Qwen2VLForConditionalGeneration = { "qwen2_vl_text", flat = true, either = true },
  Qwen2_5_VLForConditionalGeneration = { "qwen2_5_vl_text", flat = true, either = true },
  Qwen2_5OmniForConditionalGeneration = { "qwen2_5_omni_text", part = "thinker_config" },
  Qwen2_5OmniModel = { "qwen2_5_omni_text", part = "thinker_config" },
  Qwen2_5OmniThinkerForConditionalGeneration = { "qwen2_5_omni_text" },
  Qwen3ASRForConditionalGeneration = { "qwen3", tied = true },
  Qwen3OmniMoeForConditionalGeneration = { "qwen3_omni_moe_text", part = "thinker_config" },
  Qwen3OmniMoeThinkerForConditionalGeneration = { "qwen3_omni_moe_text" },
  Qwen3VLForConditionalGeneration = { "qwen3_vl_text", either = true },
  Qwen3VLMoeForConditionalGeneration = { "qwen3_vl_moe_text" },
  Qwen3_5ForConditionalGeneration = { "qwen3_5_text", either = true },
  Qwen3_5MoeForConditionalGeneration = { "qwen3_5_moe_text", either = true },
  SmolVLMForConditionalGeneration = { "llama" },
  VideoLlama3ForConditionalGeneration = { "qwen2", either = true },
  VideoLlavaForConditionalGeneration = { "llama" },
  VipLlavaForConditionalGeneration = { "llama" },
  VoxtralForConditionalGeneration = { "llama", own = voxtral },
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
  encoder_config = true, has_lora_adapter = true, downsample_rate = true, projector_config = true, window_size = true,
  audio_bos_token_id = true, audio_end_token_id = true, audio_eos_token_id = true, audio_frame_step = true,
  audio_start_token_id = true, audio_token_index = true, aligner_config = true,
  hidden_size = true, high_res_vision_config = true, image_end_token_id = true, image_start_token_id = true,
  perceiver_config = true, position_id_per_seconds = true, projection_hidden_size = true,
  projection_layer_norm_eps = true, projector_bias = true, projector_layernorm_eps = true, seconds_per_chunk = true,
  spatial_pool_mode = true, spatial_pool_stride = true, timestamp_token_id = true, token_classification_bias = true,
  user_token_id = true, video_end_token_id = true, video_seq_length = true, video_start_token_id = true,
  visual_indicator_token_ids = true, vq_config = true,
  _vocab_size = true, num_image_tokens = true, projection_dim = true,
  boi_token_index = true, eoi_token_index = true, image_token_id = true, image_token_index = true,
  mm_tokens_per_image = true, multimodal_projector_bias = true, projector_hidden_act = true, spatial_merge_size = true,
  vision_config = true, vision_feature_layer = true, vision_feature_select_strategy = true,
}

-- Fields beside `part`.
local spoken = {
  code2wav_config = true, enable_audio_output = true, enable_talker = true, talker_config = true, token2wav_config = true,
  assistant_token_id = true, im_end_token_id = true, im_start_token_id = true, system_token_id = true,
  tts_bos_token_id = true, tts_eos_token_id = true, tts_pad_token_id = true, tts_text_start_token_id = true,
  tts_text_end_token_id = true, tts_text_start_token_index = true, tts_text_end_token_index = true, user_token_id = true,
}

-- Such fields inside of text_config.
local inside = { "perceiver_config", "pixel_shuffle_factor" }

-- What the names of the text model's tensors may begin with in place of "model.": in files of transformers 4, 5, Idefics3, and
-- of models that speak.
local prefixes = { "language_model.", "model.language_model.", "model.text_model.", "thinker." }

-- How the names of the other tensors begin, alone and behind "model.".
local heads = { "talker.", "code2wav.", "token2wav.", "thinker.visual.", "thinker.audio_tower." }
for _, name in ipairs {
  "aligner.", "audio_tower.", "connector.", "embed_audio.", "embed_vision.", "encoder.", "generation_aligner.", "generation_embeddings.",
  "generation_head.", "high_res_vision", "image_newline", "image_tower.", "mlp1.", "mlp_AR.", "mm_projector.", "multi_modal_projector.",
  "projector.", "video_tower.", "vision_encoder.", "vision_model.", "vision_projection.", "vision_projector.", "vision_tower.", "visual.",
  "visual_embeddings_table.", "vqmodel.",
} do
  table.insert(heads, name)
  table.insert(heads, "model." .. name)
end

-- The fields of the text model, and its model_type.
local function text_of(config, class)
  if class.flat and config:value("text_config") == nil then
    for key in pairs(images) do config:value(key) end
    return config, class[1]
  end
  local text = config:inside("text_config") or config:refuse("text_config", "the text model's fields")
  local kind = text:value("model_type") or class[1]
  if kind == class.named then kind = class[1] end
  for key, value in pairs(class.own or {}) do
    if text.values[key] == nil then text.values[key] = value end
  end
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
  local whole = config
  if class.part then
    config = whole:inside(class.part) or whole:refuse(class.part, "an object")
    config.tensors = whole.tensors
    for _, key in ipairs(shared) do
      if config:value(key) == nil then config.values[key] = whole:value(key) end
    end
    for key in pairs(harmless) do spoken[key] = true end
    whole:known(spoken)
  end
  local text, kind = text_of(config, class)
  if class.unscaled then text.values[class.unscaled] = 1 end
  if not rawget(types, kind) then text:refuse("model_type", "that of a decoder that ftxc reads") end
  text.tensors = config.tensors
  if class.prompts then
    text:only("use_bidirectional_attention", "true", true)
    text:value("num_image_tokens")
    text.values.use_bidirectional_attention, text.sees_prompt = nil, true
    text.values.final_logit_softcapping = false                     -- the class does not read it
  end
  text.values.tie_word_embeddings = is_tied(config, text, class)
  if text ~= config then
    for key in pairs(harmless) do images[key] = true end
    config:known(images)
  end
  nn.checkpoint { prefixes = prefixes, heads = heads }
  text.prefixes = prefixes
  return text, types[kind]
end
