/* levels.h - names of functions that are compiled once for each level, and the list of kernels.
 *
 * AT(name) is name_plain, name_avx2 ..., by the LEVEL that is being compiled. */
#ifndef FTX_CPU_LEVELS_H
#define FTX_CPU_LEVELS_H

#include "cpu.h"

#if defined __x86_64__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

#define AT_PASTE(name, level) name##_##level
#define AT_LEVEL(name, level) AT_PASTE(name, level)
#define AT(name) AT_LEVEL(name, LEVEL)

#define ALWAYS_INLINE static inline __attribute__((always_inline, unused))

/* Storage types, numbered as DType of runtime/base/dtype.h (kernels see no other room). */
enum { CPU_FP32 = 1, CPU_FP16 = 2, CPU_BF16 = 3, CPU_INT8 = 5, CPU_INT4 = 6, CPU_FP8 = 7 };

/* Activations, numbered as FtxAct. */
enum { CPU_NONE, CPU_RELU, CPU_GELU_ERF, CPU_GELU_TANH, CPU_QUICK_GELU, CPU_SILU, CPU_TANH, CPU_RELU2, CPU_SIGMOID };

/* Whether a cache of this type has codes and scales (cached.h). */
static inline bool cpu_is_code(int64_t type)
{
    return type == CPU_INT8 || type == CPU_FP8;
}

static inline int64_t cpu_type_bytes(int64_t type)
{
    return type == CPU_FP32 ? 4 : cpu_is_code(type) ? 1 : 2;
}

/* All kernels by name. F: at every level; D: also at those that add products of bytes (dotprod, i8mm, amx); B: also at those
 * that add products of bf16 (avx512bf16, amx); P: also at that of pairs of bf16 (avx512bf16). */
// clang-format off
#define CPU_FAMILIES(F, D, B, P) \
    F(embed) F(embed_part) F(positions) F(linear) F(rmsnorm) F(layernorm) F(act) F(glu) F(add) F(mul) F(mul_by) F(slice) F(join) F(scale) F(rope) \
    F(head_norm) F(append) F(append_norm) F(cache) F(cache_keys) F(attend) F(keys_attend) F(head_linear) F(attend_paged) F(attend_packed) F(attend_texts) \
    F(cross_append) \
    F(cross_cache) F(attend_cross) F(clamp) F(glu_clamped) F(scale_by_position) F(slice_heads) F(join_parts) \
    F(route_weights) F(recur) F(selective_scan) \
    F(previous) F(neighbours) F(convolve) F(xielu) F(select_first) F(select_last) F(select_id) F(pool_mean) F(normalize) F(row_rms) F(sample) F(sample_probs) F(sample_masked) F(beam) F(route) \
    F(expert_linear) F(expert_sum) P(expert_linear_bf16) P(expert_sum_bf16) \
    B(linear_bf16) D(linear_q) D(expert_linear_q) D(expert_sum_q) F(quantise) F(all_reduce) F(all_gather) F(gather_logits) F(rank_slice)
// clang-format on

#if defined __x86_64__
#define CPU_LEVELS(name, X) X(name, plain) X(name, avx2) X(name, avx512)
#define CPU_DOT_LEVELS(name, X) CPU_LEVELS(name, X) X(name, amx)
#define CPU_PAIR_LEVELS(name, X) CPU_LEVELS(name, X) X(name, avx512bf16)
#define CPU_BF16_LEVELS(name, X) CPU_PAIR_LEVELS(name, X) X(name, amx)
#elif defined __aarch64__
#define CPU_LEVELS(name, X) X(name, plain)
#define CPU_DOT_LEVELS(name, X) X(name, plain) X(name, dotprod) X(name, i8mm)
#define CPU_BF16_LEVELS CPU_LEVELS
#define CPU_PAIR_LEVELS CPU_LEVELS
#else
#define CPU_LEVELS(name, X) X(name, plain)
#define CPU_DOT_LEVELS CPU_LEVELS
#define CPU_BF16_LEVELS CPU_LEVELS
#define CPU_PAIR_LEVELS CPU_LEVELS
#endif

#define CPU_DECLARE_ONE(name, level) CpuKernel name##_##level;
#define CPU_DECLARE(name) CPU_LEVELS(name, CPU_DECLARE_ONE)
#define CPU_DECLARE_DOT(name) CPU_DOT_LEVELS(name, CPU_DECLARE_ONE)
#define CPU_DECLARE_BF16(name) CPU_BF16_LEVELS(name, CPU_DECLARE_ONE)
#define CPU_DECLARE_PAIR(name) CPU_PAIR_LEVELS(name, CPU_DECLARE_ONE)
CPU_FAMILIES(CPU_DECLARE, CPU_DECLARE_DOT, CPU_DECLARE_BF16, CPU_DECLARE_PAIR)

#endif
