/* codes.c - part of test_kernels: a KV cache of codes of 8 bits, written by append and read by attention. */
#include "kernels.h"

typedef struct Coded {
    DType t, kv;
    int H, G, E, rot, window;
    double softcap;
    int rows;  /* 1 to 8: rows of a decode step; 0: the mixed step; above 8: tokens of a prompt */
    int lanes; /* of a beam search */
    bool norm;
    float ties; /* as Case.ties */
    const char *target;
} Coded;

/* append, then (attend) attention over what it has written; both in one kernel, too, where one has them. */
static void add_coded(Suite *s, const Coded *a, bool attend)
{
    const char *type = dtype_name(a->t);
    Case c = {.target = a->target, .kv = a->kv, .lanes = a->lanes, .ties = a->ties, .sms = 3};
    char table[12] = "-", gains[40] = "", eps[20] = "", name[200];
    Ir g = {0};

    g.n =
        (size_t)snprintf(g.text, sizeof g.text,
                         "graph \"case\"\nlimits sequences=8 context=64 tokens=64 kv_block=8 kv_pages=72 logit_bias=4 "
                         "end_ids=4 beams=%d\n",
                         a->lanes);
    add(&g, "ids : [T] i32");
    const int x = input(&g, (a->H + 2 * a->G) * a->E, a->t);
    if (a->rot)
        snprintf(table, sizeof table, "%%%d",
                 add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", a->rot, a->rot / 2));
    if (a->norm) {
        const int qg = weight(&g, "g", a->E, 0, a->t), kg = weight(&g, "h", a->E, 0, a->t);

        snprintf(gains, sizeof gains, " %%%d %%%d", qg, kg);
        snprintf(eps, sizeof eps, "eps=1e-3 ");
    }
    const int q = add(&g, "append %%%d %s%s {%slayer=0 heads=%d kv_heads=%d head_dim=%d rot=%d} : [T,%d,%d] %s", x,
                      table, gains, eps, a->H, a->G, a->E, a->rot, a->H, a->E, type);
    if (attend)
        add(&g, "attend_paged %%%d {layer=0 kv_heads=%d scale=0.2 window=%d softcap=%g} : [T,%d] %s", q, a->G,
            a->window, a->softcap, a->H * a->E, type);
    if (a->rows == 0)
        mixed_step(&c);
    else if (a->rows <= 8)
        decode_step(&c, a->rows);
    else {
        set_rows(&c, 2, 0, (const int[][2]){{a->rows, a->rows}, {7, 30}});
        c.bucket = 64;
    }
    snprintf(name, sizeof name, "%s %s/%s H=%d G=%d E=%d rot=%d window=%d rows=%d lanes=%d",
             attend ? "attend" : "append", type, dtype_name(a->kv), a->H, a->G, a->E, a->rot, a->window, a->rows,
             a->lanes);
    take(s, &g, &c, name);
}

/* Rows of several chunks. */
static void add_long(Suite *s, DType t, DType kv, int sms)
{
    Ir g = {.text = "graph \"case\"\nlimits sequences=2 context=1600 tokens=64 kv_block=8 kv_pages=300 "
                    "logit_bias=4 end_ids=4\n"};
    Case c = {.kv = kv, .sms = sms, .decode = true, .bucket = 2};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = input(&g, 12 * 16, t);
    const int q = add(&g, "append %%%d - {layer=0 heads=4 kv_heads=4 head_dim=16} : [T,4,16] %s", x, dtype_name(t));
    add(&g, "attend_paged %%%d {layer=0 kv_heads=4 scale=0.2 window=0 softcap=0} : [T,64] %s", q, dtype_name(t));
    set_rows(&c, 2, 2, (const int[][2]){{1, 1500}, {1, 700}});
    take(s, &g, &c, "attend codes, several chunks");
}

/* SPREAD 1: a block for each row and head set, and a few for the later groups of chunks. SPREAD 2: blocks take ranges. */
static void add_coded_spread(Suite *s, DType t, DType kv, int E, int spread, int sms)
{
    const char *type = dtype_name(t);
    Ir g = {.text = "graph \"case\"\nlimits sequences=8 context=1600 tokens=64 kv_block=8 kv_pages=600 "
                    "logit_bias=4 end_ids=4\n"};
    Case c = {.kv = kv,
              .only = "attend_decode_codes",
              .sms = sms,
              .decode = true,
              .bucket = 8,
              .n_use = 4,
              .use = {{"SPREAD", spread}, {"CHUNK", 128}, {"WARPS", 4}, {"BLOCKS", 1}}};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = input(&g, 8 * E, t);
    const int q = add(&g, "append %%%d - {layer=0 heads=4 kv_heads=2 head_dim=%d} : [T,4,%d] %s", x, E, E, type);
    add(&g, "attend_paged %%%d {layer=0 kv_heads=2 scale=0.2 window=0 softcap=0} : [T,%d] %s", q, 4 * E, type);
    set_rows(&c, 5, 5, (const int[][2]){{1, 700}, {1, 1}, {1, 1590}, {1, 128}, {1, 33}});
    if (sms == 10) /* a whole row and head set for each block */
        set_rows(&c, 5, 5, (const int[][2]){{1, 700}, {1, 641}, {1, 650}, {1, 768}, {1, 699}});
    take(s, &g, &c, spread == 1 ? "attend codes, a block for each row and head set" : "attend codes, ranges");
}

/* More rows than a warp has lanes, in ranges. */
static void add_coded_rows(Suite *s)
{
    Ir g = {.text = "graph \"case\"\nlimits sequences=40 context=160 tokens=64 kv_block=8 kv_pages=300 "
                    "logit_bias=4 end_ids=4\n"};
    Case c = {.kv = DT_INT8,
              .only = "attend_decode_codes",
              .sms = 6,
              .decode = true,
              .bucket = 40,
              .n_use = 4,
              .use = {{"SPREAD", 2}, {"CHUNK", 128}, {"WARPS", 4}, {"BLOCKS", 1}}};
    int rows[38][2];

    g.n = strlen(g.text);
    for (int i = 0; i < 38; i++) {
        rows[i][0] = 1;
        rows[i][1] = i % 5 ? 1 + i : 125 + i;
    }
    add(&g, "ids : [T] i32");
    const int x = input(&g, 4 * 32, DT_BF16);
    const int q = add(&g, "append %%%d - {layer=0 heads=2 kv_heads=1 head_dim=32} : [T,2,32] bf16", x);
    add(&g, "attend_paged %%%d {layer=0 kv_heads=1 scale=0.2 window=0 softcap=0} : [T,64] bf16", q);
    set_rows(&c, 38, 38, rows);
    take(s, &g, &c, "attend codes, ranges of many rows");
}

void codes_append(void **state)
{
    static const Coded some[] = {
        {.t = DT_BF16, .kv = DT_INT8, .H = 4, .G = 2, .E = 48, .rot = 48},
        {.t = DT_FP16, .kv = DT_FP8, .H = 2, .G = 2, .E = 64, .rot = 32, .norm = true},
        {.t = DT_FP32, .kv = DT_INT8, .H = 2, .G = 1, .E = 144, .rot = 144, .target = "sm_80"},
        {.t = DT_FP16, .kv = DT_INT8, .H = 2, .G = 2, .E = 64, .ties = 127},
        {.t = DT_FP16, .kv = DT_FP8, .H = 2, .G = 2, .E = 128, .ties = 448},
    };
    Suite *s = open_suite("codes-append");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_coded(s, &some[i], false);
    finish(s, 27);
}

void codes_decode(void **state)
{
    static const Coded some[] = {
        {.t = DT_BF16, .kv = DT_INT8, .H = 4, .G = 1, .E = 128, .rot = 64, .window = 10, .rows = 8},
        {.t = DT_FP16, .kv = DT_FP8, .H = 6, .G = 2, .E = 80, .softcap = 30, .rows = 5},
        {.t = DT_FP32, .kv = DT_INT8, .H = 2, .G = 1, .E = 64, .rot = 32, .rows = 4},
        {.t = DT_BF16, .kv = DT_FP8, .H = 20, .G = 2, .E = 32, .rot = 32, .rows = 3, .norm = true},
        {.t = DT_FP16, .kv = DT_INT8, .H = 20, .G = 1, .E = 64, .rot = 64, .rows = 3}, /* more heads than a set has */
        {.t = DT_BF16, .kv = DT_INT8, .H = 2, .G = 2, .E = 256, .rot = 128, .rows = 6, .norm = true, .target = "sm_80"},
        {.t = DT_BF16, .kv = DT_INT8, .H = 2, .G = 2, .E = 64, .rot = 64, .rows = 5, .lanes = 4},
    };
    Suite *s = open_suite("codes-decode");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_coded(s, &some[i], true);
    add_long(s, DT_BF16, DT_INT8, 1);
    add_long(s, DT_FP16, DT_FP8, 5);
    add_coded_spread(s, DT_BF16, DT_INT8, 64, 1, 1);
    add_coded_spread(s, DT_FP16, DT_FP8, 48, 1, 1);
    add_coded_spread(s, DT_BF16, DT_INT8, 128, 2, 1);
    add_coded_spread(s, DT_FP16, DT_FP8, 48, 2, 3);
    add_coded_spread(s, DT_BF16, DT_INT8, 64, 2, 7);
    add_coded_spread(s, DT_BF16, DT_INT8, 64, 2, 10);
    add_coded_spread(s, DT_BF16, DT_INT8, 64, 2, 40);
    add_coded_rows(s);
    for (int e = 16; wide && e <= 256; e += 16)
        for (int k = 0; k < 4; k++)
            add_coded(s,
                      &(Coded){.t = types[(k + e / 16) % 3],
                               .kv = k % 2 ? DT_INT8 : DT_FP8,
                               .H = (const int[]){4, 3, 16, 1}[k],
                               .G = (const int[]){2, 1, 1, 1}[k],
                               .E = e,
                               .rot = e / 2,
                               .window = (const int[]){0, 9, 0, 17}[(k + e) % 4],
                               .softcap = k == 3 ? 15.0 : 0.0,
                               .rows = (const int[]){1, 7, 3, 5}[(k + e / 16) % 4],
                               .norm = k == 1},
                      true);
    finish(s, 29);
}

void codes_prompts(void **state)
{
    static const Coded some[] = {
        {.t = DT_BF16, .kv = DT_INT8, .H = 4, .G = 2, .E = 48, .rot = 48}, /* prompts beside single tokens */
        {.t = DT_BF16, .kv = DT_INT8, .H = 2, .G = 2, .E = 64, .rows = 40},
        {.t = DT_FP16, .kv = DT_FP8, .H = 4, .G = 1, .E = 128, .rot = 128, .window = 9, .softcap = 20, .rows = 33},
        {.t = DT_FP32, .kv = DT_FP8, .H = 3, .G = 1, .E = 80, .window = 9, .rows = 33},
        {.t = DT_FP32, .kv = DT_INT8, .H = 2, .G = 1, .E = 96},
    };
    Suite *s = open_suite("codes-prompts");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_coded(s, &some[i], true);
    for (int e = 16; wide && e <= 256; e += 16)
        add_coded(s,
                  &(Coded){.t = types[e / 16 % 3],
                           .kv = e / 16 % 2 ? DT_INT8 : DT_FP8,
                           .H = 3,
                           .G = 1,
                           .E = e,
                           .window = e / 16 % 3 ? 0 : 17,
                           .rows = 45},
                  true);
    finish(s, 31);
}
