/* test_gguf_types.c - tensors of each quantised type: golden.gguf has their values beside them (golden.py writes it, and
 * compares it with ggml's own package). Codes and scales, in their own form and in wider ones, mean exactly these values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "bytes.h"
#include "compiler/weights/tensors.h"
#include "tests/temp.h"

enum { ROWS = 8, COLUMNS = 256 };

static const Tensor *find(const TensorList *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->at[i].name, name) == 0)
            return &list->at[i];
    fail_msg("there is no tensor %s", name);
    return NULL;
}

/* A row through a form of codes. */
static void read_as(const Tensor *t, const CodedForm *form, int64_t row, float *out)
{
    void *memory = calloc(1, coded_row_bytes(form, COLUMNS));
    const CodedRow codes = coded_row(form, COLUMNS, memory, 0);

    assert_non_null(memory);
    coded_read(t, row, form, &codes);
    coded_row_values(form, COLUMNS, &codes, out);
    free(memory);
}

static void test_values(void **state)
{
    static const struct {
        const char *name;
        CodedForm own, wider;
    } types[] = {
        {"Q8_0", {DT_INT8, PACKED_FP16, 32}, {DT_INT8, PACKED_FP32, 16}},
        {"Q4_0", {DT_INT4, PACKED_FP16, 32}, {DT_INT8, PACKED_FP16, 32}},
        {"Q4_1", {DT_INT4, PACKED_FP32_MINIMA, 32}, {DT_INT8, PACKED_FP32_MINIMA, 16}},
        {"Q5_0", {DT_INT8, PACKED_FP16, 32}, {DT_INT8, PACKED_FP32, 16}},
        {"Q5_1", {DT_INT8, PACKED_FP32_MINIMA, 32}, {DT_INT8, PACKED_FP32_MINIMA, 16}},
        {"Q4_K", {DT_INT4, PACKED_FP32_MINIMA, 32}, {DT_INT8, PACKED_FP32_MINIMA, 32}},
        {"Q5_K", {DT_INT8, PACKED_FP32_MINIMA, 32}, {DT_INT8, PACKED_FP32_MINIMA, 16}},
        {"Q6_K", {DT_INT8, PACKED_FP32, 16}, {DT_INT8, PACKED_FP32, 16}},
        {"Q2_K", {DT_INT4, PACKED_FP32_MINIMA, 16}, {DT_INT8, PACKED_FP32_MINIMA, 16}},
        {"Q3_K", {DT_INT8, PACKED_FP32, 16}, {DT_INT8, PACKED_FP32, 16}},
        {"IQ4_NL", {DT_INT8, PACKED_FP16, 32}, {DT_INT8, PACKED_FP32, 16}},
        {"IQ4_XS", {DT_INT8, PACKED_FP32, 32}, {DT_INT8, PACKED_FP32, 16}},
    };
    Arena *keep = arena_open();
    TensorList list = {0};
    Diag d = {0};
    FileMap map;
    FileMaps more = {0};
    (void)state;

    assert_int_equal(file_map("tests/gguf/golden.gguf", &map, NULL), FTX_OK);
    if (!gguf_tensors("golden.gguf", &map, &more, keep, &list, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < LEN(types); i++) {
        const Tensor *t = find(&list, types[i].name);
        const Tensor *want = find(&list, arena_printf(keep, "%s.values", types[i].name));

        assert_non_null(t->coded);
        assert_memory_equal(&t->coded->form, &types[i].own, sizeof types[i].own);
        assert_int_equal(t->rank, 3);
        assert_true(t->dim[0] == 2 && t->dim[1] == 4 && t->dim[2] == COLUMNS);
        for (int64_t row = 0; row < ROWS; row++) {
            float own[COLUMNS], wider[COLUMNS], plain[COLUMNS];

            read_as(t, &types[i].own, row, own);
            read_as(t, &types[i].wider, row, wider);
            coded_values(t, row, plain);
            for (int64_t k = 0; k < COLUMNS; k++) {
                const float w = tensor_element(want, (uint64_t)(row * COLUMNS + k));

                if (own[k] != w || wider[k] != w || plain[k] != w)
                    fail_msg("%s [%d,%d]: %.9g, %.9g, %.9g, expected %.9g", types[i].name, (int)row, (int)k,
                             (double)own[k], (double)wider[k], (double)plain[k], (double)w);
            }
        }
    }
    file_unmap(&map);
    arena_close(keep);
}

/* --- names and rows in pairs ------------------------------------------------------------------------ */

typedef struct Fixture {
    Arena *keep;
    Spec spec;
    Checkpoint *c;
    Diag d;
} Fixture;

static void name_list(Fixture *f, NameList *list, const char *const *names)
{
    for (; *names; names++)
        *arena_push(f->keep, *list) = *names;
}

static const Tensor *named(const Fixture *f, const char *name)
{
    return find(&f->c->tensors, name);
}

/* Heads of 4 rows: stored rows 0 1 2 3 are the checkpoint's 0 2 1 3. */
static void test_names(void **state)
{
    static const char *const stored[] = {"token_embd",     "embed", "blk.*.attn_q", "layers.*.q_proj", "blk.*.q",
                                         "layers.*.other", NULL};
    static const char *const paired[] = {"blk.*.attn_q", NULL};
    const char *path = temp_path("names.gguf");
    GgufBytes b = {0};
    Fixture f = {.keep = arena_open()};
    float row[2];
    FILE *out;
    (void)state;

    gguf_begin(&b);
    gguf_put_tensor(&b, "blk.12.attn_q.weight", 2, (uint64_t[]){2, 8}, 0, 0);
    gguf_put_tensor(&b, "blk.12.attn_q.bias", 1, (uint64_t[]){8}, 0, 64);
    gguf_put_tensor(&b, "blk.3.attn_q.weight", 2, (uint64_t[]){2, 6}, 1, 96); /* no whole heads */
    gguf_put_tensor(&b, "blk..attn_q.weight", 1, (uint64_t[]){1}, 0, 128);
    gguf_put_tensor(&b, "blk.1.attn_q.scale", 1, (uint64_t[]){1}, 0, 160);
    gguf_put_tensor(&b, "blk.1.attn_q", 1, (uint64_t[]){1}, 0, 192);
    gguf_put_tensor(&b, "token_embd.weight", 2, (uint64_t[]){32, 1}, 39, 224);
    gguf_put_tensor(&b, "blk.7.q.weight", 1, (uint64_t[]){256}, 12, 256);
    gguf_put_data(&b, 32, 512);
    for (int i = 0; i < 16; i++) {
        const float x = (float)i;

        memcpy(b.at + b.n - 512 + 4 * i, &x, 4);
        if (i < 8)
            memcpy(b.at + b.n - 512 + 64 + 4 * i, &x, 4);
    }
    out = fopen(path, "wb");
    assert_true(out && fwrite(b.at, 1, b.n, out) == b.n && !fclose(out));
    f.spec.name = "names";
    f.spec.head_dim = 4;
    name_list(&f, &f.spec.stored, stored);
    name_list(&f, &f.spec.paired, paired);
    if (!checkpoint_open(path, f.keep, &f.c, &f.d) || !checkpoint_rename(f.c, &f.spec, f.keep, &f.d))
        fail_msg("%s", f.d.text);
    for (int64_t r = 0; r < 8; r++) {
        const int64_t want = r / 4 * 4 + (int64_t[]){0, 2, 1, 3}[r % 4];

        coded_values(named(&f, "layers.12.q_proj.weight"), r, row);
        assert_true(row[0] == (float)(2 * want) && row[1] == (float)(2 * want + 1));
        assert_true(tensor_element(named(&f, "layers.12.q_proj.bias"), (uint64_t)r) == (float)want);
    }
    assert_null(named(&f, "layers.3.q_proj.weight")->coded);
    assert_int_equal(named(&f, "layers.3.q_proj.weight")->type, DT_FP16);
    assert_int_equal(named(&f, "embed.weight")->type, DT_NONE);          /* MXFP4 */
    assert_int_equal(named(&f, "layers.7.other.weight")->type, DT_NONE); /* a vector of blocks */
    named(&f, "blk..attn_q.weight");
    named(&f, "blk.1.attn_q.scale");
    named(&f, "blk.1.attn_q");
    for (size_t i = 1; i < f.c->tensors.n; i++)
        assert_true(strcmp(f.c->tensors.at[i - 1].name, f.c->tensors.at[i].name) < 0);
    checkpoint_close(f.c);
    arena_close(f.keep);
    free(b.at);
}

/* A scalar has no rows to move; a vector of the model is never read from a matrix of codes, whose rows are whole. */
static void test_odd_ranks(void **state)
{
    static const char *const stored[] = {"blk.*.attn_q", "q", "norm", "n", NULL}, *const paired[] = {"blk.*.attn_q",
                                                                                                     NULL};
    const char *path = temp_path("ranks.gguf");
    GgufBytes b = {0};
    Fixture f = {.keep = arena_open()};
    Id id;
    FILE *out;
    (void)state;

    gguf_begin(&b);
    gguf_put_tensor(&b, "blk.0.attn_q.weight", 0, NULL, 0, 0);
    gguf_put_tensor(&b, "norm.weight", 2, (uint64_t[]){32, 1}, 8, 32);
    gguf_put_data(&b, 32, 96);
    out = fopen(path, "wb");
    assert_true(out && fwrite(b.at, 1, b.n, out) == b.n && !fclose(out));
    f.spec.name = "ranks";
    f.spec.head_dim = 4;
    f.spec.graph = ir_graph_new("ranks");
    name_list(&f, &f.spec.stored, stored);
    name_list(&f, &f.spec.paired, paired);
    if (!checkpoint_open(path, f.keep, &f.c, &f.d) || !checkpoint_rename(f.c, &f.spec, f.keep, &f.d))
        fail_msg("%s", f.d.text);
    assert_null(named(&f, "q.weight")->coded);
    id = ir_value_add(f.spec.graph, OP_WEIGHT, (Id[IR_MAX_ARGS]){0}, ir_shape(1, ir_const(32), (Dim){0}, (Dim){0}),
                      DT_FP32, (Loc){"model.lua", 7});
    ir_attr_word(f.spec.graph, id, "name", "n.weight");
    checkpoint_mark(f.c, &f.spec);
    assert_string_equal(ir_word(ir_value(f.spec.graph, id), "codes"), "");
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    assert_non_null(strstr(f.d.text, "weight \"n.weight\" is a vector, but \"n.weight\" in"));
    assert_non_null(strstr(f.d.text, "is a matrix of Q8_0"));
    checkpoint_close(f.c);
    ir_graph_close(f.spec.graph);
    arena_close(f.keep);
    free(b.at);
}

/* Stacks of experts are marked where all of their tensors have one form. */
static void test_stacks(void **state)
{
    static const struct {
        const char *name, *codes;
        int64_t rows, stack;
    } weights[] = {{"same.*.weight", "int8", 2, 2},
                   {"unlike.*.weight", "", 2, 2},
                   {"part.*.weight", "", 2, 2},
                   {"whole.weight", "int4", 6, 3},
                   {"whole.weight", "", 8, 2}};
    const char *path = temp_path("stacks.gguf");
    GgufBytes b = {0};
    Fixture f = {.keep = arena_open()};
    FILE *out;
    (void)state;

    gguf_begin(&b);
    gguf_put_tensor(&b, "same.0.weight", 2, (uint64_t[]){32, 1}, 8, 0);
    gguf_put_tensor(&b, "same.1.weight", 2, (uint64_t[]){32, 1}, 8, 64);
    gguf_put_tensor(&b, "unlike.0.weight", 2, (uint64_t[]){32, 1}, 8, 128);
    gguf_put_tensor(&b, "unlike.1.weight", 2, (uint64_t[]){32, 1}, 2, 192);
    gguf_put_tensor(&b, "part.0.weight", 2, (uint64_t[]){32, 1}, 8, 256);
    gguf_put_tensor(&b, "part.1.weight", 2, (uint64_t[]){32, 1}, 0, 320);
    gguf_put_tensor(&b, "whole.weight", 3, (uint64_t[]){32, 2, 3}, 2, 448);
    gguf_put_data(&b, 32, 576);
    out = fopen(path, "wb");
    assert_true(out && fwrite(b.at, 1, b.n, out) == b.n && !fclose(out));
    assert_true(checkpoint_open(path, f.keep, &f.c, &f.d));
    f.spec.graph = ir_graph_new("stacks");
    for (size_t i = 0; i < LEN(weights); i++) {
        const Id id = ir_value_add(f.spec.graph, OP_WEIGHT, (Id[IR_MAX_ARGS]){0},
                                   ir_shape(2, ir_const(weights[i].rows), ir_const(32), (Dim){0}), DT_FP32, (Loc){0});

        ir_attr_word(f.spec.graph, id, "name", weights[i].name);
        ir_attr_int(f.spec.graph, id, "stack", weights[i].stack);
    }
    checkpoint_mark(f.c, &f.spec);
    for (size_t i = 0; i < LEN(weights); i++)
        assert_string_equal(ir_word(ir_value(f.spec.graph, (Id)i + 1), "codes"), weights[i].codes);
    ir_graph_close(f.spec.graph);
    checkpoint_close(f.c);
    arena_close(f.keep);
    free(b.at);
}

/* Rows that lie in pairs of a head are refused if heads have no one size. */
static void test_unlike_heads(void **state)
{
    static const char *const stored[] = {"a", "x", NULL}, *const paired[] = {"a", NULL};
    const char *path = temp_path("unlike.gguf");
    GgufBytes b = {0};
    Fixture f = {.keep = arena_open()};
    FILE *out;
    (void)state;

    gguf_begin(&b);
    gguf_put_tensor(&b, "a.weight", 1, (uint64_t[]){1}, 0, 0);
    gguf_put_data(&b, 32, 64);
    out = fopen(path, "wb");
    assert_true(out && fwrite(b.at, 1, b.n, out) == b.n && !fclose(out));
    name_list(&f, &f.spec.stored, stored);
    name_list(&f, &f.spec.paired, paired);
    f.spec.layers = 2;
    assert_true(checkpoint_open(path, f.keep, &f.c, &f.d));
    assert_false(checkpoint_rename(f.c, &f.spec, f.keep, &f.d));
    assert_non_null(strstr(f.d.text,
                           "a.weight has pairs of rows of a head (nn.checkpoint, paired), and the heads of the "
                           "layers differ in size"));
    checkpoint_close(f.c);
    arena_close(f.keep);
    free(b.at);
}

/* Two tensors that become one name are refused. */
static void test_twice(void **state)
{
    static const char *const stored[] = {"a", "x", "b", "x", NULL};
    const char *path = temp_path("twice.gguf");
    GgufBytes b = {0};
    Fixture f = {.keep = arena_open()};
    FILE *out;
    (void)state;

    gguf_begin(&b);
    gguf_put_tensor(&b, "a.weight", 1, (uint64_t[]){1}, 0, 0);
    gguf_put_tensor(&b, "b.weight", 1, (uint64_t[]){1}, 0, 32);
    gguf_put_data(&b, 32, 64);
    out = fopen(path, "wb");
    assert_true(out && fwrite(b.at, 1, b.n, out) == b.n && !fclose(out));
    name_list(&f, &f.spec.stored, stored);
    assert_true(checkpoint_open(path, f.keep, &f.c, &f.d));
    assert_false(checkpoint_rename(f.c, &f.spec, f.keep, &f.d));
    assert_non_null(strstr(f.d.text, "tensor \"x.weight\" is both in twice.gguf and in twice.gguf"));
    checkpoint_close(f.c);
    arena_close(f.keep);
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),    cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_odd_ranks), cmocka_unit_test(test_unlike_heads),
                                       cmocka_unit_test(test_twice),     cmocka_unit_test(test_stacks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
