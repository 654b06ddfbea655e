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
    CodedRow first; /* of the rows */
    void *codes;
    float *back; /* what the codes stand for */
} Rows;

static Rows quantised(const float *x, int64_t rows, int64_t columns, DType type, int64_t group, bool zeros)
{
    const CodedForm form = {type, zeros ? PACKED_FP16_ZEROS : PACKED_FP16, group};
    Rows r = {.codes = malloc((size_t)rows * coded_row_bytes(&form, columns)),
              .back = malloc((size_t)(rows * columns) * sizeof(float))};

    for (int64_t i = 0; i < rows; i++) {
        const CodedRow row = coded_row(&form, columns, r.codes, i);

        quantise_row(x + i * columns, columns, &form, NULL, &row);
        coded_row_values(&form, columns, &row, r.back + i * columns);
    }
    r.first = coded_row(&form, columns, r.codes, 0);
    return r;
}

static void rows_free(Rows *r)
{
    free(r->codes), free(r->back);
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
    assert_true(r.first.scales[0] == 2.0f);
    assert_int_equal(r.first.codes[0], 1);
    for (int i = 1; i < 32; i++)
        assert_int_equal(r.first.codes[i], 128 + (int)nearbyint(x[i] / 2));
    assert_true(r.first.offsets[0] == 128);
    rows_free(&r);

    r = quantised(x + 32, 1, 32, DT_INT4, 32, true); /* 16 steps of 1 / 64 from -4 / 64 */
    assert_true(r.first.scales[0] == 1.0f / 64);
    assert_true(r.first.offsets[0] == 4);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(r.first.codes[i], i % 16);
        assert_true(r.back[i] == x[32 + i]);
    }
    rows_free(&r);

    for (int i = 0; i < 32; i++)
        x[i] = (float)(8 - i % 16) / 64; /* -7 / 64 .. 8 / 64: only a negative scale has all of them */
    r = quantised(x, 1, 32, DT_INT4, 32, false);
    assert_true(r.first.scales[0] <= 0);
    rows_free(&r);
}

/* Codes are the nearest to the scale as it is stored, in fp16. */
static void rounded(void **state)
{
    enum { N = 4096, GROUP = 128 };
    float *x = malloc(N * sizeof *x);
    Rows r;
    (void)state;

    for (int i = 0; i < N; i++)
        x[i] = normal();
    r = quantised(x, 1, N, DT_INT8, GROUP, false);
    for (int i = 0; i < N; i++) {
        const float off = fabsf(x[i] - r.back[i]) / r.first.scales[i / GROUP];

        if (off > 0.5001f && r.first.codes[i] != 1 && r.first.codes[i] != 255)
            fail_msg("element %d is %.4f steps from its code", i, (double)off);
    }
    rows_free(&r);
    free(x);
}

/* fp8: the largest magnitude is 448, numbers are the nearest, of two the even one, also below the least exponent. */
static void numbers(void **state)
{
    float x[32] = {448, -17, 0, 0x1p-9f, -0x1p-10f, 0x3p-10f, 18.9f, 432, 431, 0x1.ap-7f};
    const float want[32] = {448, -16, 0, 0x1p-9f, -0.0f, 0x1p-8f, 18, 448, 416, 0x1.8p-7f};
    Rows r;
    (void)state;

    for (int e = -3; e < 3; e++) {
        float scaled[32];

        for (int i = 0; i < 32; i++)
            scaled[i] = ldexpf(x[i], e);
        r = quantised(scaled, 1, 32, DT_FP8, 32, false);
        assert_true(r.first.scales[0] == ldexpf(1.0f, e));
        for (int i = 0; i < 32; i++)
            if (r.back[i] != ldexpf(want[i], e))
                fail_msg("element %d: %g became %g", i, (double)x[i], (double)ldexpf(r.back[i], -e));
        rows_free(&r);
    }
}

/* Zeros, and magnitudes whose scale fp16 does not hold: no code makes a value that is not finite. */
static void edges(void **state)
{
    static const struct {
        DType type;
        bool zeros;
    } kinds[] = {{DT_INT8, false}, {DT_INT4, false}, {DT_INT4, true}, {DT_FP8, false}};
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
        {DT_INT4, 32, true, 8.1},    {DT_INT4, 64, true, 9.1},  {DT_INT4, 128, true, 10.1}, {DT_FP8, 128, false, 2.57},
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

static Id quantise(Graph *g, Id w, int64_t rows, int64_t columns, const char *to, int64_t group, PackedScales scales)
{
    const Id id = add_value(g, OP_QUANTISE, w, 0, 0, rows, columns);

    ir_attr_int(g, id, "group", group);
    ir_attr_word(g, id, "to", to);
    ir_attr_int(g, id, "scales", (int64_t)scales);
    ir_value(g, id)->type = dtype_parse(to);
    return id;
}

static const char *form = "r16x4"; /* of the tiles */
static int64_t packed_rank;        /* whose block is packed */

static bool pack(Fixture *f, Id id, DType type, int64_t group, PackedScales scales)
{
    const Shape s = ir_value(f->spec.graph, id)->shape;
    const PackedWeight w = {.value = id,
                            .type = type,
                            .form = 1,
                            .form_name = form,
                            .group = group,
                            .scales = scales,
                            .bytes = packed_tiles((uint64_t)s.dim[0].n) *
                                     packed_tile(type, (uint64_t)s.dim[1].n, (uint64_t)group, scales)};
    char path[256];
    uint64_t checksum;
    FtxError err;
    FileOut *out;
    bool ok;

    *arena_push(f->keep, f->packing.weights) = w;
    f->packing.bytes = w.bytes;
    strcpy(path, temp_path("quantise.bin"));
    assert_int_equal(file_create(path, &out, &err), FTX_OK);
    ok = weights_pack(f->c, &f->spec, &f->packing, packed_rank, out, 0, &checksum, NULL, NULL, &f->d);
    if (!ok)
        file_abort(out);
    else if (file_commit(out, &err) || file_map(path, &f->map, &err))
        fail_msg("%s", err.text);
    return ok;
}

/* Code [n,k] of a tile, by the words of forms.def. */
static int code_at(const unsigned char *t, DType type, int64_t columns, int64_t n, int64_t k)
{
    const bool half = type == DT_INT4;
    const int64_t per = half ? 8 : 4, span = half ? 64 : 32, block = k / span * span;
    const int64_t words = (columns - block < span ? columns - block : span) / 16; /* of a lane, for 16 k each */
    const int64_t lane = n % 8 * 4 + k % 8 / 2, number = n / 8 + k % 16 / 8 * 2, odd = k % 2;

    if (strcmp(form, "r16x4") == 0 && type == DT_FP8)
        return t[k / 4 * 64 + k % 4 / 2 * 32 + n * 2 + k % 2];
    if (strcmp(form, "r16x4") == 0)
        return half ? t[k / per * 64 + n * 4 + k % 4] >> (k % 8 < 4 ? 0 : 4) & 15 : t[k / per * 64 + n * 4 + k % 4];
    if (half) {
        uint32_t word;

        memcpy(&word, t + block * 8 + (lane * words + (k - block) / 16) * 4, 4);
        return (int)(word >> (4 * number + 16 * odd) & 15);
    }
    return t[block * 16 + (lane * words + (k - block) / 16) * 8 + number / 2 * 4 + number % 2 + 2 * odd];
}

/* Element [n,k] of tiles, read by the words of packed.h. */
static float element_at(const Fixture *f, DType type, int64_t columns, int64_t group, PackedScales kind, int64_t n,
                        int64_t k)
{
    const uint64_t tile = packed_tile(type, (uint64_t)columns, (uint64_t)group, kind);
    const unsigned char *t = (const unsigned char *)f->map.at + (uint64_t)(n / 16) * tile;
    const unsigned char *scales = t + packed_codes(type, (uint64_t)columns), *zeros = scales + columns / group * 32;
    const int64_t g = k / group * 16 + n % 16;
    const int code = code_at(t, type, columns, n % 16, k);
    int zero = type == DT_INT4 ? 8 : 128;
    uint16_t half;
    float scale, minimum;

    memcpy(&half, scales + 2 * g, 2);
    if (kind >= PACKED_FP32)
        memcpy(&scale, scales + 4 * g, 4);
    else
        scale = fp16_to_float(half);
    if (kind == PACKED_FP32_MINIMA) {
        memcpy(&minimum, scales + columns / group * 64 + 4 * g, 4);
        return scale * (float)code - minimum;
    }
    if (type == DT_FP8)
        return scale * e4m3_to_float((uint8_t)code);
    if (kind == PACKED_FP16_ZEROS)
        zero = zeros[g];
    return scale * (float)(code - zero);
}

/* Tiles of large and cut matrices hold what weights_value says that their readers see. */
static void tiles(void **state)
{
    static const struct {
        int64_t rows, columns, group;
        const char *type;
        PackedScales scales;
        const char *form;
    } cases[] = {
        {16, 32, 32, "int8", PACKED_FP16, "r16x4"},       {37, 128, 64, "int4", PACKED_FP16, "r16x4"},
        {5, 96, 32, "int4", PACKED_FP16_ZEROS, "r16x4"},  {4000, 384, 128, "int4", PACKED_FP16_ZEROS, "r16x4"},
        {40, 300032, 128, "int8", PACKED_FP16, "r16x4"},  {1001, 256, 64, "int8", PACKED_FP16, "r16x4"},
        {16, 32, 32, "int8", PACKED_FP16, "m16k16"},      {37, 128, 64, "int4", PACKED_FP16, "m16k16"},
        {5, 96, 32, "int4", PACKED_FP16_ZEROS, "m16k16"}, {33, 160, 32, "int8", PACKED_FP16, "m16k16"},
        {37, 160, 32, "fp8", PACKED_FP16, "r16x4"},       {33, 160, 32, "fp8", PACKED_FP16, "m16k16"},
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
        form = cases[i].form;
        f = open_matrix(x, rows, columns);
        id = quantise(f.spec.graph, add_weight(f.spec.graph, "w", rows, columns), rows, columns, cases[i].type, group,
                      cases[i].scales);
        if (!weights_value(f.c, &f.spec, id, f.keep, &want, &n, &f.d) || !pack(&f, id, type, group, cases[i].scales))
            fail_msg("%s", f.d.text);
        for (int64_t k = 0; k<rows * columns; k += rows * columns> 100000 ? 61 : 1)
            if (element_at(&f, type, columns, group, cases[i].scales, k / columns, k % columns) != want[k])
                fail_msg("case %zu: element [%d,%d]", i, (int)(k / columns), (int)(k % columns));
        file_unmap(&f.map);
        close_matrix(&f);
        free(x);
    }
    form = "r16x4";
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
    assert_true(pack(&f, quantise(f.spec.graph, w, 3, 64, "int8", 64, PACKED_FP16), DT_INT8, 64, PACKED_FP16));
    for (int n = 0; n < 3; n++)
        for (int k = 0; k < 64; k++)
            assert_true(fabsf(element_at(&f, DT_INT8, 64, 64, PACKED_FP16, n, k) - (float)(n * 1000 + k)) < 9.0f);
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
        assert_false(pack(&f,
                          quantise(f.spec.graph, add_weight(f.spec.graph, "w", 2, 64), 2, 64, "int8", 32, PACKED_FP16),
                          DT_INT8, 32, PACKED_FP16));
        if (!strstr(f.d.text, cases[i].reason))
            fail_msg("expected \"%s\" in: %s", cases[i].reason, f.d.text);
        close_matrix(&f);
    }
}

/* --- tensors of codes --------------------------------------------------------------------------------------- */

/* A made-up tensor: all that is read of it follows from its number, the row and the column. */
typedef struct Made {
    CodedForm form;
    int number;
} Made;

static uint8_t made_code(const Made *m, int64_t n, int64_t k)
{
    const int64_t code = (n * 7 + k * 3 + m->number) % (m->form.type == DT_INT4 ? 16 : 256);

    return (uint8_t)(m->form.type == DT_FP8 && code % 128 == 127 ? 0 : code);
}

static float made_scale(const Made *m, int64_t n, int64_t g)
{
    return (float)(1 + n % 5 + 3 * g + m->number) / 64;
}

static float made_offset(const Made *m, int64_t n, int64_t g)
{
    const int64_t any = (n + 2 * g + m->number) % 16;

    return m->form.scales == PACKED_FP16_ZEROS    ? (float)any
           : m->form.scales == PACKED_FP32_MINIMA ? (float)any / 32
           : m->form.type == DT_INT4              ? 8
           : m->form.type == DT_INT8              ? 128
                                                  : 0;
}

static float made_value(const Made *m, int64_t n, int64_t k)
{
    const int64_t g = k / m->form.group;
    const float scale = made_scale(m, n, g), offset = made_offset(m, n, g);
    const float code = m->form.type == DT_FP8 ? e4m3_to_float(made_code(m, n, k)) : (float)made_code(m, n, k);

    return m->form.scales == PACKED_FP32_MINIMA ? scale * code - offset : scale * (code - offset);
}

static void made_row(const Tensor *t, int64_t row, const CodedRow *to)
{
    const Made *m = t->coded->parts;

    for (int64_t g = 0; g < t->dim[1] / m->form.group; g++) {
        to->scales[g] = m->number == 9 && row == 3 && g == 1 ? NAN : made_scale(m, row, g);
        if (m->form.scales == PACKED_FP16_ZEROS || m->form.scales == PACKED_FP32_MINIMA)
            to->offsets[g] = made_offset(m, row, g);
    }
    for (int64_t k = 0; k < t->dim[1]; k++)
        to->codes[k] = made_code(m, row, k);
}

static Fixture open_made(const Made *made, size_t n, int64_t rows, int64_t columns)
{
    static const char *const names[] = {"a", "b", "c"};
    Fixture f = {.keep = arena_open()};

    f.spec.graph = ir_graph_new("tiny");
    f.c = arena_new(f.keep, Checkpoint);
    f.c->path = "made";
    for (size_t i = 0; i < n; i++) {
        Coded *coded = arena_new(f.keep, Coded);
        Tensor *t = arena_push(f.keep, f.c->tensors);

        *coded = (Coded){.form = made[i].form, .codes = made_row, .parts = &made[i]};
        *t = (Tensor){.name = names[i],
                      .stored = "made",
                      .type = DT_FP32,
                      .rank = 2,
                      .dim = {rows, columns},
                      .elements = (uint64_t)(rows * columns),
                      .path = "made",
                      .file = "made",
                      .coded = coded};
    }
    return f;
}

static Id stored(Graph *g, Id w, int64_t rows, int64_t columns, const CodedForm *f)
{
    const Id id = quantise(g, w, rows, columns, dtype_name(f->type), f->group, f->scales);

    ir_attr_int(g, id, "stored", 1);
    return id;
}

/* Joined, permuted and cut rows of three tensors, in a form that holds theirs: every element is the stored one. */
static void joined(void **state)
{
    enum { N = 24, K = 128, E = 12, ROT = 8 };
    static const struct {
        CodedForm a, b, as;
    } cases[] = {
        {{DT_INT4, PACKED_FP16, 128}, {DT_INT4, PACKED_FP16, 128}, {DT_INT4, PACKED_FP16, 128}},
        {{DT_INT4, PACKED_FP16, 32}, {DT_INT4, PACKED_FP16_ZEROS, 64}, {DT_INT4, PACKED_FP16_ZEROS, 32}},
        {{DT_INT4, PACKED_FP32_MINIMA, 32}, {DT_INT8, PACKED_FP32, 16}, {DT_INT8, PACKED_FP32_MINIMA, 16}},
        {{DT_INT4, PACKED_FP16, 128}, {DT_INT8, PACKED_FP16, 64}, {DT_INT8, PACKED_FP16, 64}},
        {{DT_INT4, PACKED_FP16_ZEROS, 64}, {DT_INT8, PACKED_FP16, 64}, {DT_INT8, PACKED_FP16_ZEROS, 64}},
        {{DT_INT4, PACKED_FP16_ZEROS, 64}, {DT_INT4, PACKED_FP32, 64}, {DT_INT4, PACKED_FP32_MINIMA, 64}},
        {{DT_INT4, PACKED_FP16, 32}, {DT_INT8, PACKED_FP32, 32}, {DT_INT8, PACKED_FP32, 32}},
        {{DT_FP8, PACKED_FP16, 128}, {DT_FP8, PACKED_FP32, 32}, {DT_FP8, PACKED_FP32, 32}},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        const Made made[] = {{cases[i].a, 1}, {cases[i].b, 2}, {cases[i].a, 3}};
        const CodedForm *as = &cases[i].as;
        Fixture f = open_made(made, 3, N, K);
        Graph *g = f.spec.graph;
        const Id a = add_weight(g, "a", N, K), b = add_weight(g, "b", N, K), c = add_weight(g, "c", N, K);
        const Id pairs = add_value(g, OP_PAIRS, a, 0, 0, N, K), cut = add_value(g, OP_ROWS, c, 0, 0, 10, K);
        const Id mixed = add_value(g, OP_INTERLEAVE, b, c, 0, 2 * N, K);
        const Id all = stored(g, add_value(g, OP_CONCAT, pairs, mixed, cut, N + 2 * N + 10, K), 3 * N + 10, K, as);

        ir_attr_int(g, pairs, "head_dim", E);
        ir_attr_int(g, pairs, "rot", ROT);
        ir_attr_int(g, cut, "from", 5);
        ir_attr_int(g, cut, "count", 10);
        if (!pack(&f, all, as->type, as->group, as->scales))
            fail_msg("%s", f.d.text);
        for (int n = 0; n < 3 * N + 10; n++)
            for (int k = 0; k < K; k++) {
                const int e = n % E;
                const Made *m = n < N ? &made[0] : n < 3 * N ? &made[1 + n % 2] : &made[2];
                const int row = n >= 3 * N ? n - 3 * N + 5
                                : n >= N   ? (n - N) / 2
                                : e >= ROT ? n
                                           : n - e + e / 2 + e % 2 * ROT / 2;

                if (element_at(&f, as->type, K, as->group, as->scales, n, k) != made_value(m, row, k))
                    fail_msg("case %zu: element [%d,%d]", i, n, k);
            }
        file_unmap(&f.map);
        close_matrix(&f);
    }
}

/* Ranks hold columns of two stacked matrices with the scales and zeros of their groups, or rows of them. */
static void parts(void **state)
{
    enum { N = 24, K = 192, RANKS = 3 };
    static const CodedForm forms[] = {{DT_INT4, PACKED_FP16_ZEROS, 32},
                                      {DT_INT8, PACKED_FP32, 64},
                                      {DT_INT4, PACKED_FP32_MINIMA, 16},
                                      {DT_FP8, PACKED_FP32, 32}};
    (void)state;

    for (size_t i = 0; i < LEN(forms); i++)
        for (int dim = 0; dim < 2; dim++)
            for (packed_rank = 0; packed_rank < RANKS; packed_rank++) {
                const Made made = {forms[i], 4};
                const int rows = dim ? N : N / RANKS, columns = dim ? K / RANKS : K;
                Fixture f = open_made(&made, 1, N, K);
                Graph *g = f.spec.graph;
                const Id part = add_value(g, OP_PART, add_weight(g, "a", N, K), 0, 0, rows, columns);

                g->limits.ranks = RANKS;
                ir_attr_int(g, part, "dim", dim);
                ir_attr_int(g, part, "of", RANKS);
                ir_attr_int(g, part, "stack", 2);
                ir_attr_int(g, part, "first", 0);
                if (!pack(&f, stored(g, part, rows, columns, &forms[i]), forms[i].type, forms[i].group,
                          forms[i].scales))
                    fail_msg("%s", f.d.text);
                for (int n = 0; n < rows; n++)
                    for (int k = 0; k < columns; k++) {
                        const int each = rows / 2, piece = (int)packed_rank;
                        const int row = dim ? n : n / each * (N / 2) + piece * each + n % each;

                        if (element_at(&f, forms[i].type, columns, forms[i].group, forms[i].scales, n, k) !=
                            made_value(&made, row, k + dim * piece * columns))
                            fail_msg("form %zu, dim %d, rank %d: element [%d,%d]", i, dim, piece, n, k);
                    }
                file_unmap(&f.map);
                close_matrix(&f);
            }
    packed_rank = 0;
}

/* The same tensors as numbers: for embeddings, transposed, and for weights of other types. */
static void as_numbers(void **state)
{
    enum { N = 6, K = 64 };
    const Made made[] = {{{DT_INT4, PACKED_FP32_MINIMA, 32}, 1}};
    Fixture f = open_made(made, 1, N, K);
    Id ids[2];
    float *got;
    size_t n;
    (void)state;

    ids[0] = add_weight(f.spec.graph, "a", N, K);
    ids[1] = add_value(f.spec.graph, OP_TRANSPOSE, ids[0], 0, 0, K, N);
    for (int turned = 0; turned < 2; turned++) {
        assert_true(weights_value(f.c, &f.spec, ids[turned], f.keep, &got, &n, &f.d));
        for (int i = 0; i < N * K; i++)
            assert_true(got[i] == (turned ? made_value(made, i % N, i / N) : made_value(made, i / K, i % K)));
    }
    close_matrix(&f);
}

/* Codes that the checkpoint has are noted in the graph; a scale that is no number is found when it is packed. */
static void marked(void **state)
{
    const Made made[] = {{{DT_INT4, PACKED_FP16, 32}, 9}, {{DT_NONE, PACKED_FP16, 32}, 1}};
    Fixture f = open_made(made, 2, 8, 64);
    Graph *g = f.spec.graph;
    const Id a = add_weight(g, "a", 8, 64), b = add_weight(g, "b", 8, 64), other = add_weight(g, "a", 4, 64);
    const Id missing = add_weight(g, "none", 8, 64);
    (void)state;

    checkpoint_mark(f.c, &f.spec);
    assert_string_equal(ir_word(ir_value(g, a), "codes"), "int4");
    assert_int_equal(ir_int(ir_value(g, a), "group"), 32);
    assert_string_equal(ir_word(ir_value(g, b), "codes"), "");
    assert_string_equal(ir_word(ir_value(g, other), "codes"), "");
    assert_string_equal(ir_word(ir_value(g, missing), "codes"), "");
    assert_false(pack(&f, stored(g, a, 8, 64, &made[0].form), DT_INT4, 32, PACKED_FP16));
    if (!strstr(f.d.text, "tensor \"a\": element [3,32] is NaN"))
        fail_msg("%s", f.d.text);
    close_matrix(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known), cmocka_unit_test(rounded),    cmocka_unit_test(edges),   cmocka_unit_test(errors),
        cmocka_unit_test(tiles), cmocka_unit_test(transposed), cmocka_unit_test(refused), cmocka_unit_test(joined),
        cmocka_unit_test(parts), cmocka_unit_test(as_numbers), cmocka_unit_test(marked),  cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
