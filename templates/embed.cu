// embed.cu - contract and instance of embed.cuh: embedding, scale, positions, types, history
//@ kernel  embed
//@ rank    150
//@ args    w[V,D] p[P,D] s[Q,D] $step $token $history -> y
//@ match   y = embed(ids(), w)                           | OFFSET=0 PT=fp32 POSITIONS=0 ST=fp32 TYPES=0 SCALED=0 BY=0
//@ match   y = scale(embed(ids(), w))                    | OFFSET=0 PT=fp32 POSITIONS=0 ST=fp32 TYPES=0 SCALED=1 BY=scale.by
//@ match   y = add(embed(ids(), w), types(s))            | OFFSET=0 PT=fp32 POSITIONS=0 ST=type(s) TYPES=1 SCALED=0 BY=0
//@ match   y = add(embed(ids(), w), positions(p))        | OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=fp32 TYPES=0 SCALED=0 BY=0
//@ match   y = add(scale(embed(ids(), w)), positions(p)) | OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=fp32 TYPES=0 SCALED=1 BY=scale.by
//@ match   y = add(add(embed(ids(), w), types(s)), positions(p)) | OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=type(s) TYPES=1 SCALED=0 BY=0
//@ match   y = add(add(embed(ids(), w), positions(p)), types(s)) | OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=type(s) TYPES=1 SCALED=0 BY=0
//@ consts  WT: type(w)  Y: type(y)  D: D  LENGTH: CONTEXT  SOURCES: ENCODE  EARLY: FREE_DEPENDENTS
//@ consts  THREADS: min(256, round_up(ceil_div(D, 16 / sizeof(w)), 32))
//@ launch  grid T, ceil_div(D, THREADS * (16 / sizeof(w)))   block THREADS
//@ moves   T * D * (sizeof(w) + sizeof(y))
//@ overlap yes
//@ holds   !EARLY
#include "embed.cuh"

struct Config {
    using W = @WT@;
    using P = @PT@;
    using S = @ST@;
    using OUT = @Y@;
    static constexpr int D = @D@, CONTEXT = @LENGTH@, OFFSET = @OFFSET@, ENCODE = @SOURCES@;
    static constexpr int POSITIONS = @POSITIONS@, TYPES = @TYPES@, SCALED = @SCALED@, THREADS = @THREADS@, EARLY = @EARLY@;
    static constexpr float BY = @BY@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const EmbedArgs a) { embed<Config>(a); }
