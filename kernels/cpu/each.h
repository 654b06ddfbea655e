/* each.h - compiles BODY, the file that includes this one, once for each level of the processor.
 *
 *     #ifndef LEVEL
 *     #define BODY "rmsnorm.c"
 *     #include "each.h"           // includes BODY again with LEVEL, LANES and a compiler target
 *     #else
 *     void AT(rmsnorm)(const CpuCall *c) { ... Vf ... }      // rmsnorm_plain, rmsnorm_avx2, ...
 *     #endif
 *
 * So the build needs no -march flag; cpu.c chooses the level at run time. `plain` is the compiler's default: SSE2 on
 * x86-64, NEON on AArch64. There is no include guard, since every kernel includes this file.
 *
 * AArch64 has two levels more for a BODY that defines BODY_DOTS, since it multiplies vectors of bytes: `dotprod` (sdot; all
 * since Armv8.4, and some before) and `i8mm` (usdot, usmmla; since Armv8.6). There DOTS is 1 and 2, else 0. */
#include "levels.h"
#include "consts.h"

#define LEVEL plain
#define DOTS 0
#define LANES 4
#define TILE_ROWS 2
#define PANEL_ROWS 4
#define PANEL_VECS 2
#include "vec.h"
#include BODY
#undef LEVEL
#undef LANES
#undef TILE_ROWS
#undef PANEL_ROWS
#undef PANEL_VECS

#if defined __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define LEVEL avx2
#define LANES 8
#define TILE_ROWS 2
#define PANEL_ROWS 4
#define PANEL_VECS 3
#include "vec.h"
#include BODY
#undef LEVEL
#undef LANES
#undef TILE_ROWS
#undef PANEL_ROWS
#undef PANEL_VECS
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
#endif
#define LEVEL avx512
#define LANES 16
#define TILE_ROWS 6
#define PANEL_ROWS 6
#define PANEL_VECS 4
#include "vec.h"
#include BODY
#undef LEVEL
#undef LANES
#undef TILE_ROWS
#undef PANEL_ROWS
#undef PANEL_VECS
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#elif defined __aarch64__ && defined BODY_DOTS
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#undef DOTS
#define LEVEL dotprod
#define DOTS 1
#define LANES 4
#define TILE_ROWS 4
#include "vec.h"
#include BODY
#undef LEVEL
#undef DOTS
#undef LANES
#undef TILE_ROWS
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#endif
#define LEVEL i8mm
#define DOTS 2
#define LANES 4
#define TILE_ROWS 4
#include "vec.h"
#include BODY
#undef LEVEL
#undef LANES
#undef TILE_ROWS
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#undef DOTS
#undef BODY
#undef BODY_DOTS
