// row_digits.cu - contract and instance of row_digits.cuh: rows of activations as digits of 8 bits, after an RMS norm or as they are
//@ kernel  row_digits
//@ rank    840
//@ args    x[M,C] g[C]:fp32 $step -> y[M,C]:type(x) ys:digit_rows.units(y)
//@ match   y = x                 | NORM=0 EPS=0
//@ match   y = rmsnorm(x, g)     | NORM=1 EPS=rmsnorm.eps
//@ gives   y as digit_rows 1
//@ consts  X: type(x)  C: C  ROWS: rows(x) ? S_MAX : T_MAX  ROWS_S: rows(x)
//@ consts  THREADS: min(C > 16384 ? 1024 : 512, round_up(C / 16, 32))
//@ needs   WGMMA
//@ fits    sizeof(x) == 2 && C % 128 == 0 && C <= 65536 && ROWS >= 8 && ROWS <= 32 && ROWS == pow2(ROWS)
//@ launch  grid M   block THREADS
//@ moves   2 * sizeof(x) * M * C
//@ overlap yes
#include "row_digits.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS = @ROWS@, ROWS_S = @ROWS_S@, NORM = @NORM@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RowDigitArgs a) { row_digits<Config>(a); }
