-- encoders.lua - config.json of encoders that encoder.lua computes: by the beginning of an architecture's name the class's
-- defaults, its names of fields and tensors, and the fields that only it has.
local ftx = require "ftx"
local hf = require "lib.hf"
local longformer = require "lib.longformer"
local encoder = require "encoder"
local harmless = require("lib.harmless").encoders

-- BERT's; a class has its own where it differs. false: it has no such field or tensor.
local bert = {
  eps = 1e-12, activation = "gelu", activations = hf.activations, positions = 512, types = 2,
  sizes = {},                                                       -- hidden, layers, heads and ffn of files that lack them
  fields = {                                                        -- of config.json
    hidden = "hidden_size", layers = "num_hidden_layers", heads = "num_attention_heads", ffn = "intermediate_size",
    eps = "layer_norm_eps", activation = "hidden_act", positions = "max_position_embeddings", types = "type_vocab_size",
  },
  older = {},                                                       -- names of fields in older files, all or none
  prefixes = {},
  dropped = { "cls.", "lm_head.", "classifier.", "qa_outputs." },
  names = {                                                         -- of tensors: see encoder.lua
    embedding = "embeddings.word_embeddings", types = "embeddings.token_type_embeddings",
    embedding_norm = "embeddings.LayerNorm", layers = "encoder.layer.",
    q = "attention.self.query", k = "attention.self.key", v = "attention.self.value",
    out = "attention.output.dense", attention_norm = "attention.output.LayerNorm",
    up = "intermediate.dense", down = "output.dense", ffn_norm = "output.LayerNorm", output = "classifier",
  },
}

-- The vector of the first token, a linear and its activation, then the classifier.
local function first_token(c, dense, activation, output)
  c.pooling, c.dense_activation, c.names.dense, c.names.output = "first", activation, dense, output
end

-- The same without the classifier, if the checkpoint has the linear.
local function pooler(config, c, head, name)
  if rawget(hf.token_heads, head) or config:stored(name .. ".weight") == false then return end
  c.pooling, c.names.dense = "first", name
end

-- Layers of a window and layers that see all: layer_types, or each n-th sees all.
local function modern_windows(config, layers)
  local list, made = config:value("layer_types"), {}
  local every = config:count("global_attn_every_n_layers", 1, 1024, 3)
  local window = config:count("local_attention", 2, 2 ^ 24, 128) // 2
  local kinds = { full_attention = 0, sliding_attention = window }
  for i = 0, layers - 1 do
    made[i + 1] = i % every == 0 and 0 or window
    if list then made[i + 1] = type(list) == "table" and #list == layers and rawget(kinds, list[i + 1] or "") end
    if not made[i + 1] then
      config:refuse("layer_types", "a list of full_attention and sliding_attention, one for each layer")
    end
  end
  return made
end

-- RoPE of Alibaba's files: with `ntk` theta is multiplied by the factor, and all frequencies are divided by
-- factor ^ (2 / dim).
local function gte_rope(config, dim, positions, theta)
  local at = config:inside("rope_scaling")
  if not at or at:value("type") ~= "ntk" then return hf.rope(config, dim, positions, nil, { theta = theta }) end
  local factor, freqs = at:number("factor", 1, 1e6), {}
  theta = config:number("rope_theta", 1, 1e12, theta)
  at:known { type = true }
  for i = 1, dim // 2 do
    freqs[i] = (theta * factor) ^ (-2 * (i - 1) / dim) / factor ^ (2 / dim)
  end
  return { dim = dim, freqs = freqs }
end

local function gte(theta)
  return function(config, c, positions)
    config:only("layer_norm_type", "layer_norm", "layer_norm")
    config:only("position_embedding_type", "rope", "rope")
    config:only("pack_qkv", "true", true)
    config:only("logn_attention_scale", "false: scores scaled by the length are not computed", false)
    config:only("logn_attention_clip1", "false", false)
    c.rope = gte_rope(config, c.hidden // c.heads, positions, theta)
    c.up_bias, c.up_first = false, true
    if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier") end
  end
end

-- Of DeBERTa: a list, or "p2c|c2p".
local function position_kinds(config)
  local list, found, text = config:value("pos_att_type") or {}, {}, ""
  if type(list) == "string" then
    local made = {}
    for i = 1, #list + 1 do
      local letter = string.sub(list, i, i)
      if letter == "|" or i > #list then made[#made + 1], text = text, ""
      elseif letter ~= " " then text = text .. string.lower(letter) end
    end
    list = made
  end
  for _, kind in ipairs(type(list) == "table" and list or { "" }) do
    if kind ~= "c2p" and kind ~= "p2c" then config:refuse("pos_att_type", "c2p and p2c") end
    found[kind] = true
  end
  return found
end

local deberta_dropped = { "cls.", "lm_predictions.", "mask_predictions.", "classifier.", "qa_outputs.", "pooler." }

-- What DeBERTa and its later versions share. How far positions reach, if tokens see how far away others are.
local function deberta(config, c, positions)
  local kinds, count = position_kinds(config), 0
  for _ in pairs(kinds) do count = count + 1 end
  local most = config:get("max_relative_positions", -1, "a whole number", math.tointeger)
  if most < 1 then most = positions end
  c.embedding, c.project_bias = config:count("embedding_size", 1, 2 ^ 17, c.hidden), false
  c.norm_projected = true
  c.scale = (c.hidden // c.heads * (1 + count)) ^ -0.5
  if config:flag("position_biased_input", true) then
    c.positions, c.names.positions = positions, "embeddings.position_embeddings"
  end
  c.relative = {}
  for _, name in ipairs { "pooler_dropout", "cls_dropout", "legacy", "pooler_hidden_act" } do config:value(name) end
  config:only("pooler_hidden_size", "hidden_size", c.hidden)
  if c.outputs then
    first_token(c, "pooler.dense", config:word("pooler_hidden_act", hf.activations, "gelu"), "classifier")
  end
  if not config:flag("relative_attention", false) then return nil end
  if count == 0 then config:refuse("pos_att_type", "c2p, p2c or both with relative_attention") end
  c.relative.queries, c.relative.keys = kinds.c2p, kinds.p2c
  c.relative.max_distance, c.relative.buckets, c.relative.reach = most, 0, most
  return most
end

local gte_names = {
  qkv = "attention.qkv_proj", out = "attention.o_proj", attention_norm = "attn_ln", gate_up = "mlp.up_gate_proj",
  down = "mlp.down_proj", ffn_norm = "mlp_ln",
}

-- Sizes that a file may lack.
local base = { hidden = 768, layers = 12, heads = 12, ffn = 3072 }

local function bert_positions(config, c, positions, first)
  c.positions, c.first_position = positions, first
  config:only("position_embedding_type", "absolute", "absolute")
end

local classes = {
  Bert = {
    prefixes = { "bert." }, classifies = true, sizes = base, names = { positions = "embeddings.position_embeddings" },
    set = function(config, c, positions, _, head)
      bert_positions(config, c, positions)
      if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier") else pooler(config, c, head, "pooler.dense") end
    end,
  },
  DPRContext = {                                                    -- BERT whose vector is the first token's
    prefixes = { "ctx_encoder.bert_model." }, dropped = { "ctx_encoder.bert_model.pooler.", "pooler." }, sizes = base,
    names = { positions = "embeddings.position_embeddings" },
    set = function(config, c, positions)
      bert_positions(config, c, positions)
      c.pooling = "first"
      config:only("projection_dim", "0: a projection is not computed", 0)
    end,
  },
  Roberta = {                                                       -- positions begin behind the row of the padding
    prefixes = { "roberta." }, classifies = true, sizes = base, names = { positions = "embeddings.position_embeddings" },
    set = function(config, c, positions, _, head)
      bert_positions(config, c, positions, config:count("pad_token_id", 0, 2 ^ 24, 1) + 1)
      if c.outputs then first_token(c, "classifier.dense", "tanh", "classifier.out_proj")
      else pooler(config, c, head, "pooler.dense") end
    end,
  },
  DistilBert = {                                                    -- BERT without token types and pooler
    prefixes = { "distilbert." }, classifies = true, sizes = { hidden = 768, layers = 6, heads = 12, ffn = 3072 },
    dropped = { "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "pre_classifier.", "classifier.", "qa_outputs." },
    fields = { hidden = "dim", layers = "n_layers", heads = "n_heads", ffn = "hidden_dim", eps = false, types = false,
               activation = "activation" },
    names = { positions = "embeddings.position_embeddings", layers = "transformer.layer.",
              q = "attention.q_lin", k = "attention.k_lin", v = "attention.v_lin", out = "attention.out_lin",
              attention_norm = "sa_layer_norm", up = "ffn.lin1", down = "ffn.lin2", ffn_norm = "output_layer_norm" },
    set = function(_, c, positions)
      c.positions = positions
      if c.outputs then first_token(c, "pre_classifier", "relu", "classifier") end
    end,
  },
  Electra = {
    prefixes = { "electra." }, classifies = true,
    dropped = { "generator_", "discriminator_predictions.", "classifier.", "qa_outputs.", "sequence_summary." },
    names = { positions = "embeddings.position_embeddings", project = "embeddings_project" },
    set = function(config, c, positions)
      c.embedding = config:count("embedding_size", 1, 2 ^ 17, 128)
      bert_positions(config, c, positions)
      if c.outputs then first_token(c, "classifier.dense", "gelu_erf", "classifier.out_proj") end
    end,
  },
  MPNet = {                                                         -- positions begin behind the row of the padding
    prefixes = { "mpnet." }, classifies = true,
    fields = { types = false },
    names = { positions = "embeddings.position_embeddings", distances = "encoder.relative_attention_bias",
              q = "attention.attn.q", k = "attention.attn.k", v = "attention.attn.v", out = "attention.attn.o",
              attention_norm = "attention.LayerNorm" },
    set = function(config, c, positions, _, head)
      c.first_position, c.positions = 2, positions
      c.buckets = 32
      config:only("relative_attention_num_buckets", "32: the class computes as many", 32)
      if c.outputs then first_token(c, "classifier.dense", "tanh", "classifier.out_proj")
      else pooler(config, c, head, "pooler.dense") end
    end,
  },
  Albert = {                                                        -- layers share weights: those of a group are the same
    prefixes = { "albert." }, classifies = true, activation = "gelu_new",
    dropped = { "predictions.", "sop_classifier.", "classifier.", "qa_outputs.", "pooler." },
    names = { positions = "embeddings.position_embeddings", project = "encoder.embedding_hidden_mapping_in",
              out = "attention.dense", attention_norm = "attention.LayerNorm", up = "ffn", down = "ffn_output",
              q = "attention.query", k = "attention.key", v = "attention.value", ffn_norm = "full_layer_layer_norm" },
    set = function(config, c, positions, _, head)
      local groups, inner = config:count("num_hidden_groups", 1, c.layers, 1), config:count("inner_group_num", 1, 1024, 1)
      c.positions, c.embedding, c.project = positions, config:count("embedding_size", 1, 2 ^ 17, 128), true
      c.shared = {}
      for i = 0, c.layers - 1 do
        for k = 0, inner - 1 do
          table.insert(c.shared, string.format("encoder.albert_layer_groups.%d.albert_layers.%d.", i * groups // c.layers, k))
        end
      end
      c.layers = #c.shared
      config:only("down_scale_factor", "1", 1)
      for _, key in ipairs { "gap_size", "net_structure_type", "num_memory_blocks" } do config:only(key, "0", 0) end
      if c.outputs then first_token(c, "pooler", "tanh", "classifier") else pooler(config, c, head, "pooler") end
    end,
  },
  XLMRobertaXL = {                                                  -- RoBERTa with norms before the blocks
    prefixes = { "roberta." }, classifies = true, eps = 1e-5, positions = 514, types = 1,
    names = { positions = "embeddings.position_embeddings", embedding_norm = false,
              attention_norm = "attention.self_attn_layer_norm", ffn_norm = "LayerNorm", final_norm = "encoder.LayerNorm" },
    set = function(config, c, positions, _, head)
      c.norm_first = true
      bert_positions(config, c, positions, config:count("pad_token_id", 0, 2 ^ 24, 1) + 1)
      if c.outputs then first_token(c, "classifier.dense", "tanh", "classifier.out_proj")
      else pooler(config, c, head, "pooler.dense") end
    end,
  },
  -- ESM-2 and ESM-1b, of proteins; texts without the id of the mask
  Esm = {
    prefixes = { "esm." }, classifies = true, positions = 1026, types = 0,
    fields = { types = false },
    sizes = base, dropped = { "lm_head.", "classifier.", "contact_head.", "esm.contact_head.", "pooler." },
    names = { embedding_norm = "embeddings.layer_norm", attention_norm = "attention.LayerNorm", ffn_norm = "LayerNorm",
              final_norm = "encoder.emb_layer_norm_after" },
    set = function(config, c, positions, _, head)
      local head_dim = c.hidden // c.heads
      c.norm_first = true
      if not config:flag("emb_layer_norm_before", false) then c.names.embedding_norm = false end
      if config:flag("token_dropout", false) then c.embedding_scale = 1 - 0.15 * 0.8 end
      if config.values.position_embedding_type ~= nil and config:value("position_embedding_type") == nil then
        config:refuse("position_embedding_type", "absolute or rotary")
      end
      if config:word("position_embedding_type", { absolute = false, rotary = true }, "absolute") then
        c.rope = hf.rope(config, head_dim, positions, nil, { theta = 10000.0 })
      else
        config:value("rope_theta")
        c.positions, c.first_position = positions, config:count("pad_token_id", 0, 2 ^ 24) + 1
        c.names.positions = "embeddings.position_embeddings"
      end
      c.unused = { "encoder.layer.*.attention.self.rotary_embeddings.inv_freq" }
      if c.rope then table.insert(c.unused, "embeddings.position_embeddings.weight") end
      config:only("hidden_act", "gelu: the class computes it", "gelu")
      config:only("is_folding_model", "false", false)
      for _, name in ipairs { "mask_token_id", "esmfold_config", "vocab_list" } do config:value(name) end
      if c.outputs then first_token(c, "classifier.dense", "tanh", "classifier.out_proj")
      else pooler(config, c, head, "pooler.dense") end
    end,
  },
  -- JinaBERT v2; files that have the tensors of mlp.up_gated_layer are those of its variant for code
  JinaBert = {
    prefixes = { "bert." }, classifies = true, sizes = base,
    set = function(config, c, positions, _, head)
      local kind = config:word("feed_forward_type", { original = "original", geglu = "gelu_erf", reglu = "relu" }, "original")
      local mean = config:word("emb_pooler", { none = false, mean = true }, "none")
      if kind ~= "original" then
        c.activation, c.up_bias = kind, false
        c.names.gate_up, c.names.down, c.names.ffn_norm = "mlp.gated_layers", "mlp.wo", "mlp.layernorm"
      end
      if config:stored("encoder.layer.0.mlp.up_gated_layer.weight") then
        if kind == "original" then config:refuse("feed_forward_type", "geglu or reglu, as the tensors say") end
        local n = c.names
        n.gate_up, n.down, n.ffn_norm, c.up_first = "mlp.up_gated_layer", "mlp.down_layer", "layer_norm_2", true
        n.attention_sum_norm, n.q_norm, n.k_norm = "layer_norm_1", "attention.self.layer_norm_q", "attention.self.layer_norm_k"
      end
      if config:word("position_embedding_type", { absolute = false, alibi = true }, "absolute") then
        c.alibi_reach = math.max(hf.context(positions) - 1, 1)
      else
        c.positions, c.names.positions = positions, "embeddings.position_embeddings"
      end
      config:only("alibi_scaling", "1", 1)
      if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier")
      elseif mean and not rawget(hf.token_heads, head) then
        c.pooling, c.dropped = "mean", { "pooler.", table.unpack(c.dropped) }
      else pooler(config, c, head, "pooler.dense") end
    end,
  },
  Deberta = {
    prefixes = { "deberta." }, classifies = true, eps = 1e-7, types = 0, sizes = base, dropped = deberta_dropped,
    names = { qkv = "attention.self.in_proj", q_bias = "attention.self.q_bias", v_bias = "attention.self.v_bias",
              relative_k = "attention.self.pos_proj", relative_q = "attention.self.pos_q_proj",
              project = "embeddings.embed_proj", relative = "encoder.rel_embeddings" },
    set = function(config, c, positions)
      c.qkv_heads = true
      deberta(config, c, positions)
      config:only("talking_head", "false: sums over heads are not computed", false)
    end,
  },
  DebertaV2 = {                                                     -- v2 and v3
    prefixes = { "deberta." }, classifies = true, eps = 1e-7, types = 0, dropped = deberta_dropped,
    sizes = { hidden = 1536, layers = 24, heads = 24, ffn = 6144 },
    names = { q = "attention.self.query_proj", k = "attention.self.key_proj", v = "attention.self.value_proj",
              project = "embeddings.embed_proj", relative = "encoder.rel_embeddings", relative_norm = "encoder.LayerNorm",
              convolution = "encoder.conv.conv", convolution_norm = "encoder.conv.LayerNorm" },
    set = function(config, c, positions)
      local buckets = config:get("position_buckets", -1, "a whole number", math.tointeger)
      local normed = config:word("norm_rel_ebd", { none = false, layer_norm = true }, "none")
      local shared = config:flag("share_att_key", false)
      local most = deberta(config, c, positions)
      if most and buckets > 0 and (buckets % 2 == 1 or buckets < 4 or most - 1 <= buckets // 2) then
        config:refuse("position_buckets", "an even number of 4 or more, and less than twice the positions")
      end
      c.relative.buckets, c.relative.norm = math.max(buckets, 0), normed
      if not shared then
        c.names.relative_k, c.names.relative_q = "attention.self.pos_key_proj", "attention.self.pos_query_proj"
      end
      config:only("attention_head_size", "hidden_size / num_attention_heads", c.hidden // c.heads)
      local size, activation = config:count("conv_kernel_size", 0, 63, 0), config:word("conv_act", hf.activations, "tanh")
      config:only("conv_groups", "1", 1)
      if size > 0 then
        if size % 2 == 0 then config:refuse("conv_kernel_size", "an odd number") end
        c.convolution = { size = size, activation = activation }
      end
    end,
  },
  ModernBert = {
    prefixes = { "model." }, classifies = true, eps = 1e-5, positions = 8192, dropped = { "head.", "decoder.", "classifier." },
    fields = { eps = "norm_eps", activation = "hidden_activation", types = false },
    names = {
      embedding = "embeddings.tok_embeddings", embedding_norm = "embeddings.norm", layers = "layers.",
      attention_norm = "attn_norm", qkv = "attn.Wqkv", out = "attn.Wo", ffn_norm = "mlp_norm", gate_up = "mlp.Wi",
      down = "mlp.Wo", final_norm = "final_norm",
    },
    set = function(config, c, positions, _, head)
      local head_dim = c.hidden // c.heads
      c.norm_first, c.first_norm = true, false
      c.norm_bias = config:flag("norm_bias", false)
      c.qkv_bias = config:flag("attention_bias", false)
      c.up_bias = config:flag("mlp_bias", false)
      c.out_bias, c.down_bias = c.qkv_bias, c.up_bias
      config:only("position_embedding_type", "absolute: the class does not read it", "absolute")
      config:value("layer_norm_eps") -- norm_eps is read
      c.windows = modern_windows(config, c.layers)
      c.rope = hf.rope_of_kind(config, "full_attention", head_dim, positions, "global_rope_theta", 160000.0)
      c.rope_windowed = hf.rope_of_kind(config, "sliding_attention", head_dim, positions, "local_rope_theta", 10000.0)
      if not c.outputs and not rawget(hf.token_heads, head) then return end
      if c.outputs then c.pooling = config:word("classifier_pooling", { cls = "first", mean = "mean" }, "cls") end
      c.dense_bias = config:flag("classifier_bias", false)
      c.dense_activation = config:word("classifier_activation", hf.activations, "gelu")
      c.names.dense, c.names.dense_norm, c.names.output = "head.dense", "head.norm", "classifier"
    end,
  },
  NomicBert = {
    prefixes = { "nomic_bert.", "bert." }, classifies = true, activation = "silu", positions = 2048,
    older = { hidden = "n_embd", layers = "n_layer", heads = "n_head", ffn = "n_inner", eps = "layer_norm_epsilon",
              positions = "n_positions" },
    names = {
      embedding_norm = "emb_ln", layers = "encoder.layers.", qkv = "attn.Wqkv", out = "attn.out_proj",
      attention_norm = "norm1", gate = "mlp.fc12", up = "mlp.fc11", down = "mlp.fc2", ffn_norm = "norm2",
    },
    set = function(config, c, positions, older)
      local head_dim = c.hidden // c.heads
      if older then
        c.activation = config:word("activation_function", { swiglu = "silu", geglu = "gelu_erf", glu = "sigmoid" })
        local multiple = config:count("pad_vocab_size_multiple", 1, 2 ^ 20, 1)
        c.vocab = (c.vocab + multiple - 1) // multiple * multiple
        for _, key in ipairs { "prenorm", "parallel_block", "parallel_block_tied_norm", "causal", "use_rms_norm",
                               "scale_attn_by_inverse_layer_idx" } do config:only(key, "false", false) end
        config:only("scale_attn_weights", "true", true)
        config:only("rotary_emb_scale_base", "null")
        config:only("rotary_scaling_factor", "null")
        config:only("num_experts", "0: experts are not read", 0)
      end
      config:only("head_dim", "hidden_size / num_attention_heads", head_dim)
      c.qkv_bias = config:flag("qkv_proj_bias", older)
      c.up_bias, c.down_bias = config:flag("mlp_fc1_bias", older), config:flag("mlp_fc2_bias", older)
      c.out_bias = c.qkv_bias
      c.rope = hf.rope(config, head_dim, positions, older and { theta = "rotary_emb_base", partial = "rotary_emb_fraction" },
                       { theta = older and 10000.0 or 1000.0 })
      c.rope.style = config:flag("rotary_emb_interleaved", false) and "neighbour" or "half"
      if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier") end
    end,
  },
  -- RoPE in place of positions
  RoFormer = {
    prefixes = { "roformer." }, classifies = true, positions = 1536, names = { project = "embeddings_project" },
    set = function(config, c)
      c.embedding = config:count("embedding_size", 1, 2 ^ 17, c.hidden)
      c.rope = { theta = 10000.0, style = "neighbour" }
      c.unused = { "encoder.embed_positions.weight" }
      config:only("rotary_value", "false: values that turn are not computed", false)
      if c.outputs then
        first_token(c, "classifier.dense", config:word("hidden_act", hf.activations, "gelu"), "classifier.out_proj")
      end
    end,
  },
  MegatronBert = {
    prefixes = { "bert." }, classifies = true, sizes = { hidden = 1024, layers = 24, heads = 16, ffn = 4096 },
    names = { positions = "embeddings.position_embeddings", embedding_norm = false, attention_norm = "attention.ln",
              ffn_norm = "ln", final_norm = "encoder.ln" },
    set = function(config, c, positions, _, head)
      c.norm_first = true
      bert_positions(config, c, positions)
      if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier") else pooler(config, c, head, "pooler.dense") end
    end,
  },
  -- Linears of the layers are convolutions of groups over one token
  SqueezeBert = {
    prefixes = { "transformer." }, classifies = true, sizes = base,
    names = { positions = "embeddings.position_embeddings", layers = "encoder.layers.", q = "attention.query", k = "attention.key",
              v = "attention.value", out = "post_attention.conv1d", attention_norm = "post_attention.layernorm",
              up = "intermediate.conv1d", down = "output.conv1d", ffn_norm = "output.layernorm" },
    set = function(config, c, positions, _, head)
      bert_positions(config, c, positions)
      c.groups = {}
      for part, key in pairs { q = "q_groups", k = "k_groups", v = "v_groups", out = "post_attention_groups",
                               up = "intermediate_groups", down = "output_groups" } do
        local groups = config:count(key, 1, 1024, part == "out" and 1 or 4)
        if c.hidden % groups ~= 0 or c.ffn % groups ~= 0 and (part == "up" or part == "down") then
          config:refuse(key, "a divisor of the rows and columns of the matrix")
        end
        c.groups[part] = groups
      end
      config:only("embedding_size", "hidden_size " .. c.hidden, c.hidden)
      config:only("layer_norm_eps", "1e-12, which norms of layers have whatever it says", 1e-12)
      if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier") else pooler(config, c, head, "pooler.dense") end
    end,
  },
  MobileBert = {
    prefixes = { "mobilebert." }, classifies = true, activation = "relu", sizes = { hidden = 512, layers = 24, heads = 4, ffn = 512 },
    fields = { eps = false },
    names = { positions = "embeddings.position_embeddings", project = "embeddings.embedding_transformation" },
    set = function(config, c, positions, _, head)
      bert_positions(config, c, positions)
      config:value("layer_norm_eps")                                -- there is no norm
      config:only("normalization_type", "no_norm", "no_norm")
      c.embedding, c.neighbours = config:count("embedding_size", 1, 2 ^ 17, 128), config:flag("trigram_input", true)
      c.project_first = c.neighbours or c.embedding ~= c.hidden
      c.unused = { c.names.project .. ".weight", c.names.project .. ".bias" } -- of a class that always has it
      local between, all = config:flag("use_bottleneck", true), config:flag("use_bottleneck_attention", false)
      local width, apart = config:count("intra_bottleneck_size", 1, 2 ^ 17, 128), config:flag("key_query_shared_bottleneck", true)
      config:only("true_hidden_size", "intra_bottleneck_size, or hidden_size without bottlenecks", between and width or c.hidden)
      if between and not all and not apart then
        config:refuse("key_query_shared_bottleneck", "true, or use_bottleneck_attention")
      end
      c.bottleneck = { between = between, width = between and width or c.hidden, values = all, apart = between and not all,
                       count = config:count("num_feedforward_networks", 1, 1024, 4) }
      for _, part in ipairs(not c.bottleneck.apart and { "dense", "LayerNorm" } or {}) do
        for _, of in ipairs { ".weight", ".bias" } do
          table.insert(c.unused, "encoder.layer.*.bottleneck.attention." .. part .. of) -- of a class that has it whatever is read
        end
      end
      if c.bottleneck.width % c.heads ~= 0 then config:refuse("intra_bottleneck_size", "a multiple of num_attention_heads") end
      local dense = config:flag("classifier_activation", true)
      if c.outputs then first_token(c, dense and "pooler.dense" or false, "tanh", "classifier")
      elseif dense then pooler(config, c, head, "pooler.dense")
      elseif not rawget(hf.token_heads, head) then c.pooling = "first" end
    end,
  },
  RemBert = {
    prefixes = { "rembert." }, classifies = true, sizes = { hidden = 1152, layers = 32, heads = 18, ffn = 4608 },
    names = { positions = "embeddings.position_embeddings", project = "encoder.embedding_hidden_mapping_in" },
    set = function(config, c, positions, _, head)
      c.embedding, c.project = config:count("input_embedding_size", 1, 2 ^ 17, 256), true
      bert_positions(config, c, positions)
      config:value("output_embedding_size")
      if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier") else pooler(config, c, head, "pooler.dense") end
    end,
  },
  Ernie = {                                                         -- 2.0 and 3.0 have embeddings of tasks, of which the first is read
    prefixes = { "ernie." }, classifies = true, sizes = base,
    names = { positions = "embeddings.position_embeddings", tasks = "embeddings.task_type_embeddings" },
    set = function(config, c, positions, _, head)
      bert_positions(config, c, positions)
      local tasks = config:count("task_type_vocab_size", 1, 1024, 3)
      c.tasks = config:flag("use_task_id", false) and tasks or 0
      if c.outputs then first_token(c, "pooler.dense", "tanh", "classifier") else pooler(config, c, head, "pooler.dense") end
    end,
  },
  -- jina-embeddings-v3 as transformers has it; its tasks are adapters for --lora
  JinaEmbeddingsV3 = {
    prefixes = { "roberta." }, classifies = true, eps = 1e-5, positions = 8194, types = 1,
    sizes = { hidden = 1024, layers = 24, heads = 16, ffn = 4096 },
    names = { embedding_norm = "emb_ln", layers = "encoder.layers.", qkv = "mixer.Wqkv", out = "mixer.out_proj",
              attention_norm = "norm1", up = "mlp.fc1", down = "mlp.fc2", ffn_norm = "norm2" },
    set = function(config, c, positions, _, head)
      c.rope = hf.rope(config, c.hidden // c.heads, positions, nil, { theta = 20000.0 })
      if c.outputs then first_token(c, "classifier.dense", "tanh", "classifier.out_proj")
      else pooler(config, c, head, "pooler.dense") end
    end,
  },
  -- Short texts see all of themselves, as in transformers; longer ones have blocks that are drawn
  BigBird = {
    prefixes = { "bert." }, classifies = true, activation = "gelu_new", sizes = base,
    dropped = { "cls.", "classifier.", "pooler.", "bert.pooler." }, names = { positions = "embeddings.position_embeddings" },
    refused = { ForQuestionAnswering = "the layer of its answers is not computed" },
    longest = function(config, positions)
      local size, drawn = config:count("block_size", 1, 2 ^ 20, 64), config:count("num_random_blocks", 0, 2 ^ 20, 3)
      local full = config:word("attention_type", { block_sparse = false, original_full = true }, "block_sparse")
      return full and positions or math.min(positions, (5 + 2 * drawn) * size)
    end,
    set = function(config, c, positions, _, head)
      bert_positions(config, c, positions)
      c.qkv_bias = config:flag("use_bias", true)
      config:only("rescale_embeddings", "false", false)
      if c.outputs then
        first_token(c, "classifier.dense", config:word("hidden_act", hf.activations, "gelu_new"), "classifier.out_proj")
      else pooler(config, c, head, "pooler") end
    end,
  },
  -- Windows alone: no token sees all of the text
  Longformer = {
    prefixes = { "longformer." }, classifies = true, sizes = base, names = { positions = "embeddings.position_embeddings" },
    refused = { ForSequenceClassification = "a first token that sees all of the text is not computed",
                ForQuestionAnswering = "questions that see all of the text are not computed" },
    set = function(config, c, positions, _, head)
      bert_positions(config, c, positions, config:count("pad_token_id", 0, 2 ^ 24, 1) + 1)
      c.windows, c.unused = longformer(config, c.layers, "encoder.layer.*.attention.self.")
      config:value("onnx_export")
      pooler(config, c, head, "pooler.dense")
    end,
  },
  Gte = { prefixes = { "gte.", "new." }, classifies = true, positions = 8192, types = 1, names = gte_names,
          set = gte(160000.0) },
  New = { prefixes = { "new." }, classifies = true, positions = 2048, types = 1, names = gte_names, set = gte(10000.0) },
  -- The names of a layer's tensors end with its number
  XLM = {
    prefixes = { "transformer." }, classifies = true, sizes = { hidden = 2048, layers = 12, heads = 16 },
    dropped = { "pred_layer.", "sequence_summary.", "classifier.", "qa_outputs." },
    fields = { hidden = "emb_dim", layers = "n_layers", heads = "n_heads", ffn = false, activation = false, types = false },
    names = { embedding = "embeddings", positions = "position_embeddings", embedding_norm = "layer_norm_emb", layers = false,
              q = "attentions.%d.q_lin", k = "attentions.%d.k_lin", v = "attentions.%d.v_lin", out = "attentions.%d.out_lin",
              attention_norm = "layer_norm1.%d", up = "ffns.%d.lin1", down = "ffns.%d.lin2", ffn_norm = "layer_norm2.%d" },
    refused = { ForQuestionAnswering = "answers that are searched for are not computed" },
    before = function(config)
      if config.values.vocab_size == nil then config.values.vocab_size = config:value("n_words") end
    end,
    set = function(config, c, positions)
      c.positions, c.ffn = positions, 4 * c.hidden
      c.activation = config:flag("gelu_activation", true) and "gelu_erf" or "relu"
      c.norm_first = config:flag("pre_norm", false)
      c.unused = { "lang_embeddings.weight", "position_ids" }
      config:only("causal", "false", false)
      config:only("is_encoder", "true", true)
      config:only("n_words", "the value of vocab_size", c.vocab)
      for _, name in ipairs { "asm", "embed_init_std", "end_n_top", "lang2id", "id2lang", "lang_id", "langs", "mask_index",
                              "mask_token_id", "max_vocab", "min_count", "n_langs", "same_enc_dec", "share_inout_emb",
                              "sinusoidal_embeddings", "start_n_top", "unk_index", "use_lang_emb", "bos_index", "eos_index",
                              "pad_index" } do config:value(name) end
      for _, name in ipairs { "amp", "bptt", "clip_grad_norm", "encoder_only", "fp16", "group_by_size", "lg_sampling_factor", "lgs",
                              "mlm_steps", "sample_alpha", "tokens_per_batch", "use_apex", "word_blank", "word_dropout", "word_keep",
                              "word_mask", "word_mask_keep_rand", "word_pred", "word_rand", "word_shuffle" } do
        config:value(name)                                          -- of training
      end
      if not c.outputs then return end
      config:only("summary_type", "first: other vectors of a text are not made", "first")
      config:only("summary_use_proj", "true", true)
      config:only("summary_proj_to_labels", "true", true)
      config:only("summary_activation", "null")
      c.pooling, c.names.output = "first", "sequence_summary.summary"
    end,
  },
  CLIPText = {
    prefixes = { "text_model." }, eps = 1e-5, activation = "quick_gelu", positions = 77, fields = { types = false },
    names = {
      embedding = "embeddings.token_embedding", positions = "embeddings.position_embedding", embedding_norm = false,
      layers = "encoder.layers.", attention_norm = "layer_norm1", q = "self_attn.q_proj", k = "self_attn.k_proj",
      v = "self_attn.v_proj", out = "self_attn.out_proj", ffn_norm = "layer_norm2", up = "mlp.fc1", down = "mlp.fc2",
      final_norm = "final_layer_norm", output = "text_projection",
    },
    set = function(config, c, positions, _, head)
      c.positions, c.norm_first, c.causal, c.pooling = positions, true, true, "id"
      -- Files of the first versions say 2 in place of the true end id, which is the largest of all.
      c.end_id = config:count("eos_token_id", 0, 2 ^ 31 - 1, 49407)
      if c.end_id == 2 then c.end_id = -1 end
      config:value("projection_dim") -- CLIPTextModel has no projection
      if head == "ModelWithProjection" then
        c.outputs, c.output_bias = config:count("projection_dim", 1, 2 ^ 20, 512), false
      end
    end,
  },
}

-- head: what follows the class's name in that of the architecture: see lib/checkout.lua
local function read(config, class, head)
  if class.before then class.before(config) end
  local older = class.older.hidden and config.values[class.older.hidden] ~= nil
  local field = older and setmetatable({}, { __index = function(_, k) return rawget(class.older, k) or class.fields[k] end })
    or class.fields
  local positions = config:count(field.positions, 1, 2 ^ 24, class.positions)
  local classifier, of_tokens = head == "ForSequenceClassification", rawget(hf.token_heads, head)
  local c = {
    vocab = config:count("vocab_size", 2, 2 ^ 24),
    hidden = config:count(field.hidden, 1, 2 ^ 17, class.sizes.hidden),
    layers = config:count(field.layers, 1, 1024, class.sizes.layers),
    heads = config:count(field.heads, 1, 1024, class.sizes.heads),
    ffn = field.ffn and config:count(field.ffn, 1, 2 ^ 20, class.sizes.ffn) or 1, -- else set() has it
    types = field.types and config:count(field.types, 0, 1024, class.types) or 0,
    norm_eps = field.eps and config:number(field.eps, 1e-30, 1, class.eps) or class.eps,
    prefixes = class.prefixes,
    dropped = class.dropped,
    names = setmetatable({}, { __index = class.names }),
    windows = {},
    outputs = classifier and hf.labels(config) or nil,
  }
  if c.hidden % c.heads ~= 0 then config:refuse(field.heads, "a divisor of " .. field.hidden .. " " .. c.hidden) end
  if not older and field.activation then c.activation = config:word(field.activation, class.activations, class.activation) end
  config:only("is_decoder", "false", false)
  config:only("is_causal", "false", false)
  class.set(config, c, positions, older or false, head)
  local longest = class.longest and class.longest(config, positions) or positions
  local model = { encoder = true, positions = longest - (c.first_position or 0) }
  if classifier then hf.classifier(config, model) end
  if of_tokens then
    hf.token_classifier(config, head, model)
    c.pooling, c.outputs, c.names.output = "tokens", #model.labels, rawget(c.names, "output") or of_tokens
  end
  config:known(harmless)
  model.graph = encoder(c)
  return model
end

-- A function of config and head for each beginning of a name; nil: the head is not read.
local readers = {}
classes.Flaubert = classes.XLM
classes.XLMRoberta, classes.Camembert = classes.Roberta, classes.Roberta
classes.Data2VecText = {
  prefixes = { "data2vec_text." }, classifies = true, sizes = base, names = classes.Roberta.names, set = classes.Roberta.set,
}
classes.RobertaPreLayerNorm = {
  prefixes = { "roberta_prelayernorm." }, classifies = true, sizes = base, set = classes.XLMRobertaXL.set,
  names = { positions = "embeddings.position_embeddings", attention_norm = "attention.LayerNorm",
            ffn_norm = "intermediate.LayerNorm", final_norm = "LayerNorm" },
}
classes.DPRQuestion = {
  prefixes = { "question_encoder.bert_model." }, dropped = { "question_encoder.bert_model.pooler.", "pooler." }, sizes = base,
  names = classes.DPRContext.names, set = classes.DPRContext.set,
}
for name, class in pairs(classes) do
  setmetatable(class, { __index = bert })
  if class.fields ~= bert.fields then setmetatable(class.fields, { __index = bert.fields }) end
  if class.names ~= bert.names then setmetatable(class.names, { __index = bert.names }) end
  readers[name] = function(config, head)
    if head ~= "ModelWithProjection" and not class.classifies then head = "Model" end
    local why = class.refused and rawget(class.refused, head)
    if why then ftx.refuse(config.path, string.format("architectures: %s%s: %s; -D pooling=none reads the model without it", name, head, why)) end
    return read(config, class, head)
  end
end
return readers
