/* attend_cross.c - attention of a decoder's tokens over the source of their sequence, whose keys and values cross_append
 * has written once: y = softmax(scale q k^T) v.
 *
 *   q [T, H*E] fp32     y [T, H*E] fp32
 *   $cross_k, $cross_v [sources][G][SOURCE][E]: those of row r are in slot rows[r].src_slot,
 *   rows[r].src_len tokens
 *
 * A piece of work is one kv head of one token: its H/G heads read the same keys. Consecutive tokens of a prompt could
 * share them, too, but a decoder's prompt is usually one token. */
//@ kernel  attend_cross
//@ rank    40
//@ args    q[T,N] c[T,G,E] $token $rows $cross_k $cross_v -> y
//@ match   y = attend_cross(q, c)
//@ consts  H: attend_cross.heads  G: attend_cross.kv_heads  E: attend_cross.head_dim
//@ consts  SCALE: attend_cross.scale  SOURCE: SOURCE  KV: type($cross_k)
//@ moves   T * 2 * (H + G * SOURCE) * E * 4
#ifndef LEVEL
#define BODY "attend_cross.c"
#include "each.h"
#else

#ifndef ATTEND_CROSS_ONCE
#define ATTEND_CROSS_ONCE
#endif
#include "flash.h"

/* n elements of the cache in fp32: in place, or converted into `room`. */
static const float *AT(cross_rows)(const char *from, int64_t type, int64_t n, float *room)
{
    if (type == CPU_FP32)
        return (const float *)from;
    for (int64_t i = 0; i < n; i += LANES) { /* n is a multiple of 8 */
        const int64_t left = n - i;
        Vf v;

        if (type == CPU_BF16)
            v = left < LANES ? vload_as_n(from + i * 2, CPU_BF16, left) : vload_as(from + i * 2, CPU_BF16);
        else
            v = left < LANES ? vload_as_n(from + i * 2, CPU_FP16, left) : vload_as(from + i * 2, CPU_FP16);
        if (left < LANES)
            vstore_n(room + i, v, left);
        else
            vstore(room + i, v);
    }
    return room;
}

/* Heads [h, h + n) of one token, all of kv head g. */
static void AT(cross_piece)(const CpuCall *c, int64_t t, int64_t g, int64_t h, int n)
{
    const int64_t H = c->k[ATTEND_CROSS_H], E = c->k[ATTEND_CROSS_E], type = c->k[ATTEND_CROSS_KV];
    const FtxRow *row = (const FtxRow *)c->arg[3] + ((const FtxToken *)c->arg[2])[t].row;
    const int64_t at =
        (row->src_slot * c->k[ATTEND_CROSS_G] + g) * c->k[ATTEND_CROSS_SOURCE] * E * cpu_type_bytes(type);
    const char *k = (const char *)c->arg[4] + at, *v = (const char *)c->arg[5] + at;
    const float *x = (const float *)c->arg[0] + t * H * E, *q[FLASH_QUERIES];
    const float scale = (float)cpu_number(c, ATTEND_CROSS_SCALE);
    float *y = (float *)c->arg[6] + t * H * E, keys[FLASH_KEYS * FLASH_E], values[FLASH_KEYS * FLASH_E];
    FlashState f;

    for (int i = 0; i < FLASH_QUERIES; i++)
        q[i] = x + (h + (i < n ? i : 0)) * E;
    AT(flash_begin)(&f, E);
    for (int j = 0; j < row->src_len; j += FLASH_KEYS) {
        const int count = row->src_len - j < FLASH_KEYS ? row->src_len - j : FLASH_KEYS;
        const int64_t skip = j * E * cpu_type_bytes(type);

        AT(flash_keys)
        (&f, q, scale, AT(cross_rows)(k + skip, type, count * E, keys), E,
         AT(cross_rows)(v + skip, type, count * E, values), E, count, E);
    }
    for (int i = 0; i < n; i++)
        AT(flash_end)(&f, i, E, y + (h + i) * E);
}

void AT(attend_cross)(const CpuCall *c)
{
    const int64_t G = c->k[ATTEND_CROSS_G], heads = c->k[ATTEND_CROSS_H] / G;
    int64_t first, last;

    cpu_share(c, c->T * G, &first, &last);
    for (int64_t at = first; at < last; at++)
        for (int64_t h = 0; h < heads; h += FLASH_QUERIES)
            AT(cross_piece)
    (c, at / G, at % G, at % G * heads + h, (int)(heads - h < FLASH_QUERIES ? heads - h : FLASH_QUERIES));
}
#endif
