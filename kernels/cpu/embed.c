/* embed.c - the embedding of each token, with those of its position and its type where the model has them; the token's
 * id is stored in its sequence's history, which `sample` reads (not in encode programs).
 *
 *   y[t,:] = by * w[id,:] (+ p[pos + offset,:]) (+ s[type,:])
 *   w [V,D], p [P,D], s [types,D] of any storage type, y [T,D] fp32
 *
 * embed_part: of several ranks each has the P rows from id rank * P on, and zeros for other ids.
 * positions: the second term alone, or with TYPES the third.
 *
 * Ids, positions and types come from the host, which has checked them. */
//@ kernel  embed
//@ rank    90
//@ args    w[V,D] p[P,D] s[Q,D] $token $history -> y
//@ match   y = embed(ids(), w)                             | OFFSET=0 PT=0 ST=0
//@ match   y = scale(embed(ids(), w))                      | OFFSET=0 PT=0 ST=0 BY=scale.by SCALED=1
//@ match   y = add(embed(ids(), w), types(s))              | OFFSET=0 PT=0 ST=type(s)
//@ match   y = add(embed(ids(), w), positions(p))          | OFFSET=positions.offset PT=type(p) ST=0
//@ match   y = add(scale(embed(ids(), w)), positions(p))   | OFFSET=positions.offset PT=type(p) ST=0 BY=scale.by SCALED=1
//@ match   y = add(add(embed(ids(), w), types(s)), positions(p)) | OFFSET=positions.offset PT=type(p) ST=type(s)
//@ match   y = add(add(embed(ids(), w), positions(p)), types(s)) | OFFSET=positions.offset PT=type(p) ST=type(s)
//@ consts  D: D  WT: type(w)  CONTEXT: CONTEXT  ENCODE: ENCODE
//@ moves   T * D * (4 + sizeof(w))

//@ kernel  embed_part
//@ rank    95
//@ args    w[P,D] $token $history $peers -> y
//@ match   y = embed_part(ids(), w)
//@ consts  P: P  D: D  WT: type(w)  CONTEXT: CONTEXT  ENCODE: ENCODE
//@ moves   T * D * (4 + sizeof(w))

//@ kernel  positions
//@ rank    97
//@ args    p[P,D] $token -> y
//@ match   y = positions(p) | OFFSET=positions.offset TYPES=0
//@ match   y = types(p)     | OFFSET=0 TYPES=1
//@ consts  D: D  PT: type(p)
//@ moves   T * D * (4 + sizeof(p))
#ifndef LEVEL
#define BODY "embed.c"
#include "each.h"
#else

ALWAYS_INLINE Vf AT(embed_load)(const char *row, int64_t type, int64_t i, int64_t n)
{
    const char *p = row + i * cpu_type_bytes(type);

    switch (type) {
    case CPU_FP32: return n < LANES ? vload_as_n(p, CPU_FP32, n) : vload_as(p, CPU_FP32);
    case CPU_FP16: return n < LANES ? vload_as_n(p, CPU_FP16, n) : vload_as(p, CPU_FP16);
    default: return n < LANES ? vload_as_n(p, CPU_BF16, n) : vload_as(p, CPU_BF16);
    }
}

void AT(embed)(const CpuCall *c)
{
    const char *w = c->arg[0], *p = c->arg[1], *s = c->arg[2];
    const FtxToken *token = c->arg[3];
    int32_t *history = c->arg[4];
    float *y = c->arg[5];
    const int64_t D = c->k[EMBED_D], wt = c->k[EMBED_WT], pt = c->k[EMBED_PT], st = c->k[EMBED_ST];
    const float by = c->k[EMBED_SCALED] ? (float)cpu_number(c, EMBED_BY) : 1.0f;
    int64_t first, last;

    cpu_share(c, c->T, &first, &last);
    for (int64_t t = first; t < last; t++) {
        const char *row = w + token[t].id * D * cpu_type_bytes(wt);
        const char *place = p ? p + (token[t].pos + c->k[EMBED_OFFSET]) * D * cpu_type_bytes(pt) : NULL;
        const char *kind = s ? s + token[t].slot * D * cpu_type_bytes(st) : NULL;

        if (!c->k[EMBED_ENCODE])
            history[token[t].slot * c->k[EMBED_CONTEXT] + token[t].pos] = token[t].id;
        for (int64_t i = 0; i < D; i += LANES) {
            Vf v = AT(embed_load)(row, wt, i, D - i) * by;

            if (kind)
                v += AT(embed_load)(kind, st, i, D - i);
            if (place)
                v += AT(embed_load)(place, pt, i, D - i);
            if (i + LANES <= D)
                vstore(y + t * D + i, v);
            else
                vstore_n(y + t * D + i, v, D - i);
        }
    }
}

void AT(embed_part)(const CpuCall *c)
{
    const char *w = c->arg[0];
    const FtxToken *token = c->arg[1];
    int32_t *history = c->arg[2];
    const FtxPeers *peers = c->arg[3];
    float *y = c->arg[4];
    const int64_t P = c->k[EMBED_PART_P], D = c->k[EMBED_PART_D], wt = c->k[EMBED_PART_WT];
    int64_t first, last;

    cpu_share(c, c->T, &first, &last);
    for (int64_t t = first; t < last; t++) {
        const int64_t row = token[t].id - peers->rank * P;

        if (!c->k[EMBED_PART_ENCODE])
            history[token[t].slot * c->k[EMBED_PART_CONTEXT] + token[t].pos] = token[t].id;
        if (row < 0 || row >= P) {
            memset(y + t * D, 0, (size_t)D * sizeof *y);
            continue;
        }
        for (int64_t i = 0; i < D; i += LANES) {
            const Vf v = AT(embed_load)(w + row * D * cpu_type_bytes(wt), wt, i, D - i);

            if (i + LANES <= D)
                vstore(y + t * D + i, v);
            else
                vstore_n(y + t * D + i, v, D - i);
        }
    }
}

void AT(positions)(const CpuCall *c)
{
    const char *p = c->arg[0];
    const FtxToken *token = c->arg[1];
    float *y = c->arg[2];
    const int64_t D = c->k[POSITIONS_D], pt = c->k[POSITIONS_PT];
    int64_t first, last;

    cpu_share(c, c->T, &first, &last);
    for (int64_t t = first; t < last; t++) {
        const int64_t at = c->k[POSITIONS_TYPES] ? token[t].slot : token[t].pos + c->k[POSITIONS_OFFSET];
        const char *row = p + at * D * cpu_type_bytes(pt);

        for (int64_t i = 0; i < D; i += LANES) {
            const Vf v = AT(embed_load)(row, pt, i, D - i);

            if (i + LANES <= D)
                vstore(y + t * D + i, v);
            else
                vstore_n(y + t * D + i, v, D - i);
        }
    }
}
#endif
