// row_rms.cu - contract and instance of row_rms.cuh: the root mean square of each row, or its standard deviation
//@ kernel  row_rms
//@ rank    375
//@ args    x[M,C] $step -> y[M,1]
//@ match   y = row_rms(x)
//@ consts  X: type(x)  Y: type(y)  C: C  CENTRED: row_rms.centred  INVERSE: row_rms.inverse  FLOOR: row_rms.floor
//@ consts  ROWS_S: rows(x)  THREADS: 128
//@ launch  grid ceil_div(M, THREADS / 32)   block THREADS
//@ moves   sizeof(x) * M * C
//@ overlap yes
#include "row_rms.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, CENTRED = @CENTRED@, INVERSE = @INVERSE@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
    static constexpr float FLOOR = @FLOOR@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RowRmsArgs a) { row_rms<Config>(a); }
