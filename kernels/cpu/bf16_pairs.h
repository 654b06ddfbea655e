/* bf16_pairs.h - vectors of pairs of bf16, and their products by AVX512_BF16 (Cooper Lake, Zen 4, processors with AMX).
 *
 * A lane of 32 bits holds elements 2 l and 2 l + 1 of a row; bf16_dot adds both products to the lane's sum. A test puts other
 * instructions in place of the processor's (AMX_EMULATED). There is no include guard, since each.h includes a kernel's text
 * once for each level. */
#include "round.h"

/* LANES pairs of elements of x as bf16, of which `left` (at least 1) are before the end of the row. Subnormal numbers become
 * zero or stay as they are: bf16_dot and AMX take them for zero. */
ALWAYS_INLINE Vf AT(bf16_pairs)(const float *x, int64_t left)
{
    float whole[2 * LANES] = {0};

    if (left < 2 * LANES) {
        memcpy(whole, x, (size_t)left * sizeof *x);
        x = whole;
    }
#if LANES == 16 && !defined AMX_EMULATED
    Vf pairs; /* _mm512_cvtne2ps_pbh, for which a compiler would ask for a target that not all AVX-512 processors are */

    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(pairs) : "v"(vload(x + LANES)), "v"(vload(x)));
    return pairs;
#else
    uint16_t pairs[2 * LANES];

    cpu_round(x, 2 * LANES, CPU_BF16, pairs);
    return vload_as(pairs, CPU_FP32);
#endif
}

/* LANES pairs of elements of w, of which `left` (at least 1) are before the end of the row. */
ALWAYS_INLINE Vf AT(bf16_pairs_of_w)(const char *w, int64_t left)
{
    uint16_t whole[2 * LANES] = {0};

    if (left < 2 * LANES) {
        memcpy(whole, w, (size_t)left * sizeof *whole);
        return vload_as(whole, CPU_FP32);
    }
    return vload_as(w, CPU_FP32);
}

/* sum[l] + x[2 l + 1] w[2 l + 1], rounded to fp32, and that + x[2 l] w[2 l], likewise; subnormal numbers count as zero. So say
 * Intel's manual and, in 256 million random sums, Zen 4. */
ALWAYS_INLINE Vf AT(bf16_dot)(Vf sum, Vf x, Vf w)
{
#if LANES == 16 && !defined AMX_EMULATED
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
#elif defined AMX_EMULATED
    emulate_bf16_dot(&sum, &x, &w, LANES);
#else
    (void)x, (void)w; /* there is no such form at this level */
#endif
    return sum;
}
