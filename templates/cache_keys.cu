// cache_keys.cu - contract and instance of cache_keys.cuh: keys whose first elements are their values
//@ kernel  cache_keys
//@ rank    37
//@ args    keys[T,G,E] $step $token $pages $k
//@ match   y = cache(keys, -)
//@ consts  X: type(keys)  KV: type($k)  G: G  E: E  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)
//@ consts  THREADS: min(256, round_up(ceil_div(G * E, 16 / sizeof(keys)), 32))
//@ fits    sizeof(KV) > 1
//@ launch  grid T   block THREADS
//@ moves   (sizeof(keys) + sizeof(KV)) * T * G * E
//@ overlap yes
#include "cache_keys.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int G = @G@, E = @E@, BLOCK = @BLOCK@, PAGES = @PAGES@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const CacheKeysArgs a) { cache_keys<Config>(a); }
