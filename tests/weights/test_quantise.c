/* test_quantise.c - weights to codes, scales and zeros, their tiles in the packed block, and what is refused. */
#include "files.h"

#include <math.h>

#include "compiler/weights/tensors.h"

static uint32_t random_state = 1;

static double uniform(void) /* in (0, 1) */
{
    random_state = random_state * 1664525 + 1013904223;
    return ((double)(random_state >> 8) + 0.5) / 16777216;
}

static float normal(void)
{
    const double a = uniform(), b = uniform();

    return (float)(sqrt(-2 * log(a)) * cos(6.283185307179586 * b));
}

typedef struct Rows {
    Quantised q;
    float *back; /* what the codes stand for */
} Rows;

static Rows quantised(const float *x, int64_t rows, int64_t columns, DType type, int64_t group, bool zeros)
{
    const size_t n = (size_t)(rows * columns), groups = n / (size_t)group;
    Rows r = {.q = {type, group, zeros, malloc(n), malloc(groups * sizeof(float)), malloc(groups)}};

    r.back = malloc(n * sizeof(float));
    quantise_rows(x, rows, columns, &r.q);
    dequantise_rows(&r.q, rows, columns, r.back);
    return r;
}

static void rows_free(Rows *r)
{
    free(r->q.codes), free(r->q.scales), free(r->q.zeros), free(r->back);
}

/* Codes of a group whose scale is known: multiples of 1 / 64 are exact. */
static void known(void **state)
{
    float x[64];
    Rows r;
    (void)state;

    for (int i = 0; i < 64; i++)
        x[i] = i < 32 ? (float)(i - 5) * 127 / 64 : (float)(i % 16) / 64 - 0.0625f;
    x[0] = -127 * 2.0f;
    r = quantised(x, 1, 64, DT_INT8, 32, false);
    assert_true(r.q.scales[0] == 2.0f);
    assert_int_equal(r.q.codes[0], 1);
    for (int i = 1; i < 32; i++)
        assert_int_equal(r.q.codes[i], 128 + (int)nearbyint(x[i] / 2));
    assert_int_equal(r.q.zeros[0], 128);
    rows_free(&r);

    r = quantised(x + 32, 1, 32, DT_INT4, 32, true); /* 16 steps of 1 / 64 from -4 / 64 */
    assert_true(r.q.scales[0] == 1.0f / 64);
    assert_int_equal(r.q.zeros[0], 4);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(r.q.codes[i], i % 16);
        assert_true(r.back[i] == x[32 + i]);
    }
    rows_free(&r);

    for (int i = 0; i < 32; i++)
        x[i] = (float)(8 - i % 16) / 64; /* -7 / 64 .. 8 / 64: only a negative scale has all of them */
    r = quantised(x, 1, 32, DT_INT4, 32, false);
    assert_true(r.q.scales[0] <= 0);
    rows_free(&r);
}

/* Zeros, and magnitudes whose scale fp16 does not hold: no code makes a value that is not finite. */
static void edges(void **state)
{
    static const struct {
        DType type;
        bool zeros;
    } kinds[] = {{DT_INT8, false}, {DT_INT4, false}, {DT_INT4, true}};
    (void)state;

    for (size_t i = 0; i < LEN(kinds); i++)
        for (int e = -149; e < 0; e += 7) {
            float x[32] = {0};
            Rows r;

            x[3] = ldexpf(1.0f, e);
            x[9] = -ldexpf(1.5f, e);
            r = quantised(x, 1, 32, kinds[i].type, 32, kinds[i].zeros);
            for (int k = 0; k < 32; k++)
                assert_true(fabsf(r.back[k]) <= 1.6f * fabsf(x[9]) || fabsf(r.back[k]) < 1e-5f);
            rows_free(&r);
        }
}

/* The root of the mean squared error in percent of that of x, which research/quantisation gives for normal values. */
static double error_of(DType type, int64_t group, bool zeros)
{
    enum { N = 1 << 17 };
    float *x = malloc(N * sizeof *x);
    double wrong = 0, all = 0;
    Rows r;

    random_state = 1;
    for (int i = 0; i < N; i++)
        x[i] = normal() * 0.02f;
    r = quantised(x, N / 1024, 1024, type, group, zeros);
    for (int i = 0; i < N; i++) {
        wrong += ((double)x[i] - (double)r.back[i]) * ((double)x[i] - (double)r.back[i]);
        all += (double)x[i] * (double)x[i];
    }
    rows_free(&r);
    free(x);
    return 100 * sqrt(wrong / all);
}

static void errors(void **state)
{
    static const struct {
        DType type;
        int64_t group;
        bool zeros;
        double percent;
    } cases[] = {
        {DT_INT8, 128, false, 0.65}, {DT_INT4, 32, false, 8.1}, {DT_INT4, 64, false, 9.0},  {DT_INT4, 128, false, 9.7},
        {DT_INT4, 32, true, 8.1},    {DT_INT4, 64, true, 9.1},  {DT_INT4, 128, true, 10.1},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        const double got = error_of(cases[i].type, cases[i].group, cases[i].zeros);

        if (fabs(got - cases[i].percent) > 0.02 * cases[i].percent)
            fail_msg("%s, group %d, zeros %d: error %.3f %%, should be %.3f", dtype_name(cases[i].type),
                     (int)cases[i].group, cases[i].zeros, got, cases[i].percent);
    }
}

/* --- the packed block ------------------------------------------------------------------------------- */

typedef struct Fixture {
    Arena *keep;
    Spec spec;
    Diag d;
    Checkpoint *c;
    Packing packing;
    FileMap map;
} Fixture;

static Fixture open_matrix(const float *x, int64_t rows, int64_t columns)
{
    Fixture f = {.keep = arena_open()};
    char path[256], header[200];
    const size_t bytes = (size_t)(rows * columns) * sizeof *x;

    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}", (int)rows,
             (int)columns, bytes);
    strcpy(path, temp_path("quantise.safetensors"));
    write_safetensors(path, header, x, bytes);
    f.spec.graph = ir_graph_new("tiny");
    if (!checkpoint_open(path, f.keep, &f.c, &f.d))
        fail_msg("%s", f.d.text);
    return f;
}

static void close_matrix(Fixture *f)
{
    checkpoint_close(f->c);
    ir_graph_close(f->spec.graph);
    arena_close(f->keep);
}

static Id quantise(Graph *g, Id w, int64_t rows, int64_t columns, const char *to, int64_t group, bool zeros)
{
    const Id id = add_value(g, OP_QUANTISE, w, 0, 0, rows, columns);

    ir_attr_int(g, id, "group", group);
    ir_attr_word(g, id, "to", to);
    ir_attr_int(g, id, "zeros", zeros);
    ir_value(g, id)->type = dtype_parse(to);
    return id;
}

static bool pack(Fixture *f, Id id, DType type, int64_t group, bool zeros)
{
    const Shape s = ir_value(f->spec.graph, id)->shape;
    const PackedWeight w = {.value = id,
                            .type = type,
                            .form = 1,
                            .form_name = "r16x4",
                            .group = group,
                            .zeros = zeros,
                            .bytes = packed_tiles((uint64_t)s.dim[0].n) *
                                     packed_tile(type, (uint64_t)s.dim[1].n, (uint64_t)group, zeros)};
    char path[256];
    uint64_t checksum;
    FtxError err;
    FileOut *out;
    bool ok;

    *arena_push(f->keep, f->packing.weights) = w;
    f->packing.bytes = w.bytes;
    strcpy(path, temp_path("quantise.bin"));
    assert_int_equal(file_create(path, &out, &err), FTX_OK);
    ok = weights_pack(f->c, &f->spec, &f->packing, out, 0, &checksum, NULL, NULL, &f->d);
    if (!ok)
        file_abort(out);
    else if (file_commit(out, &err) || file_map(path, &f->map, &err))
        fail_msg("%s", err.text);
    return ok;
}

/* Element [n,k] of tiles in the form r16x4, read by the words of packed.h and forms.def. */
static float element_at(const Fixture *f, DType type, int64_t columns, int64_t group, bool zeros, int64_t n, int64_t k)
{
    const uint64_t tile = packed_tile(type, (uint64_t)columns, (uint64_t)group, zeros);
    const unsigned char *t = (const unsigned char *)f->map.at + (uint64_t)(n / 16) * tile;
    const unsigned char *scales = t + packed_codes(type, (uint64_t)columns);
    const int64_t per = type == DT_INT4 ? 8 : 4, g = k / group * 16 + n % 16;
    int code = t[k / per * 64 + n % 16 * 4 + k % 4], zero = type == DT_INT4 ? 8 : 128;
    uint16_t scale;

    if (type == DT_INT4)
        code = k % 8 < 4 ? code & 15 : code >> 4;
    memcpy(&scale, scales + 2 * g, 2);
    if (zeros)
        zero = scales[columns / group * 32 + g];
    return fp16_to_float(scale) * (float)(code - zero);
}

/* Tiles of large and cut matrices hold what weights_value says that their readers see. */
static void tiles(void **state)
{
    static const struct {
        int64_t rows, columns, group;
        const char *type;
        bool zeros;
    } cases[] = {
        {16, 32, 32, "int8", false},    {37, 128, 64, "int4", false},     {5, 96, 32, "int4", true},
        {4000, 384, 128, "int4", true}, {40, 300032, 128, "int8", false}, {1001, 256, 64, "int8", false},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        const int64_t rows = cases[i].rows, columns = cases[i].columns, group = cases[i].group;
        const DType type = dtype_parse(cases[i].type);
        float *x = malloc((size_t)(rows * columns) * sizeof *x), *want;
        Fixture f;
        size_t n;
        Id id;

        for (int64_t k = 0; k < rows * columns; k++)
            x[k] = (float)uniform() - 0.4f;
        f = open_matrix(x, rows, columns);
        id = quantise(f.spec.graph, add_weight(f.spec.graph, "w", rows, columns), rows, columns, cases[i].type, group,
                      cases[i].zeros);
        if (!weights_value(f.c, &f.spec, id, f.keep, &want, &n, &f.d) || !pack(&f, id, type, group, cases[i].zeros))
            fail_msg("%s", f.d.text);
        for (int64_t k = 0; k<rows * columns; k += rows * columns> 100000 ? 61 : 1)
            if (element_at(&f, type, columns, group, cases[i].zeros, k / columns, k % columns) != want[k])
                fail_msg("case %zu: element [%d,%d]", i, (int)(k / columns), (int)(k % columns));
        file_unmap(&f.map);
        close_matrix(&f);
        free(x);
    }
}

/* A transposed checkpoint's columns are rows of the graph. */
static void transposed(void **state)
{
    float x[64 * 3];
    Fixture f;
    Id w;
    (void)state;

    for (int i = 0; i < 64 * 3; i++)
        x[i] = (float)(i % 3 * 1000 + i / 3);
    f = open_matrix(x, 64, 3);
    w = add_value(f.spec.graph, OP_TRANSPOSE, add_weight(f.spec.graph, "w", 64, 3), 0, 0, 3, 64);
    assert_true(pack(&f, quantise(f.spec.graph, w, 3, 64, "int8", 64, false), DT_INT8, 64, false));
    for (int n = 0; n < 3; n++)
        for (int k = 0; k < 64; k++)
            assert_true(fabsf(element_at(&f, DT_INT8, 64, 64, false, n, k) - (float)(n * 1000 + k)) < 9.0f);
    file_unmap(&f.map);
    close_matrix(&f);
}

static void refused(void **state)
{
    static const struct {
        float value;
        const char *reason;
    } cases[] = {
        {NAN, "tensor \"w\": element [1,35] is NaN"},
        {1e9f, "weight \"w\": the scale of the group at element [1,32] is more than fp16 can hold"},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        float x[128] = {0};
        Fixture f;

        x[64 + 35] = cases[i].value;
        f = open_matrix(x, 2, 64);
        assert_false(pack(&f, quantise(f.spec.graph, add_weight(f.spec.graph, "w", 2, 64), 2, 64, "int8", 32, false),
                          DT_INT8, 32, false));
        if (!strstr(f.d.text, cases[i].reason))
            fail_msg("expected \"%s\" in: %s", cases[i].reason, f.d.text);
        close_matrix(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known), cmocka_unit_test(edges),      cmocka_unit_test(errors),
        cmocka_unit_test(tiles), cmocka_unit_test(transposed), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
