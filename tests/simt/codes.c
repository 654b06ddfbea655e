/* codes.c - part of test_kernels: a KV cache of codes of 8 bits, written by append and read by attention. */
#include "kernels.h"

typedef struct Coded {
    DType t, kv;
    int H, G, E, rot, window;
    double softcap;
    int rows;  /* 1 to 8: rows of a decode step; 0: the mixed step; above 8: tokens of a prompt */
    int lanes; /* of a beam search */
    bool norm;
    const char *target;
} Coded;

/* append, then (attend) attention over what it has written; both in one kernel, too, where one has them. */
static void add_coded(Suite *s, const Coded *a, bool attend)
{
    const char *type = dtype_name(a->t);
    Case c = {.target = a->target, .kv = a->kv, .lanes = a->lanes, .sms = 3};
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

void codes(void **state)
{
    static const Coded some[] = {
        {DT_BF16, DT_INT8, 4, 2, 48, 48, 0, 0, 0, 0, false, NULL},
        {DT_BF16, DT_INT8, 4, 1, 128, 64, 10, 0, 8, 0, false, NULL},
        {DT_FP16, DT_FP8, 6, 1, 80, 0, 0, 30, 5, 0, false, NULL},
        {DT_FP32, DT_INT8, 2, 1, 64, 32, 0, 0, 4, 0, false, NULL},
        {DT_BF16, DT_FP8, 20, 2, 32, 32, 0, 0, 3, 0, true, NULL},
        {DT_FP16, DT_INT8, 20, 1, 64, 64, 0, 0, 3, 0, false, NULL}, /* more heads than a set has */
        {DT_BF16, DT_INT8, 2, 2, 128, 128, 0, 0, 6, 0, true, "sm_80"},
        {DT_FP16, DT_INT8, 2, 1, 256, 0, 0, 0, 2, 0, false, NULL},
        {DT_BF16, DT_INT8, 2, 2, 64, 64, 0, 0, 5, 4, false, NULL},
        {DT_BF16, DT_FP8, 2, 1, 16, 0, 0, 0, 4, 2, false, NULL},
        {DT_BF16, DT_INT8, 2, 2, 64, 0, 0, 0, 40, 0, false, NULL},
        {DT_FP16, DT_FP8, 4, 1, 128, 128, 9, 20, 33, 0, false, NULL},
        {DT_FP32, DT_FP8, 3, 1, 80, 0, 9, 0, 33, 0, false, NULL},
        {DT_FP32, DT_INT8, 2, 1, 96, 0, 0, 0, 0, 0, false, NULL},
    };
    Suite *s = open_suite("codes");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        add_coded(s, &some[i], true);
        if (i < 7 && !some[i].window)
            add_coded(s, &some[i], false);
    }
    add_long(s, DT_BF16, DT_INT8, 1);
    add_long(s, DT_FP16, DT_FP8, 5);
    for (int e = 16; wide && e <= 256; e += 16)
        for (int k = 0; k < 4; k++)
            add_coded(s,
                      &(Coded){types[(k + e / 16) % 3], k % 2 ? DT_INT8 : DT_FP8, (const int[]){4, 3, 16, 1}[k],
                               (const int[]){2, 1, 1, 1}[k], e, e / 2, (const int[]){0, 9, 0, 17}[(k + e) % 4],
                               k == 3 ? 15.0 : 0.0, (const int[]){0, 7, 45, 3}[(k + e / 16) % 4], 0, k == 1, NULL},
                      true);
    finish(s, 29);
}
