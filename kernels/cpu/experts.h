/* experts.h - what linear layers of experts share, whatever their weights are: the rows of each expert, and the ends of sums.
 *
 * There is no include guard, since each.h includes a kernel's text once for each level. */
#ifndef EXPERT_ONCE
#define EXPERT_ONCE
typedef struct ExpertArgs {
    LinearArgs linear; /* of all experts: b [X*N]; r is the residual of expert_sum, and y [M,N] its sums */
    const int32_t *routes, *starts, *rows;
    int64_t M, X, R;
    bool sum; /* expert_sum: each expert of a row reads its own part of x */
} ExpertArgs;

/* What is read of a form lies in memory that other launches may have written; no number leads out of it. */
static inline int64_t expert_within(int64_t i, int64_t low, int64_t high)
{
    return i < low ? low : i > high ? high : i;
}

/* How many pairs row * R + i expert e has; the first is *first of a->rows. */
static inline int64_t expert_pairs(const ExpertArgs *a, int64_t e, int64_t *first)
{
    const int64_t all = a->M * a->R, end = expert_within(a->starts[e + 1], 0, all);

    *first = expert_within(a->starts[e], 0, all);
    return end > *first ? end - *first : 0;
}

static inline int64_t expert_pair(const ExpertArgs *a, int64_t i)
{
    return expert_within(a->rows[i], 0, a->M * a->R - 1);
}
#endif

/* Before the first expert: columns [n0, n1) of the sums of expert_sum. */
static void AT(expert_begin)(const ExpertArgs *a, int64_t n0, int64_t n1)
{
    const LinearArgs *const l = &a->linear;

    for (int64_t m = 0; m < a->M && a->sum; m++)
        for (int64_t n = n0; n < n1; n++)
            l->y[m * l->N + n] = l->r ? l->r[m * l->N + n] : 0.0f;
}

/* Finishes columns n0 .. n0+count of a pair of expert e, whose sums are s. */
static void AT(expert_finish)(const ExpertArgs *a, int64_t e, int64_t pair, int64_t n0, int64_t count, float *s)
{
    const float *b = a->linear.b ? a->linear.b + e * a->linear.N : NULL;

    if (a->sum) {
        const int64_t row = pair / a->R;
        float weight, *y = a->linear.y + row * a->linear.N + n0;

        memcpy(&weight, &a->routes[row * 2 * a->R + a->R + pair % a->R], sizeof weight);
        for (int64_t n = 0; n < count; n++)
            y[n] += weight * (s[n] + (b ? b[n0 + n] : 0.0f));
    } else {
        LinearArgs of = a->linear;

        of.b = b;
        AT(linear_finish)(&of, pair, n0, count, s);
    }
}
