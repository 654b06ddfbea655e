/* cross_append.c - writes keys and values of a source to where the decoder layer's attend_cross reads them.
 *
 *   x [T, 2G * E] fp32: keys, then values, of each token of the sources
 *   $cross_k, $cross_v [sources][G][SOURCE][E]: token p of the source of slot s is row p */
//@ kernel  cross_append
//@ rank    80
//@ args    x[T,N] $rows $token $cross_k $cross_v -> y
//@ match   y = cross_append(x)
//@ consts  G: cross_append.kv_heads  E: cross_append.head_dim  SOURCE: SOURCE  KV: type($cross_k)
//@ moves   T * 2 * G * E * 8
#ifndef LEVEL
#define BODY "cross_append.c"
#include "each.h"
#else

#ifndef CROSS_APPEND_ONCE
#define CROSS_APPEND_ONCE
#include "round.h"
#endif

void AT(cross_append)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    const FtxToken *token = c->arg[2];
    const int64_t G = c->k[CROSS_APPEND_G], E = c->k[CROSS_APPEND_E];
    int64_t first, last;

    cpu_share(c, c->T * 2 * G, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t t = at / (2 * G), g = at % G;
        char *to = c->arg[at % (2 * G) < G ? 3 : 4];

        cpu_round(x + at * E, E, c->k[CROSS_APPEND_KV],
                  to + ((rows[token[t].row].src_slot * G + g) * c->k[CROSS_APPEND_SOURCE] + token[t].pos) * E *
                           cpu_type_bytes(c->k[CROSS_APPEND_KV]));
    }
}
#endif
