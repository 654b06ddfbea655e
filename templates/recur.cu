// recur.cu - contract and instance of recur.cuh: linear recurrences over the tokens of each sequence
//@ kernel  recur
//@ rank    448
//@ args    q[T,G,K] k[T,G,K]:type(q) v[T,H,V]:type(q) a[T,H]:type(q) rate[H]:fp32 shift[H]:fp32 beta[T,H]:type(q) $step $rows $recurrent -> y[T,H,V]:type(q)
//@ match   y = recur(q, k, v, a, rate, shift, beta?)
//@ consts  X: type(q)  H: H  G: G  K: K  V: V  BETA: has(beta)
//@ consts  UNIT: recur.unit  SCALE: recur.scale  LOW: recur.low  HIGH: recur.high
//    Where q, k, v, a and beta lie: perhaps in the rows of what they are slices of.
//@ consts  QP: pitch(q)  QF: from(q)  KP: pitch(k)  KF: from(k)  VP: pitch(v)  VF: from(v)  AP: pitch(a)  AF: from(a)  BP: pitch(beta)  BF: from(beta)
//    COLUMNS of a lane: two read q and k from shared memory for both; where one leaves SMs without work, one.
//@ tune    COLUMNS: 1 2
//@ prefer  COLUMNS=2 if DECODE || H * V >= 4096
//@ prefer  COLUMNS=1
//    BUFFER: bytes of a tile in shared memory; the next one lies behind it.
//@ consts  TILE: 16  ONE: DECODE  BUFFER: TILE * ((2 * K + 8 + TILE * COLUMNS) * 4 + 16)
//@ shared  QUERIES TILE * (K + 4) * 4
//@ shared  KEYS    TILE * (K + 4) * 4
//@ shared  VALUES  TILE * TILE * COLUMNS * 4
//@ shared  GATES   TILE * 16
//@ shared  NEXT    ONE ? 0 : BUFFER
//@ fits    type(y) == X && H % G == 0 && K % 8 == 0 && K <= 256 && V % 8 == 0
//@ launch  grid S, H, ceil_div(V, 16 * COLUMNS)   block ONE ? 128 : 256
//@ moves   8 * S * H * K * V + 2 * sizeof(q) * T * (G * K + H * V)
//@ flops   8 * T * H * K * V
//@ overlap yes
#include "recur.cuh"

struct Config {
    using T = @X@;
    using Q = ScanRows<@QP@, @QF@>;
    using K = ScanRows<@KP@, @KF@>;
    using V = ScanRows<@VP@, @VF@>;
    using A = ScanRows<@AP@, @AF@>;
    using B = ScanRows<@BP@, @BF@>;
    static constexpr int H = @H@, G = @G@, KEY = @K@, VALUE = @V@, BETA = @BETA@;
    static constexpr int ONE = @ONE@, TILE = @TILE@, COLUMNS = @COLUMNS@, BUFFER = @BUFFER@, @REGIONS@;
    static constexpr float UNIT = @UNIT@, SCALE = @SCALE@, LOW = @LOW@, HIGH = @HIGH@;
};
extern "C" __global__ void __launch_bounds__(Config::ONE ? 128 : 256, Config::ONE || Config::KEY > 128 ? 1 : 2)
@NAME@(const RecurArgs a) { recur<Config>(a); }
