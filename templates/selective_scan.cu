// selective_scan.cu - contract and instance of selective_scan.cuh: the state space of Mamba over the tokens of each sequence
//@ kernel  selective_scan
//@ rank    449
//@ args    q[T,1,K] k[T,1,K]:type(q) v[T,H,1]:type(q) a[T,H]:type(q) rate[H,K]:fp32 shift[H]:fp32 $step $rows $recurrent -> y[T,H,1]:type(q)
//@ match   y = recur(q, k, v, a, rate, shift)
//@ consts  X: type(q)  H: H  K: K  SCALE: recur.scale  LOW: recur.low  HIGH: recur.high
//    Where q, k, v and a lie: perhaps in the rows of what they are slices of.
//@ consts  QP: pitch(q)  QF: from(q)  KP: pitch(k)  KF: from(k)  VP: pitch(v)  VF: from(v)  AP: pitch(a)  AF: from(a)
//@ consts  ONE: DECODE  TILE: K <= 32 && !ONE ? 32 : 8
//@ shared  QUERIES TILE * K * 4
//@ shared  KEYS    TILE * K * 4
//@ shared  INPUTS  TILE * 16 * 8
//@ fits    type(y) == X && K % 8 == 0 && K <= 256
//@ launch  grid S, ceil_div(H, 16)   block 128
//@ moves   8 * S * H * K + 2 * sizeof(q) * T * (K + H)
//@ flops   6 * T * H * K
//@ overlap yes
#include "selective_scan.cuh"

struct Config {
    using T = @X@;
    using Q = ScanRows<@QP@, @QF@>;
    using K = ScanRows<@KP@, @KF@>;
    using V = ScanRows<@VP@, @VF@>;
    using A = ScanRows<@AP@, @AF@>;
    static constexpr int H = @H@, KEY = @K@, THREADS = 128, ONE = @ONE@, TILE = @TILE@, @REGIONS@;
    static constexpr float SCALE = @SCALE@, LOW = @LOW@, HIGH = @HIGH@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const SelectiveScanArgs a) { selective_scan<Config>(a); }
