/* world.h - a plan by hand, three programs of four kernels, and the CUDA device over it on the fake driver. */
#ifndef FTX_TEST_WORLD_H
#define FTX_TEST_WORLD_H

#include "fake_driver.h"
#include "tables.h"

enum { EMBED, LINEAR, MATMUL, SAMPLE, RANDOM, KERNELS };
enum { STEP_16, STEP_ANY, DECODE_4, PROGRAMS };
enum { TOKENS = 200, SEQUENCES = 4, N = 128, K = 64, WEIGHT_BYTES = 20480, TABLE_BYTES = 512 };

static const char strings[] = "\0embed__x\0linear__x\0matmul\0sample__x\0embedding\0layer 0: "
                              "up\0head\0%12\0random\0random_codes\0all_reduce\0all_gather\0"
                              "gather_logits\0linear_sum\0mask\0";
enum {
    STR_EMBED = 1,
    STR_LINEAR = 10,
    STR_MATMUL = 20,
    STR_SAMPLE = 27,
    STR_LABEL0 = 37,
    STR_LABEL1 = 47,
    STR_LABEL2 = 59,
    STR_VALUE = 64,
    STR_RANDOM = 68,
    STR_RANDOM_CODES = 75,
    STR_ALL_REDUCE = 88,
    STR_ALL_GATHER = 99,
    STR_GATHER_LOGITS = 110,
    STR_LINEAR_SUM = 124,
    STR_MASK = 135
};

typedef struct World {
    Tables t;
    char code[4][64];
    char weight_data[WEIGHT_BYTES];
    char log[4000];
} World;

static inline void embed(Tables *t)
{
    launch(t, EMBED, STR_LABEL0);
    operand(t, FTX_SPACE_IO, 512);
    operand(t, FTX_SPACE_WEIGHTS, 0);
    operand(t, FTX_SPACE_WORK, 0);
}

static inline void linear(Tables *t, bool by_library)
{
    launch(t, by_library ? MATMUL : LINEAR, STR_LABEL1);
    operand(t, FTX_SPACE_WORK, 0);
    operand(t, FTX_SPACE_WEIGHTS, 256);
    if (by_library) {
        operand(t, FTX_SPACE_WEIGHTS, 16384);
        operand(t, FTX_SPACE_WORK, 65536);
    } else {
        operand(t, FTX_SPACE_NULL, 0);
    }
    operand(t, FTX_SPACE_WORK, 131072);
}

static inline void sample(Tables *t)
{
    launch(t, SAMPLE, STR_LABEL2);
    operand(t, FTX_SPACE_STATE, 1024);
    operand(t, FTX_SPACE_OUT, 0);
}

static inline void make_kernels(World *w)
{
    static const struct {
        uint32_t entry, kind, flags, operands, block, smem;
    } rows[KERNELS] = {
        {STR_EMBED, FTX_KERNEL_CUDA, FTX_KERNEL_OVERLAP, 3, 64, 0},
        {STR_LINEAR, FTX_KERNEL_CUDA, FTX_KERNEL_OVERLAP, 4, 256, 100000},
        {STR_MATMUL, FTX_KERNEL_MATMUL, 0, 5, 0, 0},
        {STR_SAMPLE, FTX_KERNEL_CUDA, FTX_KERNEL_OVERLAP, 2, 1024, 0},
        {STR_RANDOM, FTX_KERNEL_CUDA, 0, 2, 256, 0}, /* in no program */
    };
    static const int64_t consts[FTX_MM_CONSTS] = {0, N, K, DT_BF16, DT_BF16, DT_BF16, 0};
    static const char *const code[4] = {"embed__x 3", "linear__x 4", "sample__x 2", "random 2"};

    for (int i = 0; i < KERNELS; i++) {
        const int image = i > MATMUL ? i - 1 : i;

        w->t.kernels[i] = (FtxKernel){.kind = rows[i].kind,
                                      .family = rows[i].entry,
                                      .entry = rows[i].entry,
                                      .flags = rows[i].flags,
                                      .n_operands = rows[i].operands,
                                      .block = rows[i].block,
                                      .smem = rows[i].smem};
        if (rows[i].kind == FTX_KERNEL_CUDA) {
            w->t.kernels[i].code_at = (uint32_t)image * 64;
            w->t.kernels[i].code_bytes = 32;
        }
    }
    for (int i = 0; i < 4; i++)
        strcpy(w->code[i], code[i]);
    w->t.kernels[MATMUL].n_consts = FTX_MM_CONSTS;
    w->t.kernels[MATMUL].matmul = 1;
    memcpy(w->t.consts, consts, sizeof consts);
    grid(&w->t, EMBED, 0, "T");
    grid(&w->t, LINEAR, 0, "min(SMS, 16)");
    grid(&w->t, LINEAR, 1, "ceil_div(T, 8)");
    grid(&w->t, SAMPLE, 0, "S");
    grid(&w->t, RANDOM, 0, "SMS * 8");
}

static inline void make_programs(Tables *t)
{
    for (int p = 0; p < PROGRAMS; p++) {
        t->programs[p] = (FtxProgram){.kind = p == DECODE_4 ? FTX_PROG_DECODE : FTX_PROG_STEP,
                                      .bucket = p == STEP_16    ? 16
                                                : p == DECODE_4 ? 4
                                                                : 0,
                                      .first_launch = t->n_launches,
                                      .n_launches = 3};
        embed(t);
        linear(t, p == STEP_ANY);
        sample(t);
    }
}

static inline World *world(void)
{
    World *w = calloc(1, sizeof *w);

    w->t.facts = (FtxFacts){
        .sequences = SEQUENCES, .tokens = TOKENS, .kv_block = 16, .kv_pages = 8, .weight_bytes = WEIGHT_BYTES};
    w->t.head.target = 901;
    w->t.head.space_bytes[FTX_SPACE_STATE] = 8192;
    w->t.head.space_bytes[FTX_SPACE_IO] = 4096;
    w->t.head.space_bytes[FTX_SPACE_WORK] = 200000;
    w->t.head.space_bytes[FTX_SPACE_OUT] = 512;
    w->t.head.space_bytes[FTX_SPACE_PAGES] = 256;
    w->t.head.named[FTX_NAMED_pages] = 2048;
    w->t.head.named_bytes[FTX_NAMED_pages] = 4096;
    w->t.head.named_bytes[FTX_NAMED_out] = 512;
    make_kernels(w);
    make_programs(&w->t);
    w->t.weights[0] =
        (FtxWeight){.type = DT_BF16, .rank = 2, .dim = {N, K}, .kind = FTX_WEIGHT_MATRIX, .bytes = 2 * N * K};
    w->t.weights[1] =
        (FtxWeight){.type = DT_FP32, .rank = 1, .dim = {K}, .kind = FTX_WEIGHT_GAIN, .offset = 16640, .bytes = 4 * K};
    w->t.weights[2] = (FtxWeight){.type = DT_FP32,
                                  .rank = 1,
                                  .dim = {TABLE_BYTES / 4},
                                  .kind = FTX_WEIGHT_TABLE,
                                  .offset = 17408,
                                  .bytes = TABLE_BYTES};
    for (int i = 0; i < WEIGHT_BYTES; i++)
        w->weight_data[i] = (char)(i * 7 + i / 256);
    join_tables(&w->t, KERNELS, PROGRAMS, w->code, sizeof w->code, strings, sizeof strings);
    w->t.artifact.weight_data = w->weight_data;
    return w;
}

static const FtxOptions one_thread = {.size = sizeof(FtxOptions), .threads = 1};

static inline void open_both(World *w, const FtxOptions *o, Device **d, Session **s)
{
    FtxError err = {0};
    uint32_t pages;

    must(device_cuda.open(&w->t.artifact, &w->t.plan, o, d, &err), &err);
    must(device_cuda.session_open(*d, 0, s, &pages, &err), &err);
    assert_int_equal(fake.pushed, 0);
}

static inline void close_both(World *w, Device *d, Session *s)
{
    device_cuda.session_close(s);
    device_cuda.close(d);
    assert_int_equal(fake_open_things(), 0);
    free(w);
}

static inline const FakeLaunch *last_runs(size_t n)
{
    assert_true(fake.n_run >= n);
    return &fake.run[fake.n_run - n];
}

static inline int reset(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

#endif
