/* test_spec.c - specs, families, checkouts and -D give the right graph and facts; each mistake gives the message in
 * the first line of its file tests/spec/bad/x.lua.
 *
 * FTX_UPDATE=1 writes the actual messages into those files; review the difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/spec/spec.h"
#include "runtime/base/file.h"

/* --- reading one --------------------------------------------------------------------------------- */

typedef struct Reading {
    Arena *keep;
    Spec spec;
    Diag d;
    bool ok;
} Reading;

/* defines: words with a space between, or NULL */
static Reading read_spec(const char *path, const char *defines)
{
    Reading r = {.keep = arena_open()};
    Override list[8];
    size_t n = 0;

    if (defines)
        for (char *save = NULL, *w = strtok_r(arena_strdup(r.keep, defines), " ", &save); w;
             w = strtok_r(NULL, " ", &save))
            list[n++].text = w;
    r.ok = spec_read(path, list, n, r.keep, &r.spec, &r.d);
    assert_int_equal(r.ok, !r.d.failed);
    if (!r.ok)
        assert_null(r.spec.graph);
    return r;
}

static void drop(Reading *r)
{
    ir_graph_close(r->spec.graph);
    arena_close(r->keep);
}

static Reading read_good(const char *path, const char *defines)
{
    Reading r = read_spec(path, defines);
    Diag d = {0};

    if (!r.ok)
        fail_msg("%s: %s", path, r.d.text);
    assert_true(ir_verify(r.spec.graph, &d));
    return r;
}

static size_t count_ops(const Graph *g, Op op)
{
    size_t n = 0;

    for (Id id = 1; id < g->values.n; id++)
        n += ir_value(g, id)->op == op;
    return n;
}

static const Value *first_op(const Graph *g, Op op)
{
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == op)
            return ir_value(g, id);
    fail_msg("no %s in the graph", ir_op_name(op));
    return NULL;
}

static bool has_weight(const Graph *g, const char *name)
{
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_WEIGHT && strcmp(ir_word(ir_value(g, id), "name"), name) == 0)
            return true;
    return false;
}

/* --- mistakes ------------------------------------------------------------------------------------- */

static const char BAD[] = "tests/spec/bad/";

/* The message without the folder, so that the stored lines are short. */
static char *short_message(Arena *a, const char *text)
{
    char *out = arena_strdup(a, text);

    for (char *at; (at = strstr(out, BAD));)
        memmove(at, at + strlen(BAD), strlen(at + strlen(BAD)) + 1);
    return out;
}

/* The rest of line i (from 0) after `start`, or NULL. */
static char *line_after(Arena *a, const char *text, int i, const char *start)
{
    for (; i > 0; i--)
        if (!(text = strchr(text, '\n')) || !*++text)
            return NULL;
    if (strncmp(text, start, strlen(start)) != 0)
        return NULL;
    text += strlen(start);
    return arena_strndup(a, text, strcspn(text, "\n"));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void test_mistakes(void **state)
{
    Arena *a = arena_open();
    DIR *dir = opendir(BAD);
    const struct dirent *e;
    struct {
        char **at;
        size_t n, cap;
    } names = {0};
    int wrong = 0;

    (void)state;
    assert_non_null(dir);
    while ((e = readdir(dir)))
        if (strstr(e->d_name, ".lua"))
            *arena_push(a, names) = arena_strdup(a, e->d_name);
    closedir(dir);
    qsort(names.at, names.n, sizeof *names.at, by_name);
    assert_true(names.n >= 60);
    for (size_t i = 0; i < names.n; i++) {
        const char *path = arena_printf(a, "%s%s", BAD, names.at[i]), *expected;
        FileMap map;
        char *text, *got;
        Reading r;

        assert_int_equal(file_map(path, &map, NULL), FTX_OK);
        text = arena_strndup(a, map.at, map.bytes);
        file_unmap(&map);
        expected = line_after(a, text, 0, "-- ");
        r = read_spec(path, line_after(a, text, 1, "-- -D "));
        assert_false(r.ok);
        got = short_message(a, r.d.text);
        if (getenv("FTX_UPDATE")) {
            const char *now = arena_printf(a, "-- %s%s", got, strchr(text, '\n'));

            assert_int_equal(file_write_whole(path, now, strlen(now), NULL), FTX_OK);
        } else if (!expected || strcmp(expected, got) != 0) {
            print_message("%s:\n  expected %s\n  got      %s\n", path, expected ? expected : "(nothing)", got);
            wrong++;
        }
        drop(&r);
    }
    assert_int_equal(wrong, 0);
    arena_close(a);
}

/* --- specs of the tree ------------------------------------------------------------------------------ */

static void test_fable(void **state)
{
    Reading r = read_good("specs/fable.lua", NULL);
    const Spec *s = &r.spec;
    const Graph *g = s->graph;

    (void)state;
    assert_string_equal(s->name, "fable");
    assert_string_equal(s->weights, "specs/fable/model.safetensors");
    assert_string_equal(s->tokenizer, "specs/fable/tokenizer.json");
    assert_int_equal(s->vocab, 4096);
    assert_int_equal(s->hidden, 384);
    assert_int_equal(s->layers, 6);
    assert_int_equal(s->heads, 6);
    assert_int_equal(s->kv_heads, 2);
    assert_int_equal(s->head_dim, 64);
    assert_int_equal(s->positions, 0);
    assert_int_equal(s->bos, 0);
    assert_int_equal(s->n_ends, 1);
    assert_int_equal(s->ends[0], 1);
    assert_int_equal(g->limits.sequences, 16);
    assert_int_equal(g->limits.context, 1024);
    assert_int_equal(g->limits.tokens, 512);
    assert_int_equal(g->limits.kv_block, 16);
    assert_int_equal(g->limits.kv_pages, 16 * 64);
    assert_int_equal(s->precision.weights, DT_BF16);
    assert_int_equal(s->precision.compute, DT_NONE);
    assert_int_equal(s->decode.top_k, 40);
    assert_int_equal(s->decode.max_top_k, 64);
    assert_true(s->decode.temperature == 0.8f && s->decode.repetition_penalty == 1.15f);
    /* one table for all layers, as long as the context; the head is the embedding */
    assert_int_equal(count_ops(g, OP_ROPE_TABLE), 1);
    assert_int_equal(ir_int(first_op(g, OP_ROPE_TABLE), "positions"), 1024);
    assert_int_equal(count_ops(g, OP_ATTEND), 6);
    assert_int_equal(count_ops(g, OP_LINEAR), 6 * 7 + 1);
    assert_int_equal(count_ops(g, OP_WEIGHT), 1 + 6 * 9 + 1);
    assert_false(has_weight(g, "lm_head.weight"));
    assert_non_null(strstr(s->text, "ftx.model"));
    drop(&r);
}

static void test_published_shapes(void **state)
{
    static const struct {
        const char *path;
        uint32_t hidden, layers, heads, kv_heads, head_dim, vocab, positions;
    } all[] = {
        {"specs/llama-3.2-1b.lua", 2048, 16, 32, 8, 64, 128256, 0},
        {"specs/llama-3.1-8b.lua", 4096, 32, 32, 8, 128, 128256, 0},
        {"specs/gpt2-124m.lua", 768, 12, 12, 12, 64, 50257, 1024},
    };

    (void)state;
    for (size_t i = 0; i < LEN(all); i++) {
        Reading r = read_good(all[i].path, NULL);

        assert_int_equal(r.spec.hidden, all[i].hidden);
        assert_int_equal(r.spec.layers, all[i].layers);
        assert_int_equal(r.spec.heads, all[i].heads);
        assert_int_equal(r.spec.kv_heads, all[i].kv_heads);
        assert_int_equal(r.spec.head_dim, all[i].head_dim);
        assert_int_equal(r.spec.vocab, all[i].vocab);
        assert_int_equal(r.spec.positions, all[i].positions);
        assert_null(r.spec.weights);
        drop(&r);
    }
}

static char *printed(const Graph *g)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);

    ir_print(g, f);
    fclose(f);
    return text;
}

static void test_one_spec_is_one_graph(void **state)
{
    static const char *const paths[] = {"specs/fable.lua", "specs/gpt2-124m.lua", "tests/models/tiny-llama-rope3"};

    (void)state;
    for (size_t i = 0; i < LEN(paths); i++) {
        Reading a = read_good(paths[i], NULL), b = read_good(paths[i], NULL);
        char *x = printed(a.spec.graph), *y = printed(b.spec.graph);

        assert_string_equal(x, y);
        free(x);
        free(y);
        drop(&a);
        drop(&b);
    }
}

static void test_overrides(void **state)
{
    Reading r = read_good("specs/fable.lua",
                          "limits.context=256 kv.block_size=32 precision.weights=fp32 decode.temperature=0 eos=2,3 "
                          "name=other weights= decode.top_k=100");

    (void)state;
    assert_int_equal(r.spec.graph->limits.context, 256);
    assert_int_equal(r.spec.graph->limits.kv_pages, 16 * 8);
    assert_int_equal(ir_int(first_op(r.spec.graph, OP_ROPE_TABLE), "positions"), 256);
    assert_int_equal(r.spec.precision.weights, DT_FP32);
    assert_true(r.spec.decode.temperature == 0);
    assert_int_equal(r.spec.decode.max_top_k, 100);
    assert_int_equal(r.spec.n_ends, 2);
    assert_int_equal(r.spec.ends[1], 3);
    assert_string_equal(r.spec.name, "other");
    assert_string_equal(r.spec.graph->name, "other");
    assert_null(r.spec.weights);
    assert_non_null(strstr(r.spec.text, "-- -D limits.context=256\n"));
    drop(&r);
    /* the later of two values counts; a path in -D is relative to the current folder */
    r = read_good("specs/fable.lua", "limits.context=64 limits.context=48 weights=tests/models/tiny-llama");
    assert_int_equal(r.spec.graph->limits.context, 48);
    assert_string_equal(r.spec.weights, "tests/models/tiny-llama/model.safetensors");
    drop(&r);
    /* fields of the family, of a spec and of a checkout */
    r = read_good("specs/fable.lua", "graph.layers=2 graph.tie_embeddings=false graph.layers=3 weights=");
    assert_int_equal(r.spec.layers, 3);
    assert_int_equal(count_ops(r.spec.graph, OP_ATTEND), 3);
    drop(&r);
    r = read_good("specs/fable.lua", "limits.bad_words=10 decode.bad_words=5,6;7;8,9,10");
    assert_int_equal(r.spec.n_bad_words, 6);
    assert_memory_equal(r.spec.bad_words, ((const int32_t[]){5, ~6, ~7, 8, 9, ~10}), 6 * sizeof(int32_t));
    assert_int_equal(r.spec.graph->limits.bad_words, 16);
    drop(&r);

    r = read_good("tests/models/tiny-roberta", "graph.layers=1 graph.pooling=mean weights=");
    assert_int_equal(r.spec.layers, 1);
    assert_int_equal(count_ops(r.spec.graph, OP_POOL_MEAN), 1);
    drop(&r);
}

/* Where there is a source, 4 beams are compiled in, and greedy stays the default. */
static void test_usual_beams(void **state)
{
    static const struct {
        const char *path, *defines;
        int width, beams, sources;
    } cases[] = {
        {"tests/models/tiny-marian", NULL, 4, 1, 16},
        {"tests/models/tiny-bart", "limits.sequences=3", 3, 1, 3},
        {"tests/models/tiny-bart", "decode.width=1", 1, 1, 16},
        {"tests/models/tiny-bart", "decode.width=2", 2, 1, 8},
        {"tests/models/tiny-bart", "decode.beams=8", 8, 8, 2},
        {"tests/models/tiny-bart", "decode.beams=2", 4, 2, 8},
        {"tests/models/tiny-llama", NULL, 1, 1, 0},
        {"specs/verse.lua", NULL, 4, 4, 8},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        Reading r = read_good(cases[i].path, cases[i].defines);

        assert_int_equal(r.spec.graph->limits.beams, cases[i].width);
        assert_int_equal(count_ops(r.spec.graph, OP_BEAM), cases[i].width > 1);
        assert_int_equal(r.spec.decode.beams, cases[i].beams);
        assert_int_equal(r.spec.graph->limits.sources, cases[i].sources);
        drop(&r);
    }
}

/* Attributes of ops that the families derive. */
static void test_llama_options(void **state)
{
    Reading r = read_good("tests/spec/good/options.lua", NULL);
    const Graph *g = r.spec.graph;

    (void)state;
    assert_int_equal(r.spec.kv_heads, 1);
    assert_true(has_weight(g, "model.layers.1.self_attn.o_proj.bias"));
    assert_true(has_weight(g, "model.layers.1.mlp.down_proj.bias"));
    assert_true(has_weight(g, "lm_head.weight"));
    assert_int_equal(ir_int(first_op(g, OP_ATTEND), "window"), 12);
    assert_string_equal(ir_word(first_op(g, OP_ROPE_TABLE), "scaling"), "linear");
    assert_int_equal(ir_int(first_op(g, OP_ROPE_TABLE), "rot"), 12);
    assert_true(ir_float(first_op(g, OP_ROPE_TABLE), "factor") == 2);
    assert_string_equal(ir_word(first_op(g, OP_ACT), "kind"), "gelu_tanh");
    assert_int_equal(g->limits.kv_pages, 9);
    assert_true(r.spec.decode.temperature == 0);
    drop(&r);
}

/* The checks are asserts in the file. */
static void test_language(void **state)
{
    Reading r = read_good("tests/spec/good/language.lua", NULL);

    (void)state;
    drop(&r);
}

/* --- checkouts ------------------------------------------------------------------------------------------ */

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

/* A temporary folder with the files of a case. */
typedef struct Folder {
    char path[64];
} Folder;

static void put(const Folder *f, const char *name, const char *text)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", f->path, name);
    assert_int_equal(file_write_whole(path, text, strlen(text), NULL), FTX_OK);
}

static Folder make_folder(const char *config, const char *generation)
{
    Folder f = {"/tmp/ftx-spec-XXXXXX"};

    assert_non_null(mkdtemp(f.path));
    put(&f, "config.json", config);
    put(&f, "model.safetensors", "x");
    if (generation)
        put(&f, "generation_config.json", generation);
    return f;
}

static void remove_folder(const Folder *f)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "pytorch_model.bin",
                                        "modules.json",
                                        "1_Pooling/config.json",
                                        "source.spm",
                                        "tokenizer.json",
                                        "tokenizer.model",
                                        "tekken.json"};
    char path[160];

    for (size_t i = 0; i < LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/1_Pooling", f->path);
    rmdir(path);
    assert_int_equal(rmdir(f->path), 0);
}

/* config.json of a small LLaMA; `more` replaces or adds fields: later ones of a name win here. */
#define LLAMA \
    "\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, " \
    "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"max_position_embeddings\": 128"
#define HEADS ", \"num_attention_heads\": 2"
#define QWEN2 \
    "\"architectures\": [\"Qwen2ForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, \"num_hidden_layers\": 1, " \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 48" HEADS
#define FALCON \
    "\"architectures\": [\"FalconForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, " \
    "\"num_hidden_layers\": 1" HEADS

static void test_checkout_mistakes(void **state)
{
    static const struct {
        const char *config, *generation, *message; /* the message without the folder */
    } cases[] = {
        {"{" LLAMA HEADS, NULL, "config.json:1: '}' expected near end of file"},
        {"[1]", NULL, "config.json:1: an object was expected: {...}"},
        {"{}", NULL, "config.json: architectures must be a list with one name, got nothing"},
        {"{\"architectures\": [\"T5Model\"], \"is_encoder_decoder\": true}", NULL,
         "config.json: architectures: T5Model is not known, and nn.* cannot say it yet: it has relative position "
         "biases; "
         "the nearest that ftxc reads is BartForConditionalGeneration. docs/specs.md says how a file hf/T5Model.lua "
         "beside config.json describes it"},
        {"{\"architectures\": [\"BertLMHeadModel\"]}", NULL,
         "config.json: architectures: BertLMHeadModel is not known; the nearest that ftxc reads is BertModel. "
         "docs/specs.md says how a file hf/BertLMHeadModel.lua beside config.json describes it"},
        {"{\"architectures\": [\"Qwen3MoeForCausalLM\"]}", NULL,
         "config.json: architectures: Qwen3MoeForCausalLM is not known, and nn.* cannot say it yet: it has experts; "
         "the "
         "nearest that ftxc reads is Qwen2ForCausalLM. docs/specs.md says how a file hf/Qwen3MoeForCausalLM.lua beside "
         "config.json describes it"},
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
        {"{" FALCON ", \"alibi\": true}", NULL, "config.json: alibi must be false: ALiBi is not computed, got true"},
        {"{" FALCON ", \"new_decoder_architecture\": true, \"parallel_attn\": false}", NULL,
         "config.json: parallel_attn must be true with new_decoder_architecture, got false"},
        {"{" FALCON ", \"num_ln_in_parallel_attn\": 2}", NULL,
         "config.json: num_ln_in_parallel_attn must be 1 without new_decoder_architecture, got 2"},
        {"{\"architectures\": [\"GPTJForCausalLM\"], \"n_embd\": 32, \"n_head\": 2, \"n_layer\": 1, "
         "\"vocab_size\": 64, \"rotary_dim\": null}",
         NULL, "config.json: rotary_dim must be an even number up to n_embd / n_head, got nothing"},
        {"{\"architectures\": [\"OPTForCausalLM\"], \"hidden_size\": 33, \"num_attention_heads\": 2}", NULL,
         "config.json: num_attention_heads must be a divisor of hidden_size 33, got 2"},
        {"{" LLAMA "}", NULL, "config.json: num_attention_heads must be a whole number from 1 to 1024, got nothing"},
        {"{" LLAMA ", \"num_attention_heads\": \"2\"}", NULL,
         "config.json: num_attention_heads must be a whole number from 1 to 1024, got \"2\""},
        {"{" LLAMA HEADS ", \"quantization_config\": {\"bits\": 4}}", NULL,
         "config.json: quantization_config: quantised checkpoints are not read; take the original one"},
        {"{" LLAMA HEADS ", \"hidden_act\": \"mish\"}", NULL,
         "config.json: hidden_act must be one of gelu, gelu_fast, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, silu, "
         "swish, tanh, got \"mish\""},
        {"{" LLAMA HEADS ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}", NULL,
         "config.json: rope_scaling.type must be one of default, linear, llama3, got \"yarn\""},
        {"{" LLAMA HEADS ", \"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 4}}", NULL,
         "config.json: rope_parameters.rope_type must be one of default, linear, llama3, got \"dynamic\""},
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
         "specs/hf/LlamaForCausalLM.lua:13: llama: head_dim must be a "
         "multiple of 8 from 16 to 256, got 20 (reading config.json)"},
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
    f = make_folder("{" LLAMA HEADS ", \"eos_token_id\": 9, \"max_position_embeddings_\": 1}", NULL);
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
                    "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"max_position_embeddings\": 32768" HEADS
                    ", \"sliding_window\": null}",
                    NULL);
    r = read_good(f.path, NULL);
    assert_int_equal(ir_int(first_op(r.spec.graph, OP_ATTEND), "window"), 0);
    assert_int_equal(r.spec.graph->limits.context, 4096);
    drop(&r);
    put(&f, "config.json",
        "{\"architectures\": [\"MistralForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, "
        "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"max_position_embeddings\": 32768" HEADS "}");
    r = read_good(f.path, "limits.context=8192");
    assert_int_equal(ir_int(first_op(r.spec.graph, OP_ATTEND), "window"), 4096);
    assert_int_equal(r.spec.graph->limits.context, 8192);
    drop(&r);
    remove_folder(&f);
}

#define BERT \
    "{\"architectures\": [\"BertFor%s\"], \"vocab_size\": 64, \"hidden_size\": 32, \"num_hidden_layers\": 1, " \
    "\"intermediate_size\": 48, \"max_position_embeddings\": 64, \"num_attention_heads\": 2%s}"

/* A classifier's classes and scoring, as in Hugging Face's pipelines. */
static void test_checkout_labels(void **state)
{
    static const struct {
        const char *more, *labels;
        FtxScoring scoring;
    } cases[] = {
        {"", "LABEL_0\nLABEL_1\n", FTX_SCORING_SOFTMAX},
        {", \"id2label\": {\"1\": \"good\", \"0\": \"bad\"}", "bad\ngood\n", FTX_SCORING_SOFTMAX},
        {", \"num_labels\": 1", "LABEL_0\n", FTX_SCORING_SIGMOID},
        {", \"problem_type\": \"multi_label_classification\"", "LABEL_0\nLABEL_1\n", FTX_SCORING_SIGMOID},
        {", \"problem_type\": \"regression\", \"num_labels\": 1", "LABEL_0\n", FTX_SCORING_NONE},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        char config[500];
        Folder f;
        Reading r;

        snprintf(config, sizeof config, BERT, "SequenceClassification", cases[i].more);
        f = make_folder(config, NULL);
        r = read_good(f.path, NULL);
        assert_string_equal(r.spec.labels, cases[i].labels);
        assert_int_equal(r.spec.scoring, cases[i].scoring);
        assert_int_equal(r.spec.n_labels, r.spec.pooled);
        drop(&r);
        r = read_good(f.path, "pooling=mean"); /* another vector has no classes */
        assert_int_equal(r.spec.n_labels, 0);
        drop(&r);
        remove_folder(&f);
    }
}

static void put_modules(const Folder *f, const char *kind, const char *pooling)
{
    char path[160], text[300];

    snprintf(path, sizeof path, "%s/1_Pooling", f->path);
    mkdir(path, 0700);
    snprintf(text, sizeof text,
             "[{\"type\": \"sentence_transformers.models.Transformer\", \"path\": \"\"}, "
             "{\"type\": \"sentence_transformers.models.Pooling\", \"path\": \"1_Pooling\"}, "
             "{\"type\": \"sentence_transformers.models.%s\", \"path\": \"2\"}]",
             kind);
    put(f, "modules.json", text);
    put(f, "1_Pooling/config.json", pooling);
}

/* The files of sentence-transformers say how the vector of a text is made. */
static void test_checkout_sentences(void **state)
{
    char config[500];
    Folder f;
    Reading r;

    (void)state;
    snprintf(config, sizeof config, BERT, "SequenceClassification", "");
    f = make_folder(config, NULL);
    put_modules(&f, "Normalize", "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": false}");
    r = read_good(f.path, NULL);
    assert_int_equal(count_ops(r.spec.graph, OP_POOL_MEAN), 1);
    assert_int_equal(count_ops(r.spec.graph, OP_NORMALIZE), 1);
    assert_int_equal(r.spec.pooled, 32);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode_cls_token\": true}");
    r = read_good(f.path, "normalize=false");
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_FIRST), 1);
    assert_int_equal(count_ops(r.spec.graph, OP_NORMALIZE), 0);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "one of pooling_mode_cls_token and pooling_mode_mean_tokens must be true"));
    drop(&r);
    put_modules(&f, "Dense", "{\"pooling_mode_mean_tokens\": true}");
    r = read_spec(f.path, NULL);
    assert_non_null(
        strstr(r.d.text, "modules.json: module 3 is sentence_transformers.models.Dense; Transformer, Pooling"));
    drop(&r);
    r = read_good(f.path, "pooling=first"); /* -D pooling= works although the module is not supported */
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_FIRST), 1);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode\": \"cls\"}");
    r = read_good(f.path, NULL);
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_FIRST), 1);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode\": \"max\"}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "1_Pooling/config.json: pooling_mode must be one of cls, mean, got \"max\""));
    drop(&r);
    put(&f, "modules.json", "[{\"type\": \"x.Pooling\", \"path\": \"../..\"}]");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "the path of module 0 is not the name of a folder"));
    drop(&r);
    put(&f, "modules.json", "{}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "modules.json:1: a list was expected: [...]"));
    drop(&r);
    remove_folder(&f);
}

/* tokenizer.json, or else tekken.json, Marian's SentencePiece file, tokenizer.model. */
static void test_checkout_tokenizer(void **state)
{
    static const char *const names[] = {"tokenizer.model", "source.spm", "tekken.json", "tokenizer.json"};
    char config[500];
    Folder f;
    Reading r;

    (void)state;
    snprintf(config, sizeof config, BERT, "SequenceClassification", "");
    f = make_folder(config, NULL);
    r = read_good(f.path, NULL);
    assert_null(r.spec.tokenizer);
    drop(&r);
    for (size_t i = 0; i < LEN(names); i++) {
        put(&f, names[i], "x");
        r = read_good(f.path, NULL);
        assert_string_equal(strrchr(r.spec.tokenizer, '/') + 1, names[i]);
        drop(&r);
    }
    remove_folder(&f);
}

static void remove_file(const Folder *f, const char *name)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", f->path, name);
    assert_int_equal(unlink(path), 0);
}

/* A checkout without a tokenizer is compiled; a note says which files are there instead. */
static void test_tokenizer_note(void **state)
{
    Folder f = make_folder("{" LLAMA HEADS "}", NULL);
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_non_null(strstr(r.spec.note, "there is no tokenizer.json, so the model takes token ids and no text; copy"));
    drop(&r);
    put(&f, "vocab.json", "x");
    put(&f, "merges.txt", "x");
    r = read_good(f.path, NULL);
    assert_non_null(strstr(r.spec.note, "To make one from vocab.json, merges.txt: python3 -c '"));
    assert_non_null(strstr(r.spec.note, "save_pretrained"));
    drop(&r);
    r = read_good(f.path, "tokenizer=");
    assert_null(r.spec.note);
    drop(&r);
    put(&f, "tokenizer.json", "x");
    r = read_good(f.path, NULL);
    assert_null(r.spec.note);
    drop(&r);
    remove_file(&f, "vocab.json");
    remove_file(&f, "merges.txt");
    remove_folder(&f);
    r = read_good("specs/llama-3.2-1b.lua", NULL); /* a spec without a tokenizer is meant so */
    assert_null(r.spec.note);
    drop(&r);
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

/* A file hf/NAME.lua that returns something wrong: the message says what it must return. */
static void test_architecture_files(void **state)
{
#define WANTED \
    "; its function must return a table { graph = ..., positions = ... }, and may set source, encoder, labels, " \
    "scoring"
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

/* Inputs that are neither a spec nor a checkout: the message says what they are. */
static void test_other_inputs(void **state)
{
    static const struct {
        const char *name, *text, *message;
    } files[] = {
        {"model.gguf", "GGUF\3", "a GGUF file, which ftxc does not read; compile the Hugging Face checkout"},
        {"config.json", "{}", "a file of a checkout; compile the folder that it is in"},
        {"model.safetensors", "x", "weights alone; compile the folder of the checkout"},
        {"model.safetensors.index.json", "{}", "weights alone; compile the folder of the checkout"},
        {"pytorch_model.bin", "PK\3\4",
         "a pickled checkpoint, which ftxc does not read; save the model as safetensors"},
        {"model.ftx", "FTX1\r\n\x1a\n", "a compiled model; ftxc run and ftxc show take it"},
    };
    Folder f = make_folder("{}", NULL);
    Reading r;

    (void)state;
    for (size_t i = 0; i < LEN(files); i++) {
        char path[160];

        snprintf(path, sizeof path, "%s/%s", f.path, files[i].name);
        put(&f, files[i].name, files[i].text);
        r = read_spec(path, NULL);
        if (!strstr(r.d.text, files[i].message))
            fail_msg("%s", r.d.text);
        assert_ptr_equal(strstr(r.d.text, path), r.d.text);
        drop(&r);
    }
    remove_file(&f, "model.gguf");
    remove_file(&f, "model.ftx");
    remove_file(&f, "config.json");
    put(&f, "adapter_config.json", "{\"base_model_name_or_path\": \"meta-llama/Llama-3.2-1B\"}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "/: an adapter of meta-llama/Llama-3.2-1B, not a model; compile its model with "
                                     "the adapter: ftxc compile DIR --lora "));
    drop(&r);
    remove_file(&f, "adapter_config.json");
    remove_folder(&f);
    r = read_spec("meta-llama/Llama-3.2-1B", NULL);
    assert_true(r.d.machine);
    assert_string_equal(r.d.text, "meta-llama/Llama-3.2-1B: there is no such file or folder. If it is a model of the "
                                  "Hugging Face hub, download it first: hf download meta-llama/Llama-3.2-1B "
                                  "--local-dir Llama-3.2-1B, then ftxc compile Llama-3.2-1B");
    drop(&r);
}

static void test_no_spec_there(void **state)
{
    Reading r = read_spec("specs/nothing.lua", NULL);

    (void)state;
    assert_string_equal(r.d.text, "specs/nothing.lua: no spec there: No such file or directory");
    drop(&r);
    r = read_spec("tests/spec", NULL);
    assert_string_equal(r.d.text, "tests/spec/: neither a spec (a Lua file) nor a checkout: it has no config.json");
    drop(&r);
    r = read_spec("/dev/null", NULL);
    assert_string_equal(r.d.text, "/dev/null: neither a file nor a folder");
    drop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),           cmocka_unit_test(test_fable),
        cmocka_unit_test(test_published_shapes),   cmocka_unit_test(test_one_spec_is_one_graph),
        cmocka_unit_test(test_overrides),          cmocka_unit_test(test_usual_beams),
        cmocka_unit_test(test_llama_options),      cmocka_unit_test(test_language),
        cmocka_unit_test(test_tiny_checkouts),     cmocka_unit_test(test_trained_checkout),
        cmocka_unit_test(test_checkout_mistakes),  cmocka_unit_test(test_checkout_labels),
        cmocka_unit_test(test_checkout_sentences), cmocka_unit_test(test_checkout_tokenizer),
        cmocka_unit_test(test_checkout_fields),    cmocka_unit_test(test_tokenizer_note),
        cmocka_unit_test(test_two_ropes),          cmocka_unit_test(test_architecture_files),
        cmocka_unit_test(test_other_inputs),       cmocka_unit_test(test_no_spec_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
