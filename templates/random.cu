// random.cu - contract and instance of random.cuh. It computes no op of a graph: the runtime launches it once for each
// weight when a model is opened with random weights.
//@ kernel  random
//@ rank    390
//@ args    weights fill
//@ match   none
//@ consts  THREADS: 256
//@ launch  grid SMS * 8   block THREADS
#include "random.cuh"

struct Config {
    static constexpr int THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RandomArgs a) { random<Config>(a); }
