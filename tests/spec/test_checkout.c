/* test_checkout.c - a checkout's config.json, generation_config.json and hf/ARCHITECTURE.lua: what the spec is made of, and
 * the message of each mistake. */
#include "folder.h"

#include <math.h>
#include <sys/stat.h>

static void test_tiny_checkouts(void **state)
{
    Reading r = read_good("tests/models/tiny-llama", NULL);

    (void)state;
    assert_string_equal(r.spec.name, "tiny-llama");
    assert_string_equal(r.spec.weights, "tests/models/tiny-llama/model.safetensors");
    assert_null(r.spec.tokenizer);
    assert_int_equal(r.spec.heads, 4);
    assert_int_equal(r.spec.kv_heads, 2);
    assert_int_equal(r.spec.head_dim, 48);
    assert_int_equal(r.spec.bos, 1);
    assert_int_equal(r.spec.n_ends, 0); /* there is a generation_config.json, and it names none */
    assert_int_equal(r.spec.graph->limits.context, 256);
    assert_int_equal(r.spec.precision.weights, DT_BF16);
    assert_true(r.spec.decode.temperature == 0);
    drop(&r);

    r = read_good("tests/models/tiny-llama-rope3/", "limits.context=128");
    assert_int_equal(r.spec.graph->limits.context, 128);
    assert_string_equal(ir_word(first_op(r.spec.graph, OP_ROPE_TABLE), "scaling"), "llama3");
    assert_int_equal(ir_int(first_op(r.spec.graph, OP_ROPE_TABLE), "original"), 64);
    assert_true(ir_float(first_op(r.spec.graph, OP_ROPE_TABLE), "theta") == 500000);
    drop(&r);

    r = read_good("tests/models/tiny-mistral", NULL);
    assert_int_equal(ir_int(first_op(r.spec.graph, OP_ATTEND), "window"), 12);
    drop(&r);

    r = read_good("tests/models/tiny-gpt2", NULL);
    assert_int_equal(r.spec.positions, 160);
    assert_int_equal(r.spec.graph->limits.context, 160);
    assert_int_equal(r.spec.head_dim, 56);
    assert_int_equal(count_ops(r.spec.graph, OP_TRANSPOSE), 2 * 4);
    assert_string_equal(ir_word(first_op(r.spec.graph, OP_ACT), "kind"), "gelu_tanh");
    assert_int_equal(r.spec.prefixes.n, 1);
    assert_string_equal(r.spec.prefixes.at[0], "transformer.");
    drop(&r);
}

static void test_trained_checkout(void **state)
{
    Reading r = read_good("specs/fable", NULL);

    (void)state;
    assert_string_equal(r.spec.name, "fable");
    assert_non_null(r.spec.tokenizer);
    assert_int_equal(r.spec.bos, 0);
    assert_int_equal(r.spec.ends[0], 1);
    assert_true(r.spec.decode.temperature == 0.8f && r.spec.decode.top_p == 0.95f);
    assert_int_equal(r.spec.decode.top_k, 50); /* Hugging Face's default */
    assert_int_equal(r.spec.decode.max_new, 200);
    drop(&r);
}

#define QWEN2 \
    "\"architectures\": [\"Qwen2ForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, \"num_hidden_layers\": 1, " \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 48" HEADS
#define FALCON \
    "\"architectures\": [\"FalconForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, " \
    "\"num_hidden_layers\": 1" HEADS

#define T5 "\"model_type\": \"t5\", \"vocab_size\": 64, \"d_kv\": 16"
#define MIXTURE \
    "\"vocab_size\": 64, \"hidden_size\": 32, \"num_hidden_layers\": 1, \"intermediate_size\": 48" HEADS \
    ", \"architectures\": [\""

#define HYBRID_LAYERS \
    "config.json: layer_types must be a list of attention, full_attention, linear_attention, mamba, one for each " \
    "layer, got a list or an object"

#define TIME_STEPS \
    "config.json: time_step_limit must be a list of two numbers, 0 or more and a larger one, got a list or an object"

#define IMAGES "\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"boi_token_index\": 5"

static void test_checkout_mistakes(void **state)
{
    static const struct {
        const char *config, *generation, *message; /* the message without the folder */
    } cases[] = {
        {"{" LLAMA HEADS, NULL, "config.json:1: '}' expected near end of file"},
        {"[1]", NULL, "config.json:1: an object was expected: {...}"},
        {"{}", NULL, "config.json: architectures must be a list with one name, got nothing"},
        {"{\"architectures\": [\"T5Model\"], \"is_encoder_decoder\": true}", NULL,
         "config.json: architectures: T5Model is not known; "
         "the nearest that ftxc reads is BartForConditionalGeneration. docs/specs.md says how a file hf/T5Model.lua "
         "beside config.json describes it"},
        {"{\"architectures\": [\"BertLMHeadModel\"]}", NULL,
         "config.json: architectures: BertLMHeadModel is not known; the nearest that ftxc reads is BertModel. "
         "docs/specs.md says how a file hf/BertLMHeadModel.lua beside config.json describes it"},
        {"{\"architectures\": [\"RecurrentGemmaForCausalLM\"]}", NULL,
         "config.json: architectures: RecurrentGemmaForCausalLM is not known, and nn.* cannot say it yet: it has a "
         "recurrent state of another kind; the nearest that ftxc reads is LlamaForCausalLM. docs/specs.md says how a "
         "file hf/RecurrentGemmaForCausalLM.lua beside config.json describes it"},
        {"{" MIXTURE "GraniteMoeHybridForCausalLM\"], \"layer_types\": [\"conv\"]}", NULL, HYBRID_LAYERS},
        {"{" MIXTURE "GraniteMoeHybridForCausalLM\"], \"layer_types\": [\"attention\", \"attention\"]}", NULL,
         HYBRID_LAYERS},
        {"{" MIXTURE "GraniteMoeHybridForCausalLM\"], \"layer_types\": \"mamba\"}", NULL,
         "config.json: layer_types must be a list of attention, full_attention, linear_attention, mamba, one for each "
         "layer, got \"mamba\""},
        {"{" MIXTURE "GraniteMoeHybridForCausalLM\"], \"mamba_n_heads\": 3}", NULL,
         "config.json: mamba_n_heads must be a divisor of 64, got 3"},
        {"{" MIXTURE "GraniteMoeHybridForCausalLM\"], \"mamba_n_heads\": 4, \"mamba_d_head\": 8}", NULL,
         "config.json: mamba_d_head must be \"auto\" or 16, so that all heads have 64 elements, got 8"},
        {"{" MIXTURE "GraniteMoeHybridForCausalLM\"], \"mamba_n_heads\": 4, \"time_step_limit\": [0.5]}", NULL,
         TIME_STEPS},
        {"{" MIXTURE "GraniteMoeHybridForCausalLM\"], \"mamba_n_heads\": 4, \"time_step_limit\": [Infinity, 0.5]}",
         NULL, TIME_STEPS},
        {"{" MIXTURE "Lfm2MoeForCausalLM\"], \"norm_eps\": 1e-5}", NULL,
         "config.json: layer_types must be a list of conv, full_attention, one for each layer, got nothing"},
        {"{" MIXTURE "Lfm2ForCausalLM\"], \"full_attn_idxs\": [0.5]}", NULL,
         "config.json: full_attn_idxs must be a list of layers, got a list or an object"},
        {"{" MIXTURE "Qwen3_5ForCausalLM\"], \"linear_num_value_heads\": 24}", NULL,
         "config.json: linear_num_value_heads must be a multiple of linear_num_key_heads 16, got 24"},
        {"{" MIXTURE "BambaForCausalLM\"], \"mamba_n_heads\": 4, \"partial_rotary_factor\": 1.0}", NULL,
         "config.json: partial_rotary_factor must be 0.5: the class reads another only in rope_parameters, got 1.0"},
        {"{" MIXTURE "FalconH1ForCausalLM\"], \"mlp_multipliers\": [1.0]}", NULL,
         "config.json: mlp_multipliers must be a list of 2 numbers, got a list or an object"},
        {"{" MIXTURE "NemotronHForCausalLM\"], \"hybrid_override_pattern\": \"MX\"}", NULL,
         "config.json: hybrid_override_pattern must be of mamba, attention, mlp and moe, got \"MX\""},
        {"{" MIXTURE "Lfm2Model\"], \"full_attn_idxs\": [], \"num_key_value_heads\": 2}", NULL,
         "config.json: layers that keep a state are computed for text that is generated, not for vectors of texts"},
        {"{" MIXTURE "Glm4MoeLiteForCausalLM\"], \"v_head_dim\": 64, \"mlp_layer_types\": [\"sparse\", \"dense\"]}",
         NULL,
         "config.json: mlp_layer_types must be a list of dense and sparse, one for each layer, got a list or an "
         "object"},
        {"{" MIXTURE "SolarOpenForCausalLM\"], \"partial_rotary_factor\": 0.5}", NULL,
         "config.json: partial_rotary_factor must be 1, also in rope_parameters, got 0.5"},
        {"{\"architectures\": [\"XGLMForCausalLM\"], \"vocab_size\": 64, \"d_model\": 32, \"num_layers\": 1, "
         "\"attention_heads\": 2, \"ffn_dim\": 48, \"pad_token_id\": 5}",
         NULL, "config.json: pad_token_id must be 0 or 1: the position of this number less 2 has no sines, got 5"},
        {"{\"architectures\": [\"XLNetLMHeadModel\"]}", NULL,
         "config.json: architectures: XLNetLMHeadModel is not known; the nearest that ftxc reads is LlamaForCausalLM. "
         "docs/specs.md says how a file hf/XLNetLMHeadModel.lua beside config.json describes it"},
        {"{\"architectures\": [\"YosoModel\"]}", NULL,
         "config.json: architectures: YosoModel is not known; the nearest that ftxc reads is BertModel. docs/specs.md "
         "says how a file hf/YosoModel.lua beside config.json describes it"},
        {"{" QWEN2 ", \"rope_parameters\": {\"rope_type\": \"default\", \"mrope_section\": [2, 2]}}", NULL,
         "config.json: rope_parameters.mrope_section is not known; it may change the result"},
        {"{" QWEN2 ", \"layer_types\": [\"full_attention\", \"full_attention\"]}", NULL,
         "config.json: layer_types must be a list of full_attention and sliding_attention, one for each layer, got a "
         "list "
         "or an object"},
        {"{" QWEN2 ", \"layer_types\": [\"chunked_attention\"]}", NULL,
         "config.json: layer_types must be a list of full_attention and sliding_attention, one for each layer, got a "
         "list "
         "or an object"},
        {"{\"architectures\": [\"MPTForCausalLM\"], \"d_model\": 32, \"n_heads\": 2, \"n_layers\": 1, \"vocab_size\": "
         "64, "
         "\"attn_config\": {\"alibi\": false, \"rope\": true}}",
         NULL, "config.json: attn_config.rope must be false: rotary positions are not computed, got true"},
        {"{\"architectures\": [\"ChatGLMModel\"], \"vocab_size\": 64, \"hidden_size\": 32, \"num_layers\": 1, "
         "\"num_attention_heads\": 2, \"inner_hidden_size\": 48, \"position_encoding_2d\": false}",
         NULL,
         "config.json: position_encoding_2d must be true: positions in one dimension are not computed, got false"},
        {"{\"architectures\": [\"ChatGLMModel\"], \"vocab_size\": 64, \"hidden_size\": 32, \"num_layers\": 1, "
         "\"num_attention_heads\": 2, \"inner_hidden_size\": 48, \"pre_seq_len\": 8}",
         NULL, "config.json: pre_seq_len must be null: prompts that were trained are not read, got 8"},
        {"{" MIXTURE "DeepseekV3ForCausalLM\"], \"v_head_dim\": 32}", NULL,
         "config.json: v_head_dim must be from qk_rope_head_dim to the size of a head, 192, got 32"},
        {"{" MIXTURE "DeepseekV3ForCausalLM\"], \"n_routed_experts\": 8, \"n_group\": 2, \"topk_group\": 3}", NULL,
         "config.json: topk_group must be a whole number from 1 to 2, got 3"},
        {"{" MIXTURE "DeepseekV2ForCausalLM\"], \"num_experts_per_tok\": 2, \"norm_topk_prob\": true}", NULL,
         "config.json: norm_topk_prob must be false: the class does not read it, got true"},
        {"{" MIXTURE "Llama4ForCausalLM\"], \"num_experts_per_tok\": 17}", NULL,
         "config.json: num_experts_per_tok must be a whole number from 1 to 16, got 17"},
        {"{" MIXTURE "Gemma3nForCausalLM\"], \"num_kv_shared_layers\": 0, \"activation_sparsity_pattern\": [0.5, 0.5]}",
         NULL,
         "config.json: activation_sparsity_pattern must be a list with a number for each layer, got a list or an "
         "object"},
        {"{" MIXTURE "Gemma3nForCausalLM\"], \"num_kv_shared_layers\": 0, \"activation_sparsity_pattern\": 1.0}", NULL,
         "config.json: activation_sparsity_pattern must be numbers for all layers, or one, got 1.0"},
        {"{" IMAGES "}", NULL, "config.json: text_config must be the text model's fields, got nothing"},
        {"{" IMAGES ", \"text_config\": {\"model_type\": \"t5\"}}", NULL,
         "config.json: text_config.model_type must be that of a decoder that ftxc reads, got \"t5\""},
        {"{" IMAGES ", \"text_config\": {}, \"surprise\": 1}", NULL,
         "config.json: surprise is not known; it may change the result"},
        {"{" IMAGES ", \"text_config\": {\"hidden_size\": \"x\"}}", NULL,
         "config.json: text_config.hidden_size must be a whole number from 1 to 131072, got \"x\""},
        {"{" MIXTURE "GptOssForCausalLM\"]}", NULL, "config.json: rope_scaling must be an object, got nothing"},
        {"{" FALCON ", \"new_decoder_architecture\": true, \"parallel_attn\": false}", NULL,
         "config.json: parallel_attn must be true with new_decoder_architecture, got false"},
        {"{" FALCON ", \"num_ln_in_parallel_attn\": 2}", NULL,
         "config.json: num_ln_in_parallel_attn must be 1 without new_decoder_architecture, got 2"},
        {"{\"architectures\": [\"GPTJForCausalLM\"], \"n_embd\": 32, \"n_head\": 2, \"n_layer\": 1, "
         "\"vocab_size\": 64, \"rotary_dim\": null}",
         NULL, "config.json: rotary_dim must be an even number up to n_embd / n_head, got nothing"},
        {"{\"architectures\": [\"OPTForCausalLM\"], \"hidden_size\": 33, \"num_attention_heads\": 2}", NULL,
         "config.json: num_attention_heads must be a divisor of hidden_size 33, got 2"},
        {"{" T5 ", \"feed_forward_proj\": \"gated-mish\"}", NULL,
         "config.json: feed_forward_proj must be an activation that nn.act knows, got \"gated-mish\""},
        {"{" T5 ", \"feed_forward_proj\": \"gated-gelu\", \"dense_act_fn\": \"gelu\"}", NULL,
         "config.json: dense_act_fn must be gelu_new, as feed_forward_proj says, got \"gelu\""},
        {"{" T5 ", \"is_gated_act\": true}", NULL,
         "config.json: is_gated_act must be false, as feed_forward_proj says, got true"},
        {"{" T5 ", \"is_encoder_decoder\": false}", NULL, "config.json: is_encoder_decoder must be true, got false"},
        {"{\"model_type\": \"m2m_100\", \"vocab_size\": 64, \"d_model\": 33}", NULL,
         "config.json: d_model must be an even number of 4 or more, got 33"},
        {"{\"model_type\": \"mbart\", \"vocab_size\": 64, \"num_hidden_layers\": 6}", NULL,
         "config.json: num_hidden_layers must be encoder_layers, 12, got 6"},
        {"{\"model_type\": \"pegasus\", \"vocab_size\": 64, \"normalize_before\": false}", NULL,
         "config.json: normalize_before must be true, got false"},
        {"{\"model_type\": \"marian\", \"vocab_size\": 64, \"decoder_vocab_size\": 63}", NULL,
         "config.json: decoder_vocab_size must be vocab_size 64, got 63"},
        {"{" LLAMA "}", NULL, "config.json: num_attention_heads must be a whole number from 1 to 1024, got nothing"},
        {"{" LLAMA ", \"num_attention_heads\": \"2\"}", NULL,
         "config.json: num_attention_heads must be a whole number from 1 to 1024, got \"2\""},
        {"{" LLAMA HEADS ", \"hidden_act\": \"mish\"}", NULL,
         "config.json: hidden_act must be one of gelu, gelu_fast, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, "
         "relu2, silu, "
         "swish, tanh, got \"mish\""},
        {"{" LLAMA HEADS ", \"rope_scaling\": {\"type\": \"axial\", \"factor\": 4}}", NULL,
         "config.json: rope_scaling.type must be one of default, dynamic, linear, llama3, longrope, proportional, su, "
         "yarn, got \"axial\""},
        {"{" LLAMA HEADS ", \"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 0.5}}", NULL,
         "config.json: rope_parameters.factor must be a number from 1 to 1e+06, got 0.5"},
        {"{" LLAMA HEADS ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"alpha\": 8}}", NULL,
         "config.json: rope_scaling.alpha is not known; it may change the result"},
        {"{" LLAMA HEADS ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 2]}}", NULL,
         "config.json: rope_scaling.short_factor must be a list of 8 positive numbers, got a list or an object"},
        {"{" LLAMA HEADS ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}", NULL,
         "config.json: rope_scaling.low_freq_factor must be a number from 1e-06 to 1e+06, got nothing"},
        {"{" LLAMA HEADS ", \"attention_bias\": 1}", NULL, "config.json: attention_bias must be true or false, got 1"},
        {"{" LLAMA HEADS ", \"torch_dtype\": \"int8\"}", NULL,
         "config.json: torch_dtype must be one of bfloat16, float16, float32, got \"int8\""},
        {"{" LLAMA HEADS ", \"rms_norm_eps\": -1}", NULL,
         "config.json: rms_norm_eps must be a number from 1e-30 to 1, got -1"},
        {"{" LLAMA HEADS ", \"eos_token_id\": 64}", NULL,
         "config.json: eos_token_id must be ids below vocab_size 64, got 64"},
        {"{" LLAMA HEADS ", \"head_dim\": 20}", NULL,
         "specs/hf/decoders.lua:663: decoder: head_dim must be a "
         "multiple of 8 from 16 to 576, got 20 (reading config.json)"},
        {"{" LLAMA HEADS "}", "{\"num_beams\": 100}",
         "generation_config.json: num_beams must be a whole number from 1 to 64, got 100"},
        {"{" LLAMA HEADS "}", "{\"do_sample\": true, \"top_k\": 2000}",
         "generation_config.json: top_k must be a whole number from 0 to 1024, got 2000"},
        {"{" LLAMA HEADS "}", "{\"bad_words_ids\": [[3], [3, 64]]}",
         "generation_config.json: bad_words_ids must be lists of ids below vocab_size 64, got a list or an object"},
        {"{" LLAMA HEADS "}", "{\"bad_words_ids\": [[3], []]}",
         "generation_config.json: bad_words_ids must be lists of ids below vocab_size 64, got a list or an object"},
        {"{" LLAMA HEADS "}", "{\"bad_words_ids\": [3, 4]}",
         "generation_config.json: bad_words_ids must be lists of ids below vocab_size 64, got a list or an object"},
        {"{" LLAMA HEADS "}", "{\"bad_words_ids\": 3}",
         "generation_config.json: bad_words_ids must be lists of ids below vocab_size 64, got 3"},
        {"{" LLAMA HEADS "}", "{\"num_beams\": 4, \"num_beam_groups\": 3}",
         "generation_config.json: num_beam_groups must be a divisor of num_beams, 4, got 3"},
        {"{" LLAMA HEADS "}", "{\"do_sample\": true, \"num_return_sequences\": 17}",
         "generation_config.json: num_return_sequences must be a whole number from 1 to 16, got 17"},
        {"{" LLAMA HEADS "}", "{\"do_sample\": true, \"typical_p\": 2}",
         "generation_config.json: typical_p must be a number from 0 to 1, got 2"},
        {"{" LLAMA HEADS "}", "{\"do_sample\": tru}", "generation_config.json:1: invalid token near 'tru'"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        Folder f = make_folder(cases[i].config, cases[i].generation);
        Reading r = read_spec(f.path, NULL);
        char folder[80], *at;

        assert_false(r.ok);
        snprintf(folder, sizeof folder, "%s/", f.path);
        while ((at = strstr(r.d.text, folder)))
            memmove(at, at + strlen(folder), strlen(at + strlen(folder)) + 1);
        assert_string_equal(r.d.text, cases[i].message);
        drop(&r);
        remove_folder(&f);
    }
}

/* The text model of a class that reads images: type and ids stand outside of text_config, too, and each may be there only. */
/* Sizes that text_config lacks are those of the class, as in the files of LLaVA 1.5 and Gemma 3 4B. */
static void test_text_sizes(void **state)
{
    static const struct {
        const char *config;
        int64_t heads;
    } cases[] = {
        {"{\"architectures\": [\"LlavaForConditionalGeneration\"], \"text_config\": {\"model_type\": \"llama\", "
         "\"num_hidden_layers\": 1, \"vocab_size\": 64}}",
         32},
        {"{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": {\"model_type\": \"gemma3_text\", "
         "\"num_hidden_layers\": 1, \"hidden_size\": 64}}",
         8},
        {"{\"architectures\": [\"GlmAsrForConditionalGeneration\"], \"text_config\": {\"num_hidden_layers\": 1}}", 16},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Folder f = make_folder(cases[i].config, NULL);
        Reading r = read_good(f.path, NULL);

        assert_int_equal(r.spec.heads, cases[i].heads);
        drop(&r);
        remove_folder(&f);
    }
}

/* A query that sees the 48 best keys sees all of a text of 48 tokens. */
static void test_short_texts(void **state)
{
    Folder f = make_folder("{\"architectures\": [\"GlmMoeDsaForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, "
                           "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
                           "\"intermediate_size\": 48, \"qk_rope_head_dim\": 16, \"qk_nope_head_dim\": 16, "
                           "\"v_head_dim\": 16, \"q_lora_rank\": 16, \"kv_lora_rank\": 16, \"index_topk\": 48}",
                           NULL);
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_int_equal(r.spec.graph->limits.context, 48);
    drop(&r);
    r = read_good(f.path, "limits.context=47");
    assert_int_equal(r.spec.graph->limits.context, 47);
    drop(&r);
    r = read_spec(f.path, "limits.context=49");
    assert_false(r.ok);
    assert_non_null(
        strstr(r.d.text, "config.json: index_topk must be limits.context or more, 49: attention to keys of its choice "
                         "is not computed, got 48"));
    drop(&r);
    remove_folder(&f);

    f = make_folder(
        "{\"model_type\": \"bigbird_pegasus\", \"vocab_size\": 64, \"d_model\": 32, \"encoder_layers\": 1, "
        "\"decoder_layers\": 1, \"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, "
        "\"block_size\": 4, \"num_random_blocks\": 2, \"max_position_embeddings\": 72, \"decoder_start_token_id\": 2}",
        NULL);
    r = read_good(f.path, NULL);
    assert_int_equal(r.spec.graph->limits.context, 72);
    assert_int_equal(r.spec.graph->limits.source, 36);
    drop(&r);
    r = read_spec(f.path, "limits.source=37");
    assert_false(r.ok);
    assert_non_null(strstr(r.d.text,
                           "config.json: num_random_blocks must be such that a source of 37 tokens sees all of itself: "
                           "blocks that are drawn are not computed, got 2"));
    drop(&r);
    remove_folder(&f);
}

static void test_checkout_images(void **state)
{
    Folder f = make_folder("{" IMAGES ", \"torch_dtype\": \"float16\", \"bos_token_id\": 3, \"eos_token_id\": [1, 6], "
                           "\"text_config\": {\"vocab_size\": 64, \"hidden_size\": 32, \"num_hidden_layers\": 1, "
                           "\"num_attention_heads\": 4, \"intermediate_size\": 48, \"head_dim\": 16, "
                           "\"bos_token_id\": 2, \"eos_token_id\": null}}",
                           NULL);
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_int_equal(r.spec.precision.weights, DT_FP16);
    assert_int_equal(r.spec.bos, 2);
    assert_int_equal(r.spec.n_ends, 2);
    assert_int_equal(r.spec.ends[1], 6);
    assert_true(has_weight(r.spec.graph, "model.layers.0.self_attn.q_norm.weight"));
    assert_false(has_weight(r.spec.graph, "lm_head.weight"));
    drop(&r);
    remove_folder(&f);
}

static void test_checkout_fields(void **state)
{
    Folder f =
        make_folder("{" LLAMA HEADS ", \"rope_scaling\": null, \"rope_theta\": 5000.0, \"attention_bias\": true, "
                    "\"tie_word_embeddings\": true, \"torch_dtype\": \"float16\", \"bos_token_id\": 3, "
                    "\"eos_token_id\": 9}",
                    "{\"eos_token_id\": [5, 6], \"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, "
                    "\"repetition_penalty\": 1.1, \"top_k\": 100, \"typical_p\": 0.75, \"num_return_sequences\": 3, "
                    "\"bad_words_ids\": [[7], [5], [8, 9, 5]], \"transformers_version\": \"4.40.0\"}");
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_int_equal(r.spec.kv_heads, 2);
    assert_int_equal(r.spec.bos, 3);
    assert_int_equal(r.spec.n_ends, 2);
    assert_int_equal(r.spec.ends[0], 5);
    assert_int_equal(r.spec.precision.weights, DT_FP16);
    assert_true(ir_float(first_op(r.spec.graph, OP_ROPE_TABLE), "theta") == 5000);
    assert_true(has_weight(r.spec.graph, "model.layers.0.self_attn.k_proj.bias"));
    assert_false(has_weight(r.spec.graph, "lm_head.weight"));
    assert_int_equal(r.spec.decode.max_top_k, 100);
    assert_true(r.spec.decode.repetition_penalty == 1.1f);
    assert_true(r.spec.decode.typical_p == 0.75f);
    assert_int_equal(r.spec.decode.samples, 3);
    assert_int_equal(r.spec.n_bad_words, 4); /* not the end id alone */
    assert_memory_equal(r.spec.bad_words, ((const int32_t[]){~7, 8, 9, ~5}), 4 * sizeof(int32_t));
    assert_int_equal(r.spec.graph->limits.bad_words, 256 + 4);
    drop(&r);
    remove_folder(&f);

    f = make_folder("{" LLAMA HEADS "}", "{\"num_beams\": 6, \"num_beam_groups\": 3, \"diversity_penalty\": 0.5, "
                                         "\"length_penalty\": 0.8, \"early_stopping\": \"never\"}");
    r = read_good(f.path, NULL);
    assert_int_equal(r.spec.decode.beams, 6);
    assert_int_equal(r.spec.decode.beam_groups, 3);
    assert_true(r.spec.decode.diversity_rate == 0.5f);
    assert_int_equal(r.spec.decode.early_stopping, FTX_EARLY_NEVER);
    drop(&r);
    remove_folder(&f);

    /* without generation_config.json the model's own end id; the context is capped; shards */
    f = make_folder("{" LLAMA HEADS ", \"eos_token_id\": 9, \"use_cache\": true}", NULL);
    {
        char path[160];

        snprintf(path, sizeof path, "%s/model.safetensors", f.path);
        unlink(path);
        r = read_spec(f.path, NULL);
        assert_false(r.ok);
        assert_non_null(strstr(r.d.text, "no model.safetensors and no model.safetensors.index.json"));
        drop(&r);
        put(&f, "pytorch_model.bin", "x");
        r = read_spec(f.path, NULL);
        assert_non_null(strstr(r.d.text, "pytorch_model.bin: pickled weights are not read"));
        drop(&r);
        put(&f, "model.safetensors.index.json", "{}");
    }
    r = read_good(f.path, NULL);
    assert_non_null(strstr(r.spec.weights, "/model.safetensors.index.json"));
    assert_int_equal(r.spec.n_ends, 1);
    assert_int_equal(r.spec.ends[0], 9);
    assert_int_equal(r.spec.bos, -1);
    drop(&r);
    remove_folder(&f);

    f = make_folder("{\"architectures\": [\"MistralForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, "
                    "\"num_key_value_heads\": 2, "
                    "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"max_position_embeddings\": 32768" HEADS
                    ", \"sliding_window\": null}",
                    NULL);
    r = read_good(f.path, NULL);
    assert_int_equal(ir_int(first_op(r.spec.graph, OP_ATTEND), "window"), 0);
    assert_int_equal(r.spec.graph->limits.context, 4096);
    drop(&r);
    put(&f, "config.json",
        "{\"architectures\": [\"MistralForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, "
        "\"num_key_value_heads\": 2, "
        "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"max_position_embeddings\": 32768" HEADS "}");
    r = read_good(f.path, "limits.context=8192");
    assert_int_equal(ir_int(first_op(r.spec.graph, OP_ATTEND), "window"), 4096);
    assert_int_equal(r.spec.graph->limits.context, 8192);
    drop(&r);
    remove_folder(&f);
}

/* Gemma's embeddings are multiplied by the square root of their width, rounded to the type of the weights; its gelu is
 * the tanh form. */
static void test_gemma(void **state)
{
    static const struct {
        const char *type, *define;
        double scale;
    } cases[] = {{"bfloat16", NULL, 6.9375},
                 {"float16", NULL, 6.9296875},
                 {"bfloat16", "precision.weights=fp16", 6.9296875},
                 {"float32", NULL, 6.928203105926514},
                 {"bfloat16", "precision.weights=fp32", 6.928203105926514}};
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        char config[600];
        Folder f;
        Reading r;

        snprintf(config, sizeof config,
                 "{\"architectures\": [\"GemmaForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 48, "
                 "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"num_key_value_heads\": 1, \"head_dim\": 16, "
                 "\"hidden_act\": \"gelu\", \"dtype\": \"%s\"" HEADS "}",
                 cases[i].type);
        f = make_folder(config, NULL);
        r = read_good(f.path, cases[i].define);
        assert_true(fabs(ir_float(first_op(r.spec.graph, OP_SCALE), "by") - cases[i].scale) < 1e-12);
        assert_string_equal(ir_word(first_op(r.spec.graph, OP_ACT), "kind"), "gelu_tanh");
        drop(&r);
        remove_folder(&f);
    }
}

/* What transformers 5.23 gives for rope_parameters of these files. */
static void test_two_ropes(void **state)
{
#define OLD(fields) ", \"rope_scaling\": {" fields "}"
#define NEW(fields) ", \"rope_parameters\": {" fields "}"
#define LINEAR(factor) "\"type\": \"linear\", \"factor\": " #factor
    static const struct {
        const char *more, *scaling;
        double factor, theta;
    } cases[] = {
        {OLD(LINEAR(2.0)) NEW("\"rope_type\": \"default\", \"rope_theta\": 5000.0"), "linear", 2, 10000},
        {OLD() NEW(LINEAR(4.0) ", \"rope_theta\": 5000.0"), "linear", 4, 5000},
        {OLD(LINEAR(2.0)) NEW("\"rope_theta\": 5000.0") ", \"rope_theta\": 7000.0", "linear", 2, 7000},
        {", \"rope_scaling\": null" NEW(LINEAR(4.0) ", \"rope_theta\": 5000.0"), "linear", 4, 5000},
        {NEW(LINEAR(4.0)) ", \"rope_theta\": 7000.0", "linear", 4, 7000},
        {OLD(LINEAR(2.0) ", \"rope_theta\": 5000.0") ", \"rope_theta\": 7000.0", "linear", 2, 5000},
        {NEW("\"rope_theta\": 5000.0"), "none", 1, 5000},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        char config[600];
        const Value *table;
        Folder f;
        Reading r;

        snprintf(config, sizeof config, "{" LLAMA HEADS "%s}", cases[i].more);
        f = make_folder(config, NULL);
        r = read_good(f.path, NULL);
        table = first_op(r.spec.graph, OP_ROPE_TABLE);
        assert_string_equal(ir_word(table, "scaling"), cases[i].scaling);
        assert_true(ir_float(table, "factor") == cases[i].factor);
        assert_true(ir_float(table, "theta") == cases[i].theta);
        drop(&r);
        remove_folder(&f);
    }
}

/* Layers with a window whose positions are scaled by yarn: frequencies of their own, beside those of the other layers. */
static void test_windowed_frequencies(void **state)
{
    Folder f =
        make_folder("{\"architectures\": [\"Gemma3ForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 48, "
                    "\"num_hidden_layers\": 2, \"intermediate_size\": 48, \"num_key_value_heads\": 1, "
                    "\"head_dim\": 16, \"layer_types\": [\"sliding_attention\", \"full_attention\"], "
                    "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 5000.0}, "
                    "\"sliding_attention\": {\"rope_type\": \"yarn\", \"rope_theta\": 700.0, \"factor\": 4.0, "
                    "\"original_max_position_embeddings\": 64}}" HEADS "}",
                    NULL);
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_int_equal(count_ops(r.spec.graph, OP_ROPE_TABLE), 2);
    assert_int_not_equal(*ir_word(first_op(r.spec.graph, OP_ROPE_TABLE), "freqs"), 0);
    drop(&r);
    remove_folder(&f);
}

/* A file hf/NAME.lua that returns something wrong: the message says what it must return. */
static void test_architecture_files(void **state)
{
#define WANTED \
    "; its function must return a table { graph = ..., positions = ... }, and may set vocab, source, encoder, " \
    "whole, labels, scoring"
#define MADE \
    "local llama = require 'llama' local g = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48 } "
    static const struct {
        const char *text, *message; /* NULL: accepted */
    } cases[] = {
        {"return 3", "hf/Mine.lua: must return a function of config, it returns a number"},
        {"return {}", "hf/Mine.lua: must return a function of config, it returns a table"},
        {"return function(config) end", "hf/Mine.lua: returned nothing" WANTED},
        {"return function(config) return 'x' end", "hf/Mine.lua: returned a string" WANTED},
        {"return function(config) return {} end",
         "hf/Mine.lua: graph must be a graph value: what a family returns" WANTED},
        {"return function(config) " MADE "return { graph = g } end",
         "hf/Mine.lua: positions must be the longest text, a whole number of 1 or more" WANTED},
        {"return function(config) " MADE "return { graph = g, positions = 64, size = 3 } end",
         "hf/Mine.lua: returned the unknown field size" WANTED},
        {"return function(config) " MADE "return g end", "hf/Mine.lua: returned a graph value" WANTED},
        {"return function(config) " MADE "return { graph = g, positions = 64, encoder = 1 } end",
         "hf/Mine.lua: encoder must be true for an encoder" WANTED},
        {"return function(config) " MADE "return { graph = g, positions = 64, vocab = 1 } end",
         "hf/Mine.lua: vocab must be the number of ids, if vocab_size does not say it" WANTED},
        {"return function(config) " MADE "return { graph = g, positions = config:count('longest', 1, 99) } end", NULL},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        Folder f = make_folder("{\"architectures\": [\"Mine\"], \"vocab_size\": 64, \"longest\": 77}", NULL);
        char path[160];
        Reading r;

        snprintf(path, sizeof path, "%s/hf", f.path);
        assert_int_equal(mkdir(path, 0700), 0);
        put(&f, "hf/Mine.lua", cases[i].text);
        r = read_spec(f.path, NULL);
        if (cases[i].message)
            assert_memory_equal(r.d.text, cases[i].message, strlen(cases[i].message));
        else
            assert_int_equal(r.spec.graph->limits.context, 77);
        drop(&r);
        remove_file(&f, "hf/Mine.lua");
        rmdir(path);
        remove_folder(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_checkouts),
        cmocka_unit_test(test_trained_checkout),
        cmocka_unit_test(test_checkout_mistakes),
        cmocka_unit_test(test_text_sizes),
        cmocka_unit_test(test_short_texts),
        cmocka_unit_test(test_checkout_images),
        cmocka_unit_test(test_checkout_fields),
        cmocka_unit_test(test_two_ropes),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_windowed_frequencies),
        cmocka_unit_test(test_architecture_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
