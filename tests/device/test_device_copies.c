/* test_device_copies.c - what the CUDA device copies to a GPU: weights, a step's data, page tables, TMA descriptors.
 * Where the driver is `late`, it copies when the host waits and no earlier, so memory given back or written too soon
 * shows. */
#include <sys/mman.h>

#include "kernels/device/fill.h"
#include "runtime/base/packed.h"
#include "runtime/device/random.h"
#include "world.h"

static void weights_arrive(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    const CUdeviceptr weights = last_runs(3)[0].param[1];
    assert_memory_equal((void *)(uintptr_t)weights, w->weight_data, WEIGHT_BYTES);
    close_both(w, d, s);
}

/* More than the pieces of pinned memory hold: the first piece is filled again once it has been copied. The block ends
 * at the end of its mapping, and in the middle of a piece. */
static void large_weights_arrive(void **state)
{
    enum { BYTES = 2 * (32 << 20) + 1000, PAGE = 1 << 16, MAPPED = (BYTES + PAGE - 1) / PAGE * PAGE };
    const FtxOptions o = {.size = sizeof(FtxOptions), .threads = 3};
    char *map = mmap(NULL, MAPPED + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + MAPPED, PAGE, PROT_NONE), 0);
    for (size_t i = 0; i < MAPPED / 4; i++)
        ((uint32_t *)(void *)map)[i] = (uint32_t)i;
    fake.late = true;
    w->t.facts.weight_bytes = BYTES;
    w->t.artifact.weight_data = map + MAPPED - BYTES;
    open_both(w, &o, &d, &s);
    must(device_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    assert_memory_equal((void *)(uintptr_t)last_runs(3)[0].param[1], w->t.artifact.weight_data, BYTES);
    close_both(w, d, s);
    munmap(map, MAPPED + PAGE);
}

static FtxFill fills[4];
static int n_fills;

static void note_fill(const FakeLaunch *l)
{
    if (strcmp(l->kernel, "random") == 0 && n_fills < 4)
        fills[n_fills++] = *(const FtxFill *)(uintptr_t)l->param[1];
}

/* One launch of `random` for the matrix, one for the gains; what the kernel writes is for tests/simt. */
static void random_weights_are_drawn_there(void **state)
{
    const FtxOptions o = {.size = sizeof(FtxOptions), .threads = 3, .random_weights = 77};
    World *w = world();
    FtxError err = {0};
    Device *d;
    Session *s;

    (void)state;
    n_fills = 0;
    fake.execute = note_fill;
    open_both(w, &o, &d, &s);
    must(device_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    const char *weights = (const char *)(uintptr_t)last_runs(3)[0].param[1];
    for (int i = 0; i < 2; i++) {
        assert_string_equal(fake.run[i].kernel, "random");
        assert_int_equal(fake.run[i].grid[0] % 8, 0);
        assert_true((const char *)(uintptr_t)fake.run[i].param[0] == weights);
    }
    assert_int_equal(n_fills, 2);
    assert_memory_equal(&fills[0],
                        (&(FtxFill){.elements = N * K,
                                    .key = random_key(77, 0),
                                    .scale = random_scale(&w->t.weights[0]),
                                    .type = FTX_FILL_BF16}),
                        sizeof *fills);
    assert_memory_equal(&fills[1],
                        (&(FtxFill){.offset = 16640,
                                    .elements = K,
                                    .key = random_key(77, 1),
                                    .scale = 1,
                                    .type = FTX_FILL_FP32,
                                    .constant = 1}),
                        sizeof *fills);
    assert_memory_equal(weights + 17408, w->weight_data + 17408, TABLE_BYTES);
    assert_int_equal(weights[16384], 0); /* between two weights */
    close_both(w, d, s);

    w = world();
    w->t.plan.n_kernels = RANDOM;
    assert_int_equal(device_cuda.open(&w->t.artifact, &w->t.plan, &o, &d, &err), FTX_EFORMAT);
    assert_non_null(strstr(err.text, "random weights"));
    free(w);

    w = world(); /* codes have a kernel of their own */
    w->t.weights[0].type = DT_INT8;
    w->t.weights[0].group = 16;
    assert_int_equal(device_cuda.open(&w->t.artifact, &w->t.plan, &o, &d, &err), FTX_EFORMAT);
    assert_non_null(strstr(err.text, "random weights"));
    free(w);
}

static FtxCodesFill drawn_codes;

static void note_codes(const FakeLaunch *l)
{
    if (strcmp(l->kernel, "sample__x") == 0)
        drawn_codes = *(const FtxCodesFill *)(uintptr_t)l->param[1];
}

/* 40 rows of 64 codes are three tiles of 16 rows, each with the scales of two groups a row. */
static void codes_are_drawn_there(void **state)
{
    const FtxOptions o = {.size = sizeof(FtxOptions), .threads = 1, .random_weights = 78};
    const FtxWeight matrix = {.type = DT_INT4,
                              .rank = 2,
                              .dim = {40, 64},
                              .kind = FTX_WEIGHT_MATRIX,
                              .group = 32,
                              .scales = PACKED_FP16_ZEROS,
                              .offset = 256,
                              .bytes = 3 * 640};
    World *w = world();
    Device *d;

    (void)state;
    drawn_codes = (FtxCodesFill){0};
    fake.execute = note_codes;
    w->t.weights[1] = matrix;
    w->t.kernels[SAMPLE].family = STR_RANDOM_CODES;
    must(device_cuda.open(&w->t.artifact, &w->t.plan, &o, &d, NULL), NULL);
    assert_int_equal(drawn_codes.offset, 256);
    assert_int_equal(drawn_codes.tiles, 3);
    assert_int_equal(drawn_codes.codes, 16 * 64 / 2);
    assert_int_equal(drawn_codes.groups, 2 * 16);
    assert_int_equal(drawn_codes.scales, PACKED_FP16_ZEROS);
    assert_int_equal(drawn_codes.zero, 8);
    assert_int_equal(drawn_codes.key, random_key(78, 1));
    assert_float_equal(drawn_codes.scale, random_scale(&matrix) / 8.0F, 0.0F);
    device_cuda.close(d);
    free(w);
}

/* Each table, the first weight among them, is what the artifact has. */
static void tables_are_not_drawn(void **state)
{
    const FtxOptions o = {.size = sizeof(FtxOptions), .threads = 1, .random_weights = 77};
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    n_fills = 0;
    fake.late = true;
    fake.execute = note_fill;
    w->t.weights[0].kind = FTX_WEIGHT_TABLE;
    open_both(w, &o, &d, &s);
    must(device_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    const char *weights = (const char *)(uintptr_t)last_runs(3)[0].param[1];
    assert_memory_equal(weights, w->weight_data, w->t.weights[0].bytes);
    assert_memory_equal(weights + 17408, w->weight_data + 17408, TABLE_BYTES);
    assert_int_equal(n_fills, 1);
    assert_int_equal(fills[0].offset, 16640);
    close_both(w, d, s);
}

static void copies_reach_their_places(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    FtxError err = {0};
    char row[128], back[128];

    (void)state;
    open_both(w, &one_thread, &d, &s);
    for (int i = 0; i < 20000; i++) { /* around the ring more than once */
        memset(row, i, sizeof row);
        must(device_cuda.write(s, FTX_NAMED_pages, (size_t)(i % 32) * 128, row, sizeof row, &err), &err);
    }
    must(device_cuda.read(s, FTX_NAMED_pages, 19999 % 32 * 128, back, sizeof back, &err), &err);
    assert_memory_equal(back, row, sizeof row);
    assert_int_equal(device_cuda.write(s, FTX_NAMED_pages, 4000, row, 128, &err), FTX_EINVAL);
    assert_string_equal(err.text, "bytes 4000 to 4128 of $pages are outside of it");
    assert_int_equal(device_cuda.write(s, FTX_NAMED_out, 0, row, 4, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.read(s, FTX_NAMED_pages, SIZE_MAX, row, 2, &err), FTX_EINVAL);
    memcpy((char *)(uintptr_t)device_cuda.out(s) + 8, "result", 7); /* results stand where the host reads them */
    must(device_cuda.read(s, FTX_NAMED_out, 8, back, 7, &err), &err);
    assert_string_equal(back, "result");
    /* the step's data: what io() holds, to where the kernels look */
    memset(device_cuda.io(s), 0x5A, 4096);
    must(device_cuda.upload(s, 600, &err), &err);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, &err), &err);
    const char *token = (const char *)(uintptr_t)last_runs(3)[0].param[0]; /* at 512 of IO */
    assert_int_equal(token[87], 0x5A);
    assert_int_equal(token[88], 0);
    assert_int_equal(device_cuda.upload(s, 4096, &err), FTX_OK);
    assert_int_equal(device_cuda.upload(s, 4097, &err), FTX_EINVAL);
    assert_string_equal(err.text, "4097 bytes of step data, there is room for 4096");
    close_both(w, d, s);
}

static char *traces[8]; /* where a warm-up wrote */
static int n_traces;

static void leave_traces(const FakeLaunch *l)
{
    if (strcmp(l->kernel, "lt") != 0 || n_traces == 8)
        return;
    traces[n_traces] = (char *)(uintptr_t)l->param[4]; /* the product's result */
    memset(traces[n_traces++], 0x5a, 64);
}

/* What the library's products left when they were warmed up is cleared. */
static void state_is_zero_at_open(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    char page[4096];

    (void)state;
    n_traces = 0;
    fake.execute = leave_traces;
    open_both(w, &one_thread, &d, &s);
    fake.execute = NULL;
    must(device_cuda.read(s, FTX_NAMED_pages, 0, page, sizeof page, NULL), NULL);
    for (size_t i = 0; i < sizeof page; i++)
        assert_int_equal(page[i], 0);
    for (size_t i = 0; i < 512; i++)
        assert_int_equal(((const char *)device_cuda.out(s))[i], 0);
    assert_true(n_traces > 0);
    for (int k = 0; k < n_traces; k++)
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(traces[k][i], 0);
    close_both(w, d, s);
}

/* Writes that fill the ring several times, while the GPU has copied none of them. */
static void the_ring_waits_for_its_copies(void **state)
{
    enum { WRITES = 60, MOST = 64 << 10 };
    static char row[MOST + 1];
    World *w = world();
    Device *d;
    Session *s;
    FtxError err;

    (void)state;
    fake.late = true;
    w->t.head.space_bytes[FTX_SPACE_STATE] = 2048 + WRITES * MOST;
    w->t.head.named_bytes[FTX_NAMED_pages] = WRITES * MOST;
    open_both(w, &one_thread, &d, &s);
    for (int i = 0; i < WRITES; i++) {
        memset(row, i + 1, sizeof row);
        must(device_cuda.write(s, FTX_NAMED_pages, (size_t)i * MOST, row, MOST - (size_t)(i % 5) * 1001, &err), &err);
    }
    for (int i = 0; i < WRITES; i++) {
        must(device_cuda.read(s, FTX_NAMED_pages, (size_t)i * MOST, row, MOST, &err), &err);
        for (int k = 0; k < MOST; k++)
            assert_int_equal(row[k], k < MOST - i % 5 * 1001 ? i + 1 : 0);
    }
    assert_int_equal(device_cuda.write(s, FTX_NAMED_pages, 0, row, MOST + 1, &err), FTX_EINVAL);
    close_both(w, d, s);
}

/* After settle the host may write the next step's data, though the GPU may still work. */
static void settle_waits_for_the_steps_data(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    fake.late = true;
    open_both(w, &one_thread, &d, &s);
    memset(device_cuda.io(s), 1, 4096);
    must(device_cuda.upload(s, 4096, NULL), NULL);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    must(device_cuda.settle(s, NULL), NULL);
    memset(device_cuda.io(s), 2, 4096);
    must(device_cuda.wait(s, NULL), NULL);
    assert_int_equal(*(const char *)(uintptr_t)last_runs(3)[0].param[0], 1);
    close_both(w, d, s);
}

/* More TMA descriptors than a part of the ring holds: each tiled operand points to its own. */
static void descriptors_reach_their_places(void **state)
{
    enum { MANY = 2500 };
    World *w = world();
    const uint32_t n = w->t.n_operands;
    FtxOperand *o = calloc(n + MANY, sizeof *o);
    Device *d;
    Session *s;

    (void)state;
    fake.late = true;
    memcpy(o, w->t.operands, n * sizeof *o);
    for (uint32_t i = 0; i < MANY; i++)
        o[n + i] = (FtxOperand){.space = i % 3 ? FTX_SPACE_WEIGHTS : FTX_SPACE_WORK,
                                .tile_rows = 8 + i % 8 * 8,
                                .offset = 16 * (i % 100),
                                .rows = i + 1,
                                .columns = 64 + i % 5 * 8,
                                .type = i % 2 ? DT_BF16 : DT_FP16};
    w->t.plan.operands = o;
    w->t.plan.n_operands = n + MANY;
    w->t.launches[1].first_operand = n + MANY - 4;
    w->t.launches[2].first_operand = n;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    const FakeLaunch *l = last_runs(3);
    for (uint32_t k = 0; k < 6; k++) {
        const uint32_t i = k < 4 ? MANY - 4 + k : k - 4;
        const CUdeviceptr at = k < 4 ? l[1].param[k] : l[2].param[k - 4];
        FakeDescriptor got;

        assert_true(fake_holds(at, sizeof(CUtensorMap)));
        assert_int_equal(at % 64, 0);
        memcpy(&got, (const void *)(uintptr_t)at, sizeof got);
        assert_int_equal(got.matrix, l[0].param[i % 3 ? 1 : 2] + o[n + i].offset);
        assert_int_equal(got.rows, i + 1);
        assert_int_equal(got.columns, o[n + i].columns);
        assert_int_equal(got.row_bytes, 2 * o[n + i].columns);
        assert_int_equal(got.tile_columns, 64);
        assert_int_equal(got.tile_rows, o[n + i].tile_rows);
        assert_int_equal(got.bf16, i % 2);
    }
    close_both(w, d, s);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(weights_arrive, reset),
        cmocka_unit_test_setup(large_weights_arrive, reset),
        cmocka_unit_test_setup(random_weights_are_drawn_there, reset),
        cmocka_unit_test_setup(codes_are_drawn_there, reset),
        cmocka_unit_test_setup(tables_are_not_drawn, reset),
        cmocka_unit_test_setup(copies_reach_their_places, reset),
        cmocka_unit_test_setup(the_ring_waits_for_its_copies, reset),
        cmocka_unit_test_setup(settle_waits_for_the_steps_data, reset),
        cmocka_unit_test_setup(descriptors_reach_their_places, reset),
        cmocka_unit_test_setup(state_is_zero_at_open, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
