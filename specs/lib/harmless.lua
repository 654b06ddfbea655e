-- harmless.lua - fields of config.json that change no result, and those that lib/checkout.lua reads: of decoders, and of encoders
-- and encoder-decoders these and more.
local harmless = { decoders = {}, encoders = {}, seq2seqs = {} }

for _, key in ipairs {
  "_num_labels", "attn_implementation", "end_token_id", "eos_token_ids", "language", "max_sequence_length", "name",
  "neftune_noise_alpha", "num_labels", "output_past", "use_flash_attn",
  "_from_model_config", "is_llama_config", "model_max_length", "n_ctx", "predict_special_tokens", "reorder_and_upcast_attn",
  "summary_last_dropout", "transformers.js_config",
  "_attn_implementation", "_attn_implementation_autoset", "_flash_attn_2_enabled", "_name_or_path",
  "emb_pdrop", "activation_dropout", "add_cross_attention", "apply_residual_connection_post_layernorm", "architectures",
  "attention_dropout", "attention_softmax_in_fp32", "attn_pdrop", "auto_map", "bad_words_ids",
  "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward", "classifier_dropout",
  "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "dropout", "dtype",
  "early_stopping", "embd_pdrop", "embedding_dropout", "encoder_no_repeat_ngram_size", "eos_token_id",
  "exponential_decay_length_penalty", "ff_factor", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id",
  "gradient_checkpointing", "hidden_dropout", "id2label", "init_std", "initializer_range", "is_decoder",
  "is_encoder_decoder", "label2id", "layerdrop", "length_penalty", "max_length", "min_length", "model_type",
  "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
  "output_hidden_states", "output_scores", "pad_token_id", "prefix", "problem_type", "pruned_heads",
  "quantization_config", "remove_invalid_values", "repetition_penalty", "emb_pdrop", "resid_pdrop", "residual_dropout",
  "return_dict", "return_dict_in_generate", "scale_attention_softmax_in_fp32", "scale_attn_weights", "sep_token_id",
  "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
  "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder",
  "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "typical_p",
  "unk_token_id", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache", "use_return_dict", "vocab_size",
  "output_router_logits", "router_aux_loss_coef", "router_jitter_noise",
  "attention_probs_dropout_prob", "bos_token", "cache_implementation", "eos_token", "hidden_dropout_prob", "inference_runner",
  "init_method", "mask_token", "max_batch_size", "pad_key_length", "pad_token", "pre_allocate_kv_cache", "tie_weights_",
  "validate_runner_input",
} do harmless.decoders[key], harmless.encoders[key], harmless.seq2seqs[key] = true, true, true end

for _, key in ipairs {
  "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
  "pooler_size_per_head", "pooler_type", "qa_dropout", "sbert_ce_default_activation_function", "sentence_transformers",
  "seq_classif_dropout", "sinusoidal_pos_embds",
  "classifier_activation", "classifier_dropout_prob", "classifier_bias", "classifier_pooling",
  "cls_token_id",
  "decoder_bias", "dense_seq_output", "deterministic_flash_attn", "fused_bias_fc", "fused_dropout_add_ln",
  "initializer_cutoff_factor", "initializer_factor", "last_layer_subset",
  "max_trained_positions", "mlp_dropout", "reference_compile", "reorder_and_upcast_attn", "repad_logits_with_grad",
  "sparse_pred_ignore_index", "sparse_prediction", "summary_last_dropout", "tie_word_embeddings", "unpad_inputs",
  "use_memory_efficient_attention", "use_xentropy",
} do harmless.encoders[key] = true end

for _, key in ipairs {
  "classif_dropout", "decoder_layerdrop", "do_blenderbot_90_layernorm", "dropout_rate", "encoder_layerdrop",
  "extra_pos_embeddings", "force_bos_token_to_be_generated", "initializer_factor", "max_new_tokens", "replacing_rate", "save_step",
  "scalable_attention",
} do harmless.seq2seqs[key] = true end

return harmless
