/* amx_tiles.h - the tile instructions of AMX, for amx.h and amx_bf16.h.
 *
 * The processor has eight registers of up to 16 rows of 64 bytes. A test puts other instructions in place of the
 * processor's (AMX_EMULATED). */
#ifndef FTX_CPU_AMX_TILES_H
#define FTX_CPU_AMX_TILES_H

#include <stdint.h>

enum { AMX_ROWS = 16 }; /* of a register */

typedef struct AmxShape { /* of the registers; what ldtilecfg reads */
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} AmxShape;

#ifndef AMX_EMULATED
#define amx_shape(shape) __asm__ volatile("ldtilecfg %0" : : "m"(*(shape)))
#define amx_release() __asm__ volatile("tilerelease")
#define amx_zero(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define amx_load(tile, p, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define amx_store(tile, p, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
/* sums[m][n] += x[m][4 k + i] w[k][4 n + i], of signed bytes */
#define amx_dot(sums, x, w) __asm__ volatile("tdpbssd %%tmm" #w ", %%tmm" #x ", %%tmm" #sums : :)
/* sums[n][m] += w[n][2 k + i] x[k][2 m + i], of bf16: the products with i = 0 are summed from k = 0 on, those with i = 1
 * likewise, both sums are added and then added to sums[n][m], in fp32; subnormal numbers count as zero */
#define amx_dot_bf16(sums, w, x) __asm__ volatile("tdpbf16ps %%tmm" #x ", %%tmm" #w ", %%tmm" #sums : :)
#endif

#endif
