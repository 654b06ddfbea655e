// rope_counted.cu - contract and instance of rope.cuh: RoPE whose positions are counted within a prefix, or behind it
//@ kernel  rope_counted
//@ rank    33
//@ args    x[T,H,E] table[P,R,2]:fp32 $step $rows $token -> y:type(x)
//@ match   y = rope(x, table)
//@ consts  X: type(x)  H: H  E: E  ROT: 2 * R  HALF: rope.style == half
//@ consts  REST: rope.count == rest  TAIL: rope.tail
//@ consts  THREADS: min(256, round_up(ceil_div(H * E, 2), 32))
//@ fits    E % 2 == 0 && type(y) == X && rope.count != all
//@ launch  grid T   block THREADS
//@ moves   2 * sizeof(x) * T * H * E
//@ overlap yes
#include "rope.cuh"

struct Config {
    using T = @X@;
    static constexpr int H = @H@, E = @E@, ROT = @ROT@, HALF = @HALF@, THREADS = @THREADS@;
    static constexpr int REST = @REST@, TAIL = @TAIL@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RopeCountedArgs a) { rope_counted<Config>(a); }
