/* cache.c - writes keys and values of heads to where attention reads them.
 *
 *   keys, values [T,G,E] fp32
 *   cache        k and v of the layer, [page][G][BLOCK][E] of type KV (cached.h): position p of slot s is row p % BLOCK of
 *                page pages[s][p / BLOCK]
 *   cache_keys   keys alone: their values are their first elements
 *   cross_cache  k and v of the source, [sources][G][SOURCE][E]: token p of the source in slot s is row p of [s] */
//@ kernel  cache
//@ rank    32
//@ args    keys[T,G,E] values[T,G,E] $token $pages $k $v
//@ match   y = cache(keys, values)
//@ consts  G: G  E: E  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ moves   T * G * E * 16
//@ kernel  cache_keys
//@ rank    33
//@ args    keys[T,G,E] $token $pages $k
//@ match   y = cache(keys, -)
//@ consts  G: G  E: E  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ moves   T * G * E * 8
//@ kernel  cross_cache
//@ rank    34
//@ args    keys[T,G,E] values[T,G,E] $rows $token $cross_k $cross_v
//@ match   y = cross_cache(keys, values)
//@ consts  G: G  E: E  SOURCE: SOURCE  KV: type($cross_k)
//@ moves   T * G * E * 16
#ifndef LEVEL
#define BODY "cache.c"
#include "each.h"
#else

#include "cached.h"

void AT(cache)(const CpuCall *c)
{
    const float *keys = c->arg[0], *values = c->arg[1];
    const FtxToken *token = c->arg[2];
    const int32_t *pages = c->arg[3];
    char *k = c->arg[4], *v = c->arg[5];
    const int64_t G = c->k[CACHE_G], E = c->k[CACHE_E], block = c->k[CACHE_BLOCK], type = c->k[CACHE_KV];
    int64_t first, last;

    cpu_share(c, c->T * G, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const FtxToken *t = &token[at / G];
        const int64_t page = pages[t->slot * c->k[CACHE_PAGES] + t->pos / block];
        const int64_t to = page * cached_page_bytes(G * block, type, E), row = at % G * block + t->pos % block;

        cached_put(keys + at * E, k + to, G * block, row, type, E);
        cached_put(values + at * E, v + to, G * block, row, type, E);
    }
}

void AT(cache_keys)(const CpuCall *c)
{
    const float *keys = c->arg[0];
    const FtxToken *token = c->arg[1];
    const int32_t *pages = c->arg[2];
    char *k = c->arg[3];
    const int64_t G = c->k[CACHE_KEYS_G], E = c->k[CACHE_KEYS_E], block = c->k[CACHE_KEYS_BLOCK];
    const int64_t type = c->k[CACHE_KEYS_KV], page_bytes = cached_page_bytes(G * block, type, E);
    int64_t first, last;

    cpu_share(c, c->T * G, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const FtxToken *t = &token[at / G];
        const int64_t page = pages[t->slot * c->k[CACHE_KEYS_PAGES] + t->pos / block];

        cached_put(keys + at * E, k + page * page_bytes, G * block, at % G * block + t->pos % block, type, E);
    }
}

void AT(cross_cache)(const CpuCall *c)
{
    const float *keys = c->arg[0], *values = c->arg[1];
    const FtxRow *rows = c->arg[2];
    const FtxToken *token = c->arg[3];
    char *k = c->arg[4], *v = c->arg[5];
    const int64_t G = c->k[CROSS_CACHE_G], E = c->k[CROSS_CACHE_E], type = c->k[CROSS_CACHE_KV];
    int64_t first, last;

    cpu_share(c, c->T * G, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const FtxToken *t = &token[at / G];
        const int64_t row = (rows[t->row].src_slot * G + at % G) * c->k[CROSS_CACHE_SOURCE] + t->pos;
        const int64_t to = row * E * cpu_type_bytes(type);

        cpu_round(keys + at * E, E, type, k + to);
        cpu_round(values + at * E, E, type, v + to);
    }
}
#endif
