/* recurrences.c - linear recurrences: a state for each sequence and head, which every token changes. */
#include "kernels.h"

typedef struct Recurrence {
    DType t;
    int G, H, K, V;
    bool delta;        /* with beta */
    bool rates;        /* a rate for each key */
    const char *attrs; /* of the op, but its layer */
    int rows;          /* of a decode step; 0: prompts, chunks of prompts and single tokens */
    int before; /* columns before v, k, q and the two gates in one value, of which they are slices; -1: they are not */
    const char *target;
} Recurrence;

/* Columns [*from, *from + n) of x, or an input of its own where x is 0. */
static int columns(Ir *g, int x, int *from, int n, DType t)
{
    const int at = *from;

    *from += n;
    return x ? add(g, "slice %%%d {count=%d from=%d} : [T,%d] %s", x, n, at, n, dtype_name(t)) : input(g, n, t);
}

static void add_recurrence(Suite *s, const Recurrence *r)
{
    static const int mixed[][2] = {{1, 9}, {1, 1}, {40, 40}, {3, 20}, {1, 5}, {5, 5}};
    const char *t = dtype_name(r->t);
    Ir g = begin();
    Case c = {.target = r->target};
    char beta[16] = "-", name[200];
    int from = r->before;
    const int all = from < 0 ? 0 : input(&g, from + r->H * r->V + 2 * r->G * r->K + 2 * r->H, r->t);
    const int v = add(&g, "split_heads %%%d {heads=%d} : [T,%d,%d] %s", columns(&g, all, &from, r->H * r->V, r->t),
                      r->H, r->H, r->V, t);
    const int k = add(&g, "split_heads %%%d {heads=%d} : [T,%d,%d] %s", columns(&g, all, &from, r->G * r->K, r->t),
                      r->G, r->G, r->K, t);
    const int q = add(&g, "split_heads %%%d {heads=%d} : [T,%d,%d] %s", columns(&g, all, &from, r->G * r->K, r->t),
                      r->G, r->G, r->K, t);
    const int a = columns(&g, all, &from, r->H, r->t);
    const int rate = weight(&g, "r", r->H, r->rates ? r->K : 0, DT_FP32);
    const int shift = weight(&g, "d", r->H, 0, DT_FP32);

    if (r->delta)
        snprintf(beta, sizeof beta, "%%%d", columns(&g, all, &from, r->H, r->t));
    add(&g, "recur %%%d %%%d %%%d %%%d %%%d %%%d %s {layer=0%s} : [T,%d,%d] %s", q, k, v, a, rate, shift, beta,
        r->attrs, r->H, r->V, t);
    if (r->rows)
        decode_step(&c, r->rows);
    else
        set_rows(&c, (int)LEN(mixed), 2, mixed);
    snprintf(name, sizeof name, "recur %s G=%d H=%d K=%d V=%d%s%s rows=%d before=%d", t, r->G, r->H, r->K, r->V,
             r->delta   ? " delta"
             : r->rates ? " rates"
                        : "",
             r->attrs, r->rows, r->before);
    take(s, &g, &c, name);
}

/* Heads that share keys and heads that do not, columns that no block fills, decays within limits. */
void recurrences(void **state)
{
    static const Recurrence some[] = {
        {DT_FP32, 1, 1, 16, 16, false, false, "", 0, -1, "sm_90a"},
        {DT_FP32, 2, 4, 24, 40, true, false, " unit=1e-6 scale=0.2", 0, -1, "sm_80"},
        {DT_BF16, 2, 6, 128, 24, true, false, " unit=1e-6 scale=0.0883883", 0, 8, "sm_90a"},
        {DT_BF16, 1, 3, 64, 16, false, false, " low=0.3 high=0.9", 0, 3, "sm_80"},
        {DT_FP16, 1, 2, 256, 16, true, false, " unit=1e-6", 0, -1, "sm_90a"},
        {DT_FP16, 3, 3, 40, 32, false, false, " high=0.5 scale=0.5", 7, 16, "sm_90a"},
        {DT_BF16, 1, 2, 16, 16, true, false, " scale=0.3", 5, -1, "sm_90a"},
        {DT_FP32, 1, 21, 16, 1, false, true, "", 0, -1, "sm_80"},
        {DT_BF16, 1, 16, 24, 1, false, true, " low=0.3 high=0.9", 0, 5, "sm_90a"},
        {DT_FP16, 1, 5, 256, 1, false, true, " scale=0.3", 0, -1, "sm_90a"},
        {DT_BF16, 1, 35, 16, 1, false, true, " high=0.5", 7, 64, "sm_80"},
    };
    Suite *s = open_suite("recurrences");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_recurrence(s, &some[i]);
    for (int i = 0; i < 3 && wide; i++)
        for (int delta = 0; delta < 2; delta++)
            add_recurrence(
                s, &(Recurrence){types[i], 2, 4, 128, 128, delta != 0, false, " unit=1e-6", 0, i ? 8 : -1, "sm_90a"});
    finish(s, 63);
}
