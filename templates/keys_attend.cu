// keys_attend.cu - contract and instance of keys_attend.cuh: attention over keys whose first elements are their values
//@ kernel  keys_attend
//@ rank    43
//@ args    q[T,H,E] keys[T,G,E]:type(q) sinks[H]:fp32 $step $rows $token $pages $k $owner -> y[T,H,V]:type(q)
//@ match   y = attend(q, keys, -, -, -, sinks?)
//@ consts  X: type(q)  KV: type($k)  H: H  G: G  E: E  V: V
//@ consts  SCALE: attend.scale  SOFTCAP: attend.softcap  WINDOW: attend.window  SINKS: has(sinks)
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT  BEAM: BEAMS > 0
//    HEADS: heads that share a key. Sums of their values are in registers.
//@ consts  HEADS: min(H / G, V <= 256 ? 8 : 4)
//@ sums    attend = lanes 32
//@ fits    type(y) == X && E % 8 == 0 && E <= 576 && attend.v_dim > 0 && sizeof(KV) > 1
//@ launch  grid G * ceil_div(H / G, HEADS), T   block 128
//@ moves   2 * sizeof(q) * T * H * E + T * T_MAX * G * E * sizeof(KV)
//@ flops   T * T_MAX * H * (E + V)
//@ overlap yes
#include "keys_attend.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int H = @H@, G = @G@, E = @E@, V = @V@, HEADS = @HEADS@, WINDOW = @WINDOW@, SINKS = @SINKS@;
    static constexpr int BEAM = @BEAM@, BLOCK = @PAGE@, CONTEXT = @LENGTH@, WARPS = 4;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
};
extern "C" __global__ void __launch_bounds__(128)
@NAME@(const KeysAttendArgs a) { keys_attend<Config>(a); }
