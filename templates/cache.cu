// cache.cu - contracts and instance of cache.cuh: keys and values that no append writes
//@ kernel  cache
//@ variant plain  | CROSS=0
//@ variant source | CROSS=1
//@ plain:  rank    36
//@ source: rank    38
//@ plain:  args    keys[T,G,E] values[T,G,E]:type(keys) $step $rows $token $pages $k $v
//@ source: args    keys[T,G,E] values[T,G,E]:type(keys) $step $rows $token $pages $cross_k $cross_v
//@ plain:  match   y = cache(keys, values)
//@ source: match   y = cross_cache(keys, values)
//@ plain:  consts  KV: type($k)
//@ source: consts  KV: type($cross_k)
//@ consts  X: type(keys)  G: G  E: E  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  LENGTH: SOURCE
//@ consts  THREADS: min(256, round_up(ceil_div(2 * G * E, 16 / sizeof(keys)), 32))
//@ fits    sizeof(KV) > 1
//@ launch  grid T   block THREADS
//@ moves   2 * (sizeof(keys) + sizeof(KV)) * T * G * E
//@ overlap yes
#include "cache.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int G = @G@, E = @E@, BLOCK = @BLOCK@, PAGES = @PAGES@, SOURCE = @CROSS@ ? @LENGTH@ : 0, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const CacheArgs a) { cache<Config>(a); }
