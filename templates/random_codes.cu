// random_codes.cu - contract and instance of random_codes.cuh. It computes no op of a graph: the runtime launches it once for
// each quantised weight when a model is opened with random weights.
//@ kernel  random_codes
//@ rank    740
//@ args    weights fill
//@ match   none
//@ consts  THREADS: 256
//@ fits    QUANTISED
//@ launch  grid SMS * 8   block THREADS
#include "random_codes.cuh"

struct Config {
    static constexpr int THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RandomCodesArgs a) { random_codes<Config>(a); }
