-- gpts.lua - as decoders.lua, for descendants of GPT-2: LayerNorm, two matrices in a feed-forward, often one for queries, keys and
-- values together.
local hf = require "lib.hf"
local fields = require "lib.fields"
local same_window, clip =
  fields.same_window, fields.clip

-- The elements of a head that turn; null is refused.
local function rotary(config, c)
  if config.values.rotary_dim ~= nil and config:value("rotary_dim") == nil then
    config:refuse("rotary_dim", "an even number up to n_embd / n_head")
  end
  c.rope.dim = config:count("rotary_dim", 2, c.head_dim, 64)
end

return {
  Starcoder2ForCausalLM = {
    type = "starcoder2", norm = "layer", eps = 1e-5, kv_heads = 2, activation = "gelu_pytorch_tanh", tie = true,
    positions = 4096, fields = { eps = "norm_epsilon" },
    names = { gate = false, up = "mlp.c_fc", down = "mlp.c_proj" },
    set = function(config, c)
      same_window(config, c)
      config:only("norm_type", "layer_norm", "layer_norm")
      config:only("mlp_type", "default", "default")
      for _, name in ipairs { "activation_function", "layer_norm_epsilon" } do config:value(name) end -- of StarCoder 1
      c.qkv_bias = config:flag("use_bias", true)
      c.out_bias, c.ffn_bias = c.qkv_bias, c.qkv_bias
    end,
  },
  -- Ettin's decoders
  ModernBertDecoderForCausalLM = {
    type = "modernbert-decoder", norm = "layer", eps = 1e-5, activation = "gelu", tie = true, positions = 8192,
    fields = { eps = "norm_eps", activation = "hidden_activation", kv_heads = false, head_dim = false, theta = false },
    names = { embedding = "model.embeddings.tok_embeddings", embedding_norm = "model.embeddings.norm", final_norm = "model.final_norm",
              attention_norm = "attn_norm", ffn_norm = "mlp_norm", q = "attn.q_proj", k = "attn.k_proj", v = "attn.v_proj",
              out = "attn.Wo", gate_up = "mlp.Wi", down = "mlp.Wo", head_dense = "lm_head.dense", head_norm = "lm_head.norm",
              head = "decoder" },
    set = function(config, c, positions)
      local every, size = config:count("global_attn_every_n_layers", 1, 1024, 3), config:count("local_attention", 2, 2 ^ 24, 128)
      fields.same_bias(config, c, "attention_bias")
      c.ffn_bias, c.norm_bias = config:flag("mlp_bias", false), config:flag("norm_bias", false)
      c.head_bias, c.head_dense_bias = config:flag("decoder_bias", true), config:flag("classifier_bias", false)
      c.head_activation = config:word("classifier_activation", hf.activations, "gelu")
      c.windows = fields.windows(config, c.layers, size // 2, function(i) return i % every ~= 0 end)
      config:only("sliding_window", "half of local_attention", size // 2)
      c.rope = hf.rope_of_kind(config, "full_attention", c.head_dim, positions, "global_rope_theta", 160000.0)
      c.rope_windowed = hf.rope_of_kind(config, "sliding_attention", c.head_dim, positions, "local_rope_theta", 10000.0)
      c.own = { { names = setmetatable({ attention_norm = false }, { __index = c.names }) } }
      c.left_out = { "lm_head." }
      for _, name in ipairs { "causal_mask", "is_causal" } do config:only(name, "true", true) end
      for _, name in ipairs { "classifier_pooling", "cls_token_id", "initializer_cutoff_factor", "layer_norm_eps", "mlp_dropout",
                              "position_embedding_type", "reference_compile", "sparse_pred_ignore_index" } do config:value(name) end
    end,
  },
  PhiForCausalLM = {
    type = "phi", norm = "layer", eps = 1e-5, activation = "gelu_new", partial = 0.5,
    fields = { eps = "layer_norm_eps" },
    names = { ffn_norm = false, gate = false, out = "self_attn.dense", up = "mlp.fc1", down = "mlp.fc2",
              final_norm = "model.final_layernorm" },
    set = function(config, c)
      c.parallel, c.qkv_bias, c.out_bias, c.ffn_bias, c.head_bias = true, true, true, true, true
      if config:flag("qk_layernorm", false) then
        c.norm_heads, c.names.q_norm, c.names.k_norm = true, "self_attn.q_layernorm", "self_attn.k_layernorm"
      end
    end,
  },
  PersimmonForCausalLM = {
    type = "persimmon", norm = "layer", eps = 1e-5, activation = "relu2", partial = 0.5, positions = 16384,
    fields = { kv_heads = false, head_dim = false, eps = "layer_norm_eps" },
    names = { qkv = "self_attn.query_key_value", out = "self_attn.dense", gate = false, up = "mlp.dense_h_to_4h",
              down = "mlp.dense_4h_to_h", final_norm = "model.final_layernorm" },
    unused = { "model.layers.*.self_attn.rotary_emb.inv_freq" },
    set = function(config, c)
      c.groups = c.heads
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      if config:flag("qk_layernorm", true) then
        c.norm_heads, c.names.q_norm, c.names.k_norm = true, "self_attn.q_layernorm", "self_attn.k_layernorm"
      end
    end,
  },
  GPTJForCausalLM = {
    type = "gptj", norm = "layer", eps = 1e-5, activation = "gelu_new", style = "neighbour", widening = 4,
    fields = { hidden = "n_embd", layers = "n_layer", heads = "n_head", ffn = "n_inner", kv_heads = false,
               head_dim = false, eps = "layer_norm_epsilon", activation = "activation_function",
               positions = "n_positions", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.h.",
              attention_norm = "ln_1", ffn_norm = false, q = "attn.q_proj", k = "attn.k_proj", v = "attn.v_proj",
              out = "attn.out_proj",
              gate = false, up = "mlp.fc_in", down = "mlp.fc_out", final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias" },
    set = function(config, c)
      config:only("rotary", "true", true)
      rotary(config, c)
      c.parallel, c.ffn_bias, c.head_bias = true, true, true
    end,
  },
  CodeGenForCausalLM = {
    type = "codegen", norm = "layer", eps = 1e-5, activation = "gelu_new", style = "neighbour", widening = 4,
    fields = { hidden = "n_embd", layers = "n_layer", heads = "n_head", ffn = "n_inner", kv_heads = false,
               head_dim = false, eps = "layer_norm_epsilon", activation = "activation_function",
               positions = "n_positions", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.h.",
              attention_norm = "ln_1", ffn_norm = false, qkv = "attn.qkv_proj", out = "attn.out_proj",
              gate = false, up = "mlp.fc_in", down = "mlp.fc_out", final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.causal_mask" },
    set = function(config, c)
      rotary(config, c)
      if c.heads % 4 ~= 0 then config:refuse("n_head", "a multiple of 4: the class cuts its matrix so") end
      c.groups, c.values_first = 4, true
      c.parallel, c.ffn_bias, c.head_bias = true, true, true
      config:value("n_ctx")
    end,
  },
  GPTNeoForCausalLM = {
    type = "gpt_neo", norm = "layer", eps = 1e-5, activation = "gelu_new", tie = true, widening = 4,
    fields = { layers = "num_layers", heads = "num_heads", kv_heads = false, head_dim = false,
               eps = "layer_norm_epsilon", activation = "activation_function", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", positions = "transformer.wpe",
              layers = "transformer.h.", attention_norm = "ln_1", ffn_norm = "ln_2", q = "attn.attention.q_proj",
              k = "attn.attention.k_proj", v = "attn.attention.v_proj", out = "attn.attention.out_proj", gate = false,
              up = "mlp.c_fc", down = "mlp.c_proj", final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.attention.bias", "transformer.h.*.attn.attention.masked_bias" },
    set = function(config, c, positions)
      local size, kinds = config:count("window_size", 1, 2 ^ 24, 256), config:value("attention_types")
      local whole = "pairs of a list of global and local and how often it stands in a row, num_layers in all"
      c.positions, c.scale, c.windows = positions, 1, {}
      c.out_bias, c.ffn_bias = true, true
      for _, name in ipairs { "attention_layers", "embed_dropout", "resid_dropout" } do config:value(name) end
      for _, run in ipairs(kinds == nil and { { { "global", "local" }, 12 } } or type(kinds) == "table" and kinds or {}) do
        local list, times = table.unpack(type(run) == "table" and run or {})
        if type(list) ~= "table" or math.type(times) ~= "integer" or times < 1 or times > 1024 then
          config:refuse("attention_types", whole)
        end
        for _ = 1, times do
          for _, kind in ipairs(list) do
            if kind ~= "global" and kind ~= "local" then config:refuse("attention_types", whole) end
            table.insert(c.windows, kind == "local" and size or 0)
          end
        end
      end
      if #c.windows ~= c.layers then config:refuse("attention_types", whole) end
    end,
  },
  BioGptForCausalLM = {
    type = "biogpt", norm = "layer", eps = 1e-5, activation = "gelu", tie = true,
    fields = { kv_heads = false, head_dim = false, eps = false, theta = false },
    names = { prefix = "biogpt.", embedding = "biogpt.embed_tokens", positions = "biogpt.embed_positions",
              layers = "biogpt.layers.", attention_norm = "self_attn_layer_norm", ffn_norm = "final_layer_norm",
              out = "self_attn.out_proj", gate = false, up = "fc1", down = "fc2", final_norm = "biogpt.layer_norm",
              head = "output_projection" },
    set = function(config, c, positions)
      c.positions, c.first_position = positions + 2, 2
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      if config:flag("scale_embedding", true) then c.embedding_scale = c.hidden ^ 0.5 end
      config:value("layer_norm_eps")                                -- the class does not read it
      for _, name in ipairs { "hidden_dropout_prob", "attention_probs_dropout_prob" } do config:value(name) end
    end,
  },
  XGLMForCausalLM = {
    type = "xglm", norm = "layer", eps = 1e-5, activation = "gelu", tie = true,
    fields = { hidden = "d_model", layers = "num_layers", heads = "attention_heads", ffn = "ffn_dim", kv_heads = false,
               head_dim = false, eps = false, activation = "activation_function", theta = false },
    names = { attention_norm = "self_attn_layer_norm", ffn_norm = "final_layer_norm", out = "self_attn.out_proj",
              gate = false, up = "fc1", down = "fc2", final_norm = "model.layer_norm" },
    unused = { "model.embed_positions.weights" },
    set = function(config, c)
      if c.hidden % 2 ~= 0 or c.hidden < 4 then config:refuse("d_model", "an even number of 4 or more") end
      local half = c.hidden // 2
      c.sinusoid, c.first_position = { dim = c.hidden, span = half - 1 }, 2
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      c.embedding_scale = config:flag("scale_embedding", true) and c.hidden ^ 0.5 or 1
      config:only("pad_token_id", "0 or 1: the position of this number less 2 has no sines", 0, 1)
    end,
  },
  GPTNeoXForCausalLM = {
    type = "gpt_neox", norm = "layer", eps = 1e-5, activation = "gelu", partial = 0.25,
    fields = { kv_heads = false, head_dim = false, eps = "layer_norm_eps", theta = "rotary_emb_base",
               partial = "rotary_pct" },
    names = { prefix = "gpt_neox.", embedding = "gpt_neox.embed_in", layers = "gpt_neox.layers.", head = "embed_out",
              qkv = "attention.query_key_value", out = "attention.dense", gate = false, up = "mlp.dense_h_to_4h",
              down = "mlp.dense_4h_to_h", final_norm = "gpt_neox.final_layer_norm" },
    unused = { "gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
               "gpt_neox.layers.*.attention.rotary_emb.inv_freq" },
    set = function(config, c)
      c.groups = c.heads
      c.parallel = config:flag("use_parallel_residual", true)
      c.qkv_bias = config:flag("attention_bias", true)
      c.out_bias, c.ffn_bias = c.qkv_bias, true
      -- some versions of transformers write both names, and read these
      config:only("rope_theta", "the value of rotary_emb_base", c.rope.theta)
      config:only("partial_rotary_factor", "the value of rotary_pct", c.rope.dim / c.head_dim)
    end,
  },
  FalconForCausalLM = {
    type = "falcon", norm = "layer", eps = 1e-5, activation = "gelu", tie = true, widening = 4,
    fields = { ffn = "ffn_hidden_size", kv_heads = false, head_dim = false, eps = "layer_norm_epsilon",
               activation = "activation" },
    names = { prefix = "transformer.", embedding = "transformer.word_embeddings", layers = "transformer.h.",
              qkv = "self_attention.query_key_value", out = "self_attention.dense", gate = false,
              up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h", final_norm = "transformer.ln_f" },
    set = function(config, c)
      local new = config:flag("new_decoder_architecture", false)
      local one = config:flag("multi_query", true)
      local kv_heads = config:count("num_kv_heads", 1, 1024, c.heads)
      local norms = config:count("num_ln_in_parallel_attn", 1, 2, new and 2 or 1)
      c.alibi = config:flag("alibi", false)
      c.alibi_rounded = c.alibi
      c.kv_heads = new and kv_heads or one and 1 or c.heads
      c.groups = c.kv_heads
      c.parallel = config:flag("parallel_attn", true)
      if new and not c.parallel then config:refuse("parallel_attn", "true with new_decoder_architecture") end
      if not new and norms == 2 then config:refuse("num_ln_in_parallel_attn", "1 without new_decoder_architecture") end
      if norms == 2 then c.names.attention_norm, c.names.ffn_norm = "ln_attn", "ln_mlp"
      elseif c.parallel then c.names.ffn_norm = false end
      c.qkv_bias = config:flag("bias", false)
      c.out_bias, c.ffn_bias = c.qkv_bias, c.qkv_bias
    end,
  },
  GPTBigCodeForCausalLM = {
    type = "gpt_bigcode", norm = "layer", eps = 1e-5, activation = "gelu_pytorch_tanh", tie = true, positions = 1024,
    widening = 4,
    fields = { hidden = "n_embd", layers = "n_layer", heads = "n_head", ffn = "n_inner", kv_heads = false,
               head_dim = false, eps = "layer_norm_epsilon", activation = "activation_function",
               positions = "n_positions", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", positions = "transformer.wpe",
              layers = "transformer.h.", attention_norm = "ln_1", ffn_norm = "ln_2", qkv = "attn.c_attn",
              out = "attn.c_proj", gate = false, up = "mlp.c_fc", down = "mlp.c_proj",
              final_norm = "transformer.ln_f" },
    unused = { "transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias" },
    set = function(config, c, positions)
      c.positions = positions
      c.kv_heads = config:flag("multi_query", true) and 1 or c.heads
      c.groups = c.kv_heads
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
      if not config:flag("scale_attn_weights", true) then c.scale = 1.0 end
      config:only("num_key_value_heads", "as many as multi_query says, " .. c.kv_heads, c.kv_heads)
    end,
  },
  MptForCausalLM = {
    type = "mpt", norm = "layer", eps = 1e-5, activation = "gelu", tie = true, widening = 4,
    fields = { hidden = "d_model", layers = "n_layers", heads = "n_heads", kv_heads = false, head_dim = false,
               ffn = false, eps = "layer_norm_epsilon", activation = false, positions = "max_seq_len", theta = false },
    names = { prefix = "transformer.", embedding = "transformer.wte", layers = "transformer.blocks.",
              attention_norm = "norm_1", ffn_norm = "norm_2", qkv = "attn.Wqkv", out = "attn.out_proj", gate = false,
              up = "ffn.up_proj", down = "ffn.down_proj", final_norm = "transformer.norm_f" },
    -- transformers' class reads less of this than MosaicML's own code, which these fields come from
    set = function(config, c, positions, harmless)
      local at = config:inside("attn_config") or hf.file(config.path, {}, "attn_config.")
      local bias, norms = not config:flag("no_bias", true), { layernorm = "layer", rmsnorm = "rms" }
      for _, name in ipairs { "layernorm", "rmsnorm" } do norms["low_precision_" .. name] = norms[name] end
      c.norm = config:word("norm_type", norms, "low_precision_layernorm")
      c.norm_bias, c.qkv_bias, c.out_bias, c.ffn_bias = bias, bias, bias, bias
      c.clip_qkv, c.clip_first = clip(at), true
      if at:value("softmax_scale") then c.scale = at:number("softmax_scale", 1e-6, 1024) end
      if at:flag("qk_ln", false) then c.names.q_norm, c.names.k_norm = "attn.q_ln", "attn.k_ln" end
      local learned = config:flag("learned_pos_emb", true)
      c.alibi, c.alibi_most = at:flag("alibi", true), at:number("alibi_bias_max", 1e-6, 1024, 8)
      if not c.alibi and learned then c.names.positions, c.positions = "transformer.wpe", positions end
      for i = 1, c.layers do c.unrotated[i] = true end
      local groups = at:count("kv_n_heads", 1, 1024, c.heads)
      c.kv_heads = at:word("attn_type", { multihead_attention = c.heads, multiquery_attention = 1,
                                          grouped_query_attention = groups }, "multihead_attention")
      at:only("prefix_lm", "false", false)
      at:only("attn_uses_sequence_id", "false", false)
      at:only("rope", "false: rotary positions are not computed", false)
      at:only("qk_gn", "false: norms of each head are not computed", false)
      at:only("sliding_window_size", "-1: windows are not computed", -1)
      for _, name in ipairs { "attn_impl", "rope_theta", "rope_impl", "rope_dail_config", "rope_hf_config" } do
        at:value(name)
      end
      at:known(harmless)
      c.ffn = math.tointeger(math.floor(config:number("expansion_ratio", 1e-3, 64, 4) * c.hidden))
      if config:value("logit_scale") == "inv_sqrt_d_model" then c.logits_scale = c.hidden ^ -0.5
      elseif config:value("logit_scale") then c.logits_scale = config:number("logit_scale", 1e-6, 2 ^ 20) end
      local other = config:inside("ffn_config") or hf.file(config.path, {}, "ffn_config.")
      other:only("ffn_type", "mptmlp", "mptmlp")
      other:known {}
      config:only("fc_type", "torch", "torch")
      config:only("residual_modification", "null")
      for _, name in ipairs { "embedding_fraction", "init_config", "init_device", "tokenizer_name", "verbose", "emb_pdrop",
                              "use_pad_tok_in_ffn", "residual_coeff" } do config:value(name) end
    end,
  },
  BloomForCausalLM = {
    type = "bloom", norm = "layer", eps = 1e-5, activation = "gelu_pytorch_tanh", tie = true, widening = 4,
    fields = { layers = "n_layer", heads = "n_head", kv_heads = false, head_dim = false, ffn = false,
               eps = "layer_norm_epsilon", activation = false, positions = false, theta = false },
    older = { hidden = "n_embed", layers = "num_hidden_layers", heads = "num_attention_heads" },
    names = { prefix = "transformer.", embedding = "transformer.word_embeddings", layers = "transformer.h.",
              embedding_norm = "transformer.word_embeddings_layernorm", qkv = "self_attention.query_key_value",
              out = "self_attention.dense", gate = false, up = "mlp.dense_h_to_4h", down = "mlp.dense_4h_to_h",
              final_norm = "transformer.ln_f" },
    set = function(config, c)
      config:only("apply_residual_connection_post_layernorm", "false", false)
      for _, name in ipairs {
        "pretraining_tp", "slow_but_exact", "seq_length", "bias_dropout_fusion", "masked_softmax_fusion",
        "hidden_size", "offset_alibi", "skip_bias_add", -- n_embed goes before hidden_size
      } do config:value(name) end
      c.alibi, c.groups = true, c.heads
      c.qkv_bias, c.out_bias, c.ffn_bias = true, true, true
    end,
  },
  OPTForCausalLM = {
    type = "opt", norm = "layer", eps = 1e-5, activation = "relu", tie = true,
    fields = { ffn = "ffn_dim", kv_heads = false, head_dim = false, eps = false, activation = "activation_function",
               theta = false },
    names = { prefix = "model.", embedding = "model.decoder.embed_tokens", positions = "model.decoder.embed_positions",
              layers = "model.decoder.layers.", attention_norm = "self_attn_layer_norm", ffn_norm = "final_layer_norm",
              out = "self_attn.out_proj", gate = false, up = "fc1", down = "fc2",
              final_norm = "model.decoder.final_layer_norm" },
    set = function(config, c, positions)
      local names = c.names
      local before = config:flag("do_layer_norm_before", true)      -- 350m: of the sums
      if not before then
        names.attention_sum_norm, names.ffn_sum_norm = names.attention_norm, names.ffn_norm
        names.attention_norm, names.ffn_norm = false, false
      end
      if config:flag("_remove_final_layer_norm", false) or not before then names.final_norm = false end
      c.norm_gain = config:flag("layer_norm_elementwise_affine", true)
      c.norm_bias = c.norm_gain
      c.embedding_width = config:count("word_embed_proj_dim", 1, 2 ^ 17, c.hidden)
      if c.embedding_width ~= c.hidden then
        names.embedding_in, names.embedding_out = "model.decoder.project_in", "model.decoder.project_out"
      end
      c.first_position, c.positions = 2, positions + 2
      c.qkv_bias = config:flag("enable_bias", true)
      c.out_bias, c.ffn_bias = c.qkv_bias, c.qkv_bias
    end,
  },
}
