/* gather.c - gather_logits: the logits of all ranks, as far as `sample` needs them. kernels/device/gather.h says which.
 *
 *   x [S,C]        this rank's logits
 *   y [S,COLUMNS]  those that were sent, and FtxGather.rest in place of the others; rows that emit no token are not written
 *   z [S,C]        scratch: logits that no processor changes; -inf in place of the others */
//@ kernel  gather_logits
//@ rank    1085
//@ args    x[S,C] $rows $params $ends $bias $bad_words $history $peers $exchange -> y[S,N]
//@ match   y = gather_logits(x)
//@ consts  C: C  COLUMNS: N  CONTEXT: CONTEXT  ENDS: END_IDS  BIAS: LOGIT_BIAS  WORDS: BAD_WORDS
//@ scratch z 4 * S_MAX * C
//@ moves   12 * S * N
#ifndef LEVEL
#define BODY "gather.c"
#include "each.h"
#else

#include "../device/gather.h"
#include "exchange.h"
#include "tail.h"

#ifndef GATHER_ONCE
#define GATHER_ONCE
/* A row of this rank, and what it sends of it. */
typedef struct GatherRow {
    const float *x;
    float *z;
    const FtxRow *row;
    const FtxParams *p;
    const int32_t *ends, *history, *bad_words;
    const FtxBias *bias;
    int64_t first, C; /* id of column 0; columns that are no padding */
    FtxGather *head;
    FtxGathered *list; /* has room for `most` */
    int64_t most;
} GatherRow;

/* Whether a row takes part: FtxRow.emit is 0 for beams, too, whose artifacts have no gather_logits. */
static inline bool gather_emits(const FtxRow *row, const FtxParams *p)
{
    return p->logits || (row->emit && !row->done);
}

/* n: the bound is the n-th largest of the logits that no processor changes. 0: there is no bound, all are sent. */
static inline int gather_count(const FtxParams *p)
{
    if (p->logits)
        return 0;
    if (p->temperature == 0.0f || (p->min_p > 0.0f && p->top_p >= 1.0f))
        return 1;
    return p->top_k > 0 && p->top_k <= FTX_GATHER_MOST ? p->top_k : 0;
}

/* How far below that logit the bound lies: min_p, and a little more for what rounding does. */
static inline float gather_reach(const FtxParams *p)
{
    return p->temperature == 0.0f || p->min_p <= 0.0f || p->top_p < 1.0f
               ? 0.0f
               : __builtin_logf(0.999f * p->min_p) * p->temperature;
}

/* A processor may change the logit of an id: it is sent. False: the list is full. */
static inline bool gather_take(const GatherRow *r, int32_t id)
{
    const int64_t at = id - r->first;

    if (at < 0 || at >= r->C || r->z[at] == -__builtin_inff())
        return true;
    if (r->head->count == r->most)
        return false;
    r->z[at] = -__builtin_inff();
    r->list[r->head->count++] = (FtxGathered){(int)at, r->x[at]};
    return true;
}

static bool gather_changed(const GatherRow *r)
{
    const FtxParams *p = r->p;
    const int64_t length = r->row->kv_len;
    bool fits = true;

    for (int64_t i = 0; i < p->n_bias; i++)
        fits = fits && gather_take(r, r->bias[i].id);
    for (int64_t i = 0; i < p->n_words; i++)
        if (r->bad_words[i] < 0)
            fits = fits && gather_take(r, ~r->bad_words[i]);
    if (length < p->min_length)
        for (int64_t i = 0; i < p->n_ends; i++)
            fits = fits && gather_take(r, r->ends[i]);
    if (p->repetition != 1.0f || p->presence != 0.0f || p->frequency != 0.0f || p->ngram > 0)
        for (int64_t i = 0; i < length && fits; i++)
            fits = gather_take(r, r->history[i]);
    return fits;
}

/* Puts what a rank sent into a row; another process may have sent anything. False: it is no list of `width` columns. */
static inline bool gather_put(const FtxGather *head, int64_t most, int64_t width, float *to)
{
    const FtxGathered *list = (const FtxGathered *)(const void *)(head + 1);
    const int64_t count = head->count;

    if (count > most)
        return false;
    for (int64_t i = 0; i < count; i++) {
        const int64_t column = list[i].column;

        if (column < 0 || column >= width)
            return false;
        to[column] = list[i].value;
    }
    return true;
}
#endif

/* The n-th largest of z, n <= FTX_GATHER_MOST; -inf if there are fewer. */
static float AT(gather_bound)(const float *z, int64_t C, int n)
{
    float best[FTX_GATHER_MOST]; /* the largest so far, falling */

    for (int i = 0; i < n; i++)
        best[i] = -__builtin_inff();
    for (int64_t base = 0; base < C; base += LANES) {
        const int64_t end = base + LANES <= C ? base + LANES : C;

        if (end == base + LANES && !AT(sample_any)(vload(z + base), best[n - 1]))
            continue;
        for (int64_t i = base; i < end; i++) {
            int at = n - 1;

            if (!(z[i] > best[n - 1]))
                continue;
            for (; at > 0 && best[at - 1] < z[i]; at--)
                best[at] = best[at - 1];
            best[at] = z[i];
        }
    }
    return best[n - 1];
}

/* Sends what is needed of a row; false: all of it is. */
static bool AT(gather_some)(const GatherRow *r)
{
    const int n = gather_count(r->p);
    float bound, top = -__builtin_inff();
    double sum = 0.0;
    int64_t left = 0;

    for (int64_t i = 0; i < r->C; i++)
        if (!__builtin_isfinite(r->x[i]))
            return false;
    if (n == 0 || r->C == 0)
        return n > 0;
    memcpy(r->z, r->x, (size_t)r->C * sizeof *r->z);
    if (!gather_changed(r))
        return false;
    bound = AT(gather_bound)(r->z, r->C, n) + gather_reach(r->p);
    for (int64_t i = 0; i < r->C; i++) {
        if (r->z[i] == -__builtin_inff())
            continue;
        if (r->z[i] >= bound) {
            if (r->head->count == r->most)
                return false;
            r->list[r->head->count++] = (FtxGathered){(int)i, r->x[i]};
            r->z[i] = -__builtin_inff();
            continue;
        }
        left++;
        top = r->z[i] > top ? r->z[i] : top;
    }
    for (int64_t base = 0; base < r->C && left; base += 1024) { /* exp(-inf) is 0 */
        const int64_t end = base + 1024 < r->C ? base + 1024 : r->C;
        Vf part = {0};
        int64_t i = base;

        for (; i + LANES <= end; i += LANES)
            part += vexp(vload(r->z + i) - top);
        sum += vsum(part);
        for (; i < end; i++)
            sum += vexp(vset(r->z[i] - top))[0];
    }
    r->head->rest = __builtin_fminf(top, (float)(top + __builtin_log(sum / (double)left)));
    return true;
}

void AT(gather_logits)(const CpuCall *c)
{
    const int64_t C = c->k[GATHER_LOGITS_C], columns = c->k[GATHER_LOGITS_COLUMNS], words = GATHER_WORDS(C);
    const FtxRow *rows = c->arg[1];
    const FtxParams *params = c->arg[2];
    const FtxPeers *p = c->arg[7];
    FtxExchange *own = c->arg[8];
    float *y = c->arg[9], *part;
    int64_t first, last;
    unsigned n;

    if (!exchange_begin(own, &n))
        return;
    part = exchange_part(p, own, n, p->rank);
    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++) {
        FtxGather *head = (FtxGather *)(void *)(part + s * words);
        const int64_t left = columns - p->rank * C;
        const GatherRow r = {
            .x = (const float *)c->arg[0] + s * C,
            .z = (float *)c->arg[10] + s * C,
            .row = rows + s,
            .p = params + s,
            .ends = (const int32_t *)c->arg[3] + s * c->k[GATHER_LOGITS_ENDS],
            .bias = (const FtxBias *)c->arg[4] + s * c->k[GATHER_LOGITS_BIAS],
            .bad_words = (const int32_t *)c->arg[5] + rows[s].slot * c->k[GATHER_LOGITS_WORDS],
            .history = (const int32_t *)c->arg[6] + rows[s].slot * c->k[GATHER_LOGITS_CONTEXT],
            .first = p->rank * C,
            .C = left < C ? left > 0 ? left : 0 : C,
            .head = head,
            .list = (FtxGathered *)(void *)(head + 1),
            .most = C / 2,
        };

        if (!gather_emits(r.row, r.p))
            continue;
        *head = (FtxGather){0};
        if (AT(gather_some)(&r))
            continue;
        head->count = -1;
        memcpy(head + 1, r.x, (size_t)C * sizeof *r.x);
    }
    if (!exchange_end(c, p, own, n, (size_t)(c->S * words) * sizeof *part))
        return;
    for (int64_t s = 0; s < c->S; s++)
        for (int64_t from = 0; from < columns && gather_emits(rows + s, params + s); from += C) {
            const float *sent = exchange_part(p, own, n, (int)(from / C)) + s * words;
            const FtxGather *head = (const FtxGather *)(const void *)sent;
            const int64_t width = columns - from < C ? columns - from : C;
            float *to = y + s * columns + from;

            if (head->count < 0) {
                memcpy(to, sent + sizeof *head / sizeof *sent, (size_t)width * sizeof *to);
                continue;
            }
            for (int64_t i = 0; i < width; i++)
                to[i] = head->rest;
            if (!gather_put(head, C / 2, width, to)) {
                __atomic_store_n(&own->stop, 1, __ATOMIC_RELAXED);
                return;
            }
        }
}
#endif
