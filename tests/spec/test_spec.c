/* test_spec.c - specs, families and -D give the right graph and facts; each mistake gives the message in the first line
 * of its file tests/spec/bad/x.lua.
 *
 * FTX_UPDATE=1 writes the actual messages into those files; review the difference. */
#include "reading.h"

#include <dirent.h>
#include <stdio.h>

#include "runtime/base/file.h"

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
    assert_false(s->precision.fixed_sums);
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

static void test_sums(void **state)
{
    Reading r = read_good("specs/fable.lua", "precision.sums=fixed");

    (void)state;
    assert_true(r.spec.precision.fixed_sums);
    drop(&r);
}

static void test_activations(void **state)
{
    static const struct {
        const char *override;
        DType type;
    } rows[] = {{"precision.sums=free", DT_NONE},
                {"precision.activations=auto", DT_NONE},
                {"precision.activations=fp8", DT_FP8}};

    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        Reading r = read_good("specs/fable.lua", rows[i].override);

        assert_int_equal(r.spec.precision.activations, rows[i].type);
        drop(&r);
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

    r = read_good("specs/fable.lua", "limits.masks=true");
    assert_int_equal(count_ops(r.spec.graph, OP_MASK), 1);
    assert_int_equal(ir_value(r.spec.graph, ir_value(r.spec.graph, r.spec.graph->output)->args[1])->op, OP_MASK);
    drop(&r);
    r = read_good("specs/fable.lua", "limits.masks=false");
    assert_int_equal(count_ops(r.spec.graph, OP_MASK), 0);
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
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_fable),
        cmocka_unit_test(test_published_shapes),
        cmocka_unit_test(test_one_spec_is_one_graph),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_usual_beams),
        cmocka_unit_test(test_llama_options),
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_no_spec_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
