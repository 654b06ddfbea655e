/* test_calibrated.c - codes of int4 that are chosen for known inputs: what they make of these inputs, whose inputs are taken, and
 * what is refused. */
#include "files.h"

#include <math.h>

#include "compiler/weights/tensors.h"

enum { K = 256, ROWS = 6, SAMPLES = 200 };

static uint32_t random_state = 1;

static float uniform(void) /* in (-1, 1) */
{
    random_state = random_state * 1664525 + 1013904223;
    return ((float)(random_state >> 8) + 0.5f) / 8388608 - 1;
}

static float random_matrix[ROWS * K], sums[K * MOMENTS_BLOCK];
static const Moments inputs = {"w", K, MOMENTS_BLOCK, sums};

static float *sum_at(int64_t k, int64_t j) /* of two columns of one block */
{
    return &sums[k * MOMENTS_BLOCK + j % MOMENTS_BLOCK];
}

static void random_rows(void)
{
    random_state = 1;
    for (int i = 0; i < ROWS * K; i++)
        random_matrix[i] = uniform() * uniform() * 0.1f;
}

/* Each element counts alike. */
static void alike(float count)
{
    memset(sums, 0, sizeof sums);
    for (int k = 0; k < K; k++)
        *sum_at(k, k) = count;
}

/* Inputs whose columns have to do with one another, in each block otherwise. */
static void related(void)
{
    memset(sums, 0, sizeof sums);
    for (int s = 0; s < SAMPLES; s++) {
        const float common[2] = {uniform(), uniform()};
        float x[K];

        for (int k = 0; k < K; k++)
            x[k] = uniform() * 0.3f + common[k / MOMENTS_BLOCK] * (k % 3 == k / MOMENTS_BLOCK ? -1.0f : 1.0f);
        for (int64_t k = 0; k < K; k++)
            for (int64_t j = k / MOMENTS_BLOCK * MOMENTS_BLOCK, n = 0; n < MOMENTS_BLOCK; j++, n++)
                *sum_at(k, j) += x[k] * x[j];
    }
}

typedef struct Row {
    float scales[K / 32], offsets[K / 32], back[K];
    uint8_t codes[K];
} Row;

static Row quantised(int row, CodedForm f, const Moments *of)
{
    Row r;
    const CodedRow to = {r.scales, r.offsets, r.codes};

    quantise_row(random_matrix + row * K, K, &f, of, &to);
    coded_row_values(&f, K, &to, r.back);
    return r;
}

/* Sum of (e . x)^2 over the inputs, of all blocks. */
static double product_error(int row, const float *back)
{
    double sum = 0;

    for (int64_t k = 0; k < K; k++)
        for (int64_t j = k / MOMENTS_BLOCK * MOMENTS_BLOCK, n = 0; n < MOMENTS_BLOCK; j++, n++)
            sum += (double)*sum_at(k, j) * (double)(random_matrix[row * K + k] - back[k]) *
                   (double)(random_matrix[row * K + j] - back[j]);
    return sum;
}

static const CodedForm forms[] = {
    {DT_INT4, PACKED_FP16, 128}, {DT_INT4, PACKED_FP16, 32}, {DT_INT4, PACKED_FP16_ZEROS, 64}};

/* Where all elements count alike, and in other types, nothing changes. */
static void same(void **state)
{
    static const CodedForm others[] = {{DT_INT8, PACKED_FP16, 64}, {DT_FP8, PACKED_FP16, 64}};
    (void)state;

    random_rows();
    for (int i = 0; i < 2 * ROWS; i++) {
        const bool other = i >= ROWS;
        const CodedForm f = other ? others[i % 2] : forms[i % 3];

        if (other)
            related();
        else
            alike(4);
        const Row want = quantised(i % ROWS, f, NULL), got = quantised(i % ROWS, f, &inputs);
        assert_memory_equal(got.codes, want.codes, K);
        assert_memory_equal(got.scales, want.scales, (size_t)(K / f.group) * sizeof *got.scales);
    }
}

/* The products are nearer, and no other code of one element makes them nearer still. */
static void nearest(void **state)
{
    (void)state;

    random_rows();
    related();
    for (size_t i = 0; i < LEN(forms); i++)
        for (int row = 0; row < ROWS; row++) {
            const Row plain = quantised(row, forms[i], NULL);
            Row got = quantised(row, forms[i], &inputs);
            const double error = product_error(row, got.back);

            if (error > 0.6 * product_error(row, plain.back))
                fail_msg("form %zu, row %d: %g after %g", i, row, error, product_error(row, plain.back));
            for (int k = 0; k < 2 * K; k++) {
                const int code = got.codes[k / 2] + (k % 2 ? 1 : -1);
                const float before = got.back[k / 2];

                if (code < 0 || code > 15)
                    continue;
                got.back[k / 2] =
                    got.scales[k / 2 / forms[i].group] * ((float)code - got.offsets[k / 2 / forms[i].group]);
                if (product_error(row, got.back) < 0.999 * error)
                    fail_msg("form %zu, row %d: code %d of element %d is better", i, row, code, k / 2);
                got.back[k / 2] = before;
            }
        }
}

/* An element that hardly counts, here one in every second group, does not stretch its group's scale. */
static void counts(void **state)
{
    Row plain, got;
    (void)state;

    random_rows();
    alike(1);
    for (int k = 32; k < K; k += 64) {
        random_matrix[k] = 0.15f;
        *sum_at(k, k) = 1e-6f;
    }
    plain = quantised(0, forms[1], NULL);
    got = quantised(0, forms[1], &inputs);
    for (int g = 0; g < K / 32; g++)
        assert_true(g % 2 ? fabsf(got.scales[g]) < fabsf(plain.scales[g]) : got.scales[g] == plain.scales[g]);
    assert_true(product_error(0, got.back) < 0.9 * product_error(0, plain.back));
}

/* A scale that fp16 does not hold is infinite, as without inputs; a group of zeros stays one. */
static void edges(void **state)
{
    int others = 0;
    Row r;
    (void)state;

    random_rows();
    related();
    memset(random_matrix, 0, 32 * sizeof *random_matrix);
    random_matrix[40] = 1e9f;
    r = quantised(0, forms[1], &inputs);
    assert_true(isinf(r.scales[1]));
    for (int k = 64; k < K; k++) /* other groups have their codes all the same */
        others += r.codes[k] != 0;
    assert_true(others > K / 2);
    random_matrix[40] = 0;
    r = quantised(0, forms[1], &inputs);
    for (int k = 0; k < 32; k++)
        assert_true(r.codes[k] == 8 && r.back[k] == 0);
}

/* --- the packed block --------------------------------------------------------------------------------- */

/* Packs weight "w" [16,K], of which the first rows are random_matrix; its tile, or the reason why not. */
static bool pack(const Calibration *calibration, const char *to, unsigned char *tile, size_t bytes, Diag *d)
{
    static float all[PACKED_ROWS * K];
    const DType type = dtype_parse(to);
    Arena *keep = arena_open();
    Spec spec = {.graph = ir_graph_new("tiny")};
    const Id w = add_weight(spec.graph, "w", PACKED_ROWS, K),
             id = add_value(spec.graph, OP_QUANTISE, w, 0, 0, PACKED_ROWS, K);
    Packing packing = {.bytes = bytes};
    char path[256], out_path[256], header[200];
    Checkpoint *c;
    uint64_t checksum;
    FtxError err;
    FileOut *out;
    FileMap map;
    bool ok;

    ir_attr_int(spec.graph, id, "group", 128);
    ir_attr_word(spec.graph, id, "to", to);
    ir_value(spec.graph, id)->type = type;
    memcpy(all, random_matrix, sizeof random_matrix);
    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}",
             PACKED_ROWS, K, sizeof all);
    strcpy(path, temp_path("calibrated.safetensors"));
    strcpy(out_path, temp_path("calibrated.bin"));
    write_safetensors(path, header, all, sizeof all);
    assert_true(checkpoint_open(path, keep, &c, d));
    checkpoint_calibrate(c, calibration);
    *arena_push(keep, packing.weights) = (PackedWeight){.value = id,
                                                        .type = type,
                                                        .form = 1,
                                                        .form_name = "r16x4",
                                                        .group = 128,
                                                        .scales = PACKED_FP16,
                                                        .bytes = bytes};
    assert_int_equal(file_create(out_path, &out, &err), FTX_OK);
    ok = weights_pack(c, &spec, &packing, 0, out, 0, &checksum, NULL, NULL, d);
    if (ok) {
        assert_int_equal(file_commit(out, &err), FTX_OK);
        assert_int_equal(file_map(out_path, &map, &err), FTX_OK);
        assert_int_equal(map.bytes, bytes);
        memcpy(tile, map.at, bytes);
        file_unmap(&map);
    } else {
        file_abort(out);
    }
    checkpoint_close(c);
    ir_graph_close(spec.graph);
    arena_close(keep);
    return ok;
}

/* A matrix has the inputs of its name. */
static void by_name(void **state)
{
    enum { BYTES = 8192 };
    static float others[K * MOMENTS_BLOCK];
    Moments of[] = {{"v", K, MOMENTS_BLOCK, others}, inputs};
    const Calibration both = {.at = of, .n = 2}, other = {.at = of, .n = 1};
    const size_t bytes = packed_tile(DT_INT4, K, 128, PACKED_FP16), bytes8 = packed_tile(DT_INT8, K, 128, PACKED_FP16);
    static unsigned char got[BYTES], plain[BYTES], want[BYTES];
    const CodedForm f = forms[0];
    void *codes = calloc(PACKED_ROWS, coded_row_bytes(&f, K));
    Diag d = {0};
    (void)state;

    random_rows();
    related();
    for (int k = 0; k < K; k++)
        others[k * MOMENTS_BLOCK + k % MOMENTS_BLOCK] = 1;
    for (int r = 0; r < PACKED_ROWS; r++) {
        static const float zeros[K];
        const CodedRow to = coded_row(&f, K, codes, r);

        quantise_row(r < ROWS ? random_matrix + r * K : zeros, K, &f, &inputs, &to);
    }
    pack_tiles(&f, "r16x4", PACKED_ROWS, K, codes, want);
    assert_true(bytes <= BYTES && bytes8 <= BYTES);
    if (!pack(&both, "int4", got, bytes, &d) || !pack(NULL, "int4", plain, bytes, &d))
        fail_msg("%s", d.text);
    assert_memory_equal(got, want, bytes);
    assert_memory_not_equal(got, plain, bytes);

    assert_false(pack(&other, "int4", got, bytes, &d));
    if (!strstr(d.text, "weight \"w\": no text of --calibrate has reached it"))
        fail_msg("%s", d.text);
    d = (Diag){0};
    if (!pack(&other, "int8", got, bytes8, &d))
        fail_msg("%s", d.text);
    of[1].columns = K / 2;
    assert_false(pack(&both, "int4", got, bytes, &d));
    free(codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same), cmocka_unit_test(nearest), cmocka_unit_test(counts),
                                       cmocka_unit_test(edges), cmocka_unit_test(by_name)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
