// embed_norm.cu - contract and instance of embed.cuh: embedding, positions, types and the layer norm that follows, in
// encoders on sm_90a
//@ kernel  embed_norm
//@ rank    160
//@ args    g[D]:fp32 c[D]:fp32 w[V,D] p[P,D] s[Q,D] $step $token $history -> y
//@ match   y = layernorm(add(embed(ids(), w), positions(p)), g, c) | EPS=layernorm.eps OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=fp32 TYPES=0 SCALED=0 BY=0
//@ match   y = layernorm(add(scale(embed(ids(), w)), positions(p)), g, c) | EPS=layernorm.eps OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=fp32 TYPES=0 SCALED=1 BY=scale.by
//@ match   y = layernorm(add(add(embed(ids(), w), types(s)), positions(p)), g, c) | EPS=layernorm.eps OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=type(s) TYPES=1 SCALED=0 BY=0
//@ match   y = layernorm(add(add(embed(ids(), w), positions(p)), types(s)), g, c) | EPS=layernorm.eps OFFSET=positions.offset PT=type(p) POSITIONS=1 ST=type(s) TYPES=1 SCALED=0 BY=0
//@ consts  WT: type(w)  Y: type(y)  D: D  LENGTH: CONTEXT  SOURCES: ENCODE  EPS: EPS
//@ consts  THREADS: round_up(D * sizeof(w) / 16, 32)
//@ sums    layernorm = embedding THREADS
//@ fits    ENCODE && D % (16 / sizeof(w)) == 0 && THREADS <= 1024
//    Only kernels for WGMMA read its row statistics.
//@ prefer  other if !WGMMA
//@ launch  grid T   block THREADS
//@ moves   T * D * (sizeof(w) + sizeof(y))
//@ overlap yes
#include "embed.cuh"

struct Config {
    using W = @WT@;
    using P = @PT@;
    using S = @ST@;
    using OUT = @Y@;
    static constexpr int D = @D@, CONTEXT = @LENGTH@, OFFSET = @OFFSET@, ENCODE = @SOURCES@;
    static constexpr int POSITIONS = @POSITIONS@, TYPES = @TYPES@, SCALED = @SCALED@, THREADS = @THREADS@;
    static constexpr float BY = @BY@, EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const EmbedNormArgs a) { embed_norm<Config>(a); }
