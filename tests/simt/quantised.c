/* quantised.c - linear layers with quantised weights: products with their codes, and the kernel that unpacks them. */
#include "kernels.h"

#include "runtime/base/packed.h"

typedef struct Quantised {
    DType t;
    const char *codes;
    int group;
    PackedScales scales;
    int N, K, norm, bias;
    const char *end; /* "", "act", "glu", "add", "append", "head" */
    int rows;        /* as in add_linear of test_kernels.c */
    const char *target, *only;
} Quantised;

typedef struct Tuned { /* with values of up to three tuned constants */
    Quantised l;
    TunedConst use[3];
} Tuned;

static void add_tuned(Suite *s, const Quantised *l, const TunedConst use[3])
{
    const char *type = dtype_name(l->t), *rows = strcmp(l->end, "head") == 0 ? "S" : "T";
    const bool head = *rows == 'S';
    Ir g = begin();
    Case c = {.target = l->target,
              .kv = l->t,
              .only = l->only,
              .unpacked = l->only && strncmp(l->only, "unpack", 6) == 0,
              .digit_rows = l->only && strncmp(l->only, "linear_q_digits", 15) == 0,
              .digits = l->only && strcmp(l->only, "linear_q_digits_rows") == 0};
    int x = input(&g, l->K, l->t), y;
    char name[200];

    for (int i = 0; use && i < 3 && use[i].name; i++)
        c.use[c.n_use++] = use[i];
    if (head)
        x = add(&g, "select_last %%%d : [S,%d] %s", x, l->K, type);
    x = norm(&g, l->norm, x, rows, l->K, l->t);
    const int w = add(&g, "quantise %%%d {group=%d scales=%d to=\"%s\"} : [%d,%d] %s",
                      weight(&g, "w", l->N, l->K, l->t), l->group, (int)l->scales, l->codes, l->N, l->K, l->codes);
    const int b = l->bias ? weight(&g, "b", l->N, 0, l->t) : 0;

    y = b ? add(&g, "linear %%%d %%%d %%%d : [%s,%d] %s", x, w, b, rows, l->N, head ? "fp32" : type)
          : add(&g, "linear %%%d %%%d - : [%s,%d] %s", x, w, rows, l->N, head ? "fp32" : type);
    if (strcmp(l->end, "act") == 0)
        add(&g, "act %%%d {kind=\"silu\"} : [T,%d] %s", y, l->N, type);
    else if (strcmp(l->end, "glu") == 0)
        add(&g, "glu %%%d {kind=\"silu\"} : [T,%d] %s", y, l->N / 2, type);
    else if (strcmp(l->end, "add") == 0)
        add(&g, "add %%%d %%%d : [T,%d] %s", y, input(&g, l->N, l->t), l->N, type);
    else if (strcmp(l->end, "append") == 0) /* 2 heads, 1 kv head */
        add(&g, "append %%%d %%%d {layer=0 heads=2 kv_heads=1 head_dim=%d rot=%d} : [T,2,%d] %s", y,
            add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", l->N / 4 / 2 * 2, l->N / 8),
            l->N / 4, l->N / 4 / 2 * 2, l->N / 4, type);
    if (l->rows == 0)
        mixed_step(&c);
    else if (l->rows <= 8)
        decode_step(&c, l->rows);
    else {
        set_rows(&c, 1, 0, (const int[][2]){{l->rows, l->rows}});
        c.bucket = l->rows <= 16 ? 16 : l->rows <= 32 ? 32 : 64;
    }
    snprintf(name, sizeof name, "%s %s group=%d scales=%d N=%d K=%d norm=%d bias=%d %s rows=%d %s", l->codes, type,
             l->group, (int)l->scales, l->N, l->K, l->norm, l->bias, l->end, l->rows, l->target ? l->target : "");
    take(s, &g, &c, name);
}

static void add_quantised(Suite *s, const Quantised *l)
{
    add_tuned(s, l, NULL);
}

/* An LM head that leaves segments, for rows with all kinds of settings. */
static void add_head(Suite *s, const char *only, DType t, const char *codes, int N, int K, int norms, int bias,
                     int rows, int sms)
{
    const char *type = dtype_name(t);
    Ir g = begin();
    Case c = {.kv = t, .only = only, .head = true, .sms = sms};
    const int x = norm(&g, norms, add(&g, "select_last %%%d : [S,%d] %s", input(&g, K, t), K, type), "S", K, t);
    const int w =
        add(&g, "quantise %%%d {group=64 to=\"%s\"} : [%d,%d] %s", weight(&g, "w", N, K, t), codes, N, K, codes);
    const int b = bias ? weight(&g, "b", N, 0, t) : 0;
    const int y = b ? add(&g, "linear %%%d %%%d %%%d : [S,%d] fp32", x, w, b, N)
                    : add(&g, "linear %%%d %%%d - : [S,%d] fp32", x, w, N);

    add(&g, "sample %%%d : [S] i32", y);
    decode_step(&c, rows);
    for (int r = 0; r < rows; r++)
        c.params[r] = (FtxParams){.simple = r % 4 != 1,
                                  .logits = r % 4 == 2,
                                  .top_needed = r % 8 == 5   ? 128
                                                : r % 4 == 3 ? 1 + r % 9
                                                             : 1,
                                  .temperature = r % 8 == 5 ? 1.6f : 0.0f,
                                  .top_p = r % 8 == 5 ? 0.9f : 1.0f,
                                  .repetition = 1.0f};
    take(s, &g, &c, "head with segments");
}

void quantised(void **state)
{
    static const Quantised some[] = {
        {DT_BF16, "int4", 128, PACKED_FP16, 40, 256, 0, 1, "", 1, NULL, NULL},
        {DT_BF16, "int4", 32, PACKED_FP16_ZEROS, 72, 192, 1, 0, "glu", 4, NULL, NULL},
        {DT_FP16, "int4", 64, PACKED_FP16, 37, 1472, 0, 1, "act", 7, NULL, NULL},
        {DT_BF16, "int8", 128, PACKED_FP16, 96, 1280, 1, 1, "append", 3, NULL, NULL},
        {DT_BF16, "int8", 16, PACKED_FP32, 96, 64, 0, 0, "add", 2, NULL, NULL},
        {DT_FP16, "int8", 32, PACKED_FP32_MINIMA, 40, 448, 1, 0, "", 5, NULL, NULL},
        {DT_BF16, "int4", 32, PACKED_FP32_MINIMA, 56, 128, 0, 0, "", 0, NULL, NULL},
        {DT_BF16, "int8", 128, PACKED_FP16, 51, 128, 1, 0, "head", 6, NULL, NULL},
        {DT_BF16, "int4", 16, PACKED_FP16_ZEROS, 40, 320, 0, 1, "", 1, "sm_80", NULL},
        {DT_FP16, "int8", 64, PACKED_FP16_ZEROS, 96, 192, 1, 0, "append", 0, "sm_86", NULL},
        {DT_BF16, "int4", 128, PACKED_FP16, 72, 1152, 1, 1, "glu", 30, NULL, NULL},
        {DT_BF16, "int8", 64, PACKED_FP16, 40, 2176, 0, 0, "add", 40, NULL, NULL},
        {DT_BF16, "int4", 128, PACKED_FP16, 24, 8320, 0, 1, "", 7, NULL, NULL},
        {DT_BF16, "int4", 128, PACKED_FP16, 24, 8320, 1, 0, "", 2, NULL, NULL},
        {DT_FP16, "int4", 64, PACKED_FP16, 600, 128, 1, 0, "head", 5, NULL, NULL},
        {DT_BF16, "int4", 128, PACKED_FP16, 40, 256, 0, 0, "", 1, NULL, "unpack"},
        {DT_FP16, "int4", 32, PACKED_FP16_ZEROS, 37, 96, 0, 0, "", 1, NULL, "unpack"},
        {DT_BF16, "int8", 16, PACKED_FP32, 40, 80, 0, 0, "", 1, "sm_80", "unpack"},
        {DT_FP32, "int8", 64, PACKED_FP16, 17, 320, 0, 0, "", 1, NULL, "unpack"},
        {DT_FP32, "int4", 16, PACKED_FP32_MINIMA, 33, 48, 0, 0, "", 1, NULL, "unpack"},
    };
    Suite *s = open_suite("quantised");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_quantised(s, &some[i]);
    add_head(s, "linear_q_head", DT_BF16, "int8", 520, 128, 1, 0, 1, 2);
    add_head(s, "linear_q_head", DT_FP16, "int4", 1030, 192, 0, 1, 3, 3);
    add_head(s, "linear_q_head", DT_BF16, "int8", 37, 64, 1, 0, 7, 3);
    add_head(s, "linear_q_head", DT_BF16, "int4", 600, 64, 1, 1, 6, 1);
    if (wide) {
        static const char *const ends[] = {"", "act", "glu", "add", "append", "head"};
        static const int groups[] = {16, 32, 64, 128}, rows[] = {1, 2, 4, 7, 16, 40}, K[] = {128, 384, 1152, 4224};

        for (int e = 0; e < 6; e++)
            for (int k = 0; k < 4; k++)
                for (int i = 0; i < 2; i++)
                    add_quantised(s, &(Quantised){k % 2 ? DT_FP16 : DT_BF16, i ? "int8" : "int4", groups[(e + k) % 4],
                                                  (PackedScales)((e + k + i) % 4),
                                                  (const int[]){96, 160, 224, 32}[(e + k) % 4], K[k], (e + i) % 2,
                                                  k % 2, ends[e], rows[(e + k) % 6], NULL, NULL});
    }
    finish(s, 61);
}

/* Codes of fp8: every kernel that has them. */
void quantised_fp8(void **state)
{
    static const Tuned some[] = {
        {{DT_BF16, "fp8", 128, PACKED_FP16, 40, 256, 0, 1, "", 1, NULL, NULL}, {{0}}},
        {{DT_FP16, "fp8", 64, PACKED_FP32, 37, 1472, 0, 1, "act", 7, NULL, NULL}, {{0}}},
        {{DT_BF16, "fp8", 128, PACKED_FP32, 96, 1280, 1, 1, "append", 3, NULL, NULL}, {{0}}},
        {{DT_FP16, "fp8", 16, PACKED_FP32, 96, 64, 0, 0, "add", 2, NULL, NULL}, {{0}}},
        {{DT_BF16, "fp8", 32, PACKED_FP16, 72, 192, 1, 0, "glu", 4, NULL, NULL}, {{0}}},
        {{DT_BF16, "fp8", 64, PACKED_FP16, 56, 128, 0, 0, "", 0, NULL, NULL}, {{0}}},
        {{DT_FP16, "fp8", 128, PACKED_FP16, 51, 128, 1, 0, "head", 6, NULL, NULL}, {{0}}},
        {{DT_BF16, "fp8", 16, PACKED_FP16, 40, 320, 0, 1, "", 1, "sm_80", NULL}, {{0}}},
        {{DT_FP16, "fp8", 64, PACKED_FP32, 96, 192, 1, 0, "append", 0, "sm_86", NULL}, {{0}}},
        {{DT_BF16, "fp8", 128, PACKED_FP32, 72, 1152, 1, 1, "glu", 30, "sm_86", NULL}, {{0}}},
        {{DT_BF16, "fp8", 128, PACKED_FP16, 24, 8320, 1, 0, "", 2, NULL, NULL}, {{0}}},
        {{DT_BF16, "fp8", 64, PACKED_FP32, 72, 1088, 0, 1, "act", 12, NULL, "linear_q_hopper_fp8"}, {{0}}},
        {{DT_FP16, "fp8", 128, PACKED_FP16, 104, 1280, 0, 0, "", 64, NULL, "linear_q_hopper_fp8"}, {{0}}},
        {{DT_BF16, "fp8", 32, PACKED_FP16, 96, 896, 0, 1, "append", 20, NULL, "linear_q_hopper_fp8_append"}, {{0}}},
        {{DT_FP16, "fp8", 32, PACKED_FP32, 200, 704, 0, 0, "add", 16, NULL, "linear_q_hopper_fp8"},
         {{"TILE_N", 128}, {"CLUSTER_SIZE", 4}, {"SPLIT", 2}}},
        {{DT_BF16, "fp8", 128, PACKED_FP16, 600, 384, 0, 1, "glu", 30, NULL, "linear_q_hopper_fp8"},
         {{"TILE_N", 256}, {"CLUSTER_SIZE", 1}, {"SPLIT", 1}}},
        {{DT_BF16, "fp8", 128, PACKED_FP16, 40, 256, 0, 0, "", 1, NULL, "unpack_fp8"}, {{0}}},
        {{DT_FP16, "fp8", 16, PACKED_FP32, 37, 80, 0, 0, "", 1, "sm_80", "unpack_fp8"}, {{0}}},
        {{DT_FP32, "fp8", 64, PACKED_FP32, 17, 320, 0, 0, "", 1, NULL, "unpack_fp8"}, {{0}}},
    };
    Suite *s = open_suite("quantised_fp8");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_tuned(s, &some[i].l, some[i].use);
    add_head(s, "linear_q_fp8_head", DT_BF16, "fp8", 520, 128, 1, 0, 1, 2);
    add_head(s, "linear_q_fp8_head", DT_FP16, "fp8", 600, 64, 1, 1, 6, 1);
    finish(s, 64);
}

/* A graph whose steps have up to 136 tokens, and a step with so many, 75 of them or more. */
static Ir begin_fp8(Case *c, const char *target, int tokens)
{
    Ir g = {.text = "graph \"case\"\nlimits sequences=7 context=160 tokens=136 kv_block=8 kv_pages=140 logit_bias=4 "
                    "end_ids=4\n"};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    c->target = target;
    c->fp8_rows = true;
    set_rows(c, 3, 1, (const int[][2]){{1, 9}, {tokens - 8, tokens - 8}, {7, 20}});
    return g;
}

typedef struct Fp8 {
    DType t;
    PackedScales scales;
    int N, K, bias;
    const char *end;
    int tokens;
    int unturned; /* append: elements of a head that are not rotated */
    TunedConst use[2];
} Fp8;

static void add_fp8(Suite *s, const Fp8 *l)
{
    const bool append = strcmp(l->end, "append") == 0;
    const char *type = dtype_name(l->t);
    Case c = {.kv = l->t, .only = append ? "linear_fp8_append" : "linear_fp8"};
    Ir g = begin_fp8(&c, "sm_90a", l->tokens);
    char name[200];

    for (int i = 0; i < 2 && l->use[i].name; i++)
        c.use[c.n_use++] = l->use[i];

    const int x = input(&g, l->K, l->t);
    const int w = add(&g, "quantise %%%d {group=128 scales=%d to=\"fp8\"} : [%d,%d] fp8",
                      weight(&g, "w", l->N, l->K, l->t), (int)l->scales, l->N, l->K);
    const int b = l->bias ? weight(&g, "b", l->N, 0, l->t) : 0;
    const int y = b ? add(&g, "linear %%%d %%%d %%%d : [T,%d] %s", x, w, b, l->N, type)
                    : add(&g, "linear %%%d %%%d - : [T,%d] %s", x, w, l->N, type);

    if (strcmp(l->end, "act") == 0)
        add(&g, "act %%%d {kind=\"gelu_erf\"} : [T,%d] %s", y, l->N, type);
    else if (strcmp(l->end, "glu") == 0)
        add(&g, "glu %%%d {kind=\"silu\"} : [T,%d] %s", y, l->N / 2, type);
    else if (strcmp(l->end, "add") == 0)
        add(&g, "add %%%d %%%d : [T,%d] %s", y, input(&g, l->N, l->t), l->N, type);
    else if (append) { /* 2 heads, 1 kv head */
        const int E = l->N / 4, rot = E - l->unturned;

        add(&g, "append %%%d %%%d {layer=0 heads=2 kv_heads=1 head_dim=%d rot=%d} : [T,2,%d] %s", y,
            add(&g, "rope_table {rot=%d theta=10000 positions=160} : [160,%d,2] fp32", rot, rot / 2), E, rot, E, type);
    }
    snprintf(name, sizeof name, "fp8 by fp8 %s scales=%d N=%d K=%d bias=%d %s", type, (int)l->scales, l->N, l->K,
             l->bias, l->end);
    take(s, &g, &c, name);
}

/* Rows of fp8: those that a norm leaves, and those of a value that is there. */
static void add_quantise(Suite *s, DType t, int C, int normed)
{
    Case c = {.kv = t, .only = "quantise_fp8", .fp8 = true};
    Ir g = begin_fp8(&c, "sm_90a", 77);
    const int x = input(&g, C, t);

    if (normed)
        norm(&g, 1, x, "T", C, t);
    else
        add(&g, "act %%%d {kind=\"silu\"} : [T,%d] %s", x, C, dtype_name(t));
    take(s, &g, &c, normed ? "rows of fp8 after a norm" : "rows of fp8");
}

/* Products of rows and weights of fp8. */
void fp8_by_fp8(void **state)
{
    static const Fp8 some[] = {
        {DT_BF16, PACKED_FP16, 40, 256, 1, "", 131, 0, {{0}}},
        {DT_FP16, PACKED_FP32, 304, 384, 0, "glu", 75, 0, {{"BLOCK_M", 128}}},
        {DT_BF16, PACKED_FP16, 136, 128, 1, "act", 100, 0, {{"BLOCK_M", 192}}},
        {DT_BF16, PACKED_FP32, 600, 640, 0, "add", 75, 0, {{"WARPGROUPS", 3}, {"BLOCK_M", 128}}},
        {DT_FP16, PACKED_FP16, 264, 256, 1, "add", 134, 0, {{0}}},
        {DT_BF16, PACKED_FP16, 96, 1536, 1, "append", 75, 0, {{0}}},
        {DT_FP16, PACKED_FP16, 160, 128, 0, "append", 80, 4, {{"BLOCK_M", 128}}},
    };
    Suite *s = open_suite("fp8_by_fp8");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_fp8(s, &some[i]);
    add_quantise(s, DT_BF16, 128, 0);
    add_quantise(s, DT_FP16, 4224, 0);
    add_quantise(s, DT_BF16, 384, 1);
    add_quantise(s, DT_FP16, 8320, 1);
    finish(s, 65);
}

/* By bulk copies. Blocks of several tiles use each slot of their rings more than once. */
void quantised_bulk(void **state)
{
    static const Tuned some[] = {
        {{DT_BF16, "int4", 128, PACKED_FP16, 200, 2176, 1, 1, "glu", 1, NULL, "linear_q_bulk"}, {{0}}},
        {{DT_FP16, "int4", 32, PACKED_FP16_ZEROS, 330, 1088, 1, 0, "", 2, NULL, "linear_q_bulk"}, {{0}}},
        {{DT_BF16, "int4", 64, PACKED_FP16_ZEROS, 70, 8320, 0, 1, "add", 1, NULL, "linear_q_bulk"}, {{0}}},
        {{DT_FP16, "int8", 128, PACKED_FP16, 20, 16512, 0, 0, "", 1, NULL, "linear_q_bulk"}, {{0}}},
        {{DT_BF16, "int4", 128, PACKED_FP16, 100, 4480, 0, 0, "", 1, NULL, "linear_q_bulk"}, {{"CHUNK", 32}}},
        {{DT_FP16, "int4", 128, PACKED_FP16_ZEROS, 130, 8704, 1, 0, "act", 2, NULL, "linear_q_bulk"},
         {{"WARPS", 16}, {"CHUNK", 16}}},
        {{DT_BF16, "int8", 32, PACKED_FP32, 100, 320, 0, 1, "glu", 5, NULL, "linear_q_bulk"},
         {{"WARPS", 16}, {"CHUNK", 16}}},
        {{DT_BF16, "int8", 32, PACKED_FP32_MINIMA, 100, 704, 0, 0, "act", 7, NULL, "linear_q_bulk"}, {{0}}},
        {{DT_FP16, "int4", 64, PACKED_FP32, 96, 320, 1, 1, "append", 3, NULL, "linear_q_bulk_append"}, {{0}}},
        /* groups and minima of checkpoints */
        {{DT_BF16, "int4", 32, PACKED_FP32_MINIMA, 56, 512, 1, 0, "", 4, NULL, "linear_q_bulk"}, {{0}}},
        {{DT_FP16, "int4", 16, PACKED_FP16_ZEROS, 37, 1152, 0, 1, "act", 3, NULL, "linear_q_bulk"}, {{0}}},
        {{DT_BF16, "int8", 16, PACKED_FP32, 51, 576, 1, 0, "head", 4, NULL, "linear_q_bulk_head"}, {{0}}},
        /* numbers */
        {{DT_BF16, "fp8", 128, PACKED_FP16, 200, 2176, 1, 1, "glu", 1, NULL, "linear_q_bulk_fp8"}, {{0}}},
        {{DT_FP16, "fp8", 64, PACKED_FP32, 130, 8320, 0, 0, "add", 2, NULL, "linear_q_bulk_fp8"}, {{0}}},
        {{DT_FP16, "fp8", 16, PACKED_FP16, 51, 704, 1, 1, "act", 7, NULL, "linear_q_bulk_fp8"},
         {{"WARPS", 16}, {"CHUNK", 16}}},
        {{DT_BF16, "fp8", 32, PACKED_FP16, 96, 1280, 1, 0, "append", 3, NULL, "linear_q_bulk_fp8_append"}, {{0}}},
    };
    Suite *s = open_suite("quantised_bulk");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_tuned(s, &some[i].l, some[i].use);
    add_head(s, "linear_q_bulk_head", DT_BF16, "int8", 520, 128, 1, 0, 1, 2);
    add_head(s, "linear_q_bulk_head", DT_FP16, "int4", 1030, 192, 0, 1, 3, 3);
    add_head(s, "linear_q_bulk_head", DT_BF16, "int4", 600, 64, 1, 1, 6, 1);
    finish(s, 62);
}

/* Rows of digits: those that a norm leaves, and those of a value that is there. */
static void add_digits(Suite *s, DType t, int C, int normed, float most)
{
    Case c = {.kv = t, .only = "row_digits", .digits = true, .bucket = 32, .ties = most};
    Ir g = begin();
    const int x = input(&g, C, t);

    if (normed)
        norm(&g, 1, x, "T", C, t);
    else
        add(&g, "act %%%d {kind=\"silu\"} : [T,%d] %s", x, C, dtype_name(t));
    set_rows(&c, 1, 0, (const int[][2]){{23, 23}});
    take(s, &g, &c, normed ? "rows of digits after a norm" : "rows of digits");
}

/* Logits of more sequences than leave segments. */
static void add_many_logits(Suite *s)
{
    Ir g = {.text = "graph \"case\"\nlimits sequences=20 context=64 tokens=64 kv_block=8 kv_pages=160 logit_bias=4 "
                    "end_ids=4\n"};
    Case c = {.kv = DT_BF16, .only = "linear_q_hopper", .decode = true, .bucket = 32};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = add(&g, "select_last %%%d : [S,320] bf16", input(&g, 320, DT_BF16));
    const int w = add(&g, "quantise %%%d {group=64 to=\"int8\"} : [150,320] int8", weight(&g, "w", 150, 320, DT_BF16));

    add(&g, "linear %%%d %%%d - : [S,150] fp32", x, w);
    c.rows = c.decode_rows = 18;
    for (int r = 0; r < c.rows; r++) {
        c.row[r].q_len = 1;
        c.row[r].kv_len = 1 + r * 7 % 40;
    }
    take(s, &g, &c, "logits of 18 rows");
}

/* By products of integers: rows of x lie as digits. */
void quantised_digits(void **state)
{
    static const Tuned some[] = {
        {{DT_BF16, "int4", 32, PACKED_FP16_ZEROS, 72, 1536, 0, 1, "act", 12, NULL, "linear_q_digits"}, {{0}}},
        {{DT_FP16, "int8", 64, PACKED_FP16, 104, 1536, 0, 0, "", 32, NULL, "linear_q_digits"}, {{0}}},
        {{DT_BF16, "int8", 128, PACKED_FP16, 96, 1024, 0, 1, "append", 20, NULL, "linear_q_digits_append"}, {{0}}},
        {{DT_FP16, "int4", 128, PACKED_FP16_ZEROS, 37, 8704, 0, 0, "add", 23, NULL, "linear_q_digits"}, {{0}}},
        {{DT_BF16, "int4", 64, PACKED_FP32, 600, 512, 0, 1, "glu", 30, NULL, "linear_q_digits"},
         {{"TILE_N", 256}, {"CLUSTER_SIZE", 1}, {"SPLIT", 1}}},
        {{DT_BF16, "int4", 128, PACKED_FP16, 301, 1536, 0, 0, "", 32, NULL, "linear_q_digits"},
         {{"TILE_N", 96}, {"CLUSTER_SIZE", 2}, {"SPLIT", 2}}},
        {{DT_FP16, "int8", 32, PACKED_FP32, 200, 768, 0, 0, "add", 16, NULL, "linear_q_digits"},
         {{"TILE_N", 128}, {"CLUSTER_SIZE", 4}, {"SPLIT", 2}}},
        {{DT_BF16, "int4", 128, PACKED_FP16, 300, 2048, 0, 1, "glu", 16, NULL, "linear_q_digits"},
         {{"TILE_N", 256}, {"CLUSTER_SIZE", 1}, {"SPLIT", 1}}},
        {{DT_BF16, "int4", 128, PACKED_FP16, 512, 768, 0, 1, "glu", 13, NULL, "linear_q_digits_rows"}, {{0}}},
        {{DT_FP16, "int8", 64, PACKED_FP16, 256, 512, 0, 0, "glu", 32, NULL, "linear_q_digits_rows"}, {{0}}},
    };
    Suite *s = open_suite("quantised_digits");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_tuned(s, &some[i].l, some[i].use);
    add_digits(s, DT_BF16, 128, 0, 0);
    add_digits(s, DT_BF16, 256, 0, 255.0f); /* the largest number below a power of two */
    add_digits(s, DT_FP16, 4224, 0, 0);
    add_digits(s, DT_BF16, 384, 1, 0);
    add_digits(s, DT_FP16, 8320, 1, 0);
    finish(s, 66);
}

/* By wgmma with codes in registers. */
void quantised_hopper(void **state)
{
    static const Tuned some[] = {
        {{DT_BF16, "int4", 32, PACKED_FP16_ZEROS, 72, 1088, 0, 1, "act", 12, NULL, "linear_q_hopper"}, {{0}}},
        {{DT_FP16, "int8", 64, PACKED_FP16_ZEROS, 104, 1280, 0, 0, "", 64, NULL, "linear_q_hopper"}, {{0}}},
        {{DT_BF16, "int8", 128, PACKED_FP16, 96, 896, 0, 1, "append", 20, NULL, "linear_q_hopper_append"}, {{0}}},
        {{DT_FP16, "int4", 128, PACKED_FP16, 37, 8320, 0, 0, "add", 33, NULL, "linear_q_hopper"}, {{0}}},
        {{DT_BF16, "int4", 64, PACKED_FP32, 600, 320, 0, 1, "glu", 30, NULL, "linear_q_hopper"},
         {{"TILE_N", 256}, {"CLUSTER_SIZE", 1}, {"SPLIT", 1}}},
        {{DT_BF16, "int4", 128, PACKED_FP16, 301, 1408, 0, 0, "", 64, NULL, "linear_q_hopper"},
         {{"TILE_N", 96}, {"CLUSTER_SIZE", 2}, {"SPLIT", 2}}},
        {{DT_FP16, "int8", 32, PACKED_FP16, 200, 704, 0, 0, "add", 16, NULL, "linear_q_hopper"},
         {{"TILE_N", 128}, {"CLUSTER_SIZE", 4}, {"SPLIT", 2}}},
        /* int4, up to 32 rows: two groups have sums at once */
        {{DT_BF16, "int4", 128, PACKED_FP16, 300, 2048, 0, 1, "glu", 12, NULL, "linear_q_hopper"},
         {{"TILE_N", 256}, {"CLUSTER_SIZE", 1}, {"SPLIT", 1}}},
        {{DT_FP16, "int4", 64, PACKED_FP16_ZEROS, 104, 1280, 0, 0, "add", 21, NULL, "linear_q_hopper"}, {{0}}},
    };
    Suite *s = open_suite("quantised_hopper");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_tuned(s, &some[i].l, some[i].use);
    add_many_logits(s);
    finish(s, 63);
}
