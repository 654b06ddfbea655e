/* test_pack.c - values made of weights against results by hand, the packed block, and what is refused. */
#include "files.h"

#include <math.h>

#include "runtime/base/hash.h"

typedef struct Fixture {
    Arena *keep;
    Spec spec;
    Diag d;
    Checkpoint *c;
    Packing packing;
} Fixture;

static Fixture begin(const char *checkpoint)
{
    Fixture f = {.keep = arena_open()};

    f.spec.name = "tiny";
    f.spec.graph = ir_graph_new("tiny");
    if (checkpoint && !checkpoint_open(checkpoint, f.keep, &f.c, &f.d))
        fail_msg("%s", f.d.text);
    return f;
}

static void end(Fixture *f)
{
    checkpoint_close(f->c);
    ir_graph_close(f->spec.graph);
    arena_close(f->keep);
}

/* a [4,2] = 0..7, b [4,2] = 10..17, v [4] = 20..23 */
static const char *small(void)
{
    static char path[256];
    float data[20];

    strcpy(path, temp_path("small.safetensors"));
    for (int i = 0; i < 20; i++)
        data[i] = (float)(i % 8 + i / 8 * 10);
    write_safetensors(path,
                      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]},"
                      "\"b\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[32,64]},"
                      "\"v\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[64,80]}}",
                      data, sizeof data);
    return path;
}

static void elements_are(Fixture *f, Id id, const float *want, size_t n)
{
    float *got;
    size_t have;

    assert_true(weights_value(f->c, &f->spec, id, f->keep, &got, &have, &f->d));
    assert_int_equal(have, n);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("element %zu is %g, expected %g", i, (double)got[i], (double)want[i]);
}

static Id pairs(Graph *g, Id x, int64_t rows, int64_t columns, int64_t head_dim, int64_t rot)
{
    const Id id = add_value(g, OP_PAIRS, x, 0, 0, rows, columns);

    ir_attr_int(g, id, "head_dim", head_dim);
    ir_attr_int(g, id, "rot", rot);
    return id;
}

static void test_ops(void **state)
{
    Fixture f = begin(small());
    Graph *g = f.spec.graph;
    const Id a = add_weight(g, "a", 4, 2), b = add_weight(g, "b", 4, 2), v = add_weight(g, "v", 4, 0);
    float unit[8];
    Id id;
    (void)state;

    elements_are(&f, a, (float[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    elements_are(&f, add_value(g, OP_TRANSPOSE, a, 0, 0, 2, 4), (float[]){0, 2, 4, 6, 1, 3, 5, 7}, 8);
    elements_are(&f, add_value(g, OP_CONCAT, v, v, 0, 8, 0), (float[]){20, 21, 22, 23, 20, 21, 22, 23}, 8);
    id = add_value(g, OP_INTERLEAVE, a, b, 0, 8, 2);
    elements_are(&f, id, (float[]){0, 1, 10, 11, 2, 3, 12, 13, 4, 5, 14, 15, 6, 7, 16, 17}, 16);
    elements_are(&f, add_value(g, OP_TRANSPOSE, id, 0, 0, 2, 8),
                 (float[]){0, 10, 2, 12, 4, 14, 6, 16, 1, 11, 3, 13, 5, 15, 7, 17}, 16);

    /* one head of four rows, all of it rotated; then two heads of two; then half a head */
    elements_are(&f, pairs(g, v, 4, 0, 4, 4), (float[]){20, 22, 21, 23}, 4);
    elements_are(&f, pairs(g, v, 4, 0, 2, 2), (float[]){20, 21, 22, 23}, 4);
    id = add_value(g, OP_CONCAT, a, b, 0, 8, 2);
    elements_are(&f, pairs(g, id, 8, 2, 8, 6), (float[]){0, 1, 6, 7, 2, 3, 10, 11, 4, 5, 12, 13, 14, 15, 16, 17}, 16);

    id = add_value(g, OP_ROWS, id, 0, 0, 3, 2);
    ir_attr_int(g, id, "from", 3);
    ir_attr_int(g, id, "count", 3);
    elements_are(&f, id, (float[]){6, 7, 10, 11, 12, 13}, 6);

    id = add_value(g, OP_CONCAT, a, b, 0, 8, 2); /* rows 1 and 2 of each block of four */
    id = add_value(g, OP_ROWS, id, 0, 0, 4, 2);
    ir_attr_int(g, id, "from", 1);
    ir_attr_int(g, id, "count", 2);
    ir_attr_int(g, id, "every", 4);
    elements_are(&f, id, (float[]){2, 3, 4, 5, 12, 13, 14, 15}, 8);
    elements_are(&f, add_value(g, OP_TRANSPOSE, id, 0, 0, 2, 4), (float[]){2, 4, 12, 14, 3, 5, 13, 15}, 8);

    id = add_value(g, OP_REPEAT, a, 0, 0, 12, 2);
    ir_attr_int(g, id, "times", 3);
    elements_are(&f, id, (float[]){0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7}, 24);
    elements_are(
        &f, add_value(g, OP_CONCAT, id, a, 0, 16, 2),
        (float[]){0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}, 32);
    id = add_value(g, OP_REPEAT, v, 0, 0, 8, 0);
    ir_attr_int(g, id, "times", 2);
    elements_are(&f, id, (float[]){20, 20, 21, 21, 22, 22, 23, 23}, 8);

    id = add_value(g, OP_PLUS, v, 0, 0, 4, 0);
    ir_attr_float(g, id, "by", 1.5);
    elements_are(&f, id, (float[]){21.5f, 22.5f, 23.5f, 24.5f}, 4);
    for (int i = 0; i < 8; i++)
        unit[i] = (float)i * (float)(1.0 / sqrt((double)(i / 2 * 2 * (i / 2 * 2) + (i / 2 * 2 + 1) * (i / 2 * 2 + 1))));
    elements_are(&f, add_value(g, OP_UNIT_ROWS, a, 0, 0, 4, 2), unit, 8);
    id = add_value(g, OP_FILL, 0, 0, 0, 3, 0);
    ir_attr_int(g, id, "count", 3);
    ir_attr_float(g, id, "value", 0.25);
    elements_are(&f, id, (float[]){0.25f, 0.25f, 0.25f}, 3);
    id = add_value(g, OP_ALIBI, 0, 0, 0, 6, 0); /* four heads, then the first and the third of eight */
    ir_attr_int(g, id, "heads", 6);
    elements_are(&f, id, (float[]){0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f}, 6);
    id = add_value(g, OP_ALIBI, 0, 0, 0, 3, 0);
    ir_attr_int(g, id, "heads", 3);
    ir_attr_float(g, id, "most", 4);
    elements_are(&f, id, (float[]){0.25f, 0.0625f, 0.5f}, 3);
    id = add_value(g, OP_ALIBI, 0, 0, 0, 2, 5); /* the same on both sides */
    ir_attr_int(g, id, "heads", 2);
    ir_attr_int(g, id, "reach", 2);
    elements_are(
        &f, id,
        (float[]){-0.125f, -0.0625f, 0, -0.0625f, -0.125f, -0.0078125f, -0.00390625f, 0, -0.00390625f, -0.0078125f},
        10);
    end(&f);
}

/* The first distance of each bucket of one side, computed by T5 of transformers 5.23. With nine buckets the logarithms of
 * 8, 16 and 64 decide, which torch rounds to fp32. */
static void test_distances(void **state)
{
    static const struct {
        int causal, buckets, max_distance, n, first[32];
    } rows[] = {
        {0, 32, 128, 16, {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}},
        {1, 32, 128, 32, {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                          16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113}},
        {0, 7, 13, 3, {0, 1, 4}},
        {1, 6, 11, 6, {0, 1, 2, 3, 5, 8}},
        {1, 9, 128, 9, {0, 1, 2, 3, 4, 8, 16, 32, 64}},
    };
    const char *path = temp_path("distances.safetensors");
    (void)state;

    for (size_t r = 0; r < LEN(rows); r++) {
        const int far = rows[r].max_distance, columns = 2 * far + 1, buckets = rows[r].buckets;
        float data[64], *got;
        char header[100];
        size_t n;

        for (int i = 0; i < 2 * buckets; i++)
            data[i] = (float)i;
        snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,2],\"data_offsets\":[0,%d]}}", buckets,
                 8 * buckets);
        write_safetensors(path, header, data, (size_t)(8 * buckets));
        Fixture f = begin(path);
        const Id w = add_weight(f.spec.graph, "w", buckets, 2);
        const Id id = add_value(f.spec.graph, OP_DISTANCE_BIAS, w, 0, 0, 2, columns);

        ir_attr_int(f.spec.graph, id, "max_distance", far);
        ir_attr_int(f.spec.graph, id, "causal", rows[r].causal);
        assert_true(weights_value(f.c, &f.spec, id, f.keep, &got, &n, &f.d));
        assert_int_equal(n, 2 * columns);
        for (int d = -far; d <= far; d++)
            for (int h = 0; h < 2; h++) {
                const int away = d <= 0 ? -d : rows[r].causal ? 0 : d;
                int bucket = rows[r].n - 1;

                while (rows[r].first[bucket] > away)
                    bucket--;
                bucket += d > 0 && !rows[r].causal ? buckets / 2 : 0;
                if (got[h * columns + far + d] != data[2 * bucket + h])
                    fail_msg("%d buckets: head %d, distance %d has %g, expected that of bucket %d", buckets, h, d,
                             (double)got[h * columns + far + d], bucket);
            }
        end(&f);
    }
}

static Id stack(Graph *g, const char *name, int64_t count, int64_t rows, int64_t columns)
{
    const Id id = add_weight(g, name, rows, columns);

    ir_attr_int(g, id, "stack", count);
    return id;
}

/* Tensors x.0 to x.2 [2,2], v.0 to v.2 [2] and one tensor y [3,2,2] as stacks of three. */
static void test_stack(void **state)
{
    static const char header[] = "{\"x.0\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                                 "\"x.1\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
                                 "\"x.2\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[32,48]},"
                                 "\"v.0\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[48,56]},"
                                 "\"v.1\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[56,64]},"
                                 "\"v.2\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[64,72]},"
                                 "\"y\":{\"dtype\":\"F32\",\"shape\":[3,2,2],\"data_offsets\":[72,120]}}";
    static const struct {
        const char *name, *message;
        int count, rows, columns;
    } wrong[] = {
        {"x.*", "weight \"x.3\" [2,2] is missing in ", 4, 8, 2},
        {"x.*", "weight \"x.0\": expected [3,2], found [2,2] as \"x.0\"", 3, 9, 2},
        {"v.*", "weight \"v.0\": expected [3], found [2] as \"v.0\"", 3, 9, 0},
        {"y", "weight \"y\": expected [2,3,2], found [3,2,2] as \"y\"", 2, 6, 2},
        {"y", "weight \"y\": expected [6,2], found [3,2,2] as \"y\"", 0, 6, 2},
    };
    const char *path = temp_path("stack.safetensors");
    float data[30];
    Fixture f;
    (void)state;

    for (int i = 0; i < 30; i++)
        data[i] = (float)i;
    write_safetensors(path, header, data, sizeof data);
    f = begin(path);
    Graph *g = f.spec.graph;
    const Id x = stack(g, "x.*", 3, 6, 2), v = stack(g, "v.*", 3, 6, 0), y = stack(g, "y", 3, 6, 2);

    assert_true(checkpoint_check(f.c, &f.spec, &f.d));
    elements_are(&f, x, (const float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12);
    elements_are(&f, v, (const float[]){12, 13, 14, 15, 16, 17}, 6);
    elements_are(&f, y, (const float[]){18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29}, 12);
    elements_are(&f, add_value(g, OP_INTERLEAVE, x, y, 0, 12, 2),
                 (const float[]){0, 1, 18, 19, 2, 3, 20, 21, 4, 5, 22, 23, 6, 7, 24, 25, 8, 9, 26, 27, 10, 11, 28, 29},
                 24);
    elements_are(&f, add_value(g, OP_TRANSPOSE, x, 0, 0, 2, 6), (const float[]){0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11},
                 12);
    /* each matrix of a stack, whether it has tensors of its own or is made of others; the rows read may span matrices */
    const Id stacks[] = {x, y, add_value(g, OP_CONCAT, x, y, 0, 12, 2)};

    for (int i = 0; i < 3; i++) {
        const Id id = add_value(g, OP_TRANSPOSE, stacks[i], 0, 0, i == 2 ? 12 : 6, 2);

        ir_attr_int(g, id, "stack", i == 2 ? 6 : 3);
        elements_are(&f, id,
                     i == 1 ? (const float[]){18, 20, 19, 21, 22, 24, 23, 25, 26, 28, 27, 29}
                            : (const float[]){0,  2,  1,  3,  4,  6,  5,  7,  8,  10, 9,  11,
                                              18, 20, 19, 21, 22, 24, 23, 25, 26, 28, 27, 29},
                     i == 2 ? 24 : 12);
    }

    const Id across = add_value(g, OP_TRANSPOSE, x, 0, 0, 4, 3); /* matrices of three rows, tensors of two */

    ir_attr_int(g, across, "stack", 2);
    elements_are(&f, across, (const float[]){0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}, 12);
    assert_string_equal(weights_name(g, x, f.keep), "x.*");
    end(&f);
    for (size_t i = 0; i < LEN(wrong); i++) {
        f = begin(path);
        stack(f.spec.graph, wrong[i].name, wrong[i].count, wrong[i].rows, wrong[i].columns);
        assert_false(checkpoint_check(f.c, &f.spec, &f.d));
        if (!strstr(f.d.text, wrong[i].message))
            fail_msg("%s", f.d.text);
        end(&f);
    }
}

static void test_names(void **state)
{
    Fixture f = begin(NULL);
    Graph *g = f.spec.graph;
    const Id q = add_weight(g, "l.0.attn.q_proj.weight", 4, 2), k = add_weight(g, "l.0.attn.k_proj.weight", 4, 2);
    const Id q2 = pairs(g, q, 4, 2, 4, 4);
    (void)state;

    assert_string_equal(weights_name(g, q2, f.keep), "l.0.attn.q_proj.weight");
    assert_string_equal(weights_name(g, add_value(g, OP_CONCAT, q2, k, 0, 8, 2), f.keep), "l.0.attn.{q,k}_proj.weight");
    assert_string_equal(weights_name(g, add_value(g, OP_CONCAT, q, q, 0, 8, 2), f.keep), "l.0.attn.q_proj.weight");
    add_weight(g, "l.0.attn.q_proj.weight", 4, 2);
    assert_int_equal(weights_parameters(g, f.keep), 16);
    assert_string_equal(weights_packed_name(g, &(PackedWeight){.value = k}, f.keep), "l.0.attn.k_proj.weight");
    assert_string_equal(
        weights_packed_name(g, &(PackedWeight){.value = k, .fold.gain = add_weight(g, "l.0.norm.weight", 2, 0)},
                            f.keep),
        "l.0.attn.k_proj.weight folded with l.0.norm.weight");
    end(&f);
}

static Id rope(Graph *g, int64_t rot, double theta, int64_t positions)
{
    const Id none[IR_MAX_ARGS] = {0};
    const Shape s = ir_shape(3, ir_const(positions), ir_const(rot / 2), ir_const(2));
    const Id id = ir_value_add(g, OP_ROPE_TABLE, none, s, DT_FP32, (Loc){0});

    ir_attr_int(g, id, "rot", rot);
    ir_attr_float(g, id, "theta", theta);
    ir_attr_int(g, id, "positions", positions);
    return id;
}

static float *table(Fixture *f, Id id)
{
    float *t;
    size_t n;

    assert_true(weights_value(NULL, &f->spec, id, f->keep, &t, &n, &f->d));
    return t;
}

/* The angle of row 1 is the frequency itself: atan2 gives it back to within fp32. */
static double frequency(const float *t, int64_t half, int64_t i)
{
    return atan2((double)t[(half + i) * 2 + 1], (double)t[(half + i) * 2]);
}

static void test_rope(void **state)
{
    Fixture f = begin(NULL);
    const int64_t half = 32, positions = 1000;
    const Id id = rope(f.spec.graph, 2 * half, 10000, positions), scaled = rope(f.spec.graph, 2 * half, 10000, 8);
    const float *t = table(&f, id), *s;
    (void)state;

    for (int64_t i = 0; i < half; i++) {
        const double exact = pow(10000, -(double)i / (double)half);

        assert_true(t[i * 2] == 1.0f && t[i * 2 + 1] == 0.0f);
        assert_true(fabs(frequency(t, half, i) / exact - 1) < 3e-7);
        for (int64_t p = 0; p < positions; p++) { /* a frequency has an error of about 2^-24, an angle p times that */
            const float *cell = t + (p * half + i) * 2;

            assert_true(fabs((double)cell[0] - cos((double)p * exact)) < 2e-7 * (double)(p + 1));
            assert_true(fabs((double)cell[1] - sin((double)p * exact)) < 2e-7 * (double)(p + 1));
        }
    }
    ir_attr_word(f.spec.graph, scaled, "scaling", "linear");
    ir_attr_float(f.spec.graph, scaled, "factor", 4);
    s = table(&f, scaled);
    for (int64_t i = 0; i < half; i++)
        assert_true(fabs(frequency(s, half, i) * 4 / frequency(t, half, i) - 1) < 3e-7);
    end(&f);
}

/* Given frequencies, and sines and cosines times 1.5. */
static void test_rope_freqs(void **state)
{
    Fixture f = begin(NULL);
    const double freqs[] = {1, -0.25, 0};
    const Id id = rope(f.spec.graph, 6, 10000, 5);
    const float *t;
    (void)state;

    ir_attr_word(f.spec.graph, id, "freqs", "1 -0.25 0");
    ir_attr_float(f.spec.graph, id, "amplitude", 1.5);
    t = table(&f, id);
    for (int p = 0; p < 5; p++)
        for (int i = 0; i < 3; i++) {
            assert_true(fabs((double)t[(p * 3 + i) * 2] - 1.5 * cos(p * freqs[i])) < 3e-7);
            assert_true(fabs((double)t[(p * 3 + i) * 2 + 1] - 1.5 * sin(p * freqs[i])) < 3e-7);
        }
    end(&f);
}

/* theta 500000, rot 40, factor 8, low 1, high 4, original 64: wavelengths below 16 stay, those
 * above 64 are stretched by 8, those between are blended. */
static void test_rope_llama3(void **state)
{
    Fixture f = begin(NULL);
    const int64_t half = 20;
    const Id id = rope(f.spec.graph, 2 * half, 500000, 4);
    int kinds[3] = {0};
    const float *t;
    (void)state;

    ir_attr_word(f.spec.graph, id, "scaling", "llama3");
    ir_attr_float(f.spec.graph, id, "factor", 8);
    ir_attr_float(f.spec.graph, id, "low", 1);
    ir_attr_float(f.spec.graph, id, "high", 4);
    ir_attr_int(f.spec.graph, id, "original", 64);
    t = table(&f, id);
    for (int64_t i = 0; i < half; i++) {
        const double plain = pow(500000, -(double)i / (double)half), wavelength = 2 * 3.14159265358979 / plain;
        const double blend = (64 / wavelength - 1) / 3;
        const int kind = wavelength > 64 ? 0 : wavelength < 16 ? 1 : 2;
        const double want = kind == 0 ? plain / 8 : kind == 1 ? plain : (1 - blend) * plain / 8 + blend * plain;

        kinds[kind]++;
        assert_true(fabs(frequency(t, half, i) / want - 1) < 1e-6);
    }
    assert_true(kinds[0] && kinds[1] && kinds[2]);
    end(&f);
}

/* --- the block ------------------------------------------------------------------------------- */

static void plan(Fixture *f, Id value, DType type, FtxWeightKind kind, uint64_t elements)
{
    PackedWeight *w = arena_push(f->keep, f->packing.weights);

    *w = (PackedWeight){.value = value,
                        .type = type,
                        .kind = kind,
                        .offset = (f->packing.bytes + 255) / 256 * 256,
                        .bytes = elements * dtype_size(type)};
    f->packing.bytes = w->offset + w->bytes;
}

static uint64_t calls, last_done;

static void count(void *user, uint64_t done, uint64_t all)
{
    assert_true(done > last_done && done <= all && user == &calls);
    last_done = done;
    calls++;
}

static bool pack(Fixture *f, FileMap *map, uint64_t *checksum, uint64_t at)
{
    char path[256];
    FileOut *out;
    FtxError err;

    strcpy(path, temp_path("block"));
    calls = last_done = 0;
    assert_int_equal(file_create(path, &out, &err), FTX_OK);
    if (!weights_pack(f->c, &f->spec, &f->packing, 0, out, at, checksum, count, &calls, &f->d)) {
        file_abort(out);
        return false;
    }
    assert_int_equal(file_commit(out, &err), FTX_OK);
    assert_int_equal(file_map(path, map, &err), FTX_OK);
    return true;
}

static void test_block(void **state)
{
    Fixture f = begin(small());
    Graph *g = f.spec.graph;
    const Id a = add_weight(g, "a", 4, 2), v = add_weight(g, "v", 4, 0), t = rope(g, 4, 10000, 3);
    const unsigned char *p;
    uint64_t checksum;
    FileMap map;
    (void)state;

    plan(&f, a, DT_BF16, FTX_WEIGHT_MATRIX, 8);
    plan(&f, t, DT_FP32, FTX_WEIGHT_TABLE, 12);
    plan(&f, v, DT_FP16, FTX_WEIGHT_GAIN, 4);
    assert_true(pack(&f, &map, &checksum, 4096));
    assert_int_equal(map.bytes, 4096 + f.packing.bytes);
    p = (const unsigned char *)map.at + 4096;
    assert_int_equal(hash64(p, f.packing.bytes), checksum);
    assert_int_equal(last_done, f.packing.bytes);
    for (size_t i = 0; i < 8; i++)
        assert_true(dtype_load(p, i, DT_BF16) == (float)i);
    for (size_t i = 16; i < 256; i++)
        assert_int_equal(p[i], 0);
    assert_memory_equal(p + 256, table(&f, t), 48);
    for (size_t i = 0; i < 4; i++)
        assert_true(dtype_load(p + 512, i, DT_FP16) == (float)(20 + i));
    file_unmap(&map);

    checkpoint_close(f.c); /* without a checkpoint: only the table */
    f.c = NULL;
    assert_true(pack(&f, &map, &checksum, 0));
    assert_int_equal(map.bytes, 48);
    assert_int_equal(weights_stored_bytes(&f.packing, true), 48);
    assert_memory_equal(map.at, table(&f, t), 48);
    assert_int_equal(hash64(map.at, 48), checksum);
    file_unmap(&map);
    end(&f);
}

/* Rows of a stored type of 16 bits are divided in fp32. The second row has no length. */
static void test_unit_rows(void **state)
{
    const uint16_t data[4] = {bf16_from_float(3), bf16_from_float(4), 0, 0};
    FileMap map;
    uint64_t checksum;
    Fixture f;

    (void)state;
    write_safetensors(temp_path("unit.safetensors"),
                      "{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", data, sizeof data);
    f = begin(temp_path("unit.safetensors"));
    plan(&f, add_value(f.spec.graph, OP_UNIT_ROWS, add_weight(f.spec.graph, "w", 2, 2), 0, 0, 2, 2), DT_BF16,
         FTX_WEIGHT_MATRIX, 4);
    assert_true(pack(&f, &map, &checksum, 0));
    for (size_t i = 0; i < 4; i++)
        assert_true(dtype_load(map.at, i, DT_BF16) ==
                    bf16_to_float(bf16_from_float((const float[]){0.6f, 0.8f, 0, 0}[i])));
    file_unmap(&map);
    end(&f);
}

/* Four buckets, two of each side. */
static void test_distances_packed(void **state)
{
    Fixture f = begin(small());
    Graph *g = f.spec.graph;
    const Id id = add_value(g, OP_DISTANCE_BIAS, add_weight(g, "a", 4, 2), 0, 0, 2, 7);
    uint64_t checksum;
    FileMap map;
    (void)state;

    ir_attr_int(g, id, "max_distance", 3);
    plan(&f, id, DT_FP32, FTX_WEIGHT_MATRIX, 14);
    assert_true(pack(&f, &map, &checksum, 0));
    assert_memory_equal(map.at, ((const float[]){2, 2, 2, 0, 6, 6, 6, 3, 3, 3, 1, 7, 7, 7}), 56);
    file_unmap(&map);
    end(&f);
}

/* Each table begins at a multiple of 256 bytes, without weights too; a table may be packed as bf16. */
static void test_tables(void **state)
{
    Fixture f = begin(NULL);
    const Id t = rope(f.spec.graph, 4, 10000, 3), u = rope(f.spec.graph, 4, 10000, 5);
    uint64_t checksum;
    FileMap map;
    (void)state;

    plan(&f, t, DT_BF16, FTX_WEIGHT_TABLE, 12);
    plan(&f, u, DT_FP32, FTX_WEIGHT_TABLE, 20);
    assert_int_equal(weights_stored_bytes(&f.packing, true), 256 + 80);
    assert_true(pack(&f, &map, &checksum, 0));
    assert_int_equal(map.bytes, 256 + 80);
    for (size_t i = 0; i < 12; i++)
        assert_true(dtype_load(map.at, i, DT_BF16) == bf16_to_float(bf16_from_float(table(&f, t)[i])));
    assert_memory_equal((const char *)map.at + 256, table(&f, u), 80);
    file_unmap(&map);
    end(&f);
}

/* Several windows, a length that is not a multiple of a chunk, offsets that are not in the order of the list. */
static void test_large(void **state)
{
    const int64_t rows = 3001, columns = 2503;
    const size_t n = (size_t)(rows * columns);
    char path[256], header[200];
    uint16_t *data = malloc(n * 2);
    Fixture f;
    Id w;
    uint64_t checksum;
    FileMap map;
    (void)state;

    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = bf16_from_float((float)(i % 251) - 100.0f);
    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"BF16\",\"shape\":[3001,2503],\"data_offsets\":[0,%zu]}}  ",
             n * 2);
    strcpy(path, temp_path("large.safetensors"));
    write_safetensors(path, header, data, n * 2);
    f = begin(path);
    w = add_weight(f.spec.graph, "w", rows, columns);
    plan(&f, add_value(f.spec.graph, OP_TRANSPOSE, w, 0, 0, columns, rows), DT_BF16, FTX_WEIGHT_MATRIX, n);
    plan(&f, w, DT_BF16, FTX_WEIGHT_MATRIX, n);
    const PackedWeight first = f.packing.weights.at[0];
    f.packing.weights.at[0] = f.packing.weights.at[1];
    f.packing.weights.at[1] = first;
    assert_true(pack(&f, &map, &checksum, 0));
    assert_memory_equal((const char *)map.at + f.packing.weights.at[0].offset, data, n * 2);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r += 97)
            assert_int_equal(((const uint16_t *)map.at)[c * rows + r], data[r * columns + c]);
    assert_true(calls > 2);
    assert_int_equal(hash64(map.at, map.bytes), checksum);
    file_unmap(&map);
    free(data);
    end(&f);
}

static void expect_fault_in(const char *type, const void *data, size_t bytes, DType packed, bool transposed,
                            const char *reason)
{
    char path[256], header[200];
    const size_t n = bytes / (strcmp(type, "F32") ? 2 : 4);
    uint64_t checksum;
    FileMap map;
    Fixture f;

    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"%s\",\"shape\":[2,%zu],\"data_offsets\":[0,%zu]}}", type,
             n / 2, bytes);
    strcpy(path, temp_path("fault.safetensors"));
    write_safetensors(path, header, data, bytes);
    f = begin(path);
    const Id w = add_weight(f.spec.graph, "w", 2, (int64_t)n / 2);
    plan(&f, transposed ? add_value(f.spec.graph, OP_TRANSPOSE, w, 0, 0, (int64_t)n / 2, 2) : w, packed,
         FTX_WEIGHT_MATRIX, n);
    assert_false(pack(&f, &map, &checksum, 0));
    if (!strstr(f.d.text, reason))
        fail_msg("expected \"%s\" in: %s", reason, f.d.text);
    end(&f);
}

static void expect_fault(const char *type, const void *data, size_t bytes, DType packed, const char *reason)
{
    expect_fault_in(type, data, bytes, packed, false, reason);
}

static void test_faults(void **state)
{
    (void)state;
    expect_fault("F32", (float[]){0, 1, 2, NAN}, 16, DT_FP32, "tensor \"w\": element [1,1] is NaN");
    expect_fault("F32", (float[]){0, 1, -INFINITY, NAN}, 16, DT_BF16, "tensor \"w\": element [1,0] is -infinity");
    expect_fault("BF16", (uint16_t[]){0, 0x7f80, 0, 0}, 8, DT_BF16, "tensor \"w\": element [0,1] is infinity");
    expect_fault("BF16", (uint16_t[]){0, 0, 0, 0, 0, 0x7f80}, 12, DT_BF16, "tensor \"w\": element [1,2] is infinity");
    expect_fault_in("F32", (float[]){0, 1, NAN, 2}, 16, DT_FP32, true, "tensor \"w\": element [1,0] is NaN");
    expect_fault_in("BF16", (uint16_t[]){0, 0, 0, 0, 0x7f80, 0}, 12, DT_BF16, true,
                    "tensor \"w\": element [1,1] is infinity");
    expect_fault("F16", (uint16_t[]){0x7e00, 0, 0, 0}, 8, DT_FP32, "tensor \"w\": element [0,0] is NaN");
    expect_fault("F32", (float[]){0, 1, 70000, 0}, 16, DT_FP16,
                 "weight \"w\": element [1,0] is 70000, more than fp16 can hold");
    expect_fault("F32", (float[]){0, 3.4e38f, 3.4028235e38f, 0}, 16, DT_BF16, "more than bf16 can hold");
}

static void test_rounding(void **state)
{
    /* halfway between 1 and 1 + 2^-7 goes to even, a bit above goes up, 3 halves go to even above */
    const float in[] = {1.00390625f, 1.0039064f, 1.01171875f, -1.00390625f};
    const float want[] = {1.0f, 1.0078125f, 1.015625f, -1.0f};
    char path[256];
    uint64_t checksum;
    FileMap map;
    Fixture f;
    (void)state;

    strcpy(path, temp_path("round.safetensors"));
    write_safetensors(path, "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", in, sizeof in);
    f = begin(path);
    plan(&f, add_weight(f.spec.graph, "w", 4, 0), DT_BF16, FTX_WEIGHT_MATRIX, 4);
    assert_true(pack(&f, &map, &checksum, 0));
    for (size_t i = 0; i < 4; i++)
        assert_true(dtype_load(map.at, i, DT_BF16) == want[i]);
    file_unmap(&map);
    end(&f);
}

/* A norm's gain in a matrix, its shift in a bias: the product of a row with them is that of the normed row. */
static void test_folded(void **state)
{
    enum { N = 1500, K = 613 }; /* more than one piece of each */
    float *data = malloc(sizeof *data * (N * K + N + 2 * K)), *w = data, *b = w + N * K, *gain = b + N,
          *shift = gain + K;
    char path[256], header[400];
    uint64_t checksum;
    double mean = 0, square = 0, x[K];
    FileMap map;
    Fixture f;
    (void)state;

    assert_non_null(data);
    for (int i = 0; i < N * K + N + 2 * K; i++)
        data[i] = (float)(i % 2003 * 919 % 2003 - 1001) / 1001.0f;
    for (int k = 0; k < K; k++) {
        x[k] = 3 + sin(k);
        mean += x[k] / K;
    }
    for (int k = 0; k < K; k++)
        square += (x[k] - mean) * (x[k] - mean) / K;
    snprintf(header, sizeof header,
             "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
             "\"b\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
             "\"g\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
             "\"c\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
             N, K, 4 * N * K, N, 4 * N * K, 4 * (N * K + N), K, 4 * (N * K + N), 4 * (N * K + N + K), K,
             4 * (N * K + N + K), 4 * (N * K + N + 2 * K));
    strcpy(path, temp_path("folded.safetensors"));
    write_safetensors(path, header, data, sizeof *data * (N * K + N + 2 * K));
    f = begin(path);

    Graph *graph = f.spec.graph;
    const Id W = add_weight(graph, "w", N, K), B = add_weight(graph, "b", N, 0), G = add_weight(graph, "g", K, 0),
             C = add_weight(graph, "c", K, 0);

    plan(&f, W, DT_FP32, FTX_WEIGHT_MATRIX, N * K);
    plan(&f, B, DT_FP32, FTX_WEIGHT_BIAS, N);
    plan(&f, W, DT_BF16, FTX_WEIGHT_MATRIX, N * K);
    f.packing.weights.at[0].fold.gain = f.packing.weights.at[2].fold.gain = G;
    f.packing.weights.at[1].fold = (Fold){.matrix = W, .shift = C};
    assert_true(pack(&f, &map, &checksum, 0));

    const float *folded = map.at, *bias = (const float *)((const char *)map.at + f.packing.weights.at[1].offset);
    const char *half = (const char *)map.at + f.packing.weights.at[2].offset;

    for (int n = 0; n < N; n++) {
        double plain = (double)b[n], got = 0, sum = 0;

        for (int k = 0; k < K; k++) {
            plain += (double)w[n * K + k] * ((x[k] - mean) / sqrt(square + 1e-5) * (double)gain[k] + (double)shift[k]);
            got += x[k] * (double)folded[n * K + k] / sqrt(square + 1e-5);
            sum += (double)folded[n * K + k];
            assert_true(dtype_load(half, (size_t)(n * K + k), DT_BF16) ==
                        bf16_to_float(bf16_from_float(folded[n * K + k])));
        }
        assert_true(fabs(sum) < 1e-5);
        if (!(fabs(plain - got - (double)bias[n]) < 1e-4))
            fail_msg("row %d: %g, expected %g", n, got + (double)bias[n], plain);
    }
    file_unmap(&map);
    end(&f);

    gain[2] = NAN; /* folded values are checked, too */
    write_safetensors(path, header, data, sizeof *data * (N * K + N + 2 * K));
    f = begin(path);
    plan(&f, add_weight(f.spec.graph, "w", N, K), DT_FP32, FTX_WEIGHT_MATRIX, N * K);
    f.packing.weights.at[0].fold.gain = add_weight(f.spec.graph, "g", K, 0);
    assert_false(pack(&f, &map, &checksum, 0));
    assert_non_null(strstr(f.d.text, "tensor \"g\": element [2] is NaN"));
    end(&f);
    free(data);
}

/* A bf16 checkpoint packed as bf16 is the file's own bytes. */
static void test_real(void **state)
{
    Fixture f = begin("specs/fable/model.safetensors");
    uint64_t checksum;
    FileMap map;
    (void)state;

    plan(&f, add_weight(f.spec.graph, "model.embed_tokens.weight", 4096, 384), DT_BF16, FTX_WEIGHT_MATRIX, 4096 * 384);
    plan(&f, add_weight(f.spec.graph, "model.layers.0.input_layernorm.weight", 384, 0), DT_FP32, FTX_WEIGHT_GAIN, 384);
    assert_true(pack(&f, &map, &checksum, 0));
    assert_true(dtype_load(map.at, 0, DT_BF16) == 0.049072265625f);
    assert_true(dtype_load(map.at, 3, DT_BF16) == -0.0220947265625f);
    const float *gain = (const float *)((const char *)map.at + f.packing.weights.at[1].offset);
    assert_true(gain[0] == 0.59765625f && gain[3] == 0.40234375f);
    file_unmap(&map);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unit_rows),  cmocka_unit_test(test_ops),
        cmocka_unit_test(test_names),      cmocka_unit_test(test_rope),
        cmocka_unit_test(test_block),      cmocka_unit_test(test_rope_llama3),
        cmocka_unit_test(test_rope_freqs), cmocka_unit_test(test_large),
        cmocka_unit_test(test_faults),     cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_real),       cmocka_unit_test(test_folded),
        cmocka_unit_test(test_tables),     cmocka_unit_test(test_stack),
        cmocka_unit_test(test_distances),  cmocka_unit_test(test_distances_packed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
