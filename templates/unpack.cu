// unpack.cu - contracts and instance of unpack.cuh and unpack_fp8.cuh: plain values of a quantised weight, for products with many rows
//
// Chosen where no kernel multiplies with the codes: more than 64 rows, activations of fp32. The values are in the workspace
// until the product has read them. That must not be a kernel that reads weights before the previous kernel has ended.
//@ kernel  unpack
//@ variant plain | FP8=0
//@ variant fp8   | FP8=1
//@ plain: rank 730
//@ fp8:   rank 800
//@ args    w[N,K] -> y[N,K]
//@ match   y = w:m16k16
//@ consts  Y: type(y)  N: N  K: K  BITS: type(w) == int4 ? 4 : 8  GROUP: group(w)  SCALES: scales(w)  THREADS: min(256, 32 * ceil_div(K, BITS == 4 ? 64 : 32))
//@ fits    (type(w) == fp8) == FP8
//@ launch  grid ceil_div(N, 16), ceil_div(K, 1024)   block THREADS
//@ moves   N * K * BITS / 8 + N * K * sizeof(y)
//@ overlap yes
//@ plain: text #include "unpack.cuh"
//@ fp8: text #include "unpack_fp8.cuh"

struct Config {
    using OUT = @Y@;
    static constexpr int N = @N@, K = @K@, BITS = @BITS@, GROUP = @GROUP@, SCALES = @SCALES@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
//@ plain: text @NAME@(const UnpackArgs a) { unpack<Config>(a); }
//@ fp8: text @NAME@(const UnpackFp8Args a) { unpack_fp8<Config>(a); }
