// attend.cu - contract and instance of attend.cuh: attention that no other kernel computes
//@ kernel  attend
//@ rank    42
//@ args    q[T,H,E] keys[T,G,E]:type(q) values[T,G,E]:type(q) bias[H,P]:fp32 slopes[H]:fp32 sinks[H]:fp32 $step $rows $token $pages $k $v $cross_k $cross_v $owner by_query[T,H,N]:type(q) by_key[T,H,N]:type(q) -> y:type(q)
//@ match   y = attend(q, keys, values?, bias, slopes?, sinks?)  | SPAN=P
//@ match   y = attend(q, keys, values?, -, slopes?, sinks?)
//@ match   y = attend(q, keys, values, -, -, -, by_query, by_key)  | REACH=N
//@ consts  X: type(q)  KV: type($k)  H: H  G: G  E: E
//@ consts  SCALE: attend.scale  SOFTCAP: attend.softcap  WINDOW: attend.window  SPAN: SPAN  SLOPES: has(slopes)  SINKS: has(sinks)
//@ consts  CHUNK: attend.chunk  ROUNDED: attend.rounded  PREFIX: attend.scope == prefix  TAIL: attend.tail  REACH: REACH
//@ consts  PLACE: has(values) ? 1 : attend.scope == source ? 2 : 0  CAUSAL: attend.scope == causal
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT  SOURCE_LENGTH: SOURCE  BEAM: PLACE == 0 && BEAMS > 0
//@ sums    attend = lanes 32
//@ fits    type(y) == X && E % 8 == 0 && E <= 576 && attend.v_dim == 0 && (PLACE == 1 || sizeof(KV) > 1)
//@ launch  grid H, T   block 128
//@ moves   2 * sizeof(q) * T * H * E + 2 * T * T_MAX * G * E * sizeof(KV)
//@ flops   2 * T * T_MAX * H * E
//@ overlap yes
#include "attend.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int H = @H@, G = @G@, E = @E@, PLACE = @PLACE@, CAUSAL = @CAUSAL@, WINDOW = @WINDOW@, SPAN = @SPAN@;
    static constexpr int SLOPES = @SLOPES@, SINKS = @SINKS@, BEAM = @BEAM@, BLOCK = @PAGE@, CONTEXT = @LENGTH@;
    static constexpr int SOURCE = @SOURCE_LENGTH@, WARPS = 4, CHUNK = @CHUNK@, ROUNDED = @ROUNDED@;
    static constexpr int PREFIX = @PREFIX@, TAIL = @TAIL@, REACH = @REACH@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
};
extern "C" __global__ void __launch_bounds__(128)
@NAME@(const AttendArgs a) { attend<Config>(a); }
