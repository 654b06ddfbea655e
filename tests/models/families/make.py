#!/usr/bin/env python3
"""make.py - one file for each case: a small random model of a class of transformers, and what it computes.

    python3 -m venv /tmp/families && /tmp/families/bin/pip install torch transformers
    /tmp/families/bin/python tests/models/families/make.py [NAME...]      # from the top folder

The numbers of a tensor come from a counter: number i depends on the tensor's name and i alone. The test has the same
generator (../lora/adapters.h), so a file holds config.json, names and shapes of the tensors, the logits after two
prompts, and 20 greedy tokens with their margins; of an encoder the vectors of two texts. `packed` says how; twin.h reads it. All is computed in fp32 by the model as loaded back from disk. Names
with "-old" have config.json as older versions of transformers wrote it."""
import copy, functools, json, pathlib, shutil, sys, tempfile
import numpy, torch, transformers
from safetensors import safe_open
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from drawn import numbers
import chatglm, foreign
import baichuan  # transformers.BaichuanForCausalLM
import jina  # transformers.JinaBertModel
import mpt  # transformers.MPTForCausalLM

HERE = pathlib.Path("tests/models/families")
PROMPTS = [[7], [3, 61, 24, 90, 11, 45, 8, 77, 30, 2, 52, 19, 66]]
TOKENS = 20

COMMON = dict(vocab_size=101, bos_token_id=1, eos_token_id=2, pad_token_id=0, dtype="float32")
SIZES = dict(COMMON, hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=88,
             max_position_embeddings=72)
GQA = dict(SIZES, hidden_size=56, num_attention_heads=6, num_key_value_heads=2, head_dim=24)

EVEN = dict(GQA, hidden_size=48)  # a multiple of the heads


def rope(theta, partial=None, **more):
    p = {"rope_type": "default", "rope_theta": theta, **more}
    return dict(rope_parameters=p if partial is None else {**p, "partial_rotary_factor": partial})


def without(*names):
    return dict.fromkeys(names)


LLAMA3 = rope(700.0, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
LONGROPE = rope(900.0, 0.75, rope_type="longrope", short_factor=[1 + i / 9 for i in range(9)],
                long_factor=[1.5 + i for i in range(9)])
IN_FP32 = ["attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"]
WINDOW = ["max_window_layers", "sliding_window", "use_sliding_window"]

# Falcon's eager attention adds ALiBi twice in this version of transformers.
ATTENTION = {"Falcon": "sdpa"}
YARN = rope(900.0, rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=16)
LATENT = dict(SIZES, num_key_value_heads=3, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
              n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=2,
              first_k_dense_replace=1)
LATENT_YARN = rope(900.0, rope_type="yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.4,
                   original_max_position_embeddings=16)

MOE_ = dict(GQA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20)
LATENT_A = {k: v for k, v in dict(LATENT, q_lora_rank=20).items() if k != "first_k_dense_replace"}
MTP = ["mtp_layer_types", "mtp_mlp_layer_types", "num_mtp_layers", "num_nextn_predict_layers"]
MOE_LONGROPE = dict(rope_type="longrope", rope_theta=900.0, original_max_position_embeddings=72, short_mscale=1.2, long_mscale=1.7,
                    short_factor=[1 + i / 9 for i in range(12)], long_factor=[1.5 + i for i in range(12)])
TWO_ROPES_ = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3e3},
              "sliding_attention": {"rope_type": "default", "rope_theta": 40.0}}

PARTIAL_ROPES = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 2e3},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 40.0, "partial_rotary_factor": 0.25}}
SARVAM = {"architectures": ["SarvamMoEForCausalLM"], "router_dtype": "fp32", "score_function": "sigmoid", "use_bias": False}
CLS = ["cls_token_id", "initializer_cutoff_factor", "mlp_dropout"]
INDEX = ["index_head_dim", "index_n_heads", "indexer_types", "num_nextn_predict_layers"]
MIMO = ["num_nextn_predict_layers"]

# Names of checkpoints of classes that read images, as some versions of transformers write them.
NEWER = {"language_model.model.": "model.language_model.", "language_model.lm_head.": "lm_head.",
         "vision_tower.": "model.vision_tower.", "multi_modal_projector.": "model.multi_modal_projector."}

# of Pixtral, SigLIP and Llama 4; no text depends on it
VISION = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)

# of CLIP and SigLIP; of Qwen's own; names of their checkpoints before transformers 5
CLIP = dict(VISION, model_type="clip_vision_model")
SIGLIP = dict(VISION, model_type="siglip_vision_model")
QWEN_VISION = dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=4, out_hidden_size=48)
OLDER = {new: old for old, new in NEWER.items()}
QWEN_OLDER = {"model.language_model.": "model.", "model.visual.": "visual."}
MROPE = rope(3e3, mrope_section=[2, 3, 3])["rope_parameters"]

GLM_VISION = dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=4, out_hidden_size=48, image_size=16)
SIGLIP_ = dict(VISION, model_type="paddleocr_vl_vision")
WHISPER = dict(d_model=32, hidden_size=32, intermediate_size=128, num_attention_heads=2, encoder_attention_heads=2, encoder_ffn_dim=40,
               num_hidden_layers=1, encoder_layers=1, num_mel_bins=8, max_source_positions=8)
MROPE_ALONE = {"rope_type": "default", "mrope_section": [2, 3, 3]}
QWEN_AUDIO = dict(d_model=32, encoder_attention_heads=2, encoder_ffn_dim=40, encoder_layers=1, num_mel_bins=8,
                  max_source_positions=8, output_dim=48)
QWEN3_AUDIO = dict(QWEN_AUDIO, output_dim=56, downsample_hidden_size=8)
OLDER_AUDIO = {"model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head.",
               "model.audio_tower.": "audio_tower.", "model.multi_modal_projector.": "multi_modal_projector."}

# Fields beside text_config that no text depends on.
IMAGES = [
    "adapter_layer_norm_eps", "alignment_intermediate_size", "audio_end_token_id", "audio_start_token_id",
    "audio_token_id", "audio_token_index", "downsample_factor", "downsample_ratio", "ignore_index", "image_end_token_id",
    "image_grid_pinpoints", "image_seq_length", "image_start_token_id", "image_token_id", "mrope_interleaved",
    "mrope_section", "position_id_per_seconds", "projection_hidden_size", "projection_layer_norm_eps", "projector_bias",
    "projector_layernorm_eps", "scale_factor", "seconds_per_chunk", "spatial_pool_mode", "spatial_pool_stride",
    "timestamp_token_id", "token_classification_bias", "use_image_newline_parameter", "user_token_id",
    "video_end_token_id", "video_seq_length", "video_start_token_id", "video_token_id", "video_token_index",
    "vision_aspect_ratio", "vision_end_token_id", "vision_feature_select_strategy", "vision_start_token_id",
    "vision_token_id", "visual_indicator_token_ids",
]

PALIGEMMA = ["num_image_tokens", "projection_dim", "image_token_index"]
GEMMA4 = ["moe_intermediate_size", "num_experts", "top_k_experts"]  # without experts

# of MosaicML's own code
MPT_ATTENTION = dict(attn_type="multihead_attention", attn_pdrop=0.0, attn_impl="torch", qk_ln=False, clip_qkv=None,
                     softmax_scale=None, prefix_lm=False, attn_uses_sequence_id=False, alibi=False, alibi_bias_max=8,
                     kv_n_heads=3, rope=False, sliding_window_size=-1)
MPT = dict(COMMON, d_model=48, n_heads=3, n_layers=2, max_seq_len=72, expansion_ratio=4, attn_config=MPT_ATTENTION,
           ffn_config=dict(ffn_type="mptmlp"), fc_type="torch", learned_pos_emb=True, no_bias=True, embedding_fraction=1.0,
           norm_type="low_precision_layernorm", layer_norm_epsilon=1e-3, logit_scale=None)
MPT_IDLE = ["attn_impl", "attn_pdrop", "embedding_fraction"]

# of layers that a model without them does not have
MAMBA = ["mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head", "mamba_d_state", "mamba_expand", "mamba_n_groups",
         "mamba_n_heads", "mamba_proj_bias", "time_step_limit"]

DBRX = (dict(kv_n_heads=3), dict(ffn_hidden_size=20, moe_num_experts=5, moe_jitter_eps=0.01, moe_loss_weight=0.05),
        dict(ffn_hidden_size=20, moe_num_experts=4, moe_top_k=2, moe_normalize_expert_weights=None, ffn_act_fn=dict(name="gelu")))

# of the first GPT; of its other head
GPT = dict(COMMON, n_embd=48, n_layer=2, n_head=3, n_positions=72)
SUMMARY = ["summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"]

# without positions in its file
BAICHUAN_13B = dict(COMMON, hidden_size=96, num_hidden_layers=2, num_attention_heads=6, intermediate_size=88, model_max_length=72)

# of layers that keep a state: settings of gated delta nets and of Mamba
DELTA = dict(linear_key_head_dim=16, linear_value_head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6)
SSM = dict(mamba_n_heads=6, mamba_d_head=16, mamba_d_state=24, mamba_n_groups=2)
LINEAR = ["linear_attention", "full_attention"]

# fields that change nothing: of pieces of prompts, of training; of experts in a model that has none
BAMBA = ["mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"]
FALCON_H1 = ["mamba_chunk_size", "num_logits_to_keep"]
NEMOTRON_H = ["chunk_size", "expand", "mamba_proj_bias", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap", "mtp_layers_block_type",
              "n_shared_experts", "num_logits_to_keep", "num_nextn_predict_layers", "rescale_prenorm_residual", "residual_in_fp32",
              "time_step_floor", "time_step_limit", "time_step_max", "use_mamba_kernels"]
NO_EXPERTS = ["moe_intermediate_size", "moe_latent_size", "moe_shared_expert_intermediate_size", "n_group", "n_routed_experts",
              "norm_topk_prob", "num_experts_per_tok", "routed_scaling_factor", "topk_group"]
STATE_SPACE = dict(hidden_size=48, num_hidden_layers=2, state_size=24, expand=3)
MAMBA_IDLE = ["rescale_prenorm_residual", "residual_in_fp32", "time_step_floor", "time_step_init_scheme", "time_step_max",
              "time_step_min", "time_step_scale", "use_associative_scan", "use_falcon_mambapy", "use_mambapy"]
MAMBA2_IDLE = ["chunk_size", "rms_norm", "time_step_rank"]
JAMBA = ["use_mamba_kernels", "num_logits_to_keep"]
OLMO_HYBRID = ["linear_a_log_max", "linear_a_log_min", "linear_dt_init_floor", "linear_dt_max", "linear_dt_min"]


NULL = object()

# name: class, settings, changes of config.json (None: the field is removed; NULL: it is null), fields that others turn off
CASES = {
    "qwen2": ("Qwen2", dict(GQA, **rope(1e6), rms_norm_eps=1e-3, sliding_window=None), {}, WINDOW),
    "qwen2-window": ("Qwen2", dict(GQA, **LLAMA3, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5,
                                   max_window_layers=1), without("layer_types")),
    "qwen2-old": ("Qwen2", dict(SIZES, num_attention_heads=2, num_key_value_heads=1, hidden_act="gelu"),
                  {"rope_parameters": None, "rope_theta": 300.0, 
                   **without("head_dim", "layer_types", "architectures", "tie_word_embeddings", "rms_norm_eps")},
                  WINDOW),
    "qwen3": ("Qwen3", dict(GQA, **rope(1e6), rms_norm_eps=1e-3), without("sliding_window"), WINDOW),
    "qwen3-wide": ("Qwen3", dict(GQA, head_dim=264, num_attention_heads=4, **rope(1e6), use_sliding_window=True,
                                 sliding_window=5, max_window_layers=1), without("layer_types")),
    "qwen3-window": ("Qwen3", dict(GQA, **LLAMA3, attention_bias=True, tie_word_embeddings=True, use_sliding_window=True,
                                   sliding_window=5, max_window_layers=1),
                     without("layer_types", "rms_norm_eps")),
    "olmo2": ("Olmo2", dict(SIZES, num_key_value_heads=1, **rope(5e5), rms_norm_eps=1e-3), {}),
    "olmo2-bias": ("Olmo2", dict(SIZES, num_attention_heads=2, attention_bias=True, tie_word_embeddings=True),
                   {"rope_parameters": None, "rope_theta": 300.0, **without("num_key_value_heads", "rms_norm_eps")}),
    "olmo3": ("Olmo3", dict(SIZES, num_hidden_layers=3, num_key_value_heads=1, rms_norm_eps=1e-3, sliding_window=5,
                            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                            rope_parameters={"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3e3},
                                             "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}}), {}),
    "olmo3-old": ("Olmo3", dict(SIZES, num_hidden_layers=5, num_attention_heads=2, attention_bias=True, sliding_window=4,
                                tie_word_embeddings=True),
                  {"rope_parameters": None, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0},
                   **without("layer_types", "num_key_value_heads", "rms_norm_eps")}),
    "exaone4": ("Exaone4", dict(GQA, num_hidden_layers=3, **rope(1e4), sliding_window=5, sliding_window_pattern=2,
                                rms_norm_eps=1e-3), without("layer_types")),
    "exaone4-full": ("Exaone4", dict(SIZES, num_key_value_heads=3, sliding_window=None, layer_types=["full_attention"] * 2,
                                     tie_word_embeddings=True), without("rms_norm_eps"), ["sliding_window_pattern"]),
    "gemma3": ("Gemma3", dict(GQA, num_hidden_layers=3, num_attention_heads=4, sliding_window=5, query_pre_attn_scalar=40,
                              rms_norm_eps=1e-3, final_logit_softcapping=4.0,
                              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                              rope_parameters={"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3e3},
                                               "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}}),
               without("_sliding_window_pattern", "sliding_window_pattern")),
    "gemma3-old": ("Gemma3", dict(GQA, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                                  sliding_window=4, sliding_window_pattern=2, attention_bias=True,
                                  tie_word_embeddings=False),
                   {"sliding_window_pattern": 2, "rope_theta": 4000.0, "rope_local_base_freq": 300.0,
                    "rope_scaling": {"rope_type": "linear", "factor": 4.0},
                    **without("layer_types", "rope_parameters", "_sliding_window_pattern", "query_pre_attn_scalar",
                              "rms_norm_eps", "hidden_activation")}),
    "bloom": ("Bloom", dict(COMMON, hidden_size=96, n_layer=2, n_head=6, layer_norm_epsilon=1e-3), {},
              ["pretraining_tp", "slow_but_exact"]),
    "bloom-untied": ("Bloom", dict(COMMON, hidden_size=64, n_layer=2, n_head=4, tie_word_embeddings=False),
                     without("layer_norm_epsilon"), ["pretraining_tp", "slow_but_exact"]),
    "bloom-old": ("Bloom", dict(COMMON, hidden_size=64, n_layer=2, n_head=4),
                  {**without("hidden_size", "n_layer", "n_head", "slow_but_exact", "tie_word_embeddings"),
                   "n_embed": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "bias_dropout_fusion": True,
                   "masked_softmax_fusion": True, "offset_alibi": 100, "skip_bias_add": True,
                   "skip_bias_add_qkv": False, "unk_token_id": 0},
                  ["pretraining_tp", "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi", "skip_bias_add",
                   "unk_token_id"]),
    "ministral": ("Ministral", dict(GQA, **rope(5e5), sliding_window=6,
                                    layer_types=["full_attention", "sliding_attention"]), {}),
    "phi3": ("Phi3", dict(SIZES, num_attention_heads=2, num_key_value_heads=1, sliding_window=7, **rope(900.0, 0.75),
                          rms_norm_eps=1e-2), {}),
    "phi3-tied": ("Phi3", dict(SIZES, num_attention_heads=3, num_key_value_heads=3, tie_word_embeddings=True,
                               **rope(1e4)), without("rms_norm_eps", "sliding_window", "hidden_act")),
    "glm": ("Glm", dict(GQA, **rope(2e4, 0.5), rms_norm_eps=1e-3), {}),
    "glm-old": ("Glm", dict(SIZES, num_attention_heads=4, attention_bias=False, tie_word_embeddings=True),
                {"rope_parameters": None, "rope_theta": 300.0,
                 **without("num_key_value_heads", "head_dim", "rms_norm_eps", "hidden_act")}),
    "glm4": ("Glm4", dict(GQA, **rope(2e4, 0.25), rms_norm_eps=1e-3), {}),
    "granite": ("Granite", dict(SIZES, num_key_value_heads=1, **rope(4e3), attention_multiplier=0.15,
                                embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.5,
                                tie_word_embeddings=True), {}),
    "granite-bias": ("Granite", dict(SIZES, num_key_value_heads=3, **rope(1e4), attention_bias=True, mlp_bias=True),
                     without("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
                             "rms_norm_eps")),
    "stablelm": ("StableLm", dict(SIZES, hidden_size=64, num_attention_heads=2, num_key_value_heads=1, use_qkv_bias=True,
                                  layer_norm_eps=1e-3, **rope(1e4, 0.25)),
                 without("use_parallel_residual", "tie_word_embeddings")),
    "stablelm-parallel": ("StableLm", dict(SIZES, hidden_size=64, num_attention_heads=2, num_key_value_heads=2,
                                           use_parallel_residual=True, tie_word_embeddings=True),
                          {"rope_parameters": None, "rope_theta": 300.0,
                           **without("use_qkv_bias", "layer_norm_eps")}),
    "stablelm-norms": ("StableLm", dict(SIZES, hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
                                        use_parallel_residual=True, qk_layernorm=True, layer_norm_eps=1e-3,
                                        **rope(1e4, 0.25)), {}),
    "starcoder2": ("Starcoder2", dict(SIZES, num_attention_heads=2, sliding_window=6, norm_epsilon=1e-3, **rope(1e5)),
                   without("num_key_value_heads", "use_bias", "tie_word_embeddings", "hidden_act")),
    "starcoder2-plain": ("Starcoder2", dict(SIZES, num_key_value_heads=3, use_bias=False, tie_word_embeddings=False,
                                            hidden_act="gelu", **rope(1e4)), without("norm_epsilon")),
    "phi": ("Phi", dict(SIZES, hidden_size=80, num_attention_heads=2, num_key_value_heads=1, layer_norm_eps=1e-3,
                        **rope(1e4, 0.4)), {}),
    "phi-old": ("Phi", dict(SIZES, hidden_act="relu", num_attention_heads=3),
                {"rope_parameters": None, "rope_theta": 300.0,
                 **without("num_key_value_heads", "layer_norm_eps", "tie_word_embeddings")}),
    "phi-norms": ("Phi", dict(SIZES, num_attention_heads=3, num_key_value_heads=1, qk_layernorm=True, layer_norm_eps=1e-3,
                              **rope(700.0, 0.5)), {}),
    "gptj": ("GPTJ", dict(COMMON, n_embd=72, n_layer=2, n_head=3, n_inner=100, n_positions=72, rotary_dim=8,
                          layer_norm_epsilon=1e-3), without("activation_function", "tie_word_embeddings")),
    "gptj-old": ("GPTJ", dict(COMMON, n_embd=48, n_layer=2, n_head=2, n_positions=72, rotary_dim=24,
                              activation_function="gelu"), without("n_inner", "layer_norm_epsilon")),
    "gpt-neox": ("GPTNeoX", dict(SIZES, hidden_size=72, **rope(3e3, 0.5), layer_norm_eps=1e-3),
                 without("use_parallel_residual", "attention_bias", "tie_word_embeddings", "hidden_act")),
    "gpt-neox-old": ("GPTNeoX", dict(SIZES, hidden_size=64, num_attention_heads=4, use_parallel_residual=False,
                                     attention_bias=False, tie_word_embeddings=True, hidden_act="gelu_new"),
                     {"rope_parameters": None, "rotary_pct": 0.5, "rotary_emb_base": 500, "rope_theta": 500,
                      "partial_rotary_factor": 0.5}),
    "falcon-7b": ("Falcon", dict(SIZES, ffn_hidden_size=88, **rope(1e4), layer_norm_epsilon=1e-3),
                  without("intermediate_size", "multi_query", "parallel_attn", "bias", "tie_word_embeddings"),
                  ["num_kv_heads"]),
    "falcon-40b": ("Falcon", dict(SIZES, hidden_size=96, num_attention_heads=6, num_kv_heads=2, bias=True,
                                  new_decoder_architecture=True, tie_word_embeddings=False, **rope(2e4)),
                   without("intermediate_size", "ffn_hidden_size", "num_ln_in_parallel_attn"), ["multi_query"]),
    "falcon-11b": ("Falcon", dict(SIZES, hidden_size=64, num_attention_heads=4, num_kv_heads=2,
                                  new_decoder_architecture=True, num_ln_in_parallel_attn=1, **rope(2e4)),
                   without("intermediate_size"), ["multi_query"]),
    "falcon-plain": ("Falcon", dict(SIZES, multi_query=False, parallel_attn=False, bias=True, activation="gelu_new"),
                     {"rope_theta": 400.0,
                      **without("intermediate_size", "rope_parameters", "layer_norm_epsilon", "alibi")},
                     ["num_kv_heads"]),
    "qwen2-yarn": ("Qwen2", dict(GQA, sliding_window=None, **rope(1e4, rope_type="yarn", factor=4.0, beta_fast=4.0,
                                                       truncate=False, original_max_position_embeddings=256)), {}, WINDOW),
    "phi3-long": ("Phi3", dict(SIZES, num_attention_heads=2, sliding_window=None, original_max_position_embeddings=8,
                               **LONGROPE), without("num_key_value_heads"), (), [PROMPTS[1], PROMPTS[1][:9]]),
    "phi3-short": ("Phi3", dict(SIZES, num_attention_heads=2, sliding_window=None, original_max_position_embeddings=72,
                                **LONGROPE), without("num_key_value_heads")),
    "gemma": ("Gemma", dict(GQA, rms_norm_eps=1e-3, attention_bias=True, tie_word_embeddings=False, **rope(3e3)), {}),
    "gemma-wide": ("Gemma", dict(GQA, head_dim=512, num_attention_heads=3, num_key_value_heads=1, **rope(3e3)), {}),
    "gemma-old": ("Gemma", dict(SIZES, hidden_size=16, num_attention_heads=16),
                  {"rope_parameters": None, "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh",
                   **without("num_key_value_heads", "head_dim", "rms_norm_eps", "tie_word_embeddings")}),
    "gemma2": ("Gemma2", dict(SIZES, num_attention_heads=6, num_key_value_heads=2, head_dim=24, rms_norm_eps=1e-3,
                              query_pre_attn_scalar=40, sliding_window=5, attn_logit_softcapping=3.0,
                              final_logit_softcapping=2.0, hidden_activation="gelu", **rope(3e3)),
               {"layer_types": None}),
    "gemma2-plain": ("Gemma2", dict(SIZES, num_attention_heads=4, head_dim=256, attn_logit_softcapping=None,
                                    attention_bias=True, layer_types=["full_attention", "sliding_attention"],
                                    sliding_window=6, tie_word_embeddings=False),
                     without("num_key_value_heads", "head_dim", "query_pre_attn_scalar", "final_logit_softcapping",
                             "hidden_activation", "rms_norm_eps")),
    "vaultgemma": ("VaultGemma", dict(GQA, hidden_size=48, rms_norm_eps=1e-3, query_pre_attn_scalar=40, sliding_window=5,
                                      attn_logit_softcapping=3.0, final_logit_softcapping=2.0, hidden_activation="gelu",
                                      tie_word_embeddings=False, **rope(3e3)), {"layer_types": None}),
    "vaultgemma-plain": ("VaultGemma", dict(SIZES, num_attention_heads=4, head_dim=256, attn_logit_softcapping=None,
                                            attention_bias=True, layer_types=["full_attention", "sliding_attention"],
                                            sliding_window=6),
                         without("num_key_value_heads", "head_dim", "query_pre_attn_scalar", "final_logit_softcapping",
                                 "hidden_activation", "rms_norm_eps", "tie_word_embeddings")),
    "gemma4": ("Gemma4", dict(GQA, num_hidden_layers=4, intermediate_size=52, sliding_window=5, rms_norm_eps=1e-3,
                              global_head_dim=40, num_global_key_value_heads=1, attention_k_eq_v=True,
                              layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2,
                              use_double_wide_mlp=True, vocab_size_per_layer_input=104, hidden_size_per_layer_input=12,
                              final_logit_softcapping=2.0), {}, GEMMA4),
    "gemma4-shared": ("Gemma4", dict(GQA, num_hidden_layers=3, sliding_window=5, num_kv_shared_layers=1,
                                     vocab_size_per_layer_input=101, hidden_size_per_layer_input=9,
                                     layer_types=["full_attention", "sliding_attention", "full_attention"],
                                     per_layer_config={i: dict(head_dim=16, num_key_value_heads=3) for i in (0, 2)},
                                     rope_parameters={
                                         "full_attention": {"rope_type": "proportional", "rope_theta": 3e3,
                                                            "partial_rotary_factor": 0.5, "factor": 2.0},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}}),
                      {}, GEMMA4, PROMPTS, {},
                      {f"model.layers.2.self_attn.{n}.weight": shape for n, shape in
                       dict(k_proj=[48, 56], v_proj=[48, 56], k_norm=[16]).items()}),
    "gemma4-images": ("Gemma4ForConditionalGeneration",
                      dict(text_config=dict(GQA, num_hidden_layers=3, sliding_window=5, num_kv_shared_layers=1, rms_norm_eps=1e-3,
                                            vocab_size_per_layer_input=101, hidden_size_per_layer_input=9, global_head_dim=40,
                                            layer_types=["full_attention", "sliding_attention", "full_attention"]),
                           vision_config=dict(VISION, num_key_value_heads=2, head_dim=16), audio_config=None,
                           dtype="float32", eos_token_id=2),
                      without("text_config.tie_word_embeddings"),
                      GEMMA4 + ["audio_config", "audio_token_id", "boa_token_id", "boi_token_id", "eoa_token_index",
                                "eoi_token_id", "image_token_id", "video_token_id"]),
    "gemma3n": ("Gemma3n", dict(GQA, num_attention_heads=4, num_hidden_layers=4, intermediate_size=[52, 36, 52, 44],
                                activation_sparsity_pattern=[0.9, 0.0, 0.6, 0.0], sliding_window=5, rms_norm_eps=1e-3,
                                layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2,
                                altup_num_inputs=3, altup_active_idx=1, laurel_rank=12, hidden_size_per_layer_input=16,
                                vocab_size_per_layer_input=90, final_logit_softcapping=4.0,
                                rope_parameters={"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3e3},
                                                 "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}}),
                {}, ["altup_coef_clip"]),
    "gemma3n-plain": ("Gemma3n", dict(GQA, num_attention_heads=2, num_hidden_layers=6, intermediate_size=40,
                                      num_kv_shared_layers=0, sliding_window=6, altup_correct_scale=False, laurel_rank=10,
                                      hidden_size_per_layer_input=12, vocab_size_per_layer_input=101, attention_bias=True,
                                      final_logit_softcapping=9.0, tie_word_embeddings=False),
                      {"intermediate_size": 40, "rope_parameters": None, "rope_theta": 4000.0, "rope_local_base_freq": 300.0,
                       **without("layer_types", "activation_sparsity_pattern", "altup_num_inputs", "altup_active_idx",
                                 "rms_norm_eps", "hidden_activation")}, ["altup_coef_clip"]),
    "gemma4-old": ("Gemma4", dict(GQA, num_attention_heads=4, sliding_window=6, hidden_size_per_layer_input=0,
                                  attention_bias=True, tie_word_embeddings=False, hidden_activation="gelu",
                                  global_head_dim=264, num_global_key_value_heads=1),
                   {"per_layer_config": None, "global_head_dim": 264, "num_global_key_value_heads": 1,
                    **without("rope_parameters", "layer_types", "rms_norm_eps", "attention_k_eq_v",
                              "num_kv_shared_layers")},
                   GEMMA4 + ["num_global_key_value_heads", "use_double_wide_mlp", "vocab_size_per_layer_input"]),
    "olmo": ("Olmo", dict(SIZES, num_key_value_heads=1, tie_word_embeddings=True, **rope(3e3)), {}),
    "olmo-bias": ("Olmo", dict(SIZES, attention_bias=True, **rope(1e4, rope_type="linear", factor=3.0)),
                  without("num_key_value_heads", "tie_word_embeddings", "hidden_act")),
    "cohere": ("Cohere", dict(SIZES, num_key_value_heads=1, logit_scale=0.3, layer_norm_eps=1e-3, attention_bias=True,
                              tie_word_embeddings=False, **rope(1e4)), {}),
    "cohere-old": ("Cohere", dict(SIZES), {"rope_parameters": None, **without(
        "num_key_value_heads", "logit_scale", "layer_norm_eps", "tie_word_embeddings")}),
    "cohere-norms": ("Cohere", dict(SIZES, num_key_value_heads=1, head_dim=24, use_qk_norm=True, layer_norm_eps=1e-3, **rope(1e4)), {}),
    "cohere2": ("Cohere2", dict(SIZES, num_key_value_heads=1, logit_scale=0.3, sliding_window=5, **rope(1e4),
                                head_dim=24, layer_types=["sliding_attention", "full_attention"]), {}),
    "cohere2-old": ("Cohere2", dict(SIZES, sliding_window=6, sliding_window_pattern=2),
                    {"rope_parameters": None, "sliding_window_pattern": 2,
                     **without("layer_types", "head_dim", "tie_word_embeddings", "layer_norm_eps")}),
    "nemotron": ("Nemotron", dict(GQA, norm_eps=1e-3, **rope(3e3, 0.25)), {}),
    "nemotron-bias": ("Nemotron", dict(SIZES, num_key_value_heads=3, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                       hidden_act="silu", **rope(1e4, 0.5, rope_type="dynamic", factor=4.0)),
                      {"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 4.0},
                       **without("norm_eps", "head_dim")}, ["factor"]),
    "smollm3": ("SmolLM3", dict(SIZES, num_attention_heads=4, hidden_size=64, num_key_value_heads=2,
                                no_rope_layers=[1, 0], tie_word_embeddings=False, rms_norm_eps=1e-3, **rope(1e4)),
                without("layer_types"), ["no_rope_layer_interval", "sliding_window", "use_sliding_window"]),
    "smollm3-window": ("SmolLM3", dict(SIZES, num_attention_heads=4, hidden_size=64, use_sliding_window=True,
                                       sliding_window=5, no_rope_layer_interval=2, attention_bias=True, mlp_bias=True),
                       {"rope_parameters": None, **without("layer_types", "no_rope_layers", "num_key_value_heads",
                                                           "tie_word_embeddings", "rms_norm_eps")}),
    "gpt-bigcode": ("GPTBigCode", dict(COMMON, n_embd=48, n_layer=2, n_head=3, n_positions=72, layer_norm_epsilon=1e-3),
                    without("multi_query", "activation_function", "tie_word_embeddings", "n_inner"), IN_FP32),
    "gpt-bigcode-heads": ("GPTBigCode", dict(COMMON, n_embd=48, n_layer=2, n_head=3, n_positions=72, n_inner=100,
                                             multi_query=False, scale_attn_weights=False, tie_word_embeddings=False,
                                             activation_function="gelu"), without("layer_norm_epsilon"), IN_FP32),
    "mpt": ("Mpt", dict(COMMON, d_model=48, n_heads=3, n_layers=2, max_seq_len=72, layer_norm_epsilon=1e-3,
                        attn_config=dict(clip_qkv=0.4, softmax_scale=0.4)),
            {"attn_config": dict(alibi=True, alibi_bias_max=8, attn_impl="torch", attn_pdrop=0, clip_qkv=0.4, prefix_lm=False,
                                 attn_type="multihead_attention", attn_uses_sequence_id=False, qk_ln=False,
                                 softmax_scale=0.4)},
            ["attn_impl", "attn_pdrop", "embedding_fraction", "emb_pdrop", "learned_pos_emb", "init_device"]),
    "mpt-old": ("Mpt", dict(COMMON, d_model=64, n_heads=4, n_layers=2, max_seq_len=72,
                            attn_config=dict(alibi_bias_max=3), tie_word_embeddings=False),
                {"architectures": ["MPTForCausalLM"], "attn_config": {"alibi_bias_max": 3}, **without("layer_norm_epsilon", "expansion_ratio", "norm_type")},
                ["attn_impl", "attn_pdrop", "embedding_fraction", "emb_pdrop", "learned_pos_emb", "init_device"]),
    "mpt-learned": ("MPT", dict(MPT, attn_config=dict(MPT_ATTENTION, qk_ln=True, clip_qkv=0.4), no_bias=False,
                                expansion_ratio=3, logit_scale="inv_sqrt_d_model"), {}, MPT_IDLE + ["alibi_bias_max", "kv_n_heads"]),
    "mpt-grouped": ("MPT", dict(MPT, n_heads=4, d_model=64,
                                attn_config=dict(MPT_ATTENTION, attn_type="grouped_query_attention", kv_n_heads=2,
                                                 alibi=True, alibi_bias_max=4), norm_type="rmsnorm",
                                logit_scale=0.5), {}, MPT_IDLE + ["learned_pos_emb"]),
    "mpt-plain": ("MPT", dict(MPT, attn_config=dict(MPT_ATTENTION, attn_type="multiquery_attention", qk_ln=True),
                              learned_pos_emb=False, no_bias=False, norm_type="low_precision_rmsnorm"), {},
                  MPT_IDLE + ["alibi_bias_max", "kv_n_heads"]),
    "codegen": ("CodeGen", dict(COMMON, n_embd=96, n_layer=2, n_head=4, n_inner=100, n_positions=72, rotary_dim=8,
                                layer_norm_epsilon=1e-3), without("activation_function", "tie_word_embeddings"), ["n_ctx"]),
    "codegen-whole": ("CodeGen", dict(COMMON, n_embd=64, n_layer=2, n_head=4, n_positions=72, rotary_dim=16,
                                      activation_function="relu"), without("n_inner", "layer_norm_epsilon"),
                      ["n_ctx"]),
    "gpt-neo": ("GPTNeo", dict(COMMON, hidden_size=48, num_layers=3, num_heads=3, max_position_embeddings=72, window_size=4,
                               attention_types=[[["local", "global"], 1], [["local"], 1]], layer_norm_epsilon=1e-3),
                without("activation_function", "tie_word_embeddings", "intermediate_size"),
                ["resid_dropout", "embed_dropout", "attention_layers"]),
    "gpt-neo-global": ("GPTNeo", dict(COMMON, hidden_size=64, num_layers=2, num_heads=2, max_position_embeddings=72,
                                      intermediate_size=88, activation_function="relu", tie_word_embeddings=False,
                                      attention_types=[[["global"], 2]]), {**without("layer_norm_epsilon", "attention_layers")},
                       ["resid_dropout", "embed_dropout", "window_size"]),
    "biogpt": ("BioGpt", dict(SIZES), without("tie_word_embeddings", "scale_embedding"),
               ["layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob"]),
    "biogpt-plain": ("BioGpt", dict(SIZES, scale_embedding=False, hidden_act="relu", tie_word_embeddings=False), {},
                     ["layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob"]),
    "xglm": ("XGLM", dict(COMMON, d_model=48, num_layers=2, attention_heads=3, ffn_dim=88, max_position_embeddings=72),
             without("tie_word_embeddings", "scale_embedding", "activation_function"), ["decoder_start_token_id"]),
    "xglm-plain": ("XGLM", dict(COMMON, pad_token_id=1, d_model=32, num_layers=2, attention_heads=2, ffn_dim=88,
                                max_position_embeddings=72, scale_embedding=False, activation_function="relu",
                                tie_word_embeddings=False), {}, ["decoder_start_token_id"]),
    "minicpm3": ("MiniCPM3", dict(SIZES, num_key_value_heads=3, kv_lora_rank=24, q_lora_rank=20, qk_nope_head_dim=16,
                                  qk_rope_head_dim=8, v_head_dim=24, scale_emb=3, scale_depth=0.7, dim_model_base=16,
                                  rms_norm_eps=1e-3, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                                  original_max_position_embeddings=72,
                                  **rope(900.0, rope_type="longrope", short_factor=[1, 1.2, 1.5, 2], long_factor=[1.5, 2, 4, 7])),
                 {}),
    "minicpm3-null": ("MiniCPM3", dict(SIZES, num_key_value_heads=3, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
                                       v_head_dim=16, scale_depth=None, dim_model_base=None, q_lora_rank=20),
                      {"scale_depth": NULL, "dim_model_base": NULL}),
    "minicpm3-old": ("MiniCPM3", dict(SIZES, hidden_size=96, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=256,
                                      qk_nope_head_dim=64, qk_rope_head_dim=32),
                     {"rope_parameters": None, "rope_theta": 300.0,
                      **without("rms_norm_eps", "scale_emb", "scale_depth", "dim_model_base", "kv_lora_rank", "qk_nope_head_dim",
                                "qk_rope_head_dim", "v_head_dim", "head_dim", "tie_word_embeddings")}),
    "granite4": ("GraniteMoeHybrid", dict(SIZES, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, **rope(4e3),
                                          mamba_n_heads=4, layer_types=["attention"] * 2, position_embedding_type="rope",
                                          num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=36,
                                          attention_multiplier=0.15, residual_multiplier=0.4, logits_scaling=2.5,
                                          embedding_multiplier=3.0, tie_word_embeddings=True, rms_norm_eps=1e-3),
                 {"layer_types": ["attention"] * 2}, MAMBA + ["intermediate_size", "num_experts_per_tok"]),
    "granite4-moe": ("GraniteMoeHybrid", dict(SIZES, hidden_size=64, num_attention_heads=4, mamba_n_heads=4,
                                              layer_types=["full_attention"] * 2, num_local_experts=5, num_experts_per_tok=3,
                                              shared_intermediate_size=36, attention_bias=True),
                     without("rms_norm_eps", "attention_multiplier", "residual_multiplier", "logits_scaling",
                             "embedding_multiplier", "num_key_value_heads", "tie_word_embeddings"), MAMBA + ["rope_theta"]),
    "hyperclovax": ("HyperCLOVAX", dict(GQA, hidden_size=48, **rope(4e3), attention_multiplier=0.15, embedding_multiplier=1.5,
                                        residual_multiplier=0.4, logits_scaling=0.4, attention_bias=True, rms_norm_eps=1e-3), {}),
    "hyperclovax-plain": ("HyperCLOVAX", dict(SIZES, use_post_norm=False, mlp_bias=True, tie_word_embeddings=True, **rope(1e4)),
                          without("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
                                  "rms_norm_eps", "head_dim", "num_key_value_heads")),
    "iquestcoder": ("IQuestCoder", dict(EVEN, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3, **rope(3e3)),
                    {"architectures": ["IQuestCoderForCausalLM"]}),
    "iquestcoder-plain": ("IQuestCoder", dict(SIZES, head_dim=128, num_attention_heads=8, num_key_value_heads=8,
                                              tie_word_embeddings=True),
                          without("head_dim", "num_key_value_heads", "rms_norm_eps", "rope_parameters")),
    "jais2": ("Jais2", dict(SIZES, num_key_value_heads=1, layer_norm_eps=1e-3, **rope(3e3)),
              without("attention_bias", "mlp_bias", "hidden_act", "tie_word_embeddings")),
    "jais2-plain": ("Jais2", dict(SIZES, hidden_act="silu", attention_bias=False, mlp_bias=False, tie_word_embeddings=True,
                                  **LLAMA3), without("layer_norm_eps", "num_key_value_heads", "head_dim")),
    "flex-olmo": ("FlexOlmo", dict(SIZES, num_key_value_heads=1, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True,
                                   attention_bias=True, rms_norm_eps=1e-3, **rope(3e3)), {}),
    "flex-olmo-plain": ("FlexOlmo", dict(SIZES, tie_word_embeddings=True),
                        without("rope_parameters", "num_experts", "num_local_experts", "num_experts_per_tok", "norm_topk_prob",
                                "rms_norm_eps", "num_key_value_heads")),
    "exaone-moe": ("ExaoneMoe", dict(GQA, hidden_size=48, num_hidden_layers=4, num_experts=6, num_experts_per_tok=3, n_group=3,
                                     topk_group=2, moe_intermediate_size=20, num_shared_experts=2, routed_scaling_factor=1.7,
                                     sliding_window=5, sliding_window_pattern=2, rms_norm_eps=1e-3, **rope(3e3),
                                     mlp_layer_types=["sparse", "dense", "sparse", "sparse"]),
                   without("layer_types"), ["first_k_dense_replace"]),
    "exaone-moe-plain": ("ExaoneMoe", dict(SIZES, num_key_value_heads=3, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
                                           norm_topk_prob=False, tie_word_embeddings=True, sliding_window=5,
                                           layer_types=["full_attention", "sliding_attention"]),
                         without("mlp_layer_types", "n_group", "topk_group", "num_shared_experts", "routed_scaling_factor",
                                 "rms_norm_eps", "rope_parameters"), ["sliding_window_pattern"]),
    "solar-open": ("SolarOpen", dict(GQA, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=2,
                                     n_group=3, topk_group=2, routed_scaling_factor=1.7, attention_bias=True, rms_norm_eps=1e-3,
                                     **rope(3e3)), without("intermediate_size")),
    "solar-open-plain": ("SolarOpen", dict(SIZES, num_attention_heads=8, num_key_value_heads=8, head_dim=128, n_routed_experts=5,
                                           num_experts_per_tok=2, moe_intermediate_size=20, norm_topk_prob=False,
                                           tie_word_embeddings=True),
                         without("head_dim", "num_key_value_heads", "rope_parameters", "rms_norm_eps", "n_group", "topk_group",
                                 "n_shared_experts", "routed_scaling_factor"),
                         ["intermediate_size"]),
    "glm4-flash": ("Glm4MoeLite", dict(LATENT, q_lora_rank=20, num_hidden_layers=3, n_group=3, topk_group=2, routed_scaling_factor=1.7,
                                       rms_norm_eps=1e-3, mlp_layer_types=["sparse", "dense", "sparse"], attention_bias=True,
                                       **rope(3e3)), without("first_k_dense_replace"), ["num_nextn_predict_layers"]),
    "glm4-flash-plain": ("Glm4MoeLite", dict(LATENT, q_lora_rank=None, rope_interleave=False, norm_topk_prob=False,
                                             tie_word_embeddings=True),
                         {"q_lora_rank": NULL, **without("mlp_layer_types", "n_group", "topk_group", "routed_scaling_factor",
                                                         "rms_norm_eps", "rope_parameters")}, ["num_nextn_predict_layers"]),
    "youtu": ("Youtu", dict(LATENT, q_lora_rank=20, rms_norm_eps=1e-3, attention_bias=True, tie_word_embeddings=False, **rope(3e3)),
              without("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace"),
              ["embedding_initializer_range"]),
    # with a pad token the class empties its row of the embedding
    "youtu-plain": ("Youtu", dict(SIZES, pad_token_id=None, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
                                  qk_rope_head_dim=64, v_head_dim=128, rope_interleave=False),
                    {"q_lora_rank": NULL, **without("rms_norm_eps", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                                                    "v_head_dim", "head_dim", "tie_word_embeddings", "rope_parameters")},
                    ["embedding_initializer_range"]),
    "baichuan": ("Baichuan", dict(SIZES, hidden_act="silu", rms_norm_eps=1e-3),
                 {"architectures": ["BaiChuanForCausalLM"], **without("tie_word_embeddings")}),
    "baichuan-13b": ("Baichuan", dict(BAICHUAN_13B, hidden_act="silu", rms_norm_eps=1e-3), {}),
    "baichuan2": ("Baichuan", dict(SIZES, hidden_act="silu", rms_norm_eps=1e-6, z_loss_weight=0, model_max_length=72),
                  without("rms_norm_eps"), ["z_loss_weight"]),
    "baichuan2-13b": ("Baichuan", dict(BAICHUAN_13B, hidden_act="gelu", rms_norm_eps=1e-3, z_loss_weight=0), {}, ["z_loss_weight"]),
    "dbrx": ("Dbrx", dict(COMMON, d_model=48, n_heads=3, n_layers=2, max_seq_len=72, **rope(3e3),
                          attn_config=dict(DBRX[0], clip_qkv=0.4, rope_theta=3e3), ffn_config=dict(DBRX[1], moe_top_k=3)),
             {"attn_config": dict(DBRX[0], clip_qkv=0.4, rope_theta=3e3), "ffn_config": dict(DBRX[1], moe_top_k=3)},
             ["moe_jitter_eps", "moe_loss_weight", "emb_pdrop", "model_type"]),
    "dbrx-plain": ("Dbrx", dict(COMMON, d_model=48, n_heads=3, n_layers=2, max_seq_len=72,
                                attn_config=dict(rope_theta=1e4, clip_qkv=8.0), ffn_config=DBRX[2]),
                   {"attn_config": dict(rope_theta=1e4, clip_qkv=8.0), "ffn_config": DBRX[2],
                    **without("rope_parameters", "num_key_value_heads", "tie_word_embeddings")}, ["emb_pdrop"]),
    "nanochat": ("NanoChat", dict(SIZES, num_key_value_heads=1, rms_norm_eps=1e-3, attention_bias=True, final_logit_softcapping=3.0,
                                  **rope(3e3)), without("hidden_act")),
    "nanochat-plain": ("NanoChat", dict(SIZES, tie_word_embeddings=True, hidden_act="gelu", final_logit_softcapping=None),
                       {"final_logit_softcapping": NULL, **without("rms_norm_eps", "num_key_value_heads", "rope_parameters",
                                                                   "attention_bias")}),
    "nanochat-yarn": ("NanoChat", dict(SIZES, num_key_value_heads=3, **YARN),
                      without("final_logit_softcapping", "tie_word_embeddings")),
    "persimmon": ("Persimmon", dict(SIZES, layer_norm_eps=1e-3, **rope(3e3, 0.25)),
                  without("qk_layernorm", "hidden_act", "tie_word_embeddings")),
    "persimmon-plain": ("Persimmon", dict(SIZES, qk_layernorm=False, tie_word_embeddings=True, hidden_act="gelu"),
                        {"rope_parameters": None, "rope_theta": 300.0, **without("layer_norm_eps", "partial_rotary_factor")}),
    "granite-swa": ("GraniteSWA", dict(SIZES, num_hidden_layers=3, num_key_value_heads=1, attention_multiplier=0.15,
                                       embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.5, sliding_window=5,
                                       layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                       layer_rope_theta=[3e3, 0, 200.0], rms_norm_eps=1e-3), {}, ["rope_theta"]),
    "granite-swa-plain": ("GraniteSWA", dict(SIZES, hidden_size=128, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=4,
                                             sliding_window=4, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                                             **rope(300.0)),
                          without("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
                                  "num_key_value_heads", "rms_norm_eps", "layer_types", "layer_rope_theta")),
    "granitemoe-swa": ("GraniteMoeSWA", dict(SIZES, num_hidden_layers=3, num_key_value_heads=1, num_local_experts=6,
                                             num_experts_per_tok=3, shared_intermediate_size=36, attention_multiplier=0.15,
                                             embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.5, sliding_window=5,
                                             layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                                             layer_rope_theta=[0, 900.0, 3e3], rms_norm_eps=1e-3), {}, ["rope_theta"]),
    "granitemoe-swa-plain": ("GraniteMoeSWA", dict(SIZES, num_key_value_heads=3, sliding_window=4, attention_bias=True,
                                                   tie_word_embeddings=True, **rope(300.0)),
                             without("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
                                     "num_local_experts", "num_experts_per_tok", "shared_intermediate_size", "rms_norm_eps",
                                     "layer_types", "layer_rope_theta")),
    "cohere2-moe": ("Cohere2Moe", dict(EVEN, num_hidden_layers=4, intermediate_size=24, num_experts=6, num_experts_per_tok=3,
                                       num_shared_experts=2, expert_selection_fn="sigmoid", prefix_dense_intermediate_size=52,
                                       mlp_layer_types=["dense", "sparse", "sparse", "sparse"], sliding_window=5, rms_norm_eps=1e-3,
                                       layer_types=["full_attention", "sliding_attention"] * 2, logit_scale=0.3, attention_bias=True,
                                       tie_word_embeddings=False, **rope(900.0)),
                    without("rope_theta"), ["layer_norm_eps", "sliding_window_pattern"]),
    "cohere2-moe-dense": ("Cohere2Moe", dict(SIZES, num_hidden_layers=6, head_dim=16, num_experts=5, num_shared_experts=1,
                                             first_k_dense_replace=2, prefix_dense_sliding_window_pattern=2, sliding_window_pattern=3,
                                             shared_expert_combination_strategy="sum", sliding_window=4, layer_norm_eps=1e-3),
                          {"first_k_dense_replace": 2, "rope_parameters": None, "rope_theta": 300.0,
                           **without("layer_types", "mlp_layer_types", "tie_word_embeddings", "num_key_value_heads", "logit_scale",
                                     "expert_selection_fn", "prefix_dense_intermediate_size", "rms_norm_eps")}, ["norm_topk_prob"]),
    "cohere2-moe-plain": ("Cohere2Moe", dict(SIZES, num_key_value_heads=1, expert_selection_fn="sigmoid", norm_topk_prob=False, num_shared_experts=1,
                                             sliding_window=6, **rope(1e4)),
                          without("rope_theta", "layer_types", "mlp_layer_types", "head_dim", "layer_norm_eps", "num_experts",
                                  "num_experts_per_tok", "shared_expert_combination_strategy", "sliding_window_pattern",
                                  "prefix_dense_sliding_window_pattern"), ["prefix_dense_intermediate_size"]),
    "openai-gpt": ("OpenAIGPT", dict(GPT, layer_norm_epsilon=1e-3), without("tie_word_embeddings", "afn"), SUMMARY),
    "openai-gpt-plain": ("OpenAIGPT", dict(GPT, afn="relu", tie_word_embeddings=False), without("layer_norm_epsilon"), SUMMARY),
    "internlm2": ("Llama", dict(SIZES, hidden_size=96, num_attention_heads=6, num_key_value_heads=2, attention_bias=False,
                                rms_norm_eps=1e-3, **rope(3e3)), {}, ["attn_implementation"]),
    "internlm2-bias": ("Llama", dict(SIZES, num_key_value_heads=3, attention_bias=True, tie_word_embeddings=True, **rope(1e4)),
                       without("rms_norm_eps", "bias", "rope_theta", "num_key_value_heads"), ["attn_implementation"]),
    "minicpm": ("Granite", dict(SIZES, num_key_value_heads=1, rms_norm_eps=1e-3, embedding_multiplier=3.0, residual_multiplier=0.4,
                                attention_multiplier=0.25, logits_scaling=3.0, tie_word_embeddings=False, **rope(3e3)), {}),
    "minicpm-plain": ("Granite", dict(SIZES, num_key_value_heads=3, attention_multiplier=0.25, embedding_multiplier=1.0,
                                      residual_multiplier=2 ** -0.5, logits_scaling=48.0, tie_word_embeddings=True, **rope(1e4)),
                      without("rms_norm_eps", "scale_emb", "scale_depth", "dim_model_base", "tie_word_embeddings", "rope_theta",
                              "num_key_value_heads", "attention_bias", "mlp_bias")),
    "exaone": ("Exaone", dict(EVEN, **rope(3e3), rms_norm_eps=1e-3),
               {"architectures": ["ExaoneForCausalLM"], "num_hidden_layers": None, "num_layers": 2, "rms_norm_eps": None,
                "layer_norm_epsilon": 1e-3, "hidden_act": None, "activation_function": "silu"}),
    "exaone-bias": ("Exaone", dict(SIZES, num_key_value_heads=1, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                   **LLAMA3),
                    without("rms_norm_eps")),
    "ernie": ("Ernie4_5", dict(GQA, **rope(3e3), rms_norm_eps=1e-3, use_bias=True), {}),
    "ernie-plain": ("Ernie4_5", dict(SIZES, num_attention_heads=2, head_dim=128, tie_word_embeddings=False),
                    {"rope_parameters": None, "rope_theta": 300.0,
                     **without("rms_norm_eps", "head_dim", "num_key_value_heads", "use_bias")}),
    "hunyuan": ("HunYuanDenseV1", dict(GQA, rms_norm_eps=1e-3, attention_bias=True, tie_word_embeddings=True,
                                       **rope(500.0, rope_type="dynamic", alpha=20.0, factor=1.0, beta_fast=32, beta_slow=1,
                                              mscale=1.0, mscale_all_dim=1.0)),
                {}, ["beta_fast", "beta_slow", "mscale", "mscale_all_dim", "eod_token_id"]),
    "hunyuan-plain": ("HunYuanDenseV1", dict(SIZES, head_dim=16, num_key_value_heads=3, **rope(700.0)),
                      without("rms_norm_eps"), ["eod_token_id"]),
    "seed-oss": ("SeedOss", dict(GQA, **rope(2e3), rms_norm_eps=1e-3, mlp_bias=True, attention_out_bias=True), {}),
    "seed-oss-plain": ("SeedOss", dict(SIZES, num_attention_heads=16, num_key_value_heads=8, head_dim=None, hidden_size=256,
                                       attention_bias=False, tie_word_embeddings=True, **rope(1e4)),
                       {"rms_norm_eps": None, "mlp_bias": None, "attention_out_bias": None, "num_key_value_heads": None}),
    "helium": ("Helium", dict(SIZES, head_dim=16, num_key_value_heads=1, **rope(3e3), rms_norm_eps=1e-3, attention_bias=True,
                              mlp_bias=True), {}),
    "helium-tied": ("Helium", dict(SIZES, hidden_size=128, num_attention_heads=1, num_key_value_heads=1, head_dim=128,
                                   tie_word_embeddings=True), without("rope_parameters", "head_dim", "rms_norm_eps")),
    # The prompts of both were searched for: a logit of the router that is near the threshold, or near another one, would make the
    # choice depend on rounding. Here each is away by a thirtieth of the largest or more.
    "phimoe": ("Phimoe", dict(EVEN, num_local_experts=6, router_jitter_noise=0.2, attention_bias=True, lm_head_bias=True, sliding_window=5,
                              rms_norm_eps=1e-3, rope_parameters=MOE_LONGROPE), {}, ["input_jitter_noise", "long_mscale"],
               [[7], [63, 53, 55, 34, 60, 60, 50, 71, 32]]),
    "phimoe-plain": ("Phimoe", dict(EVEN, num_local_experts=5, tie_word_embeddings=True, router_jitter_noise=0.4),
                     {"architectures": ["PhiMoEForCausalLM"], **without("rope_parameters", "rms_norm_eps", "sliding_window")},
                     ["input_jitter_noise"], [[11], [39, 71, 59, 93, 23, 86, 62, 17, 64]]),
    "hy-v3": ("HYV3", dict(MOE_, num_shared_experts=2, mlp_layer_types=["sparse", "dense"], mlp_bias=True, attention_bias=True,
                           router_scaling_factor=1.7, **rope(900.0)), {}, ["enable_moe_fp32_combine"]),
    "hy-v3-plain": ("HYV3", dict(MOE_, tie_word_embeddings=True, rms_norm_eps=1e-3),
                    without("mlp_layer_types", "router_scaling_factor", "rope_parameters"), ["enable_moe_fp32_combine"]),
    "axk1": ("AXK1", dict(LATENT_A, mlp_layer_types=["dense", "sparse"], n_group=3, topk_group=2, **LATENT_YARN), {},
             ["first_k_dense_replace"]),
    "axk1-plain": ("AXK1", dict(LATENT_A, n_group=1, topk_group=1, rope_interleave=False, attention_bias=True, norm_topk_prob=False,
                                rms_norm_eps=1e-3), {"mlp_layer_types": None, "first_k_dense_replace": 1, **without("routed_scaling_factor")}),
    "deepseek-v3.2": ("DeepseekV32", dict(LATENT, q_lora_rank=20, n_group=3, topk_group=2, routed_scaling_factor=1.7, index_topk=64,
                                          index_head_dim=16, index_n_heads=2, rms_norm_eps=1e-3, **LATENT_YARN), {},
                      INDEX + ["first_k_dense_replace"]),
    "deepseek-v3.2-plain": ("DeepseekV32", dict(LATENT, q_lora_rank=24, n_group=1, topk_group=1, attention_bias=True,
                                                norm_topk_prob=False, index_head_dim=16, index_n_heads=2),
                            without("mlp_layer_types", "layer_types", "rms_norm_eps", "index_topk", "rope_parameters"), INDEX),
    "glm5": ("GlmMoeDsa", dict(LATENT, q_lora_rank=20, n_group=3, topk_group=2, routed_scaling_factor=1.7, index_topk=64,
                               index_head_dim=16, index_n_heads=2, num_hidden_layers=3, mlp_layer_types=["sparse", "dense", "sparse"],
                               indexer_types=["full", "shared", "full"], **rope(3e3)), {}, INDEX + ["first_k_dense_replace"]),
    "glm5-plain": ("GlmMoeDsa", dict(LATENT, q_lora_rank=24, n_group=1, topk_group=1, attention_bias=True, tie_word_embeddings=True,
                                     norm_topk_prob=False, index_head_dim=16, index_n_heads=2),
                   without("mlp_layer_types", "layer_types", "rms_norm_eps", "index_topk", "indexer_types", "rope_parameters"), INDEX),
    "mistral4": ("Mistral4", dict(LATENT, q_lora_rank=20, n_group=3, topk_group=2, routed_scaling_factor=1.7, rms_norm_eps=1e-3,
                                  rope_parameters={**LATENT_YARN["rope_parameters"], "llama_4_scaling_beta": 0.6,
                                                   "max_position_embeddings": 72}), {}),
    "mistral4-plain": ("Mistral4", dict(LATENT, q_lora_rank=None, n_group=1, topk_group=1, rope_interleave=False,
                                        norm_topk_prob=False, attention_bias=True, first_k_dense_replace=0, tie_word_embeddings=True),
                       without("rope_parameters", "rms_norm_eps"), ["intermediate_size"]),
    "mistral4-images": ("Mistral3ForConditionalGeneration",
                        dict(text_config=dict(LATENT, model_type="mistral4", q_lora_rank=20, n_group=1, topk_group=1,
                                              rope_parameters={**LATENT_YARN["rope_parameters"], "llama_4_scaling_beta": 0.6}),
                             vision_config=dict(VISION, model_type="pixtral", head_dim=16), dtype="float32",
                             tie_word_embeddings=False), without("text_config.tie_word_embeddings")),
    "mimo-v2": ("MiMoV2Flash", dict(GQA, head_dim=48, v_head_dim=32, num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=3,
                                    moe_intermediate_size=20, n_group=3, topk_group=2, routed_scaling_factor=1.7, sliding_window=5,
                                    num_key_value_heads=1, attention_bias=True, rms_norm_eps=1e-3, attention_value_scale=0.6,
                                    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                    mlp_layer_types=["sparse", "dense", "sparse"], rope_parameters=PARTIAL_ROPES), {}, MIMO),
    "mimo-v2-plain": ("MiMoV2Flash", dict(GQA, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=20, v_head_dim=24,
                                          num_key_value_heads=1, num_attention_heads=4, norm_topk_prob=False, tie_word_embeddings=True),
                      {"sliding_window_size": 6, "routed_scaling_factor": NULL, "attention_value_scale": NULL,
                       **without("layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps")},
                      MIMO + ["sliding_window"]),
    "modernbert-decoder": ("ModernBertDecoder",
                           dict(SIZES, num_hidden_layers=3, local_attention=8, norm_eps=1e-3, attention_bias=True, mlp_bias=True,
                                norm_bias=True, classifier_bias=True, classifier_activation="relu", decoder_bias=False,
                                rope_parameters=TWO_ROPES_, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                tie_word_embeddings=False, hidden_activation="silu"), {}, CLS),
    "modernbert-decoder-old": ("ModernBertDecoder", dict(SIZES, num_hidden_layers=3, local_attention=10, cls_token_id=1, sep_token_id=2),
                               {"global_attn_every_n_layers": 2, "global_rope_theta": 900.0, "local_rope_theta": 30.0,
                                **without("rope_parameters", "layer_types", "norm_eps", "hidden_activation", "decoder_bias",
                                          "classifier_activation")}, CLS),
    "sarvam": ("SarvamMoE", dict(GQA, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=2, n_group=3,
                                 topk_group=2, routed_scaling_factor=1.7, rms_norm_eps=1e-3, attention_bias=True, **rope(3e3, 0.5)),
               SARVAM, ["num_nextn_predict_layers", "router_dtype"]),
    "sarvam-plain": ("SarvamMoE", dict(GQA, head_dim=64, num_key_value_heads=4, num_attention_heads=4, n_routed_experts=4, num_experts_per_tok=2,
                                       moe_intermediate_size=20, norm_topk_prob=False, first_k_dense_replace=0, use_qk_norm=False),
                     {**SARVAM, "num_experts": 4, "use_qkv_bias": False,
                      **without("rope_parameters", "rms_norm_eps", "head_dim", "num_key_value_heads", "n_shared_experts", "n_group",
                                "n_routed_experts", "topk_group", "routed_scaling_factor", "attention_bias")},
                     ["num_nextn_predict_layers", "router_dtype", "intermediate_size"]),
    "sarvam-mla": ("SarvamMLA", dict(LATENT, n_group=3, topk_group=2, routed_scaling_factor=1.7, rms_norm_eps=1e-3, **LATENT_YARN),
                   without("q_lora_rank"), ["head_dim", "num_nextn_predict_layers"]),
    "phi4mm": ("Phi3", dict(SIZES, num_attention_heads=2, num_key_value_heads=1, sliding_window=7, **rope(900.0, 0.75), rms_norm_eps=1e-2), {}),
    "mellum": ("Mellum", dict(MOE_, num_hidden_layers=3, sliding_window=5, norm_topk_prob=False, attention_bias=True,
                              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                              mlp_layer_types=["sparse", "dense", "sparse"], rms_norm_eps=1e-3, rope_parameters=TWO_ROPES_), {}, MTP),
    "mellum-plain": ("Mellum", dict(MOE_, tie_word_embeddings=True), without("rope_parameters", "layer_types", "mlp_layer_types"),
                     MTP + ["sliding_window", "intermediate_size"]),
    "afmoe": ("Afmoe", dict(MOE_, num_hidden_layers=3, sliding_window=5, num_shared_experts=2, num_dense_layers=1, route_scale=1.7,
                            mup_enabled=True, attention_bias=True, rms_norm_eps=1e-3, **rope(900.0),
                            layer_types=["sliding_attention", "full_attention", "sliding_attention"]), {},
              ["global_attn_every_n_layers"]),
    "afmoe-plain": ("Afmoe", dict(MOE_, sliding_window=6, num_shared_experts=1, num_dense_layers=0, global_attn_every_n_layers=2),
                    without("layer_types", "rope_parameters"), ["intermediate_size"]),
    "apertus": ("Apertus", dict(EVEN, **rope(900.0), rms_norm_eps=1e-3, attention_bias=True), {}),
    "apertus-plain": ("Apertus", dict(SIZES, num_key_value_heads=3, hidden_act="relu2", tie_word_embeddings=True),
                      {**without("rope_parameters", "rms_norm_eps", "attention_bias")}),
    "apertus-tied": ("Apertus", dict(SIZES, num_key_value_heads=1, tie_word_embeddings=True), without("hidden_act", "rope_parameters")),
    "arcee": ("Arcee", dict(EVEN, **rope(3e3), rms_norm_eps=1e-3, attention_bias=True, mlp_bias=True), {}),
    "arcee-tied": ("Arcee", dict(SIZES, num_key_value_heads=3, hidden_act="silu", tie_word_embeddings=True, **rope(1e4)),
                   without("rms_norm_eps", "head_dim")),
    "internlm3": ("InternLM3", dict(EVEN, **rope(3e3), rms_norm_eps=1e-3, attention_bias=True, mlp_bias=True),
                  {"architectures": ["InternLM3ForCausalLM"]}),
    "internlm3-old": ("InternLM3", dict(SIZES, num_attention_heads=2, head_dim=128, num_key_value_heads=2),
                      {"architectures": ["InternLM3ForCausalLM"], "rope_parameters": None, "rope_theta": 300.0, "bias": False,
                       "qkv_bias": False,
                       **without("rms_norm_eps", "head_dim", "num_key_value_heads", "attention_bias", "mlp_bias")}),
    "cwm": ("Cwm", dict(SIZES, num_hidden_layers=5, num_key_value_heads=1, head_dim=24, sliding_window=4, rms_norm_eps=1e-3,
                        **LLAMA3), without("layer_types")),
    "granitemoe-shared": ("GraniteMoeShared", dict(SIZES, num_key_value_heads=1, num_local_experts=6, num_experts_per_tok=3,
                                                   shared_intermediate_size=36, attention_multiplier=0.15, residual_multiplier=0.4,
                                                   logits_scaling=2.5, embedding_multiplier=3.0, **rope(4e3)), {}),
    "granitemoe-unshared": ("GraniteMoeShared", dict(SIZES, num_key_value_heads=3, num_local_experts=4, num_experts_per_tok=2,
                                                     attention_bias=True, tie_word_embeddings=True, **rope(1e4)),
                            without("shared_intermediate_size", "rms_norm_eps")),
    "dots1": ("Dots1", dict(SIZES, num_hidden_layers=3, num_key_value_heads=1, n_routed_experts=6, num_experts_per_tok=3,
                            moe_intermediate_size=20, n_shared_experts=2, n_group=3, topk_group=2, routed_scaling_factor=1.7,
                            first_k_dense_replace=1, norm_topk_prob=True, attention_bias=True, sliding_window=5,
                            max_window_layers=1, rms_norm_eps=1e-3, **rope(1e4)), without("layer_types")),
    "dots1-plain": ("Dots1", dict(SIZES, num_key_value_heads=3, n_routed_experts=5, num_experts_per_tok=2,
                                  moe_intermediate_size=20, n_shared_experts=1, tie_word_embeddings=True, **rope(1e4)),
                    without("norm_topk_prob", "first_k_dense_replace", "n_group", "topk_group", "routed_scaling_factor",
                            "rms_norm_eps", "layer_types", "sliding_window", "max_window_layers"), ["intermediate_size"]),
    "hunyuan-moe": ("HunYuanMoEV1", dict(GQA, num_experts=5, moe_topk=[3, 3], rms_norm_eps=1e-3, attention_bias=True,
                                         **rope(500.0, rope_type="dynamic", alpha=20.0, factor=1.0)), {},
                    ["eod_token_id"]),
    "ernie-moe": ("Ernie4_5_Moe", dict(SIZES, num_hidden_layers=4, num_key_value_heads=1, moe_num_experts=6, moe_k=3,
                                       moe_intermediate_size=20, moe_layer_interval=2, moe_num_shared_experts=2, rms_norm_eps=1e-3,
                                       tie_word_embeddings=False, **rope(3e3)), {}, ["moe_layer_end_index"]),
    "ernie-moe-plain": ("Ernie4_5_Moe", dict(SIZES, num_hidden_layers=3, num_key_value_heads=3, moe_num_experts=4, moe_k=2,
                                             moe_intermediate_size=20, moe_num_shared_experts=0, moe_layer_start_index=0,
                                             moe_layer_end_index=1, **rope(3e3)),
                        without("tie_word_embeddings", "rms_norm_eps", "moe_layer_interval", "moe_norm_min", "use_bias")),
    "minimax-m2": ("MiniMaxM2", dict(GQA, num_local_experts=6, num_experts_per_tok=3, rms_norm_eps=1e-3, **rope(3e3, 0.5)), {}),
    "minimax-m2-old": ("MiniMaxM2", dict(SIZES, num_key_value_heads=1, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                                         tie_word_embeddings=True, rotary_dim=8, rope_theta=400.0),
                       {"rope_parameters": None, "rope_theta": 400.0, "rotary_dim": 8, **without("rms_norm_eps", "partial_rotary_factor")}),
    "falcon-rw": ("Falcon", dict(SIZES, hidden_size=192, num_attention_heads=12, multi_query=False, parallel_attn=False,
                                 bias=True, alibi=True, ffn_hidden_size=88), without("intermediate_size"),
                  ["num_kv_heads", "rope_theta"]),
    "gpt-oss": ("GptOss", dict(GQA, num_local_experts=5, num_experts_per_tok=3, sliding_window=5, swiglu_limit=0.6,
                               swiglu_alpha=1.3, rms_norm_eps=1e-3, **YARN), {}, ["hidden_act"]),
    "gpt-oss-plain": ("GptOss", dict(GQA, num_attention_heads=4, num_local_experts=6, num_experts_per_tok=4,
                                     sliding_window=4, attention_bias=False, tie_word_embeddings=True,
                                     layer_types=["full_attention", "sliding_attention"]),
                      {"rope_parameters": None, "rope_theta": 150000, "experts_per_token": 4,
                       "initial_context_length": 4096,
                       "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                        "truncate": False, "original_max_position_embeddings": 4096},
                       **without("swiglu_limit", "swiglu_alpha", "rms_norm_eps")},
                      ["hidden_act", "initial_context_length"]),
    "bitnet": ("BitNet", dict(SIZES, num_key_value_heads=1, rms_norm_eps=1e-3, attention_bias=True, **rope(3e3)), {}),
    "bitnet-plain": ("BitNet", dict(SIZES, num_attention_heads=2, num_key_value_heads=2, hidden_act="silu", tie_word_embeddings=True),
                     without("rope_parameters", "hidden_act", "rms_norm_eps") | {"hidden_act": "silu"}),
    "llama4": ("Llama4", dict(GQA, num_local_experts=5, intermediate_size=20, intermediate_size_mlp=52, floor_scale=4,
                              attn_scale=0.7, attention_chunk_size=5, no_rope_layer_interval=2,
                              interleave_moe_layer_step=2, rms_norm_eps=1e-3, **LLAMA3),
               without("layer_types", "no_rope_layers", "moe_layers"), ["router_jitter_noise"],
               [PROMPTS[0], PROMPTS[1][:12]]),  # the scale by position grows with the twelfth token
    "llama4-plain": ("Llama4", dict(GQA, num_local_experts=3, intermediate_size=20, intermediate_size_mlp=52,
                                    use_qk_norm=False, attn_temperature_tuning=False, moe_layers=[0, 1],
                                    layer_types=["full_attention", "chunked_attention"], attention_chunk_size=4,
                                    no_rope_layers=[0, 1], attention_bias=True, tie_word_embeddings=True),
                     {"rope_parameters": None, **without("rms_norm_eps", "num_experts_per_tok")},
                     ["router_jitter_noise", "no_rope_layer_interval", "interleave_moe_layer_step", "intermediate_size_mlp",
                      "attn_scale", "floor_scale"]),
    "llama4-several": ("Llama4", dict(GQA, num_local_experts=5, num_experts_per_tok=3, intermediate_size=20,
                                      intermediate_size_mlp=52, attention_chunk_size=5, rms_norm_eps=1e-3, **rope(2e4)),
                       without("layer_types", "no_rope_layers", "moe_layers"),
                       ["router_jitter_noise", "floor_scale", "attn_scale", "attn_temperature_tuning", "intermediate_size_mlp",
                        "no_rope_layer_interval"]),
    "ministral3": ("Ministral3", dict(GQA, sliding_window=7, rms_norm_eps=1e-3,
                                      rope_parameters={**LATENT_YARN["rope_parameters"], "llama_4_scaling_beta": 0.6,
                                                       "original_max_position_embeddings": 8}), {}),
    "gemma3-images": ("Gemma3ForConditionalGeneration",
                      dict(text_config=dict(GQA, num_attention_heads=4, sliding_window=5, rms_norm_eps=1e-3, query_pre_attn_scalar=40,
                                            layer_types=["sliding_attention", "full_attention"]),
                           vision_config=VISION, dtype="float32", mm_tokens_per_image=4, eos_token_id=2),
                      without("text_config._sliding_window_pattern", "text_config.tie_word_embeddings")),
    "gemma3-images-names": ("Gemma3ForConditionalGeneration",
                            dict(text_config=dict(GQA, num_attention_heads=4, sliding_window=5, rms_norm_eps=1e-3,
                                                  query_pre_attn_scalar=40,
                                                  layer_types=["sliding_attention", "full_attention"]),
                                 vision_config=VISION, dtype="float32", mm_tokens_per_image=4, eos_token_id=2),
                            without("text_config._sliding_window_pattern", "text_config.tie_word_embeddings"), (), PROMPTS,
                            NEWER),
    "mistral3-images-names": ("Mistral3ForConditionalGeneration",
                              dict(text_config=dict(GQA, model_type="mistral", **rope(3e4), sliding_window=None),
                                   vision_config=dict(VISION, model_type="pixtral", head_dim=16), dtype="float32",
                                   tie_word_embeddings=False),
                              {"tie_word_embeddings": True, **without("text_config.tie_word_embeddings")}, (), PROMPTS, NEWER),
    "mistral3-images": ("Mistral3ForConditionalGeneration",
                        dict(text_config=dict(GQA, model_type="mistral", **rope(3e4), sliding_window=None),
                             vision_config=dict(VISION, model_type="pixtral", head_dim=16), dtype="float32",
                             tie_word_embeddings=False), {"tie_word_embeddings": True,
                          **without("text_config.model_type", "text_config.tie_word_embeddings")}),
    "ministral3-images": ("Mistral3ForConditionalGeneration",
                          dict(text_config=dict(GQA, model_type="ministral3", sliding_window=7, tie_word_embeddings=False,
                                                rope_parameters={**LATENT_YARN["rope_parameters"],
                                                                 "llama_4_scaling_beta": 0.6}),
                               vision_config=dict(VISION, model_type="pixtral", head_dim=16), dtype="float32",
                               tie_word_embeddings=True), without("text_config.tie_word_embeddings")),
    "llama4-images": ("Llama4ForConditionalGeneration",
                      dict(text_config=dict(GQA, num_local_experts=3, intermediate_size=20, intermediate_size_mlp=52,
                                            attention_chunk_size=5, interleave_moe_layer_step=2, floor_scale=4,
                                            no_rope_layer_interval=2, **rope(2e4)),
                           vision_config=dict(VISION, intermediate_size=128, vision_output_dim=32,
                                              projector_input_dim=32, projector_output_dim=32), dtype="float32"),
                      without("text_config.layer_types", "text_config.no_rope_layers", "text_config.moe_layers",
                              "text_config.tie_word_embeddings"), ["router_jitter_noise"]),
    "qwen2-vl": ("Qwen2VLForConditionalGeneration",
                 dict(text_config=dict(SIZES, num_key_value_heads=1, rms_norm_eps=1e-3, rope_parameters=MROPE,
                                       use_sliding_window=True, sliding_window=5, max_window_layers=1),
                      vision_config=dict(QWEN_VISION, embed_dim=32, hidden_size=48), dtype="float32", tie_word_embeddings=True),
                 without("text_config.layer_types", "text_config.tie_word_embeddings")),
    "qwen2-vl-old": ("Qwen2VLForConditionalGeneration",
                     dict(SIZES, num_key_value_heads=3, num_attention_heads=3,
                          vision_config=dict(QWEN_VISION, embed_dim=32, hidden_size=48)),
                     {"model_type": "qwen2_vl", "text_config": None, **{k: v for k, v in SIZES.items() if k != "pad_token_id"},
                      "num_key_value_heads": 3, "rope_theta": 300.0, "vision_token_id": 151654,
                      "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, WINDOW, PROMPTS, QWEN_OLDER),
    "qwen2.5-vl": ("Qwen2_5_VLForConditionalGeneration",
                   dict(text_config=dict(SIZES, num_key_value_heads=1, rope_parameters=MROPE),
                        vision_config=QWEN_VISION, dtype="float32", tie_word_embeddings=True),
                   without("text_config.rms_norm_eps", "text_config.tie_word_embeddings", "text_config.layer_types"),
                   WINDOW),
    "qwen2.5-vl-long": ("Qwen2_5_VLForConditionalGeneration",
                        dict(SIZES, num_key_value_heads=1, vision_config=QWEN_VISION),
                        {"model_type": "qwen2_5_vl", "text_config": None, **SIZES, "num_key_value_heads": 1,
                         "rope_theta": 300.0, "rope_scaling": {"type": "yarn", "mrope_section": [2, 3, 3], "factor": 4.0,
                                                               "original_max_position_embeddings": 16}},
                        WINDOW, PROMPTS, QWEN_OLDER),
    "qwen3-vl": ("Qwen3VLForConditionalGeneration",
                 dict(text_config=dict(GQA, rms_norm_eps=1e-3, attention_bias=True,
                                       rope_parameters=MROPE | {"mrope_section": [4, 4, 4], "mrope_interleaved": True}),
                      vision_config=dict(QWEN_VISION, out_hidden_size=56, num_position_embeddings=16, deepstack_visual_indexes=[0]),
                      dtype="float32", tie_word_embeddings=True), without("text_config.tie_word_embeddings")),
    "qwen3-vl-plain": ("Qwen3VLForConditionalGeneration",
                       dict(text_config=dict(SIZES, head_dim=128, num_key_value_heads=3),
                            vision_config=dict(QWEN_VISION, num_position_embeddings=16, deepstack_visual_indexes=[0]),
                            dtype="float32"),
                       without("text_config.rms_norm_eps", "text_config.head_dim", "text_config.rope_parameters",
                               "text_config.hidden_act", "text_config.tie_word_embeddings")),
    "qwen3-vl-moe-newer": ("Qwen3VLMoeForConditionalGeneration",
                           dict(text_config=dict(EVEN, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=28, head_dim=24,
                                                 rope_parameters=MROPE | {"mrope_section": [4, 4, 4], "mrope_interleaved": True}),
                                vision_config=dict(QWEN_VISION, num_position_embeddings=16, deepstack_visual_indexes=[0]),
                                dtype="float32"), without("text_config.tie_word_embeddings"), ["intermediate_size"]),
    "qwen3-vl-moe": ("Qwen3VLMoeForConditionalGeneration",
                     dict(text_config=dict(EVEN, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20,
                                           rms_norm_eps=1e-3, num_hidden_layers=3, mlp_only_layers=[1], head_dim=24,
                                           rope_parameters=MROPE | {"mrope_section": [4, 4, 4], "mrope_interleaved": True}),
                          vision_config=dict(QWEN_VISION, num_position_embeddings=16, deepstack_visual_indexes=[0]),
                          dtype="float32"), {}),
    "llava": ("LlavaForConditionalGeneration",
              dict(text_config=dict(SIZES, model_type="llama", num_key_value_heads=1, rms_norm_eps=1e-3, **rope(3e3)),
                   vision_config=CLIP, dtype="float32"), {"ignore_index": -100, **without("text_config.tie_word_embeddings")},
              (), PROMPTS, OLDER),
    "paligemma": ("PaliGemmaForConditionalGeneration",
                  dict(text_config=dict(GQA, model_type="gemma", rms_norm_eps=1e-3, **rope(3e3)), vision_config=dict(SIGLIP, projection_dim=56),
                       projection_dim=56, hidden_size=56, dtype="float32"), without("text_config.tie_word_embeddings", "hidden_size", "vocab_size"), PALIGEMMA),
    "paligemma2": ("PaliGemmaForConditionalGeneration",
                   dict(text_config=dict(GQA, model_type="gemma2", num_attention_heads=4, rms_norm_eps=1e-3, query_pre_attn_scalar=40,
                                         sliding_window=40, attn_logit_softcapping=3.0, final_logit_softcapping=2.0,
                                         hidden_activation="gelu", **rope(3e3)), vision_config=dict(SIGLIP, projection_dim=56),
                        projection_dim=56, hidden_size=56, dtype="float32"),
                   {"text_config.layer_types": None, **without("tie_word_embeddings", "text_config.tie_word_embeddings", "hidden_size", "vocab_size")},
                   PALIGEMMA + ["final_logit_softcapping"]),
    "llava-tied": ("LlavaForConditionalGeneration",
                   dict(text_config=dict(SIZES, model_type="qwen2", num_key_value_heads=1, tie_word_embeddings=True, **rope(3e3)),
                        vision_config=SIGLIP, dtype="float32"), without("tie_word_embeddings"), WINDOW),
    "llava-next": ("LlavaNextForConditionalGeneration",
                   dict(text_config=dict(GQA, model_type="mistral", sliding_window=5, **rope(3e3)), vision_config=CLIP,
                        dtype="float32"), without("text_config.tie_word_embeddings"), (), PROMPTS,
                   OLDER | {"model.image_newline": "image_newline"}),
    "llava-onevision": ("LlavaOnevisionForConditionalGeneration",
                        dict(text_config=dict(SIZES, model_type="qwen2", num_key_value_heads=1, **rope(3e3)),
                             vision_config=SIGLIP, dtype="float32", tie_word_embeddings=True),
                        without("text_config.tie_word_embeddings"), WINDOW),
    "idefics3": ("Idefics3ForConditionalGeneration",
                 dict(text_config=dict(SIZES, model_type="llama", num_key_value_heads=1, rms_norm_eps=1e-3, **LLAMA3),
                      vision_config=VISION, dtype="float32"), without("text_config.tie_word_embeddings")),
    "smolvlm": ("SmolVLMForConditionalGeneration",
                dict(text_config=dict(SIZES, model_type="llama", num_key_value_heads=1, **rope(3e3)),
                     vision_config=VISION, dtype="float32", tie_word_embeddings=True),
                {"text_config.perceiver_config": {"resampler_depth": 6},
                 "text_config.pixel_shuffle_factor": 4, "text_config.qk_layer_norms": False,
                 **without("text_config.tie_word_embeddings", "text_config.rms_norm_eps")},
                ["pixel_shuffle_factor", "resampler_depth"]),
    "internvl": ("InternVLForConditionalGeneration",
                 dict(text_config=dict(SIZES, model_type="qwen2", num_key_value_heads=1, rms_norm_eps=1e-3, **rope(3e3)),
                      vision_config=dict(VISION, image_size=[28, 28], patch_size=[14, 14]), dtype="float32",
                      tie_word_embeddings=False), without("text_config.tie_word_embeddings"), WINDOW, PROMPTS, OLDER),
    "internvl-tied": ("InternVLForConditionalGeneration",
                      dict(text_config=dict(GQA, model_type="qwen3", **rope(3e3)),
                           vision_config=dict(VISION, image_size=[28, 28], patch_size=[14, 14]), dtype="float32"),
                      without("tie_word_embeddings", "text_config.tie_word_embeddings"), WINDOW),
    "glm4v": ("Glm4vForConditionalGeneration",
              dict(text_config=dict(SIZES, num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-3,
                                    rope_parameters=MROPE | {"partial_rotary_factor": 0.5, "mrope_section": [1, 2, 3]}),
                   vision_config=GLM_VISION, dtype="float32"), {}),
    "glm4.6v": ("Glm46VForConditionalGeneration",
                dict(text_config=dict(SIZES, num_attention_heads=6, num_key_value_heads=2, hidden_size=96),
                     vision_config=dict(GLM_VISION, out_hidden_size=96), dtype="float32", tie_word_embeddings=True),
                {"text_config.attention_bias": True, "text_config.rope_parameters": MROPE_ALONE, **without("text_config.rms_norm_eps")}),
    "glm4.5v": ("Glm4vMoeForConditionalGeneration",
                dict(text_config=dict(GQA, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=2,
                                      n_group=3, topk_group=2, routed_scaling_factor=1.7, attention_bias=False,
                                      rope_parameters=MROPE | {"partial_rotary_factor": 0.25, "mrope_section": [1, 1, 1]}),
                     vision_config=dict(GLM_VISION, out_hidden_size=56), dtype="float32"),
                {"text_config.num_nextn_predict_layers": 1, **without("text_config.tie_word_embeddings")},
                ["num_nextn_predict_layers"]),
    "glm4.5v-plain": ("Glm4vMoeForConditionalGeneration",
                      dict(text_config=dict(GQA, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=20,
                                            norm_topk_prob=False, first_k_dense_replace=0),
                           vision_config=dict(GLM_VISION, out_hidden_size=56), dtype="float32", tie_word_embeddings=True),
                      {"text_config.rope_parameters": MROPE_ALONE | {"mrope_section": [1, 2, 3]},
                       **without("text_config.tie_word_embeddings", "text_config.attention_bias", "text_config.rms_norm_eps")},
                      ["intermediate_size"]),
    "glm-ocr": ("GlmOcrForConditionalGeneration",
                dict(text_config=dict(GQA, rms_norm_eps=1e-3, rope_parameters=MROPE | {"mrope_section": [4, 4, 4]}),
                     vision_config=dict(GLM_VISION, out_hidden_size=56), dtype="float32"),
                {"text_config.num_nextn_predict_layers": 1}, ["num_nextn_predict_layers"], PROMPTS, {},
                {"model.language_model.layers.2.input_layernorm.weight": [56]}),
    "glm-ocr-plain": ("GlmOcrForConditionalGeneration",
                      dict(text_config=dict(SIZES, num_attention_heads=8, hidden_size=128, num_key_value_heads=8),
                           vision_config=dict(GLM_VISION, out_hidden_size=128), dtype="float32", tie_word_embeddings=True),
                      {"text_config.rope_parameters": MROPE_ALONE, "text_config.tie_word_embeddings": True,
                       **without("text_config.rms_norm_eps", "text_config.num_key_value_heads", "tie_word_embeddings")}),
    "qwen2.5-omni": ("Qwen2_5OmniThinkerForConditionalGeneration",
                     dict(text_config=dict(SIZES, num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-3,
                                           use_sliding_window=True, sliding_window=5, max_window_layers=1,
                                           rope_parameters=MROPE | {"mrope_section": [4, 4, 4]}),
                          vision_config=dict(QWEN_VISION), audio_config=QWEN_AUDIO, dtype="float32"),
                     without("text_config.layer_types", "text_config.tie_word_embeddings")),
    "qwen2.5-omni-plain": ("Qwen2_5OmniThinkerForConditionalGeneration",
                           dict(text_config=dict(SIZES, num_attention_heads=4, hidden_size=64, num_key_value_heads=4),
                                vision_config=dict(QWEN_VISION, out_hidden_size=64), audio_config=dict(QWEN_AUDIO, output_dim=64),
                                dtype="float32", tie_word_embeddings=True),
                           {"text_config.rope_parameters": MROPE_ALONE,
                            **without("text_config.layer_types", "text_config.rms_norm_eps", "text_config.num_key_value_heads",
                                      "text_config.tie_word_embeddings")}, WINDOW),
    "qwen3-omni": ("Qwen3OmniMoeThinkerForConditionalGeneration",
                   dict(text_config=dict(GQA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, rms_norm_eps=1e-3,
                                         norm_topk_prob=False, num_hidden_layers=3, mlp_only_layers=[1], attention_bias=True,
                                         rope_parameters=MROPE | {"mrope_section": [4, 4, 4], "mrope_interleaved": True}),
                        vision_config=dict(QWEN_VISION, out_hidden_size=56, num_position_embeddings=16, deepstack_visual_indexes=[0]),
                        audio_config=QWEN3_AUDIO, dtype="float32"), {}, ["sliding_window"]),
    "qwen3-omni-plain": ("Qwen3OmniMoeThinkerForConditionalGeneration",
                         dict(text_config=dict(GQA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=20,
                                               num_key_value_heads=4, num_attention_heads=4),
                              vision_config=dict(QWEN_VISION, out_hidden_size=56, num_position_embeddings=16,
                                                 deepstack_visual_indexes=[0]),
                              audio_config=QWEN3_AUDIO, dtype="float32", tie_word_embeddings=True),
                         without("text_config.norm_topk_prob", "text_config.rms_norm_eps", "text_config.rope_parameters",
                                 "text_config.num_key_value_heads"), ["intermediate_size", "sliding_window"]),
    "paddleocr-vl": ("PaddleOCRVLForConditionalGeneration",
                     dict(text_config=dict(GQA, rms_norm_eps=1e-3, use_bias=True, rope_parameters=MROPE | {"mrope_section": [4, 4, 4]}),
                          vision_config=SIGLIP_, dtype="float32", tie_word_embeddings=False),
                     without("text_config.tie_word_embeddings"), ["tie_word_embeddings"]),
    "paddleocr-vl-plain": ("PaddleOCRVLForConditionalGeneration",
                           dict(text_config=dict(SIZES, num_attention_heads=2, head_dim=128, num_key_value_heads=2),
                                vision_config=SIGLIP_, dtype="float32"),
                           without("text_config.tie_word_embeddings", "tie_word_embeddings", "text_config.head_dim",
                                   "text_config.num_key_value_heads", "text_config.rms_norm_eps")),
    "voxtral": ("VoxtralForConditionalGeneration",
                dict(text_config=dict(EVEN, model_type="llama", **rope(3e3)), audio_config=WHISPER, dtype="float32"),
                without("text_config.tie_word_embeddings", "hidden_size"), (), PROMPTS, OLDER_AUDIO),
    "qwen2-audio": ("Qwen2AudioForConditionalGeneration",
                    dict(text_config=dict(SIZES, model_type="qwen2", num_key_value_heads=1, **rope(3e3)),
                         audio_config=dict(WHISPER, model_type="qwen2_audio_encoder"), dtype="float32"),
                    without("text_config.tie_word_embeddings"), WINDOW),
    "llava-next-video": ("LlavaNextVideoForConditionalGeneration",
                         dict(text_config=dict(EVEN, model_type="llama", **rope(3e3)), vision_config=CLIP, dtype="float32"),
                         without("text_config.tie_word_embeddings")),
    "vipllava": ("VipLlavaForConditionalGeneration",
                 dict(text_config=dict(SIZES, model_type="llama"), vision_config=dict(CLIP, num_hidden_layers=2),
                      vision_feature_layers=[-1, -2], dtype="float32"), without("text_config.tie_word_embeddings")),
    "video-llava": ("VideoLlavaForConditionalGeneration",
                    dict(text_config=dict(SIZES, model_type="llama"), vision_config=CLIP, dtype="float32"),
                    without("text_config.tie_word_embeddings")),
    "lighton-ocr": ("LightOnOcrForConditionalGeneration",
                    dict(text_config=dict(GQA, model_type="qwen3"), dtype="float32",
                         vision_config=dict(VISION, model_type="pixtral", head_dim=16)),
                    without("text_config.tie_word_embeddings", "tie_word_embeddings"), WINDOW),
    "kimi-k2.5": ("Kimi_K25ForConditionalGeneration",
                  dict(text_config=dict(LATENT, model_type="deepseek_v3", q_lora_rank=20, n_group=1, topk_group=1, **LATENT_YARN),
                       vision_config=dict(VISION, pos_emb_height=4, pos_emb_width=4, pos_emb_time=2), dtype="float32",
                       tie_word_embeddings=False),
                  without("text_config.tie_word_embeddings"), ["num_nextn_predict_layers"], PROMPTS,
                  {"language_model.model.blocks.": "language_model.model.layers."}),
    "hyperclovax-vision": ("HyperCLOVAXVisionV2ForConditionalGeneration",
                           dict(text_config=dict(SIZES, model_type="hyperclovax"), vision_config=dict(QWEN_VISION, model_type="qwen2_5_vl_vision", out_hidden_size=48), dtype="float32"),
                           without("text_config.tie_word_embeddings", "tie_word_embeddings")),
    "exaone4.5": ("Exaone4_5_ForConditionalGeneration",
                  dict(text_config=dict(GQA, model_type="exaone4", num_hidden_layers=3, sliding_window=5, sliding_window_pattern=2),
                       vision_config=dict(QWEN_VISION, out_hidden_size=56, num_key_value_heads=2), dtype="float32"),
                  without("text_config.tie_word_embeddings", "text_config.layer_types")),
    "qwen3-asr": ("Qwen3ASRForConditionalGeneration",
                  dict(text_config=dict(GQA, model_type="qwen3"), audio_config=QWEN3_AUDIO | {"output_dim": 56}, dtype="float32"),
                  without("text_config.tie_word_embeddings", "tie_word_embeddings"), WINDOW),
    "glm-asr": ("GlmAsrForConditionalGeneration",
                dict(text_config=dict(SIZES, model_type="llama", num_key_value_heads=1), audio_config=dict(hidden_size=32, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2), dtype="float32"),
                without("text_config.tie_word_embeddings", "tie_word_embeddings")),
    "granite-speech": ("GraniteSpeechForConditionalGeneration",
                       dict(text_config=dict(SIZES, model_type="granite", num_key_value_heads=1, attention_multiplier=0.15, logits_scaling=2.5),
                            encoder_config=dict(input_dim=8, hidden_dim=32, num_layers=1, num_heads=2, dim_head=16, output_dim=8, context_size=8, max_pos_emb=8),
                            projector_config=dict(model_type="blip_2_qformer", hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                                  intermediate_size=40, encoder_hidden_size=32),
                            has_lora_adapter=False, dtype="float32"),
                       without("text_config.tie_word_embeddings", "tie_word_embeddings", "encoder_config.model_type"), ["downsample_rate", "window_size", "has_lora_adapter", "logits_scaling"]),
    "janus": ("JanusForConditionalGeneration",
              dict(text_config=dict(SIZES, model_type="llama"), vision_config=dict(VISION, projection_dim=48, depth=1),
                   vq_config=dict(embed_dim=4, num_embeddings=8, latent_channels=4, base_channels=32, channel_multiplier=[1], num_res_blocks=1, projection_dim=48, num_patches=4, image_token_embed_dim=48), dtype="float32"),
              without("text_config.tie_word_embeddings", "tie_word_embeddings")),
    "deepseek-vl": ("DeepseekVLForConditionalGeneration",
                    dict(text_config=dict(SIZES, model_type="llama"), vision_config=SIGLIP, dtype="float32"),
                    without("text_config.tie_word_embeddings", "tie_word_embeddings")),
    "idefics2": ("Idefics2ForConditionalGeneration",
                 dict(text_config=dict(GQA, model_type="mistral", sliding_window=5), vision_config=VISION, dtype="float32",
                      perceiver_config=dict(hidden_size=56, resampler_n_latents=2, resampler_depth=1, resampler_n_heads=2, resampler_head_dim=8, num_key_value_heads=1)),
                 without("text_config.tie_word_embeddings")),
    "got-ocr2": ("GotOcr2ForConditionalGeneration",
                 dict(text_config=dict(SIZES, model_type="qwen2", num_key_value_heads=1), dtype="float32",
                      vision_config=dict(VISION, output_channels=8, window_size=2, global_attn_indexes=[0], num_pos_feats=4, mlp_dim=32)),
                 without("text_config.tie_word_embeddings", "tie_word_embeddings"), WINDOW),
    "qianfan-ocr": ("QianfanOCRForConditionalGeneration",
                    dict(text_config=dict(GQA, model_type="qwen3"), dtype="float32",
                         vision_config=dict(VISION, image_size=[28, 28], patch_size=[14, 14])),
                    without("text_config.tie_word_embeddings"), WINDOW, PROMPTS,
                    {"language_model.model.encoder.layers.": "language_model.model.layers."}),
    "videollama3": ("VideoLlama3ForConditionalGeneration",
                    dict(text_config=dict(SIZES, model_type="qwen2", num_key_value_heads=1), vision_config=VISION, dtype="float32"),
                    without("text_config.tie_word_embeddings"), WINDOW),
    "audio-flamingo3": ("AudioFlamingo3ForConditionalGeneration",
                        dict(text_config=dict(SIZES, model_type="qwen2", num_key_value_heads=1), dtype="float32",
                             audio_config=dict(WHISPER, model_type="audioflamingo3_encoder")),
                        without("text_config.tie_word_embeddings"), WINDOW),
    "aya-vision": ("AyaVisionForConditionalGeneration",
                   dict(text_config=dict(SIZES, model_type="cohere2", num_key_value_heads=1, sliding_window=5, **rope(1e4),
                                         layer_types=["sliding_attention", "full_attention"]),
                        vision_config=SIGLIP, dtype="float32"),
                   without("tie_word_embeddings", "text_config.tie_word_embeddings"), ["logit_scale"]),
    "cohere2-vision": ("Cohere2VisionForConditionalGeneration",
                       dict(text_config=dict(SIZES, model_type="cohere2", num_key_value_heads=1, sliding_window=5, **rope(1e4),
                                             layer_types=["sliding_attention", "full_attention"]),
                            vision_config=SIGLIP, alignment_intermediate_size=64, dtype="float32", tie_word_embeddings=False),
                       without("text_config.tie_word_embeddings"), ["logit_scale"]),
    "glm4-moe": ("Glm4Moe", dict(GQA, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                                 n_shared_experts=2, n_group=3, topk_group=2, routed_scaling_factor=1.7,
                                 use_qk_norm=True, rms_norm_eps=1e-3, **rope(1e4, 0.25)), {},
                 ["num_nextn_predict_layers"]),
    "glm4-moe-plain": ("Glm4Moe", dict(GQA, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
                                       norm_topk_prob=False, attention_bias=True, first_k_dense_replace=0,
                                       tie_word_embeddings=True),
                       {"rope_parameters": None, "rope_theta": 300.0,
                        **without("rms_norm_eps", "n_shared_experts", "n_group", "topk_group", "routed_scaling_factor",
                                  "use_qk_norm")}, ["num_nextn_predict_layers", "intermediate_size"]),
    "deepseek-v2": ("DeepseekV2", dict(LATENT, q_lora_rank=20, topk_method="group_limited_greedy", n_group=3,
                                       topk_group=2, routed_scaling_factor=1.7, rms_norm_eps=1e-3, **LATENT_YARN), {}),
    "deepseek-v2-lite": ("DeepseekV2", dict(LATENT, q_lora_rank=None, attention_bias=True, mlp_bias=True,
                                            num_hidden_layers=3, first_k_dense_replace=2, **rope(1e4)),
                         without("n_group", "topk_group", "topk_method", "rms_norm_eps", "routed_scaling_factor")),
    "deepseek-v3": ("DeepseekV3", dict(LATENT, q_lora_rank=20, n_group=3, topk_group=2, routed_scaling_factor=1.7,
                                       rms_norm_eps=1e-3, **LATENT_YARN), {}, ["num_nextn_predict_layers"]),
    "deepseek-v3-plain": ("DeepseekV3", dict(LATENT, v_head_dim=24, q_lora_rank=None, n_group=1, topk_group=1,
                                             norm_topk_prob=False, rope_interleave=False, attention_bias=True,
                                             n_shared_experts=1, tie_word_embeddings=True, **rope(1e4)),
                          {"norm_topk_prob": NULL, **without("rms_norm_eps", "routed_scaling_factor", "n_shared_experts")},
                          ["num_nextn_predict_layers"]),
    "chatglm2": ("ChatGLM", dict(chatglm.CONFIG), {}, chatglm.IDLE),
    "chatglm-6b": ("ChatGLM", dict(chatglm.FIRST), {}, chatglm.FIRST_IDLE),
    "chatglm-6b-tied": ("ChatGLM", dict(chatglm.FIRST, num_attention_heads=2, hidden_size=80, num_layers=3,
                                        tie_word_embeddings=True, layernorm_epsilon=1e-5), {}, chatglm.FIRST_IDLE),
    "chatglm3": ("ChatGLM", dict(chatglm.CONFIG, multi_query_attention=False, add_qkv_bias=False, rope_ratio=50,
                                 layernorm_epsilon=1e-3, num_attention_heads=3, tie_word_embeddings=True), {},
                 chatglm.IDLE + ["multi_query_group_num"]),
    "olmo-clip": ("Olmo", dict(SIZES, num_key_value_heads=1, head_dim=24, clip_qkv=0.4, **rope(3e3)), {}),
    "olmoe-clip": ("Olmoe", dict(SIZES, num_key_value_heads=3, num_experts=5, num_experts_per_tok=2, clip_qkv=0.6,
                                 **rope(1e4)), {}),
    "gemma3-both": ("Gemma3", dict(GQA, num_hidden_layers=2, num_attention_heads=4, sliding_window=5,
                                   layer_types=["sliding_attention", "full_attention"],
                                   rope_parameters={"full_attention": {"rope_type": "default"},
                                                    "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}}),
                    {"rope_theta": 5000.0, "rope_local_base_freq": 900.0,
                     "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}},
                     **without("_sliding_window_pattern", "sliding_window_pattern")}, ["rope_local_base_freq"]),
    "opt": ("OPT", dict(SIZES, ffn_dim=88), without("intermediate_size", "tie_word_embeddings", "enable_bias",
                                                    "activation_function", "word_embed_proj_dim")),
    "opt-350m": ("OPT", dict(SIZES, ffn_dim=88, do_layer_norm_before=False, word_embed_proj_dim=40),
                 without("intermediate_size"), ["_remove_final_layer_norm"]),
    "opt-bare": ("OPT", dict(SIZES, ffn_dim=88, _remove_final_layer_norm=True, layer_norm_elementwise_affine=False,
                             word_embed_proj_dim=72, tie_word_embeddings=False), without("intermediate_size")),
    "opt-plain": ("OPT", dict(SIZES, ffn_dim=40, enable_bias=False, tie_word_embeddings=False,
                              activation_function="gelu"), without("intermediate_size")),
    "mixtral": ("Mixtral", dict(GQA, num_local_experts=5, num_experts_per_tok=2, **rope(1e4), rms_norm_eps=1e-3,
                                sliding_window=6), {}),
    "mixtral-one": ("Mixtral", dict(SIZES, num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=1,
                                    tie_word_embeddings=True, hidden_act="gelu"),
                    {"rope_parameters": None, **without("rms_norm_eps", "head_dim")}),
    "mixtral-sole": ("Mixtral", dict(SIZES, num_key_value_heads=3, num_local_experts=1, num_experts_per_tok=1,
                                     **rope(1e4)), {}),
    "granitemoe": ("GraniteMoe", dict(SIZES, num_key_value_heads=1, num_local_experts=6, num_experts_per_tok=3,
                                      **rope(4e3), attention_multiplier=0.15, embedding_multiplier=3.0,
                                      residual_multiplier=0.4, logits_scaling=2.5, tie_word_embeddings=True), {}),
    "granitemoe-bias": ("GraniteMoe", dict(SIZES, num_key_value_heads=3, attention_bias=True, **rope(1e4)),
                        without("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
                                "rms_norm_eps", "num_local_experts", "num_experts_per_tok")),
    "qwen2-moe": ("Qwen2Moe", dict(SIZES, num_key_value_heads=1, num_experts=7, num_experts_per_tok=3,
                                   moe_intermediate_size=20, shared_expert_intermediate_size=52, norm_topk_prob=False,
                                   **rope(1e6), decoder_sparse_step=2), {}, WINDOW),
    "qwen2-moe-renorm": ("Qwen2Moe", dict(SIZES, num_key_value_heads=3, num_experts=4, num_experts_per_tok=2,
                                          moe_intermediate_size=36, shared_expert_intermediate_size=24,
                                          norm_topk_prob=True, qkv_bias=False, mlp_only_layers=[1], **rope(1e4),
                                          use_sliding_window=True, sliding_window=5, max_window_layers=1),
                         without("layer_types", "num_local_experts"), ["max_window_layers"]),
    "qwen3-moe": ("Qwen3Moe", dict(GQA, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=20,
                                   norm_topk_prob=True, **rope(1e6)), {}, WINDOW + ["intermediate_size"]),
    "olmoe": ("Olmoe", dict(SIZES, num_key_value_heads=1, num_experts=6, num_experts_per_tok=4, **rope(1e4)), {}),
    "olmoe-renorm": ("Olmoe", dict(SIZES, num_key_value_heads=3, num_experts=6, num_experts_per_tok=2,
                                   norm_topk_prob=True, attention_bias=True, tie_word_embeddings=True),
                     {"rope_parameters": None, "rope_theta": 300.0, **without("rms_norm_eps")}),
    "lfm2": ("Lfm2", dict(GQA, num_hidden_layers=3, norm_eps=1e-3, conv_bias=True, block_multiple_of=20, block_ffn_dim_multiplier=1.3,
                          tie_word_embeddings=False, **rope(3e3), layer_types=["conv", "full_attention", "conv"]), {}),
    "lfm2-plain": ("Lfm2", dict(SIZES, num_key_value_heads=3, conv_L_cache=5, block_auto_adjust_ff_dim=False, full_attn_idxs=[1]),
                   {"layer_types": None, "full_attn_idxs": [1], "rope_parameters": None, "rope_theta": 300.0,
                    "intermediate_size": None, "block_ff_dim": 88,
                    **without("norm_eps", "conv_bias", "tie_word_embeddings", "head_dim")},
                   ["block_multiple_of", "block_ffn_dim_multiplier"]),
    "lfm2-vl": ("Lfm2VlForConditionalGeneration",
                dict(text_config=dict(GQA, model_type="lfm2", num_hidden_layers=3, norm_eps=1e-3, block_multiple_of=24, **rope(3e3),
                                      layer_types=["conv", "full_attention", "conv"]),
                     vision_config=dict(VISION, model_type="siglip2_vision_model", num_patches=16), projector_hidden_size=40,
                     dtype="float32"), without("tie_word_embeddings", "text_config.tie_word_embeddings"),
                ["projector_bias", "projector_hidden_size", "projector_use_layernorm"]),
    "lfm2-moe": ("Lfm2Moe", dict(GQA, num_hidden_layers=4, norm_eps=1e-3, conv_bias=True, num_dense_layers=2, num_experts=6,
                                 num_experts_per_tok=3, moe_intermediate_size=20, routed_scaling_factor=1.7, tie_word_embeddings=False,
                                 **rope(3e3), layer_types=["conv", "full_attention", "full_attention", "conv"]), {}),
    "lfm2-moe-plain": ("Lfm2Moe", dict(SIZES, num_key_value_heads=1, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=36,
                                       num_dense_layers=0, norm_topk_prob=False, use_expert_bias=False, conv_L_cache=4,
                                       layer_types=["full_attention", "conv"]),
                       {"rope_parameters": None, "rope_theta": 300.0,
                        **without("norm_eps", "conv_bias", "tie_word_embeddings", "head_dim", "routed_scaling_factor")},
                       ["intermediate_size"]),
    "qwen3-next": ("Qwen3Next", dict(GQA, **DELTA, num_hidden_layers=3, rms_norm_eps=1e-3, num_experts=6, num_experts_per_tok=3,
                                     moe_intermediate_size=20, shared_expert_intermediate_size=36, mlp_only_layers=[1],
                                     **rope(3e3, 0.5), layer_types=["linear_attention", "full_attention", "linear_attention"]),
                   without("norm_topk_prob"), (), PROMPTS, {}, {"mtp.fc.weight": [56, 112], "mtp.layers.0.input_layernorm.weight": [56]}),
    "qwen3-next-plain": ("Qwen3Next", dict(GQA, num_hidden_layers=2, linear_key_head_dim=32, linear_value_head_dim=16, linear_num_key_heads=3,
                                           linear_num_value_heads=3, linear_conv_kernel_dim=3, attention_bias=True, head_dim=64,
                                           num_experts=4, num_experts_per_tok=2, moe_intermediate_size=28, norm_topk_prob=False,
                                           shared_expert_intermediate_size=20, decoder_sparse_step=2, tie_word_embeddings=True,
                                           layer_types=LINEAR),
                         {"layer_types": None, "full_attention_interval": 2, "rope_parameters": None, "rope_theta": 300.0,
                          **without("rms_norm_eps", "mlp_only_layers", "partial_rotary_factor")},
                         (), [[40], [68, 15, 98, 78, 57, 11, 48, 11, 87, 59, 5, 24, 67]]),  # thresholds of experts are far
    "qwen3.5": ("Qwen3_5ForConditionalGeneration",
                dict(text_config=dict(GQA, **DELTA, num_hidden_layers=3, rms_norm_eps=1e-3, attention_bias=True,
                                      layer_types=["linear_attention", "linear_attention", "full_attention"],
                                      rope_parameters=MROPE | {"mrope_section": [2, 2, 2], "mrope_interleaved": True,
                                                               "partial_rotary_factor": 0.5}),
                     vision_config=dict(QWEN_VISION, out_hidden_size=56, num_position_embeddings=16), dtype="float32",
                     tie_word_embeddings=True), without("text_config.tie_word_embeddings")),
    "qwen3.5-text": ("Qwen3_5", dict(SIZES, num_key_value_heads=1, head_dim=32, **{**DELTA, "linear_num_value_heads": 2}, linear_conv_kernel_dim=2,
                                     layer_types=LINEAR),
                     {"layer_types": None, "full_attention_interval": 2, "rope_parameters": None, "rope_theta": 300.0,
                      **without("rms_norm_eps", "partial_rotary_factor")}),
    "qwen3.5-moe": ("Qwen3_5MoeForConditionalGeneration",
                    dict(text_config=dict(GQA, **DELTA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                                          shared_expert_intermediate_size=36, layer_types=LINEAR,
                                          rope_parameters=MROPE | {"mrope_section": [1, 1, 1], "mrope_interleaved": True,
                                                                   "partial_rotary_factor": 0.25}),
                         vision_config=dict(QWEN_VISION, out_hidden_size=56, num_position_embeddings=16), dtype="float32"),
                    without("text_config.tie_word_embeddings", "text_config.intermediate_size")),
    "qwen3.5-moe-fused": ("Qwen3_5MoeForConditionalGeneration",
                          dict(text_config=dict(GQA, **DELTA, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=28, head_dim=32,
                                                shared_expert_intermediate_size=20, layer_types=LINEAR, tie_word_embeddings=True),
                               vision_config=dict(QWEN_VISION, out_hidden_size=56, num_position_embeddings=16), dtype="float32",
                               tie_word_embeddings=True),
                          without("text_config.rope_parameters", "text_config.intermediate_size", "text_config.tie_word_embeddings"),
                          (), [[91], [96, 52, 20, 33, 64, 88, 93, 10, 4, 4, 30, 56, 32]],  # thresholds of experts are far
                          {f"model.language_model.layers.{i}.mlp.experts.": None for i in range(2)},
                          {f"model.language_model.layers.{i}.mlp.experts.{part}": shape for i in range(2)
                           for part, shape in dict(gate_up_proj=[5, 56, 56], down_proj=[5, 56, 28]).items()}),
    "granite4-h": ("GraniteMoeHybrid", dict(SIZES, num_key_value_heads=1, num_hidden_layers=3, **SSM, mamba_proj_bias=True,
                                            layer_types=["linear_attention", "full_attention", "linear_attention"],
                                            num_local_experts=5, num_experts_per_tok=3, shared_intermediate_size=36,
                                            attention_multiplier=0.15, residual_multiplier=0.4, logits_scaling=2.5, mamba_d_conv=3,
                                            embedding_multiplier=3.0, rms_norm_eps=1e-3, time_step_limit=[0.5, 0.7]),
                   {"layer_types": ["mamba", "attention", "mamba"]}, ["mamba_chunk_size", "rope_theta"]),
    "granite4-h-dense": ("GraniteMoeHybrid", dict(SIZES, **SSM, layer_types=LINEAR, num_local_experts=0,
                                                  num_experts_per_tok=0, mamba_conv_bias=False, tie_word_embeddings=True,
                                                  shared_intermediate_size=36),
                         {"layer_types": None, "layers_block_type": ["mamba", "attention"], "position_embedding_type": "nope",
                          **without("mamba_d_head", "rms_norm_eps", "time_step_limit")},
                         ["mamba_chunk_size", "rope_theta", "intermediate_size", "num_experts_per_tok"]),
    "bamba": ("Bamba", dict(SIZES, num_key_value_heads=1, num_hidden_layers=3, **SSM, mamba_proj_bias=True, attn_layer_indices=[1],
                            mlp_bias=True, attention_bias=True, rms_norm_eps=1e-3, time_step_limit=[0.5, 0.7], **rope(3e3)), {},
              BAMBA),
    "bamba-plain": ("Bamba", dict(SIZES, num_key_value_heads=3, **{**SSM, "mamba_n_groups": 1}, mamba_conv_bias=False, mamba_d_conv=2,
                                  attn_layer_indices=[0], tie_word_embeddings=True, hidden_act="gelu"),
                    {"rope_parameters": None, "rope_theta": 300.0, "mamba_d_head": "auto",
                     **without("rms_norm_eps", "time_step_limit", "partial_rotary_factor")}, BAMBA),
    "falcon-h1": ("FalconH1", dict(SIZES, num_key_value_heads=1, **SSM, mamba_d_ssm=96, mamba_rms_norm=True, mamba_norm_before_gate=False,
                                   mamba_proj_bias=True, projectors_bias=True, attention_bias=True, mlp_bias=True, **rope(3e3),
                                   rms_norm_eps=1e-3, lm_head_multiplier=0.4, embedding_multiplier=3.0, mlp_multipliers=[0.7, 1.6],
                                   key_multiplier=0.7, attention_out_multiplier=0.8, attention_in_multiplier=1.7,
                                   ssm_multipliers=[0.7, 1.3, 0.8, 1.4, 0.6], ssm_in_multiplier=1.2, ssm_out_multiplier=0.7,
                                   time_step_limit=[0.5, 0.7]), {}, FALCON_H1 + ["mamba_expand"]),
    "falcon-h1-plain": ("FalconH1", dict(SIZES, num_key_value_heads=3, **{**SSM, "mamba_n_groups": 1}, mamba_d_ssm=96, mamba_conv_bias=False,
                                         tie_word_embeddings=True, head_dim=24, mamba_d_conv=2),
                        {"rope_parameters": None, "rope_theta": 500.0,
                         **without("rms_norm_eps", "mlp_multipliers", "ssm_multipliers", "key_multiplier", "time_step_limit")},
                        FALCON_H1 + ["mamba_expand", "mamba_norm_before_gate"]),
    "falcon-h1-norm": ("FalconH1", dict(SIZES, num_key_value_heads=3, **SSM, mamba_d_ssm=None, mamba_rms_norm=True, **rope(1e4)), {},
                       FALCON_H1),
    "nemotron-h": ("NemotronH", dict(SIZES, num_key_value_heads=1, head_dim=24, mamba_num_heads=6, mamba_head_dim=24, n_groups=2,
                                     ssm_state_size=16, layer_norm_epsilon=1e-3, use_bias=True, mlp_bias=True, conv_kernel=3,
                                     time_step_min=0.6, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp"]), {},
                   NEMOTRON_H + NO_EXPERTS),
    "nemotron-h-plain": ("NemotronH", dict(SIZES, num_key_value_heads=3, mamba_num_heads=4, mamba_head_dim=16, n_groups=1, ssm_state_size=24,
                                           use_conv_bias=False, mlp_hidden_act="silu", head_dim=16,
                                           layers_block_type=["full_attention", "linear_attention", "mlp"]),
                         {"layers_block_type": None, "layer_types": None, "hybrid_override_pattern": "*M-",
                          "num_hidden_layers": 3, **without("layer_norm_epsilon")},
                         NEMOTRON_H + NO_EXPERTS + ["num_hidden_layers"]),
    "nemotron-h-moe": ("NemotronH", dict(SIZES, num_key_value_heads=1, head_dim=24, mamba_num_heads=4, mamba_head_dim=32, n_groups=4,
                                         ssm_state_size=16, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                                         moe_shared_expert_intermediate_size=36, moe_latent_size=32, n_group=3, topk_group=2,
                                         routed_scaling_factor=1.7, mlp_bias=True,
                                         layers_block_type=["linear_attention", "moe", "full_attention", "moe"]), {},
                       NEMOTRON_H + ["intermediate_size"]),
    "nemotron-h-moe-plain": ("NemotronH", dict(SIZES, num_key_value_heads=3, head_dim=16, mamba_num_heads=4, mamba_head_dim=16,
                                               n_groups=2, ssm_state_size=24, n_routed_experts=5, num_experts_per_tok=2,
                                               moe_intermediate_size=28, moe_shared_expert_intermediate_size=20,
                                               norm_topk_prob=False,
                                               layers_block_type=["linear_attention", "moe", "full_attention", "mlp"]),
                             {"layers_block_type": None, "hybrid_override_pattern": "ME*-", "num_hidden_layers": 7,
                              **without("layer_norm_epsilon", "routed_scaling_factor", "mamba_hidden_act")},
                             NEMOTRON_H + ["num_hidden_layers"]),
    "mamba": ("Mamba", dict(COMMON, **STATE_SPACE, use_bias=True, conv_kernel=3, layer_norm_epsilon=1e-3, intermediate_size=104,
                            time_step_rank=8, tie_word_embeddings=False), {}, MAMBA_IDLE + ["expand"]),
    "mamba-plain": ("Mamba", dict(COMMON, **{**STATE_SPACE, "state_size": 16, "expand": 2}, use_conv_bias=False, hidden_act="gelu"),
                    {"time_step_rank": "auto",
                     **without("layer_norm_epsilon", "intermediate_size", "expand", "conv_kernel", "tie_word_embeddings")}, MAMBA_IDLE),
    "falcon-mamba": ("FalconMamba", dict(COMMON, **STATE_SPACE, mixer_rms_eps=1e-2, tie_word_embeddings=False), {}, MAMBA_IDLE + ["expand"]),
    "falcon-mamba-plain": ("FalconMamba", dict(COMMON, **{**STATE_SPACE, "state_size": 16, "expand": 2}, use_bias=True, time_step_rank=16),
                           without("mixer_rms_eps", "expand", "intermediate_size"), MAMBA_IDLE),
    "jamba": ("Jamba", dict(SIZES, num_key_value_heads=1, num_hidden_layers=5, mamba_d_state=24, mamba_d_conv=3, mamba_expand=3,
                            mamba_dt_rank=6, mamba_proj_bias=True, rms_norm_eps=1e-3, num_experts=6, num_experts_per_tok=3,
                            expert_layer_period=2, expert_layer_offset=0, attn_layer_period=3, attn_layer_offset=1,
                            tie_word_embeddings=True), {}, JAMBA),
    "jamba-plain": ("Jamba", dict(SIZES, num_key_value_heads=3, num_hidden_layers=5, mamba_conv_bias=False, num_experts=1,
                                  hidden_act="gelu"),
                    {"mamba_dt_rank": "auto", **without("rms_norm_eps", "mamba_d_state", "mamba_d_conv", "mamba_expand",
                                                        "attn_layer_period", "attn_layer_offset")},
                    JAMBA + ["expert_layer_period", "expert_layer_offset", "num_experts_per_tok"]),
    "mamba2": ("Mamba2", dict(COMMON, **STATE_SPACE, num_heads=6, head_dim=24, n_groups=2, use_bias=True, conv_kernel=3,
                              layer_norm_epsilon=1e-3, time_step_limit=[0.5, 0.7], tie_word_embeddings=True), {}, MAMBA_IDLE + MAMBA2_IDLE),
    "mamba2-plain": ("Mamba2", dict(COMMON, **{**STATE_SPACE, "expand": 2}, num_heads=3, head_dim=32, n_groups=1, use_conv_bias=False,
                                    hidden_act="gelu"),
                     without("layer_norm_epsilon", "time_step_limit", "expand", "conv_kernel"), MAMBA_IDLE + MAMBA2_IDLE),
    "olmo-hybrid": ("OlmoHybrid", dict(SIZES, num_key_value_heads=1, num_hidden_layers=3, **DELTA, rms_norm_eps=1e-3, attention_bias=True,
                                       linear_conv_kernel_dim=3, **rope(3e3),
                                       layer_types=["linear_attention", "full_attention", "linear_attention"]), {},
                    OLMO_HYBRID, PROMPTS,  # as published; the class writes the name of the other layers' norm
                    {"model.layers.1.feedforward_layer_norm": "model.layers.1.post_attention_layernorm"}),
    "olmo-hybrid-plain": ("OlmoHybrid", dict(SIZES, hidden_size=64, num_attention_heads=2, linear_allow_neg_eigval=False,
                                             tie_word_embeddings=True, layer_types=LINEAR),
                          {"rope_parameters": {"rope_theta": None, "rope_type": "default"},
                           **without("rms_norm_eps", "num_key_value_heads", "linear_num_key_heads", "linear_num_value_heads",
                                     "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim")},
                          OLMO_HYBRID),
}


def mpt_alibi(self, heads, length, alibi_bias_max=8, device=None):
    return transformers.models.mpt.modeling_mpt.build_mpt_alibi_tensor(
        heads, length, self.config.attn_config.alibi_bias_max, device)


# The class does not read alibi_bias_max; MosaicML's own code does.
transformers.MptModel.build_mpt_alibi_tensor = mpt_alibi


# With pre_norm Flaubert gives a layer cache[i], which the cache of this version does not have.
transformers.EncoderDecoderCache.__getitem__ = lambda self, i: self


def tensor(name, like):
    """Gains lie around 1: the vectors that are called weights. A router's biases lie around -3, so that all scores are below 0
    and an expert that were masked with 0 would be chosen."""
    x = numbers(name, like.numel()) * numpy.float32(0.25)
    gain = like.dim() == 1 and name.endswith(".weight")
    if name.endswith(".e_score_correction_bias"):
        x = x - numpy.float32(3)
    return torch.from_numpy(x + numpy.float32(1) if gain else x).reshape(like.shape)


def answer(model, prompt):
    ids, margins, first = list(prompt), [], None
    for _ in range(TOKENS):
        more = {}
        if getattr(getattr(model, "config", None), "model_type", "") == "paligemma":  # as its processor says what the prompt is
            more = dict(token_type_ids=torch.tensor([[0] * len(prompt) + [1] * (len(ids) - len(prompt))]))
        logits = model(torch.tensor([ids]), use_cache=False, **more).logits[0, -1]
        first = logits if first is None else first
        best = logits.topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float((best.values[0] - best.values[1]) / logits.abs().max()))
    return {"ids": prompt, "logits": first.tolist(), "greedy": ids[len(prompt):],
            "margins": [float(f"{m:.3g}") for m in margins]}


def tree(tensors):
    """Names as a tree of their parts; parts with the same below them share one entry: {"layers":{"0,1":{"q,k":[8,8]}}}."""
    top = {}
    for name, shape in tensors.items():
        *path, last = name.split(".")
        functools.reduce(lambda at, part: at.setdefault(part, {}), path, top)[last] = shape

    def merged(at):
        groups = {}
        for part, below in at.items():
            below = merged(below) if isinstance(below, dict) else below
            groups.setdefault(json.dumps(below), ([], below))[0].append(part)
        return {",".join(parts): below for parts, below in groups.values()}
    return merged(top)


def in_parts(numbers):
    """Numbers as multiples of a hundred thousandth of the largest; tests compare with a tolerance of ten of these."""
    largest = max(map(abs, numbers))
    return {"largest": float(f"{largest:.7g}"), "parts": [round(v / largest * 1e5) for v in numbers]}


def packed(made):
    for given in made.get("prompts", []) + made.get("texts", []):
        given.update({k: in_parts(given[k]) for k in ("logits", "hidden", "pooled") if k in given})
    return json.dumps({**made, "tensors": tree(made["tensors"])}, separators=(",", ":")) + "\n"


def config_of(kind):
    return getattr(transformers, kind + "TextConfig", None) or getattr(transformers, kind + "Config")


def class_of(kind, generates=True):
    """The class, and what makes a model of a config. Of some families there is a config, and another class computes them."""
    cls = getattr(transformers, kind if kind.endswith("Generation") or not generates else kind + "ForCausalLM", None)
    return (cls, cls) if cls else (transformers.AutoModelForCausalLM, transformers.AutoModelForCausalLM.from_config)


def renamed(name, names):
    """The name in the file; None: the file has other tensors in place of this one."""
    return next((new and new + name[len(old):] for old, new in names.items() if name.startswith(old)), name)


# Of these rounding moves much: scores that are not scaled down, a state whose rows nearly cancel each other, an expert in place of
# another. So it is noted how far the class is from its own results in 16 bits.
SENSITIVE = ["granite-swa-plain", "gemma3n", "gemma3n-plain", "gemma4", "gemma4-images", "gemma4-old", "gemma4-shared", "qwen3-next",
             "umt5-answers"]
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def away(model, prompt):
    """The largest difference from the logits of fp32, as a part of the largest of those."""
    want = torch.tensor(prompt["logits"])
    got = model(torch.tensor([prompt["ids"]]), use_cache=False).logits[0, -1].float()
    return float(f"{float((got - want).abs().max() / want.abs().max()):.3g}")


def split_taps(tensors):
    """OLMo Hybrid's convolutions of q, k and v as its files have them: the class writes one of them in three equal parts."""
    for name in [n for n in tensors if n.endswith(".q_conv1d.weight")]:
        names = [name.replace("q_conv1d", part + "_conv1d") for part in "qkv"]
        rows = [len(tensors[n.replace("conv1d", "proj")]) for n in names]
        tensors.update(zip(names, torch.cat([tensors[n] for n in names]).split(rows)))
    return tensors


def is_table(kind, name):
    """Positions that the class computes and saves: ESM's name has a star."""
    return "*" in name or kind.startswith("RoFormer") and name.endswith("embed_positions.weight")


def case(kind, settings, changes, idle=(), prompts=PROMPTS, names={}, more={}, halves={}, other=None):
    """other: of foreign.py, for a file of another class; more: tensors that files of the class may have, and that it ignores; halves: types of 16 bits in which it is run, too"""
    reads_images = kind.endswith("ForConditionalGeneration")
    room = pathlib.Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    if kind == "ChatGLM":
        return chatglm.case(room, settings, idle, prompts, tensor, answer)
    cls, made_by = class_of(kind, prompts)
    made = made_by((config_of(kind) if prompts and not reads_images else cls.config_class)(**settings))
    made.save_pretrained(room)
    path = room / "model.safetensors"
    with safe_open(path, "pt") as f:
        tensors = {renamed(n, names): f.get_tensor(n) for n in f.keys() if renamed(n, names) and not is_table(kind, n)}
    tensors = split_taps(tensors | {n: torch.empty(shape) for n, shape in more.items()})
    config = json.loads((room / "config.json").read_text())
    if other:
        other = other(config)
        tensors = other.join(tensors)
    tensors = {n: tensor(n, t) for n, t in tensors.items()}
    save_file(other.split(tensors) if other else tensors, path, {"format": "pt"})
    for key, value in changes.items() if not other else ():
        *path, last = key.split(".")  # "text_config.layer_types" stands in the object text_config
        inside = functools.reduce(dict.__getitem__, path, config)
        inside.pop(last, None)
        if value is not None:
            inside[last] = None if value is NULL else value
    (room / "config.json").write_text(json.dumps(config))
    model, loaded = cls.from_pretrained(
        room, dtype=torch.float32, attn_implementation=ATTENTION.get(kind, "eager"), output_loading_info=True)
    missing = [k for k in loaded["missing_keys"] if not k.endswith("rotary_embeddings.inv_freq") and not is_table(kind, k)]
    unexpected = set(loaded["unexpected_keys"]) - set(more)
    assert not any((missing, unexpected, loaded["mismatched_keys"])), loaded
    with torch.no_grad():
        results = {"prompts": [answer(model.eval(), p) for p in prompts]} if prompts else {"model": model.eval()}
        for name, dtype in halves.items():
            half = cls.from_pretrained(room, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
            for prompt in results["prompts"]:
                prompt[name] = away(half, prompt)
    shutil.rmtree(room)
    if other:
        config = other.file()
        for key, value in changes.items():
            config.pop(key, None)
    return {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}", "config": config,
            "idle": [*idle, *(IMAGES if reads_images else [])], "tensors": {n: list(t.shape) for n, t in sorted(tensors.items())}, **results}


FOREIGN = {"internlm2": foreign.InternLM2, "internlm2-bias": foreign.InternLM2, "minicpm": foreign.MiniCPM,
           "minicpm-plain": foreign.MiniCPM, "phi4mm": foreign.Phi4MM, "qwen3-vl-moe": foreign.Transposed}


# --- encoders ---

E = dict(SIZES, layer_norm_eps=1e-3)
NO_HEAD = ["tie_word_embeddings", "summary_activation", "summary_first_dropout", "summary_last_dropout",
           "summary_proj_to_labels", "summary_type", "summary_use_proj"]
DROPPED = ["attention_probs_dropout_prob", "hidden_dropout_prob"]
TWO_ROPES = {"full_attention": {"rope_type": "default", "rope_theta": 3e3},
             "sliding_attention": {"rope_type": "default", "rope_theta": 40.0}}
DISTIL = dict(COMMON, dim=48, n_layers=2, n_heads=3, hidden_dim=88, max_position_embeddings=72)
ALBERT_IDLE = DROPPED + ["classifier_dropout_prob"]
DISTIL_IDLE = ["qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds"]
GEMMA3_IDLE = ["tie_word_embeddings", "final_logit_softcapping", "_sliding_window_pattern", "sliding_window_pattern"]
HEAD = ["classifier_activation", "classifier_bias", "classifier_pooling"]


def as_nomic(model, config):
    """The file of nomic-embed, whose class is not transformers'."""
    return {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu",
            "causal": False, "dtype": "float32", "layer_norm_epsilon": config["layer_norm_eps"],
            "mlp_fc1_bias": False, "mlp_fc2_bias": False, "n_embd": 48, "n_head": 3, "n_inner": 88, "n_layer": 2,
            "n_positions": 72, "prenorm": False, "qkv_proj_bias": False, "rotary_emb_base": 700,
            "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "use_rms_norm": False,
            "scale_attn_weights": True, "parallel_block": False, "rotary_emb_scale_base": None,
            "rotary_scaling_factor": None, "type_vocab_size": 2, "vocab_size": 101, "pad_token_id": 0}


def as_jina(model, config):
    """The file of jina-embeddings-v2: its tensors say whether queries and keys are normed."""
    return {k: v for k, v in config.items() if k != "qk_norm"}


def as_new(model, config):
    """The file of gte v1.5. Its RoPE is that of Alibaba's modeling.py: theta * factor, all divided by factor^(2/dim)."""
    i = torch.arange(0, 16, 2, dtype=torch.float32)
    model.rotary_emb.inv_freq = (500.0 * 4.0) ** (-i / 16) / 4.0 ** (2 / 16)
    kept = {k: v for k, v in config.items() if k not in ("rope_parameters", "transformers_version")}
    return {**kept, "architectures": ["NewModel"], "model_type": "new", "layer_norm_type": "layer_norm",
            "logn_attention_scale": False, "logn_attention_clip1": False, "pack_qkv": True,
            "position_embedding_type": "rope", "rope_theta": 500, "rope_scaling": {"type": "ntk", "factor": 4.0}}


def texts(kind):
    """Heads of a decoder that reads its source's text look at the last end id."""
    if kind.startswith("MBart"):  # the end id and that of a language
        return [[7, 2, 44], [3, 61, 24, 90, 11, 45, 8, 77, 30, 12, 52, 19, 66, 2, 71]]
    ended = kind.startswith(("Bart", "T5", "MT5", "UMT5")) and kind.endswith(("ForSequenceClassification", "ForQuestionAnswering"))
    return [p + [2] for p in PROMPTS] if ended else PROMPTS


T5 = dict(COMMON, d_model=48, d_kv=24, d_ff=88, num_layers=2, num_heads=3, decoder_start_token_id=0)
BART = dict(COMMON, d_model=48, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=2,
            encoder_ffn_dim=88, decoder_ffn_dim=56, max_position_embeddings=72, decoder_start_token_id=2)
T5_IDLE = ["is_encoder_decoder", "num_decoder_layers", "decoder_start_token_id", "scale_decoder_outputs"]
GPT2 = dict(COMMON, n_embd=48, n_layer=2, n_head=3, n_positions=72)
DEBERTA = dict(SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, max_relative_positions=12,
               norm_rel_ebd="layer_norm", share_att_key=True, position_biased_input=False, layer_norm_eps=1e-3)
ESM = dict(SIZES, layer_norm_eps=1e-3, mask_token_id=100)
ESM_IDLE = DROPPED + ["mask_token_id", "esmfold_config", "vocab_list"]
SQUEEZE = dict(SIZES, embedding_size=48)
MOBILE = dict(SIZES, num_attention_heads=2, embedding_size=24, intra_bottleneck_size=32, num_feedforward_networks=3)
MOBILE_IDLE = DROPPED + ["layer_norm_eps", "classifier_dropout"]
JINA = dict(E, position_embedding_type="alibi")
XLM = dict(COMMON, emb_dim=48, n_layers=2, n_heads=3, max_position_embeddings=72, layer_norm_eps=1e-3)
XLM_IDLE = ["asm", "embed_init_std", "end_n_top", "lang_id", "mask_index", "mask_token_id", "n_langs", "sinusoidal_embeddings", "start_n_top",
            "unk_index", "use_lang_emb", "bos_index", "eos_index", "pad_index", "summary_type", "summary_use_proj", "summary_proj_to_labels", "summary_activation"]
DEBERTA_1 = dict(SIZES, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=9, layer_norm_eps=1e-3)
DEBERTA_IDLE = DROPPED + ["legacy", "pooler_dropout", "pooler_hidden_act"]

# name: class, settings, changes of config.json, fields that others turn off, the file of another class
ENCODERS = {
    "gpt2-head": ("GPT2ForSequenceClassification", dict(GPT2, num_labels=3, scale_attn_by_inverse_layer_idx=True), {}, IN_FP32),
    "openai-gpt-head": ("OpenAIGPTForSequenceClassification", dict(GPT, num_labels=3, layer_norm_epsilon=1e-3), {}, SUMMARY),
    "mbart-head": ("MBartForSequenceClassification", dict(BART, num_labels=3, scale_embedding=True), without("decoder_start_token_id")),
    "mbart-answers": ("MBartForQuestionAnswering", dict(BART, activation_function="relu"), without("decoder_start_token_id")),
    "deberta-v2-conv": ("DebertaV2Model", dict(DEBERTA, conv_kernel_size=3, conv_act="gelu"), {}, DEBERTA_IDLE),
    "deberta-v2-conv-head": ("DebertaV2ForSequenceClassification",
                             dict(DEBERTA, conv_kernel_size=5, num_labels=2, embedding_size=24, relative_attention=False,
                                  norm_rel_ebd="none", position_biased_input=True, pos_att_type=["c2p"]), {},
                             DEBERTA_IDLE[:-1] + ["position_buckets", "max_relative_positions", "share_att_key"]),
    "roformer": ("RoFormerModel", dict(E, embedding_size=24), {}, DROPPED),
    "roformer-head": ("RoFormerForSequenceClassification", dict(E, num_labels=3, hidden_act="relu"), {"embedding_size": NULL}, DROPPED),
    "roformer-tokens": ("RoFormerForTokenClassification", dict(E, num_labels=4), without("embedding_size"), DROPPED),
    "roberta-prelayernorm": ("RobertaPreLayerNormModel", E, {}, DROPPED),
    "roberta-prelayernorm-head": ("RobertaPreLayerNormForSequenceClassification", dict(E, num_labels=3, hidden_act="relu"), {}, DROPPED),
    "megatron-bert": ("MegatronBertModel", E, {}, DROPPED),
    "megatron-bert-head": ("MegatronBertForSequenceClassification", dict(E, num_labels=3), {}, DROPPED),
    "megatron-bert-tokens": ("MegatronBertForTokenClassification", dict(E, num_labels=5), {}, DROPPED),
    "rembert": ("RemBertModel", dict(E, input_embedding_size=24, output_embedding_size=32), {}, DROPPED + ["output_embedding_size", "classifier_dropout_prob"]),
    "rembert-head": ("RemBertForSequenceClassification", dict(E, input_embedding_size=48, output_embedding_size=48, num_labels=3), {},
                     DROPPED + ["output_embedding_size", "classifier_dropout_prob"]),
    "ernie-1": ("ErnieModel", E, {}, DROPPED + ["task_type_vocab_size"]),
    "ernie-1-head": ("ErnieForSequenceClassification", dict(E, num_labels=3), without("use_task_id"), DROPPED + ["task_type_vocab_size"]),
    "ernie-3": ("ErnieModel", dict(E, use_task_id=True, task_type_vocab_size=4, type_vocab_size=4), {}, DROPPED),
    "ernie-3-tokens": ("ErnieForTokenClassification", dict(E, use_task_id=True, num_labels=3), without("task_type_vocab_size"), DROPPED),
    "xlm": ("XLMModel", XLM, {}, XLM_IDLE),
    "xlm-head": ("XLMForSequenceClassification", dict(XLM, num_labels=3, gelu_activation=False, n_langs=3), {"n_words": 101}, XLM_IDLE[:-4]),
    "xlm-tokens": ("XLMForTokenClassification", dict(XLM, num_labels=4), {"n_words": 101, **without("vocab_size", "layer_norm_eps")}, XLM_IDLE),
    "flaubert": ("FlaubertModel", dict(XLM, pre_norm=True, gelu_activation=False), {}, XLM_IDLE),
    "flaubert-head": ("FlaubertForSequenceClassification", dict(XLM, num_labels=2), without("pre_norm"), XLM_IDLE[:-4]),
    "data2vec": ("Data2VecTextModel", dict(E, pad_token_id=1), {}, DROPPED),
    "data2vec-head": ("Data2VecTextForSequenceClassification", dict(E, num_labels=2), {}, DROPPED),
    "jina-v3": ("JinaEmbeddingsV3Model", dict(E, **rope(500.0), type_vocab_size=1), {}, DROPPED),
    "jina-v3-head": ("JinaEmbeddingsV3ForSequenceClassification", dict(E, num_labels=3), without("rope_parameters"), DROPPED),
    "bigbird": ("BigBirdModel", dict(E, use_bias=False, block_size=2, num_random_blocks=4), {}, DROPPED),
    "bigbird-head": ("BigBirdForSequenceClassification", dict(E, attention_type="original_full", num_labels=3), {},
                     DROPPED + ["block_size", "num_random_blocks"]),
    "longformer": ("LongformerModel", dict(E, attention_window=[4, 8], pad_token_id=1), {}, DROPPED + ["onnx_export"]),
    "longformer-tokens": ("LongformerForTokenClassification", dict(E, attention_window=4, num_labels=4, pad_token_id=1), {},
                          DROPPED + ["onnx_export"]),
    "gpt2-tokens": ("GPT2ForTokenClassification", dict(GPT2, num_labels=4, scale_attn_weights=False), {}, IN_FP32),
    "gpt2-answers": ("GPT2ForQuestionAnswering", dict(GPT2, n_inner=56), {}, IN_FP32),
    "t5-encoder": ("T5EncoderModel", dict(T5, relative_attention_num_buckets=10, relative_attention_max_distance=12), {}, T5_IDLE),
    "t5-dense": ("T5EncoderModel", dict(T5, feed_forward_proj="gated-gelu"), {"is_encoder_decoder": True}, T5_IDLE),
    "umt5-encoder": ("UMT5EncoderModel", dict(T5, relative_attention_num_buckets=8, feed_forward_proj="relu"), {}, T5_IDLE),
    "t5-tokens": ("T5ForTokenClassification", dict(T5, feed_forward_proj="gated-gelu", num_labels=5), {}, T5_IDLE),
    "t5-answers": ("T5ForQuestionAnswering", dict(T5, feed_forward_proj="gated-gelu", num_decoder_layers=1, decoder_start_token_id=5), {},
                   ["scale_decoder_outputs"]),
    "umt5-answers": ("UMT5ForQuestionAnswering", dict(T5, relative_attention_num_buckets=8, num_decoder_layers=3), {},
                     ["scale_decoder_outputs"]),
    "t5-head": ("T5ForSequenceClassification",
                dict(T5, relative_attention_num_buckets=10, relative_attention_max_distance=12, num_decoder_layers=1, num_labels=4),
                {}, ["scale_decoder_outputs"]),
    "bart-head": ("BartForSequenceClassification", dict(BART, num_labels=3, scale_embedding=True), without("decoder_start_token_id")),
    "bart-answers": ("BartForQuestionAnswering", dict(BART, activation_function="relu", decoder_start_token_id=7), {}),
    "dpr-context": ("DPRContextEncoder", E, {}, DROPPED),
    "dpr-question": ("DPRQuestionEncoder", dict(E, hidden_act="relu"), without("projection_dim"), DROPPED),
    "eurobert": ("EuroBertModel", dict(EVEN, **rope(700.0), attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3), {},
                 ["mask_token_id"]),
    "eurobert-head": ("EuroBertForSequenceClassification", dict(SIZES, num_key_value_heads=1, num_labels=3),
                      without("classifier_pooling", "rope_parameters"), ["mask_token_id"]),
    "eurobert-first": ("EuroBertForSequenceClassification", dict(SIZES, num_key_value_heads=3, num_labels=2, classifier_pooling="bos"),
                       without("rms_norm_eps"), ["mask_token_id"]),
    "eurobert-mean": ("EuroBertForSequenceClassification", dict(SIZES, num_key_value_heads=3, num_labels=1, classifier_pooling="mean"),
                      {}, ["mask_token_id"]),
    "privacy-filter": ("OpenAIPrivacyFilterForTokenClassification",
                       dict(GQA, num_local_experts=5, num_experts_per_tok=3, sliding_window=3, rms_norm_eps=1e-3, num_labels=5, **YARN), {}),
    "privacy-filter-states": ("OpenAIPrivacyFilterModel", dict(GQA, num_attention_heads=4, num_local_experts=6, sliding_window=4,
                                                               num_experts_per_tok=4, attention_bias=False),
                              without("rope_parameters", "rms_norm_eps")),
    "eurobert-tokens": ("EuroBertForTokenClassification", dict(SIZES, num_key_value_heads=1, num_labels=4), {},
                        ["mask_token_id"]),
    "esm": ("EsmModel", dict(ESM, position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=True), {}, ESM_IDLE),
    "esm-head": ("EsmForSequenceClassification", dict(ESM, position_embedding_type="absolute", num_labels=3), {},
                 ESM_IDLE + ["rope_theta"]),
    "esm-tokens": ("EsmForTokenClassification", dict(ESM, position_embedding_type="rotary", rope_theta=500.0, num_labels=4), {},
                   ESM_IDLE),
    "jina": ("JinaBertModel", dict(JINA, feed_forward_type="geglu", emb_pooler="mean"), {}, DROPPED, as_jina),
    "jina-code": ("JinaBertModel", dict(JINA, num_attention_heads=2, feed_forward_type="geglu", qk_norm=True), {}, DROPPED,
                  as_jina),
    "jina-head": ("JinaBertForSequenceClassification",
                  dict(JINA, feed_forward_type="reglu", num_labels=1, model_max_length=72, alibi_scaling=1), {},
                  DROPPED + ["model_max_length"], as_jina),
    "jina-plain": ("JinaBertModel", dict(JINA, position_embedding_type="absolute", hidden_act="relu"),
                   {"feed_forward_type": None}, DROPPED, as_jina),
    "deberta": ("DebertaModel", dict(DEBERTA_1, type_vocab_size=2), {}, DEBERTA_IDLE),
    "deberta-head": ("DebertaForSequenceClassification",
                     dict(DEBERTA_1, num_labels=3, pos_att_type="C2P|P2C", max_relative_positions=-1, embedding_size=24), {},
                     DEBERTA_IDLE[:-1] + ["max_relative_positions"]),
    "deberta-queries": ("DebertaModel", dict(DEBERTA_1, pos_att_type=["c2p"]), {}, DEBERTA_IDLE),
    "deberta-v3-keys": ("DebertaV2Model", dict(DEBERTA, pos_att_type="p2c", share_att_key=False), {}, DEBERTA_IDLE),
    "deberta-v3": ("DebertaV2Model", DEBERTA, {}, DEBERTA_IDLE),
    "deberta-v3-head": ("DebertaV2ForSequenceClassification",
                        dict(DEBERTA, num_labels=3, pooler_hidden_act="relu", position_buckets=-1, norm_rel_ebd="none",
                             share_att_key=False, type_vocab_size=2, position_biased_input=True), {}, DEBERTA_IDLE[:-1] + ["position_buckets"]),
    "deberta-v3-tokens": ("DebertaV2ForTokenClassification",
                          dict(DEBERTA, num_labels=4, max_relative_positions=-1, embedding_size=24, pos_att_type="c2p | p2c",
                               share_att_key=False), {}, DEBERTA_IDLE + ["max_relative_positions"]),
    "deberta-v3-answers": ("DebertaV2ForQuestionAnswering",
                           dict(DEBERTA, relative_attention=False, norm_rel_ebd="none", position_biased_input=True, pos_att_type=["c2p"]), {},
                           DEBERTA_IDLE + ["position_buckets", "max_relative_positions", "share_att_key"]),
    "bert-tokens": ("BertForTokenClassification", dict(E, num_labels=5), {}, DROPPED),
    "bert-answers": ("BertForQuestionAnswering", dict(E, hidden_act="relu"), {}, DROPPED),
    "roberta-tokens": ("RobertaForTokenClassification", dict(E, num_labels=3), {}, DROPPED),
    "roberta-answers": ("RobertaForQuestionAnswering", E, {}, DROPPED),
    "xlm-roberta-tokens": ("XLMRobertaForTokenClassification", dict(E, num_labels=7), {}, DROPPED),
    "xlm-roberta-head": ("XLMRobertaForSequenceClassification", dict(E, num_labels=1), {}, DROPPED),
    "camembert-tokens": ("CamembertForTokenClassification", dict(E, num_labels=4), {}, DROPPED),
    "distilbert-tokens": ("DistilBertForTokenClassification", dict(DISTIL, num_labels=4), {}, DISTIL_IDLE),
    "distilbert-answers": ("DistilBertForQuestionAnswering", dict(DISTIL, activation="relu"), {}, DISTIL_IDLE),
    "electra-tokens": ("ElectraForTokenClassification", dict(E, embedding_size=24, num_labels=3), {}, DROPPED),
    "electra-answers": ("ElectraForQuestionAnswering", dict(E, embedding_size=48), {}, DROPPED),
    "mpnet-tokens": ("MPNetForTokenClassification", dict(E, num_labels=3), {}, DROPPED),
    "mpnet-answers": ("MPNetForQuestionAnswering", E, {}, DROPPED),
    "modernbert-tokens": ("ModernBertForTokenClassification",
                          dict(SIZES, cls_token_id=1, sep_token_id=2, local_attention=8, norm_eps=1e-3, num_labels=5,
                               rope_parameters=TWO_ROPES, classifier_bias=True, classifier_activation="relu"), {},
                          ["classifier_pooling"]),
    "modernbert-answers": ("ModernBertForQuestionAnswering",
                           dict(SIZES, cls_token_id=1, sep_token_id=2, local_attention=8, norm_bias=True,
                                rope_parameters=TWO_ROPES), {}, ["classifier_pooling"]),
    "albert": ("AlbertModel", dict({**E, "num_hidden_layers": 5}, embedding_size=24, num_hidden_groups=2), {}, ALBERT_IDLE),
    "albert-head": ("AlbertForSequenceClassification",
                    dict(SIZES, embedding_size=48, num_labels=3, hidden_act="relu", inner_group_num=2),
                    without("num_hidden_groups", "layer_norm_eps"), ALBERT_IDLE),
    "albert-tokens": ("AlbertForTokenClassification", dict(E, embedding_size=40, num_labels=3), without("hidden_act"),
                      ALBERT_IDLE),
    "albert-answers": ("AlbertForQuestionAnswering", dict(E, embedding_size=24), {}, ALBERT_IDLE),
    "xlm-roberta-xl": ("XLMRobertaXLModel", E, {}, DROPPED),
    "xlm-roberta-xl-head": ("XLMRobertaXLForSequenceClassification", dict(SIZES, num_labels=3, hidden_act="relu"),
                            without("layer_norm_eps"), DROPPED),
    "xlm-roberta-xl-tokens": ("XLMRobertaXLForTokenClassification", dict(E, num_labels=3), {}, DROPPED),
    "xlm-roberta-xl-answers": ("XLMRobertaXLForQuestionAnswering", E, {}, DROPPED),
    "nomic-tokens": ("NomicBertForTokenClassification", dict(E, num_labels=3), {"rope_parameters": None}, DROPPED),
    "gte-tokens": ("GteForTokenClassification", dict(E, **rope(700.0), num_labels=3), {}, DROPPED),
    "electra": ("ElectraModel", dict(E, embedding_size=24), {}, DROPPED),
    "electra-same": ("ElectraForSequenceClassification", dict(E, embedding_size=48, hidden_act="relu", num_labels=3),
                     without("type_vocab_size", "layer_norm_eps"), DROPPED),
    "modernbert": ("ModernBertModel", dict(SIZES, cls_token_id=1, sep_token_id=2, local_attention=8, norm_eps=1e-3,
                                           rope_parameters=TWO_ROPES), {}, HEAD),
    "modernbert-old": ("ModernBertForSequenceClassification",
                       dict({**SIZES, "num_hidden_layers": 3}, cls_token_id=1, sep_token_id=2, local_attention=6, attention_bias=True, mlp_bias=True,
                            norm_bias=True, classifier_bias=True, classifier_pooling="mean", num_labels=3,
                            classifier_activation="relu", hidden_activation="gelu_pytorch_tanh"),
                       {"rope_parameters": None, "layer_types": None, "norm_eps": None, "global_rope_theta": 900.0,
                        "local_rope_theta": 30.0, "global_attn_every_n_layers": 2}),
    "nomic": ("NomicBertModel", E, {"rope_parameters": None}, DROPPED),
    "nomic-old": ("NomicBertModel", dict(E, **rope(700.0)), {}, DROPPED, as_nomic),
    "gte": ("GteModel", dict(E, **rope(700.0), type_vocab_size=2), {}, DROPPED),
    "gte-old": ("GteModel", dict(E, **rope(500.0), type_vocab_size=0, hidden_act="relu"), {}, DROPPED, as_new),
    "mpnet": ("MPNetModel", E, {}, DROPPED),
    "mpnet-head": ("MPNetForSequenceClassification", dict(E, num_labels=3, hidden_act="relu"), without("layer_norm_eps"),
                   DROPPED),
    "squeezebert": ("SqueezeBertModel", dict(SQUEEZE, q_groups=2, k_groups=3, v_groups=1, post_attention_groups=4, output_groups=8),
                    {}, DROPPED),
    "squeezebert-head": ("SqueezeBertForSequenceClassification", dict(SQUEEZE, num_labels=3, hidden_act="relu"),
                         without("q_groups", "k_groups", "v_groups", "post_attention_groups", "intermediate_groups", "output_groups"),
                         DROPPED),
    "squeezebert-tokens": ("SqueezeBertForTokenClassification", dict(SQUEEZE, num_labels=4), {}, DROPPED),
    "mobilebert": ("MobileBertModel", dict(MOBILE), {}, MOBILE_IDLE),
    "mobilebert-head": ("MobileBertForSequenceClassification",
                        dict(MOBILE, use_bottleneck_attention=True, hidden_act="gelu", num_feedforward_networks=1, trigram_input=False,
                             num_labels=3), {}, MOBILE_IDLE + ["key_query_shared_bottleneck"]),
    "mobilebert-plain": ("MobileBertModel", dict(MOBILE, use_bottleneck=False, embedding_size=48, trigram_input=False,
                                                 classifier_activation=False), {},
                         MOBILE_IDLE + ["intra_bottleneck_size", "use_bottleneck_attention", "key_query_shared_bottleneck"]),
    "mobilebert-answers": ("MobileBertForQuestionAnswering", dict(MOBILE, num_feedforward_networks=4), without("num_feedforward_networks", "hidden_act"),
                           MOBILE_IDLE + ["classifier_activation"]),
    "clip": ("CLIPTextModelWithProjection", dict(E, projection_dim=40), {}, ["initializer_factor"]),
    "clip-plain": ("CLIPTextModel", dict(E, hidden_act="gelu", eos_token_id=66), without("layer_norm_eps"),
                   ["initializer_factor", "projection_dim"]),
    "llama-head": ("LlamaForSequenceClassification", dict(SIZES, num_key_value_heads=1, **rope(700.0), attention_bias=True,
                                                          num_labels=3), {}, ["tie_word_embeddings"]),
    "llama-both-head": ("LlamaForSequenceClassification", dict(SIZES, is_causal=False, num_labels=1), {},
                        ["tie_word_embeddings"]),
    "llama-tokens": ("LlamaForTokenClassification", dict(SIZES, num_key_value_heads=1, num_labels=4), {},
                     ["tie_word_embeddings"]),
    "llama-answers": ("LlamaForQuestionAnswering", dict(SIZES, num_key_value_heads=3), {}, ["tie_word_embeddings"]),
    "mistral-head": ("MistralForSequenceClassification", dict(GQA, **rope(1e4), sliding_window=5, num_labels=2), {},
                     ["tie_word_embeddings"]),
    "qwen2-head": ("Qwen2ForSequenceClassification", dict(GQA, **rope(1e6), num_labels=1), {},
                   WINDOW + ["tie_word_embeddings"]),
    "qwen3-head": ("Qwen3ForSequenceClassification", dict(GQA, **rope(1e6), num_labels=1, rms_norm_eps=1e-3), {},
                   WINDOW + ["tie_word_embeddings"]),
    "gemma-head": ("GemmaForSequenceClassification", dict(GQA, **rope(1e4), num_labels=3), {}, ["tie_word_embeddings"]),
    "gemma2-head": ("Gemma2ForSequenceClassification",
                    dict(GQA, **rope(1e4), num_attention_heads=4, sliding_window=5, query_pre_attn_scalar=40, attn_logit_softcapping=3.0,
                         num_labels=3), {}, ["tie_word_embeddings", "final_logit_softcapping"]),
    "gemma3-head": ("Gemma3TextForSequenceClassification",
                    dict(GQA, num_attention_heads=4, sliding_window=5, layer_types=["sliding_attention", "full_attention"], num_labels=3,
                         rope_parameters=TWO_ROPES), {}, GEMMA3_IDLE),
    "embedding-gemma": ("Gemma3TextModel",
                        dict(GQA, num_attention_heads=4, sliding_window=7, layer_types=["sliding_attention", "full_attention"],
                             rope_parameters=TWO_ROPES, use_bidirectional_attention=True), {}, GEMMA3_IDLE),
    "embedding-gemma-dense": ("Gemma3TextModel",
                              dict(GQA, num_attention_heads=4, sliding_window=4, use_bidirectional_attention=True,
                                   layer_types=["full_attention", "sliding_attention"], attention_bias=True), {}, GEMMA3_IDLE),
    "electra-dense": ("ElectraModel", dict(E, embedding_size=24), {}, DROPPED),
    "qwen3-dense": ("Qwen3Model", dict(GQA, **rope(1e6)), {}, WINDOW + ["tie_word_embeddings"]),
    "llama-encoder": ("LlamaModel", dict(SIZES, num_key_value_heads=1, **LLAMA3, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3), {}),
    "llama-both": ("LlamaModel", dict(SIZES, is_causal=False), {"rope_parameters": None, "rope_theta": 300.0,
                                                               **without("rms_norm_eps", "head_dim")}),
    "mistral-encoder": ("MistralModel", dict(GQA, **rope(1e4), sliding_window=5), {}),
    "qwen2-both": ("Qwen2Model", dict(GQA, **rope(1e6), is_causal=False), {}, WINDOW),
    "qwen3-encoder": ("Qwen3Model", dict(GQA, **rope(1e6), rms_norm_eps=1e-3), {}, WINDOW + ["tie_word_embeddings"]),
    "gpt2-encoder": ("GPT2Model", dict(COMMON, n_embd=48, n_layer=2, n_head=3, n_positions=72, layer_norm_epsilon=1e-3),
                     {}, IN_FP32),
}


# name: how the vectors of tokens become one (sentence-transformers); linear layers with their columns, activation, bias
SENTENCES = {
    "embedding-gemma-dense": ("mean", [(40, "linear.Identity", False), (24, "activation.Tanh", True)], True),
    "electra-dense": ("cls", [(40, "activation.ReLU", True)], False),
    "t5-dense": ("mean", [(24, "linear.Identity", False)], True),
    "qwen3-dense": ("lasttoken", [(16, "activation.GELU", False)], False),
}


def sentences(made, width, pooling, layers, normalize):
    """modules.json with the settings and shapes of each module, and a function of hidden states [tokens, width]."""
    kind = "sentence_transformers.models."
    flag = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}[pooling]
    modules = [{"type": kind + "Transformer", "path": ""},
               {"type": kind + "Pooling", "path": "1_Pooling",
                "config": {"word_embedding_dimension": width, f"pooling_mode_{flag}": True}}]
    steps = []
    for columns, activation, bias in layers:
        tensors = {"linear.weight": [columns, width], **({"linear.bias": [columns]} if bias else {})}
        modules.append({"type": kind + "Dense", "path": f"{len(modules)}_Dense", "tensors": tensors,
                        "config": {"in_features": width, "out_features": columns, "bias": bias,
                                   "activation_function": "torch.nn.modules." + activation}})
        where, name = activation.split(".")
        steps.append(([tensor(n, torch.empty(s)) for n, s in tensors.items()], getattr(torch.nn, name)()))
        width = columns
    if normalize:
        modules.append({"type": kind + "Normalize", "path": f"{len(modules)}_Normalize"})
    made["modules"] = modules

    def vector(hidden):
        y = {"mean": hidden.mean(0), "cls": hidden[0], "lasttoken": hidden[-1]}[pooling]
        for weights, activation in steps:
            y = activation(torch.nn.functional.linear(y, *weights))
        return torch.nn.functional.normalize(y, dim=0) if normalize else y
    return vector


def encode(model, ids, vector=None):
    """Vectors of the tokens and of the text: pooled, logits of a classifier, else of a decoder's class the last or mean. Of a
    head of tokens its logits are their vectors."""
    kind = type(model).__name__
    out = model(torch.tensor([ids]))
    if kind.endswith("ForTokenClassification"):
        hidden, pooled = out.logits, None
    elif kind.endswith("ForQuestionAnswering"):
        hidden, pooled = torch.stack((out.start_logits, out.end_logits), -1), None
    elif kind.endswith("ForSequenceClassification"):
        shifted = dict(decoder_input_ids=model._shift_right(torch.tensor([ids]))) if hasattr(model, "_shift_right") else {}
        hidden, pooled = model.base_model(torch.tensor([ids]), **shifted).last_hidden_state, out.logits
    elif kind.startswith("DPR"):
        hidden, pooled = model.base_model.bert_model(torch.tensor([ids])).last_hidden_state, out.pooler_output
    else:
        hidden = out.last_hidden_state
        pooled = next((out[k] for k in ("text_embeds", "pooler_output") if out.get(k) is not None), None)
        if pooled is None and model.config.model_type in ("llama", "mistral", "qwen2", "qwen3", "gpt2", "gemma3_text"):
            pooled = hidden[:, -1] if getattr(model.config, "is_causal", True) else hidden.mean(1)
        if getattr(model.config, "use_bidirectional_attention", False) or model.config.model_type in (
                "eurobert", "openai_privacy_filter"):
            pooled = hidden.mean(1)
    if vector:
        pooled = vector(hidden[0])
    return {"ids": ids, "hidden": hidden.flatten().tolist(), **({} if pooled is None else {"pooled": pooled.flatten().tolist()})}


def text_away(model, text):
    """The largest difference from the vectors of fp32, as a part of the largest of those."""
    got = encode(model, text["ids"])
    return max(float(f"{max(abs(a - b) for a, b in zip(got[k], text[k])) / max(map(abs, text[k])):.3g}") for k in got if k != "ids")


def encoder_case(kind, settings, changes, idle=(), foreign=None, how=None, halves={}):
    none = NO_HEAD[1:] if kind.startswith(("Bart", "MBart")) else NO_HEAD
    if kind in ("XLMForSequenceClassification", "FlaubertForSequenceClassification"):
        none = ["tie_word_embeddings", "summary_first_dropout"]
    made = case(kind, settings, changes, [*idle, *none], None)
    model, config = made.pop("model"), made["config"]
    if foreign:
        made["config"] = foreign(model, config)
    with torch.no_grad():
        vector = how and sentences(made, model.config.hidden_size, *how)
        made["texts"] = [encode(model, p, vector) for p in texts(kind)]
        for name, dtype in halves.items():
            half = copy.deepcopy(model).to(dtype)
            for text in made["texts"]:
                text[name] = text_away(half, text)
    return made


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, it in {**CASES, **ENCODERS}.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            out = encoder_case(*it, how=SENTENCES.get(name), halves=HALVES if name in SENSITIVE else {}) if name in ENCODERS else case(
                *it, halves=HALVES if name in SENSITIVE else {}, other=FOREIGN.get(name))
            (HERE / f"{name}.json").write_text(packed(out))
            margins = [m for p in out.get("prompts", []) for m in p["margins"]]
            print(name, len(out["tensors"]), "tensors", *(["least margin", min(margins)] if margins else []))
