-- decoders.lua - config.json of decoders that decoder.lua computes: by architecture the class's defaults, its names of
-- fields and tensors, and the fields that only it has. gpts.lua, gemmas.lua, mixtures.lua, hybrids.lua and mambas.lua have more
-- of them.
local ftx = require "ftx"
local nn = require "nn"
local hf = require "lib.hf"
local ropes = require "lib.rope"
local decoder = require "decoder"
local gpt2 = require "hf/GPT2LMHeadModel"
local openai_gpt = require "hf/OpenAIGPTLMHeadModel"
local fields = require "lib.fields"
local harmless = require("lib.harmless").decoders
local windows, window, same_window, clip, same_bias, granite, hunyuan =
  fields.windows, fields.window, fields.same_window, fields.clip, fields.same_bias, fields.granite, fields.hunyuan

-- LLaMA's; a class has its own where it differs. false: it has no such field or tensor.
local llama = {
  norm = "rms", eps = 1e-6, activation = "silu", activations = hf.activations, tie = false, positions = 2048,
  theta = 10000.0, partial = 1.0, style = "half",
  unused = { "model.layers.*.self_attn.rotary_emb.inv_freq" },
  older = {},                                                       -- other names of fields, which win where they are
  fields = {                                                        -- of config.json
    vocab = "vocab_size", hidden = "hidden_size", layers = "num_hidden_layers", heads = "num_attention_heads", ffn = "intermediate_size",
    kv_heads = "num_key_value_heads", head_dim = "head_dim", eps = "rms_norm_eps", activation = "hidden_act",
    positions = "max_position_embeddings", theta = "rope_theta", partial = "partial_rotary_factor",
  },
  names = {                                                         -- of tensors: see decoder.lua
    prefix = "model.", embedding = "model.embed_tokens", layers = "model.layers.", final_norm = "model.norm",
    head = "lm_head", attention_norm = "input_layernorm", ffn_norm = "post_attention_layernorm",
    q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", out = "self_attn.o_proj",
    gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj",
  },
}

local function glm(config, c) c.qkv_bias = config:flag("attention_bias", true) end

local function qwen_windows(config, c, missing)
  local use = config:flag("use_sliding_window", false)
  local first = config:count("max_window_layers", 0, 1024, missing)
  local size = window(config, 4096)
  c.windows = windows(config, c.layers, use and size or 0, function(i) return i >= first end)
end

-- The text model of Qwen2-VL and Qwen2.5-VL, and that of Qwen2.5-Omni
local function qwen_images(type, own)
  return {
    type = type, eps = own.eps or 1e-5, kv_heads = own.kv_heads or 8, theta = 1000000.0, positions = 32768, mrope = true,
    set = function(config, c)
      qwen_windows(config, c, own.first or 80)
      c.qkv_bias = true
    end,
  }
end

-- The text models of GLM-4.1V, GLM-4.6V and GLM-OCR, which have the norms of GLM-4
local function glm_images(type, own)
  return {
    type = type, kv_heads = own.kv_heads, eps = 1e-5, style = "neighbour", positions = own.positions, mrope = true,
    fields = { head_dim = own.head_dim },
    names = { gate_up = "mlp.gate_up_proj", after_attention = "post_self_attn_layernorm", after_ffn = "post_mlp_layernorm" },
    set = function(config, c)
      c.qkv_bias = own.bias
      config:only("attention_bias", tostring(own.bias) .. ": the class does not read it", own.bias)
      config:only("head_dim", "hidden_size / num_attention_heads", c.head_dim)
      for i = 0, config:count("num_nextn_predict_layers", 0, 64, 0) - 1 do -- they predict further tokens
        c.left_out[i + 1] = "model.layers." .. c.layers + i .. "."
      end
    end,
  }
end

local head_norms = { q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" }
local post_norms = { attention_norm = false, ffn_norm = false, after_attention = "post_attention_layernorm",
                     after_ffn = "post_feedforward_layernorm", q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm" }

local classes = {
  LlamaForCausalLM = {
    type = "llama",
    set = function(config, c)
      config:only("pretraining_tp", "1", 1)
      config:only("activation", "swiglu", "swiglu")
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  MistralForCausalLM = {
    type = "mistral", kv_heads = 8, positions = 131072,
    set = function(config, c)
      c.windows = windows(config, c.layers, window(config, 4096), function() return true end)
    end,
  },
  Qwen2ForCausalLM = {
    type = "qwen2", kv_heads = 32, positions = 32768,
    set = function(config, c)
      qwen_windows(config, c, 28)
      c.qkv_bias = true
    end,
  },
  Qwen3ForCausalLM = {
    type = "qwen3", kv_heads = 32, head_dim = 128, positions = 32768, names = head_norms,
    set = function(config, c)
      qwen_windows(config, c, 28)
      c.norm_heads = true
      same_bias(config, c, "attention_bias")
    end,
  },
  Qwen2VLForConditionalGeneration = qwen_images("qwen2_vl_text", {}),
  Qwen2_5_VLForConditionalGeneration = qwen_images("qwen2_5_vl_text", {}),
  Qwen2_5OmniThinkerForConditionalGeneration = qwen_images("qwen2_5_omni_text", { eps = 1e-6, kv_heads = 4, first = 28 }),
  Glm4vForConditionalGeneration = glm_images("glm4v_text", { kv_heads = 2, positions = 32768, bias = true, head_dim = false }),
  GlmOcrForConditionalGeneration = glm_images("glm_ocr_text", { kv_heads = 8, positions = 131072, bias = false, head_dim = "head_dim" }),
  PaddleOCRVLForConditionalGeneration = {
    type = "paddleocr_vl_text", eps = 1e-5, kv_heads = 2, head_dim = 128, tie = true, theta = 500000.0, positions = 131072,
    mrope = true,
    set = function(config, c)
      fields.same_bias(config, c, "use_bias")
      c.ffn_bias = c.qkv_bias
      config:only("compression_ratio", "1: positions are not divided", 1)
      for _, name in ipairs { "ignored_index", "rope_is_neox_style", "sliding_window", "use_3d_rope", "use_flash_attention",
                              "weight_share_add_bias" } do config:value(name) end -- the class does not read these
    end,
  },
  Qwen3VLForConditionalGeneration = {
    type = "qwen3_vl_text", kv_heads = 32, head_dim = 128, theta = 500000.0, positions = 128000, mrope = true,
    names = head_norms,
    set = function(config, c)
      c.norm_heads = true
      same_bias(config, c, "attention_bias")
    end,
  },
  Olmo2ForCausalLM = {
    type = "olmo2", eps = 1e-5, names = post_norms,
    set = function(config, c) same_bias(config, c, "attention_bias") end,
  },
  Olmo3ForCausalLM = {
    type = "olmo3", eps = 1e-5, names = post_norms, fields = { theta = false },
    set = function(config, c, positions)
      same_bias(config, c, "attention_bias")
      c.windows = windows(config, c.layers, window(config, 4096), function(i) return (i + 1) % 4 ~= 0 end)
      c.rope, c.rope_windowed = hf.two_ropes(config, c.head_dim, positions, c.head_dim, 500000.0)
    end,
  },
  Exaone4ForCausalLM = {
    type = "exaone4", eps = 1e-5, kv_heads = 32, names = post_norms,
    set = fields.exaone_windows,
  },
  -- EXAONE 3 and 3.5
  ExaoneForCausalLM = {
    type = "exaone", eps = 1e-5, kv_heads = 8, theta = 500000.0,
    older = { layers = "num_layers", eps = "layer_norm_epsilon", activation = "activation_function" },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.h.",
              final_norm = "transformer.ln_f", attention_norm = "ln_1", ffn_norm = "ln_2",
              q = "attn.attention.q_proj", k = "attn.attention.k_proj", v = "attn.attention.v_proj",
              out = "attn.attention.out_proj", gate = "mlp.c_fc_0", up = "mlp.c_fc_1", down = "mlp.c_proj" },
    unused = { "transformer.h.*.attn.attention.rotary_emb.inv_freq" },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      config:value("embed_dropout")
    end,
  },
  Ernie4_5ForCausalLM = {
    type = "ernie4_5", eps = 1e-5, kv_heads = 2, head_dim = 128, tie = true, theta = 500000.0, style = "neighbour",
    positions = 131072,
    set = function(config, c)
      same_bias(config, c, "use_bias")
      c.ffn_bias = c.qkv_bias
      config:only("compression_ratio", "1: positions are not divided", 1)
    end,
  },
  HunYuanDenseV1ForCausalLM = {
    type = "hunyuan_v1_dense", eps = 1e-5, rope_fields = fields.hunyuan_rope,
    set = function(config, c)
      hunyuan(config, c)
      config:only("num_experts", "1", 1)
      config:value("num_shared_expert")
    end,
  },
  SeedOssForCausalLM = {
    type = "seed_oss", kv_heads = 8, head_dim = 128, positions = 524288,
    set = function(config, c)
      c.qkv_bias = config:flag("attention_bias", true)
      c.out_bias = config:flag("attention_out_bias", false)
      c.ffn_bias = config:flag("mlp_bias", false)
      config:only("pretraining_tp", "1", 1)
    end,
  },
  HeliumForCausalLM = {
    type = "helium", eps = 1e-8, kv_heads = 20, head_dim = 128, theta = 100000.0, style = "neighbour", positions = 4096,
    set = function(config, c)
      c.qkv_bias = config:flag("attention_bias", false)
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  HyperCLOVAXForCausalLM = {
    type = "hyperclovax",
    set = function(config, c)
      granite(config, c)
      c.scale = config:number("attention_multiplier", 1e-6, 1024, c.head_dim ^ -0.5)
      c.logits_scale = 1 / c.logits_scale                           -- of this class the field is a factor
      c.ffn_bias = config:flag("mlp_bias", false)
      if config:flag("use_post_norm", true) then c.names.after_attention, c.names.after_ffn = "post_norm1", "post_norm2" end
    end,
  },
  IQuestCoderForCausalLM = {
    type = "iquestcoder", eps = 1e-5, kv_heads = 8, head_dim = 128, positions = 131072,
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  Jais2ForCausalLM = {
    type = "jais2", norm = "layer", eps = 1e-5, activation = "relu2", positions = 8192, fields = { eps = "layer_norm_eps" },
    names = { gate = false },
    set = function(config, c)
      same_bias(config, c, "attention_bias", true)
      c.ffn_bias = config:flag("mlp_bias", true)
    end,
  },
  ApertusForCausalLM = {
    type = "apertus", eps = 1e-5, theta = 12000000.0, positions = 65536, activation = "xielu",
    activations = fields.with(hf.activations, { xielu = "relu" }), -- the numbers of xIELU are tensors
    rope = { rope_type = "llama3", rope_theta = 12000000.0, factor = 8.0, original_max_position_embeddings = 8192,
             low_freq_factor = 1.0, high_freq_factor = 4.0 },
    unused = { "model.layers.*.mlp.act_fn.eps" },
    names = fields.with(head_norms, { gate = false, attention_norm = "attention_layernorm", ffn_norm = "feedforward_layernorm" }),
    set = function(config, c)
      c.norm_heads = true
      same_bias(config, c, "attention_bias")
      config:only("qk_norm", "true", true)
      if (config:value("hidden_act") or "xielu") == "xielu" then c.names.xielu = "mlp.act_fn" end
    end,
  },
  BitNetForCausalLM = {
    type = "bitnet", eps = 1e-5, kv_heads = 5, activation = "relu2", theta = 500000.0,
    names = { out_norm = "self_attn.attn_sub_norm", down_norm = "mlp.ffn_sub_norm" },
    set = function(config, c) same_bias(config, c, "attention_bias") end,
  },
  ArceeForCausalLM = {
    type = "arcee", eps = 1e-5, activation = "relu2", positions = 4096, names = { gate = false },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  InternLM3ForCausalLM = {
    type = "internlm3", eps = 1e-5, kv_heads = 2, head_dim = 128, positions = 32768,
    set = function(config, c)
      same_bias(config, c, config.values.qkv_bias == nil and "attention_bias" or "qkv_bias")
      c.ffn_bias = config:flag(config.values.bias == nil and "mlp_bias" or "bias", false)
    end,
  },
  InternLM2ForCausalLM = {
    type = "internlm2",
    names = { embedding = "model.tok_embeddings", head = "output", attention_norm = "attention_norm", ffn_norm = "ffn_norm",
              qkv = "attention.wqkv", out = "attention.wo", gate = "feed_forward.w1", up = "feed_forward.w3",
              down = "feed_forward.w2" },
    set = function(config, c)
      c.groups = c.kv_heads
      same_bias(config, c, "bias")
      if config.values.bias == nil then c.qkv_bias, c.out_bias = true, true end
      config:only("pretraining_tp", "1", 1)
      config:value("attn_implementation")
    end,
  },
  -- The 7B have RoPE, the 13B ALiBi and model_max_length alone; files of Baichuan 2 have z_loss_weight
  BaichuanForCausalLM = {
    type = "baichuan", positions = 4096, fields = { kv_heads = false, head_dim = false, theta = false },
    older = { positions = "model_max_length" },
    names = { qkv = "self_attn.W_pack" }, unused = { "model.layers.*.self_attn.rotary_emb.inv_freq" },
    set = function(config, c)
      c.alibi = config.values.max_position_embeddings == nil and config.values.model_max_length ~= nil
      c.head_unit = config.values.z_loss_weight ~= nil
      config:value("z_loss_weight")
      config:value("max_position_embeddings")
    end,
  },
  MiniCPMForCausalLM = {
    type = "minicpm", tie = true,
    set = function(config, c)
      fields.minicpm(config, c, { embedding = 1, depth = 1, base = 1 })
      same_bias(config, c, "attention_bias")
    end,
  },
  CwmForCausalLM = {
    type = "cwm", eps = 1e-5, kv_heads = 8, head_dim = 128, theta = 1000000.0, positions = 131072,
    set = function(config, c)
      if not hf.rope_object(config) then config:refuse("rope_parameters", "an object") end
      c.windows = windows(config, c.layers, window(config, 8192), function(i) return i % 4 ~= 0 end)
      c.ffn_bias = config:flag("mlp_bias", false)
      config:only("pretraining_tp", "1", 1)
    end,
  },
  MinistralForCausalLM = {
    type = "ministral", kv_heads = 8, positions = 131072,
    set = function(config, c)
      c.windows = windows(config, c.layers, window(config, 4096), function() return true end)
    end,
  },
  Phi3ForCausalLM = {
    type = "phi3", eps = 1e-5, positions = 4096,
    names = { qkv = "self_attn.qkv_proj", gate_up = "mlp.gate_up_proj" },
    set = function(config, c)
      same_window(config, c)
      for _, name in ipairs { "full_attn_mod", "interpolate_factor" } do config:only(name, "1", 1) end
    end,
  },
  -- Phi-4-multimodal as published: adapters for images and sounds stand beside each matrix, and are left out
  Phi4MMForCausalLM = {
    type = "phi4mm", eps = 1e-5, kv_heads = 8, positions = 131072,
    names = { qkv = "self_attn.qkv_proj.base_layer", out = "self_attn.o_proj.base_layer", gate_up = "mlp.gate_up_proj.base_layer",
              down = "mlp.down_proj.base_layer" },
    set = function(config, c)
      same_window(config, c)
      for _, name in ipairs { "full_attn_mod", "interpolate_factor" } do config:only(name, "1", 1) end
      for _, name in ipairs { "attention_bias", "lm_head_bias", "mlp_bias" } do config:only(name, "false", false) end
      for _, name in ipairs { "audio_processor", "embd_layer", "img_processor", "speech_lora", "vision_lora" } do config:value(name) end
      c.unused = {}
      for _, part in ipairs { c.names.qkv, c.names.out, c.names.gate_up, c.names.down } do
        local matrix = string.sub(part, 1, -#"base_layer" - 1)
        for _, kind in ipairs { "speech", "vision" } do
          table.insert(c.unused, "model.layers.*." .. matrix .. "lora_A." .. kind .. ".weight")
          table.insert(c.unused, "model.layers.*." .. matrix .. "lora_B." .. kind .. ".weight")
        end
      end
      c.left_out = { "model.embed_tokens_extend." }
    end,
  },
  GlmForCausalLM = {
    type = "glm", kv_heads = 2, head_dim = 128, eps = 1.5625e-7, partial = 0.5, style = "neighbour",
    positions = 131072, names = { gate_up = "mlp.gate_up_proj" }, set = glm,
  },
  Glm4ForCausalLM = {
    type = "glm4", kv_heads = 2, head_dim = 128, eps = 1.5625e-7, partial = 0.5, style = "neighbour",
    positions = 131072, set = glm,
    names = { gate_up = "mlp.gate_up_proj", after_attention = "post_self_attn_layernorm",
              after_ffn = "post_mlp_layernorm" },
  },
  GraniteForCausalLM = {
    type = "granite",
    set = function(config, c)
      granite(config, c)
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  GraniteSWAForCausalLM = {
    type = "granite_swa", eps = 1e-5, kv_heads = 4, tie = true, positions = 8192, names = { sinks = "self_attn.sinks" },
    set = function(config, c, positions)
      granite(config, c)
      fields.granite_windows(config, c, positions)
      c.ffn_bias = config:flag("mlp_bias", false)
    end,
  },
  -- Norms without gain, one of them of the embeddings; heads are normed behind RoPE, which turns the other way
  NanoChatForCausalLM = {
    type = "nanochat", activation = "relu2",
    names = { gate = false, up = "mlp.fc1", down = "mlp.fc2", embedding_norm = "model.norm" },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.norm_gain, c.norm_rotated = false, true
      c.logits_cap = fields.cap(config, "final_logit_softcapping", 15.0)
      if c.rope.dim ~= c.head_dim then config:refuse("partial_rotary_factor", "1: the class does not read it") end
      c.rope = ropes.backwards(c.rope) or config:refuse("rope_parameters", "rope_type default, dynamic, yarn or longrope")
    end,
  },
  StableLmForCausalLM = {
    type = "stablelm", norm = "layer", eps = 1e-5, kv_heads = 32, partial = 0.25, positions = 4096,
    fields = { eps = "layer_norm_eps", head_dim = false },
    set = function(config, c)
      c.qkv_bias = config:flag("use_qkv_bias", false)
      config:only("num_heads", "num_attention_heads, " .. c.heads, c.heads)
      config:only("rotary_scaling_factor", "1", 1.0)
      c.parallel = config:flag("use_parallel_residual", false)
      if c.parallel then c.names.ffn_norm = false end
      if config:flag("qk_layernorm", false) then
        c.norm_heads, c.norm_each, c.names.q_norm, c.names.k_norm = true, "stack", "self_attn.q_layernorm", "self_attn.k_layernorm"
      end
    end,
  },
  EuroBert = {                                                      -- an encoder: there is no class that generates
    type = "eurobert", both = true, eps = 1e-5, positions = 8192,
    set = function(config, c, _, _, head)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      config:only("pretraining_tp", "1", 1)
      config:value("mask_token_id")
      config:value("clf_pooling")                                   -- of the model's own code: the class does not read it
      local pooling = config:word("classifier_pooling", { bos = "first", mean = "mean", late = "late" }, "late")
      if head == "ForSequenceClassification" then
        c.classes_of, c.dense_first = pooling == "first" and pooling or "mean", pooling == "late"
        c.names.dense = "dense"
      end
      if head then c.names.classifier = "classifier" end
      c.left_out = { "lm_head.", "dense.", "classifier." }
    end,
  },
  OlmoForCausalLM = {
    type = "olmo", norm = "layer", eps = 1e-5, fields = { eps = false },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.norm_gain, c.norm_bias = false, false
      config:value("pretraining_tp")
      c.clip_qkv = clip(config)
    end,
  },
  CohereForCausalLM = {
    type = "cohere", norm = "layer", eps = 1e-5, tie = true, theta = 500000.0, style = "neighbour", positions = 8192,
    fields = { eps = "layer_norm_eps" },
    names = { ffn_norm = false },
    set = function(config, c)
      fields.cohere(config, c)
      if config:flag("use_qk_norm", false) then
        c.norm_heads, c.norm_each, c.names.q_norm, c.names.k_norm = true, "matrix", "self_attn.q_norm", "self_attn.k_norm"
      end
    end,
  },
  Cohere2ForCausalLM = {
    type = "cohere2", norm = "layer", eps = 1e-5, tie = true, style = "neighbour", positions = 8192,
    fields = { eps = "layer_norm_eps" },
    names = { ffn_norm = false },
    set = function(config, c)
      local every = config:count("sliding_window_pattern", 1, 1024, 4)
      fields.cohere(config, c)
      config:only("layer_switch", "sliding_window_pattern, " .. every, every)
      config:only("order_of_interleaved_layers", "local_attn_first", "local_attn_first")
      config:only("position_embedding_type", "rope_gptj", "rope_gptj")
      config:only("rotary_pct", "1", 1.0)
      for _, name in ipairs { "use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding" } do
        config:only(name, "true", true)
      end
      c.windows = windows(config, c.layers, window(config, 4096), function(i) return (i + 1) % every ~= 0 end)
      for i = 1, c.layers do c.unrotated[i] = c.windows[i] == 0 end
    end,
  },
  NemotronForCausalLM = {
    type = "nemotron", norm = "layer", eps = 1e-5, activation = "relu2", partial = 0.5, positions = 4096,
    fields = { eps = "norm_eps" },
    names = { gate = false },
    set = function(config, c)
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      c.norm_plus = true
    end,
  },
  SmolLM3ForCausalLM = {
    type = "smollm3", kv_heads = 4, tie = true, theta = 2000000.0, positions = 32768,
    set = function(config, c)
      local every = config:count("no_rope_layer_interval", 1, 1024, 4)
      local list = config:value("no_rope_layers")
      local use = config:flag("use_sliding_window", false)
      local size = window(config, 0)
      for _, name in ipairs { "max_window_layers", "pretraining_tp" } do config:value(name) end
      same_bias(config, c, "attention_bias")
      c.ffn_bias = config:flag("mlp_bias", false)
      for i = 1, c.layers do
        local rotated = i % every == 0 and 0 or 1
        if list then rotated = type(list) == "table" and #list >= c.layers and list[i] end
        if rotated ~= 0 and rotated ~= 1 then
          config:refuse("no_rope_layers", "a list with 1 for each layer that has RoPE, 0 for each that has none")
        end
        c.unrotated[i] = rotated == 0
      end
      c.windows = windows(config, c.layers, use and size or 0, function(i) return c.unrotated[i + 1] end)
    end,
  },
  Ministral3ForCausalLM = {
    type = "ministral3", eps = 1e-5, kv_heads = 8, head_dim = 128, positions = 262144,
    rope_fields = { "llama_4_scaling_beta", "max_position_embeddings" },
    set = function(config, c)
      local at = hf.rope_object(config)
      if not at then config:refuse("rope_parameters", "an object") end
      local scale = { by = at:number("llama_4_scaling_beta", 0, 1e6),
                      every = at:count("original_max_position_embeddings", 1, 2 ^ 30) }
      for i = 1, c.layers do c.q_scales[i] = scale.by > 0 and scale end
      c.windows = windows(config, c.layers, window(config, 0), function() return true end)
    end,
  },
  -- ChatGLM2, ChatGLM3, GLM-4 in their own format
  ChatGLMModel = {
    type = "chatglm", eps = 1e-5, activation = "silu", style = "neighbour", partial = 0.5, positions = 2048,
    fields = { vocab = "padded_vocab_size", layers = "num_layers", ffn = "ffn_hidden_size", kv_heads = false,
               head_dim = "kv_channels", eps = "layernorm_epsilon", activation = false, positions = "seq_length",
               theta = false },
    names = { prefix = "transformer.", embedding = "transformer.embedding.word_embeddings",
              layers = "transformer.encoder.layers.", final_norm = "transformer.encoder.final_layernorm",
              head = "transformer.output_layer", qkv = "self_attention.query_key_value", out = "self_attention.dense",
              gate_up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h" },
    unused = { "transformer.rotary_pos_emb.inv_freq" },
    instead = function(config)
      return (config:value("inner_hidden_size") or config:value("position_encoding_2d")) and "ChatGLM6B"
    end,
    set = function(config, c)
      local one = config:flag("multi_query_attention", false)
      local groups = config:count("multi_query_group_num", 1, 1024, 1)
      c.kv_heads = one and groups or c.heads
      c.rope = { theta = 10000.0 * config:number("rope_ratio", 1e-6, 1e6, 1.0), dim = c.head_dim // 2,
                 style = "neighbour" }
      c.qkv_bias = config:flag("add_qkv_bias", false)
      config:only("add_bias_linear", "false: biases are not computed", false)
      config:only("rmsnorm", "true", true)
      config:only("post_layer_norm", "true", true)
      config:only("original_rope", "true", true)
      config:only("interleaved_qkv", "false", false)
      config:only("num_hidden_layers", "num_layers, " .. c.layers, c.layers)
      config:only("quantization_bit", "0", 0)
      config:only("vocab_size", "padded_vocab_size " .. c.vocab, c.vocab)
      config:only("apply_residual_connection_post_layernorm", "false", false)
      for _, name in ipairs { "apply_query_key_layer_scaling", "bias_dropout_fusion", "prefix_projection" } do
        config:value(name)
      end
    end,
  },
  -- ChatGLM-6B: all of a prompt but its last token, <sop>, is seen by all tokens; the one before it is [gMASK]
  ChatGLM6B = {
    type = "chatglm-6b", norm = "layer", eps = 1e-5, activation = "gelu_new", positions = 2048,
    fields = { layers = "num_layers", ffn = "inner_hidden_size", kv_heads = false, head_dim = false,
               eps = "layernorm_epsilon", activation = false, positions = "max_sequence_length", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.word_embeddings", layers = "transformer.layers.",
              final_norm = "transformer.final_layernorm", qkv = "attention.query_key_value", out = "attention.dense",
              gate = false, up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h" },
    unused = { "transformer.layers.*.attention.rotary_emb.inv_freq" },
    set = function(config, c)
      config:only("position_encoding_2d", "true: positions in one dimension are not computed", true)
      config:only("quantization_bit", "0", 0)
      config:only("quantization_embeddings", "false", false)
      config:only("pre_seq_len", "null: prompts that were trained are not read")
      for _, name in ipairs { "prefix_projection", "mask_token_id", "gmask_token_id" } do config:value(name) end
      if c.head_dim % 4 ~= 0 then config:refuse("num_attention_heads", "so that halves of a head can turn") end
      c.rope = { theta = 10000.0, dim = c.head_dim // 2 }
      c.rope_twice, c.prefix_tail, c.groups = true, 1, c.heads
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      c.normed_residual = math.sqrt(2.0 * c.layers)
    end,
  },
}

for _, more in ipairs { require "hf/gpts", require "hf/gemmas", require "hf/mixtures", require "hf/hybrids", require "hf/mambas" } do
  for name, class in pairs(more) do classes[name] = class end
end
classes.PhiMoEForCausalLM = classes.PhimoeForCausalLM               -- as published
classes.BaiChuanForCausalLM = classes.BaichuanForCausalLM           -- the first 7B
classes.MPTForCausalLM, classes.ChatGLMForConditionalGeneration = classes.MptForCausalLM, classes.ChatGLMModel

-- "mlp.experts.*.up_proj" to "mlp.experts.up_proj"
local function without_star(name)
  for i = 1, #name do
    if string.sub(name, i, i + 1) == "*." then return string.sub(name, 1, i - 1) .. string.sub(name, i + 2) end
  end
  return name
end

local readers = {}                                                  -- a function of config for each architecture

-- What the tokens of an encoder see: its text up to themselves, or all of it.
function readers.attention(config)
  return config:flag("is_causal", true) and "causal" or "full"
end

-- Gives an encoder the classes of a head, and the model their names. The name of the head's tensors.
local function classify(config, c, head, model)
  local of_tokens = rawget(hf.token_heads, head)
  if of_tokens then hf.token_classifier(config, head, model) else hf.classifier(config, model) end
  c.classes, c.classes_of = #model.labels, of_tokens and "tokens" or c.classes_of
  return of_tokens == "qa_outputs" and of_tokens or "score"
end

-- Every token sees all of the prompt. A layer's window would hold for the others alone, so a text is no longer than it.
local function sees_prompt(c, positions)
  c.prefix_tail = 0
  for i, window in ipairs(c.windows or {}) do
    if window > 0 then c.longest, c.windows[i] = math.min(c.longest or positions, window), 0 end
  end
end

-- The fields of decoder.lua, and the longest text.
-- encoder: the class without its head; head: with a classifier in its place: ForSequenceClassification, of the text's last
-- token, or a head of each token
function readers.parts(config, class, encoder, head)
  local field = setmetatable({}, { __index = class.fields })
  if class.before then class.before(config) end
  for name, old in pairs(class.older) do
    if config.values[old] ~= nil then field[name] = old end
  end
  local hidden = config:count(field.hidden, 1, 2 ^ 17)
  local heads = field.heads and config:count(field.heads, 1, 1024) or 1
  -- A missing field is the class's default, null the value of a LLaMA.
  local function head_field(name, plain)
    if not field[name] then return plain end
    if config.values[field[name]] == nil then return class[name] or plain end
    return config:count(field[name], 1, 1024, plain)
  end
  if not field.head_dim and hidden % heads ~= 0 then
    config:refuse(field.heads, "a divisor of " .. field.hidden .. " " .. hidden)
  end
  local head_dim = head_field("head_dim", field.heads and hidden // heads or 16) -- no layer has attention: any
  local positions = config:count(field.positions, 1, 2 ^ 24, class.positions)
  local rope = { theta = 10000.0 }
  if class.rope and not hf.rope_object(config) then config.values.rope_parameters = class.rope end
  if field.theta then rope = hf.rope(config, head_dim, positions, field, class) end
  rope.style = class.style
  local c = {
    vocab = config:count(field.vocab, 2, 2 ^ 24),
    hidden = hidden,
    layers = config:count(field.layers, 1, 1024),
    heads = heads,
    kv_heads = head_field("kv_heads", heads),
    head_dim = head_dim,
    -- of layers with feed-forwards of their own sizes set() reads them
    ffn = (field.ffn or class.widening) and config:count(field.ffn, 1, 2 ^ 20, class.widening and class.widening * hidden) or 1,
    names = setmetatable({}, { __index = class.names }),
    norm = class.norm,
    norm_eps = field.eps and config:number(field.eps, 1e-30, 1, class.eps) or class.eps,
    activation = config:word(field.activation, class.activations, class.activation),
    rope = rope,
    unrotated = {}, chunks = {}, q_scales = {}, left_out = {},
    scale = 1 / head_dim ^ 0.5,
    tie_embeddings = config:flag("tie_word_embeddings", class.tie),
    unused = class.unused,
    attention = class.both and "full" or encoder and readers.attention(config) or nil,
  }
  class.set(config, c, positions, harmless, head)
  if config.sees_prompt then sees_prompt(c, positions) end          -- of hf/wrappers.lua
  for i = 1, #c.left_out do                                         -- names of hf/wrappers.lua
    for _, prefix in ipairs(config.prefixes or {}) do
      table.insert(c.left_out, prefix .. string.sub(c.left_out[i], 1 + #c.names.prefix))
    end
  end
  return c, positions
end

local function read(config, class, encoder, head)
  local other = class.instead and class.instead(config)
  if other then return read(config, classes[other], encoder, head) end
  local c, positions = readers.parts(config, class, encoder, head)
  if encoder and c.prefix_tail then
    local by = ftx.override("pooling")
    ftx.refuse(by and "-D pooling=" .. by or config.path, "tokens of this model see all of a prompt but its end; " ..
      "vectors of texts are not made of that, so it can only generate text")
  end
  for i = 1, encoder and c.mixers and c.layers or 0 do
    if c.mixers[i] then
      local by = ftx.override("pooling")
      ftx.refuse(by and "-D pooling=" .. by or config.path, "layers that keep a state are computed for text that is generated, " ..
        "not for vectors of texts")
    end
  end
  if config.gguf then -- all experts of a layer are one tensor
    for _, part in ipairs { "expert_gate", "expert_up", "expert_down" } do
      local at = c.names[part]
      if at then c.names[part] = without_star(at) end
    end
  end
  local longest = c.longest or positions
  c.longest = nil
  local model = { positions = longest, vocab = c.vocab, encoder = encoder, whole = c.prefix_tail and true or nil }
  if encoder then c.left_out = { "score.", "qa_outputs.", table.unpack(c.left_out) } end
  if head then
    local classifier = classify(config, c, head, model)
    c.names.classifier = rawget(c.names, "classifier") or classifier
    if c.names.classifier == "qa_outputs" then nn.checkpoint { prefixes = { "transformer." } } end -- in place of "model."
  end
  config:known(harmless)
  model.graph = decoder(c)
  return model
end

-- Parts that nn.* does not have, by the beginning of an architecture's name.
local lacking = {
  Lfm3 = "another kind of convolutions", JetMoe = "experts in attention", Laguna = "gates that are a softplus",
  Doge = "gates that are a softplus", DiffLlama = "scores whose weights are computed of weights",
  LongcatFlash = "experts that give back their input", Mllama = "attention to images in its layers",
}
for _, name in ipairs { "KimiLinear", "MiniMaxForCausalLM", "MiniMaxText01", "RecurrentGemma",
                        "Rwkv", "Zamba" } do
  lacking[name] = "a recurrent state of another kind"
end

-- Heads in place of the one that gives logits.
local heads = { "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering" }

-- types: architectures by model_type
readers.types, readers.classes, readers.lacking, readers.harmless = {}, classes, lacking, harmless
for name, class in pairs(classes) do
  setmetatable(class, { __index = llama })
  if class.fields ~= llama.fields then setmetatable(class.fields, { __index = llama.fields }) end
  if class.names ~= llama.names then setmetatable(class.names, { __index = llama.names }) end
  if not class.both then readers[name] = function(config) return read(config, class, config.vectors) end end
  if class.both or string.sub(name, -11) == "ForCausalLM" then
    local family = class.both and name or string.sub(name, 1, -12)
    if class.both then readers[family .. "ForMaskedLM"] = function(config) return read(config, class, true) end end
    for _, name in ipairs { family, class.text } do
      readers[name .. "Model"] = function(config) return read(config, class, true) end
      for _, head in ipairs(heads) do
        readers[name .. head] = function(config) return read(config, class, true, not config.vectors and head or nil) end
      end
    end
  end
  readers.types[class.type] = class.both and name .. "Model" or name
end

-- GPT-2 or the first GPT without the head that gives logits, perhaps with another one in its place.
local function gpt_encoder(gpt, config, head)
  local made, model = { attention = readers.attention(config) }, { encoder = true }
  if head then
    local name = classify(config, made, head, model)
    made.classifier = { name == "score" and head == "ForTokenClassification" and "classifier" or name }
  end
  for key, value in pairs(gpt(config, made)) do model[key] = value end
  return model
end

-- With a second head, which chooses one of several texts and is left out.
local function double_heads(gpt)
  return function(config)
    nn.checkpoint { heads = { "multiple_choice_head." } }
    return gpt(config)
  end
end

readers.GPT2Model = function(config) return gpt_encoder(gpt2, config) end
readers.OpenAIGPTModel = function(config) return gpt_encoder(openai_gpt, config) end
readers.GPT2DoubleHeadsModel, readers.OpenAIGPTDoubleHeadsModel = double_heads(gpt2), double_heads(openai_gpt)
readers.OpenAIGPTForSequenceClassification = function(config)
  return gpt_encoder(openai_gpt, config, not config.vectors and "ForSequenceClassification" or nil)
end
readers.types["openai-gpt"] = "OpenAIGPTLMHeadModel"
for _, head in ipairs(heads) do
  readers["GPT2" .. head] = function(config) return gpt_encoder(gpt2, config, not config.vectors and head or nil) end
end
return readers
