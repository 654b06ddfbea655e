// convolve.cu - contract and instance of convolve.cuh: a sum over a token and those before it, of each column
//@ kernel  convolve
//@ rank    438
//@ args    x[T,C] w[C,TAPS] b[C] $step $rows $token $recurrent -> y:type(x)
//@ match   y = convolve(x, w, b?)        | ACT=0
//@ match   y = act(convolve(x, w, b?))   | ACT=act.kind
//@ consts  X: type(x)  W: type(w)  B: type(b)  C: C  TAPS: TAPS  BIAS: has(b)  ACT: ACT
//@ consts  PITCH: pitch(x)  FROM: from(x)
//    VEC: columns of a thread, whose weights stay in registers: of four TAPS take 72 registers, of eight 128.
//@ tune    VEC: 8 4 2 1
//@ prefer  VEC=4 if C % 4 == 0 && PITCH % 4 == 0 && FROM % 4 == 0 && TAPS <= 8
//@ consts  THREADS: min(128, round_up(ceil_div(C, VEC), 32))
//    RUN: tokens of a run. Few tokens fill the GPU only with short runs.
//@ tune    RUN: 1 4 8 16 32
//@ prefer  RUN=1 if DECODE || T_MAX <= 64
//@ prefer  RUN=4 if T_MAX <= 512
//@ prefer  RUN=16
//@ fits    C % VEC == 0 && PITCH % VEC == 0 && FROM % VEC == 0 && VEC * sizeof(x) <= 16 && VEC * TAPS <= 32
//@ launch  grid RUN == 1 ? T : S + ceil_div(T, RUN), ceil_div(C, VEC * THREADS)   block THREADS
//@ moves   2 * sizeof(x) * T * C + sizeof(w) * C * TAPS
//@ overlap yes
#include "convolve.cuh"

struct Config {
    using T = @X@;
    using W = @W@;
    using B = @B@;
    static constexpr int C = @C@, PITCH = @PITCH@, FROM = @FROM@, TAPS = @TAPS@, BIAS = @BIAS@, ACT = @ACT@, VEC = @VEC@, RUN = @RUN@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const ConvolveArgs a) { convolve<Config>(a); }
