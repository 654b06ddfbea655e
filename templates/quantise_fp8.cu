// quantise_fp8.cu - contract and instance of quantise_fp8.cuh: rows of activations as codes of fp8, after an RMS norm or as they are
//
// Only with precision.activations = "fp8", for linear_fp8.
//@ kernel  quantise_fp8
//@ rank    830
//@ args    x[M,C] g[C]:fp32 $step -> y[M,C]:type(x) ys:e4m3_rows.scales(y)
//@ match   y = x                 | NORM=0 EPS=0
//@ match   y = rmsnorm(x, g)     | NORM=1 EPS=rmsnorm.eps
//@ gives   y as e4m3_rows 1
//@ consts  X: type(x)  C: C  ROWS: T_MAX  ROWS_S: rows(x)
//@ consts  THREADS: min(C > 16384 ? 512 : C > 4096 ? 256 : 128, round_up(C / 16, 32))
//@ fits    FP8_ROWS && sizeof(x) == 2 && T_MAX > 64 && T_MAX % 8 == 0 && C % 128 == 0 && C <= 65536 && !rows(x)
//@ launch  grid M   block THREADS
//@ moves   (sizeof(x) + 1) * M * C
//@ overlap yes
#include "quantise_fp8.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS = @ROWS@, ROWS_S = @ROWS_S@, NORM = @NORM@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const QuantiseArgs a) { quantise_fp8<Config>(a); }
