/* consts.h - where each constant of a CPU kernel's contract stands in CpuCall.k.
 *
 * Made from the `//@ consts` and `//@ match` lines of kernels/cpu: FTX_UPDATE=1 ctest -R test_consts */
#ifndef FTX_CPU_CONSTS_H
#define FTX_CPU_CONSTS_H
// clang-format off

enum {
    ACT_C,
    ACT_KIND,
    ACT_ROWS_S,
};

enum {
    ADD_C,
    ADD_ROWS_S,
};

enum {
    APPEND_H,
    APPEND_G,
    APPEND_E,
    APPEND_ROT,
    APPEND_BLOCK,
    APPEND_PAGES,
    APPEND_KV,
};

enum {
    APPEND_NORM_H,
    APPEND_NORM_G,
    APPEND_NORM_E,
    APPEND_NORM_ROT,
    APPEND_NORM_BLOCK,
    APPEND_NORM_PAGES,
    APPEND_NORM_KV,
    APPEND_NORM_EPS, /* cpu_number */
};

enum {
    CACHE_G,
    CACHE_E,
    CACHE_BLOCK,
    CACHE_PAGES,
    CACHE_KV,
};

enum {
    CACHE_KEYS_G,
    CACHE_KEYS_E,
    CACHE_KEYS_BLOCK,
    CACHE_KEYS_PAGES,
    CACHE_KEYS_KV,
};

enum {
    CROSS_CACHE_G,
    CROSS_CACHE_E,
    CROSS_CACHE_SOURCE,
    CROSS_CACHE_KV,
};

enum {
    ROPE_H,
    ROPE_E,
    ROPE_ROT,
    ROPE_HALF,
    ROPE_PREFIX,
    ROPE_REST,
    ROPE_TAIL,
};

enum {
    HEAD_NORM_H,
    HEAD_NORM_E,
    HEAD_NORM_LAYER,
    HEAD_NORM_OWN_G,
    HEAD_NORM_OWN_B,
    HEAD_NORM_EPS, /* cpu_number */
};

enum {
    ATTEND_CROSS_H,
    ATTEND_CROSS_G,
    ATTEND_CROSS_E,
    ATTEND_CROSS_SCALE, /* cpu_number */
    ATTEND_CROSS_SOURCE,
    ATTEND_CROSS_KV,
};

enum {
    ATTEND_PACKED_H,
    ATTEND_PACKED_G,
    ATTEND_PACKED_E,
    ATTEND_PACKED_SCALE, /* cpu_number */
};

enum {
    ATTEND_PAGED_H,
    ATTEND_PAGED_G,
    ATTEND_PAGED_E,
    ATTEND_PAGED_SCALE, /* cpu_number */
    ATTEND_PAGED_WINDOW,
    ATTEND_PAGED_SOFTCAP, /* cpu_number */
    ATTEND_PAGED_BLOCK,
    ATTEND_PAGED_PAGES,
    ATTEND_PAGED_KV,
    ATTEND_PAGED_SPAN,
    ATTEND_PAGED_SPANS,
    ATTEND_PAGED_LENGTH,
    ATTEND_PAGED_BEAM,
};

enum {
    ATTEND_TEXTS_H,
    ATTEND_TEXTS_G,
    ATTEND_TEXTS_E,
    ATTEND_TEXTS_SCALE, /* cpu_number */
    ATTEND_TEXTS_WINDOW,
    ATTEND_TEXTS_SOFTCAP, /* cpu_number */
    ATTEND_TEXTS_CAUSAL,
    ATTEND_TEXTS_SPAN,
};

enum {
    ATTEND_H,
    ATTEND_G,
    ATTEND_E,
    ATTEND_SCALE, /* cpu_number */
    ATTEND_WINDOW,
    ATTEND_SOFTCAP, /* cpu_number */
    ATTEND_PLACE,
    ATTEND_CAUSAL,
    ATTEND_SPAN,
    ATTEND_BLOCK,
    ATTEND_PAGES,
    ATTEND_LENGTH,
    ATTEND_SOURCE,
    ATTEND_KV,
    ATTEND_SOURCE_KV,
    ATTEND_CHUNK,
    ATTEND_ROUNDED,
    ATTEND_PREFIX,
    ATTEND_TAIL,
    ATTEND_REACH,
};

enum {
    KEYS_ATTEND_H,
    KEYS_ATTEND_G,
    KEYS_ATTEND_E,
    KEYS_ATTEND_V,
    KEYS_ATTEND_SCALE, /* cpu_number */
    KEYS_ATTEND_WINDOW,
    KEYS_ATTEND_SOFTCAP, /* cpu_number */
    KEYS_ATTEND_BLOCK,
    KEYS_ATTEND_PAGES,
    KEYS_ATTEND_LENGTH,
    KEYS_ATTEND_KV,
};

enum {
    BEAM_V,
    BEAM_CONTEXT,
    BEAM_SEQUENCES,
    BEAM_ENDS,
    BEAM_BIAS,
    BEAM_WIDTH,
    BEAM_WORDS,
};

enum {
    CROSS_APPEND_G,
    CROSS_APPEND_E,
    CROSS_APPEND_SOURCE,
    CROSS_APPEND_KV,
};

enum {
    EMBED_D,
    EMBED_WT,
    EMBED_CONTEXT,
    EMBED_ENCODE,
    EMBED_OFFSET,
    EMBED_PT,
    EMBED_ST,
    EMBED_BY, /* cpu_number */
    EMBED_SCALED,
};

enum {
    EMBED_PART_P,
    EMBED_PART_D,
    EMBED_PART_WT,
    EMBED_PART_CONTEXT,
    EMBED_PART_ENCODE,
};

enum {
    POSITIONS_D,
    POSITIONS_PT,
    POSITIONS_OFFSET,
    POSITIONS_TYPES,
};

enum {
    GLU_F,
    GLU_KIND,
    GLU_ROWS_S,
};

enum {
    LAYERNORM_C,
    LAYERNORM_EPS, /* cpu_number */
    LAYERNORM_ROWS_S,
};

enum {
    LINEAR_N,
    LINEAR_K,
    LINEAR_W,
    LINEAR_ROWS_S,
    LINEAR_KIND,
    LINEAR_GLU,
};

enum {
    LINEAR_BF16_N,
    LINEAR_BF16_K,
    LINEAR_BF16_ROWS_S,
    LINEAR_BF16_KIND,
    LINEAR_BF16_GLU,
};

enum {
    HEAD_LINEAR_H,
    HEAD_LINEAR_N,
    HEAD_LINEAR_K,
    HEAD_LINEAR_W,
};

enum {
    MUL_C,
    MUL_ROWS_S,
};

enum {
    NORMALIZE_C,
    NORMALIZE_EPS, /* cpu_number */
    NORMALIZE_ROWS_S,
};

enum {
    ROW_RMS_C,
    ROW_RMS_CENTRED,
    ROW_RMS_INVERSE,
    ROW_RMS_FLOOR, /* cpu_number */
    ROW_RMS_ROWS_S,
};

enum {
    POOL_MEAN_C,
};

enum {
    RMSNORM_C,
    RMSNORM_EPS, /* cpu_number */
    RMSNORM_ROWS_S,
};

enum {
    SAMPLE_V,
    SAMPLE_CONTEXT,
    SAMPLE_SEQUENCES,
    SAMPLE_ENDS,
    SAMPLE_BIAS,
    SAMPLE_WORDS,
};

enum {
    SCALE_C,
    SCALE_BY, /* cpu_number */
    SCALE_ROWS_S,
};

enum {
    PREVIOUS_C,
    PREVIOUS_WT,
};

enum {
    NEIGHBOURS_C,
    NEIGHBOURS_FROM,
    NEIGHBOURS_COUNT,
    NEIGHBOURS_RING,
};

enum {
    CONVOLVE_C,
    CONVOLVE_TAPS,
    CONVOLVE_WT,
    CONVOLVE_BT,
};

enum {
    SELECT_FIRST_C,
};

enum {
    SELECT_LAST_C,
};

enum {
    SELECT_ID_C,
    SELECT_ID_WANTED,
};

enum {
    QUANTISE_K,
    QUANTISE_GROUP,
    QUANTISE_ROWS_S,
};

enum {
    LINEAR_Q_N,
    LINEAR_Q_K,
    LINEAR_Q_W,
    LINEAR_Q_GROUP,
    LINEAR_Q_SCALES,
    LINEAR_Q_XGROUP,
    LINEAR_Q_ROWS_S,
    LINEAR_Q_KIND,
    LINEAR_Q_GLU,
};

enum {
    ROUTE_N,
    ROUTE_K,
    ROUTE_SIGMOID,
    ROUTE_CHOSEN,
    ROUTE_RENORM,
    ROUTE_GROUPS,
    ROUTE_KEPT,
    ROUTE_BEST_TWO,
    ROUTE_SCALE, /* cpu_number */
    ROUTE_ROWS_S,
    ROUTE_NEAR, /* cpu_number */
};

enum {
    EXPERT_LINEAR_X,
    EXPERT_LINEAR_N,
    EXPERT_LINEAR_K,
    EXPERT_LINEAR_R,
    EXPERT_LINEAR_W,
    EXPERT_LINEAR_ROWS_S,
    EXPERT_LINEAR_KIND,
    EXPERT_LINEAR_GLU,
};

enum {
    EXPERT_LINEAR_BF16_X,
    EXPERT_LINEAR_BF16_N,
    EXPERT_LINEAR_BF16_K,
    EXPERT_LINEAR_BF16_R,
    EXPERT_LINEAR_BF16_ROWS_S,
    EXPERT_LINEAR_BF16_KIND,
    EXPERT_LINEAR_BF16_GLU,
};

enum {
    EXPERT_LINEAR_Q_X,
    EXPERT_LINEAR_Q_N,
    EXPERT_LINEAR_Q_K,
    EXPERT_LINEAR_Q_R,
    EXPERT_LINEAR_Q_W,
    EXPERT_LINEAR_Q_GROUP,
    EXPERT_LINEAR_Q_SCALES,
    EXPERT_LINEAR_Q_XGROUP,
    EXPERT_LINEAR_Q_ROWS_S,
    EXPERT_LINEAR_Q_KIND,
    EXPERT_LINEAR_Q_GLU,
};

enum {
    EXPERT_SUM_X,
    EXPERT_SUM_N,
    EXPERT_SUM_K,
    EXPERT_SUM_R,
    EXPERT_SUM_W,
    EXPERT_SUM_ROWS_S,
};

enum {
    EXPERT_SUM_BF16_X,
    EXPERT_SUM_BF16_N,
    EXPERT_SUM_BF16_K,
    EXPERT_SUM_BF16_R,
    EXPERT_SUM_BF16_ROWS_S,
};

enum {
    EXPERT_SUM_Q_X,
    EXPERT_SUM_Q_N,
    EXPERT_SUM_Q_K,
    EXPERT_SUM_Q_R,
    EXPERT_SUM_Q_W,
    EXPERT_SUM_Q_GROUP,
    EXPERT_SUM_Q_SCALES,
    EXPERT_SUM_Q_XGROUP,
    EXPERT_SUM_Q_ROWS_S,
};

enum {
    MUL_BY_C,
    MUL_BY_ROWS_S,
    MUL_BY_OF_ROW,
};

enum {
    SLICE_C,
    SLICE_N,
    SLICE_FROM,
    SLICE_ROWS_S,
};

enum {
    JOIN_A,
    JOIN_B,
    JOIN_ROWS_S,
};

enum {
    CLAMP_LOW, /* cpu_number */
    CLAMP_C,
    CLAMP_HIGH, /* cpu_number */
    CLAMP_ROWS_S,
};

enum {
    XIELU_C,
    XIELU_ROWS_S,
};

enum {
    GLU_CLAMPED_ALPHA, /* cpu_number */
    GLU_CLAMPED_F,
    GLU_CLAMPED_LIMIT, /* cpu_number */
    GLU_CLAMPED_ROWS_S,
};

enum {
    SCALE_BY_POSITION_C,
    SCALE_BY_POSITION_BY, /* cpu_number */
    SCALE_BY_POSITION_EVERY,
    SCALE_BY_POSITION_OFFSET,
};

enum {
    SLICE_HEADS_H,
    SLICE_HEADS_E,
    SLICE_HEADS_N,
    SLICE_HEADS_FROM,
};

enum {
    JOIN_PARTS_H,
    JOIN_PARTS_A,
    JOIN_PARTS_B,
    JOIN_PARTS_HB,
};

enum {
    ROUTE_WEIGHTS_C,
    ROUTE_WEIGHTS_ROWS_S,
};

enum {
    RECUR_H,
    RECUR_G,
    RECUR_K,
    RECUR_V,
    RECUR_UNIT, /* cpu_number */
    RECUR_SCALE, /* cpu_number */
    RECUR_LOW, /* cpu_number */
    RECUR_HIGH, /* cpu_number */
};

enum {
    SELECTIVE_SCAN_H,
    SELECTIVE_SCAN_K,
    SELECTIVE_SCAN_SCALE, /* cpu_number */
    SELECTIVE_SCAN_LOW, /* cpu_number */
    SELECTIVE_SCAN_HIGH, /* cpu_number */
};

enum {
    ALL_REDUCE_C,
    ALL_REDUCE_ROWS_S,
};

enum {
    ALL_GATHER_C,
    ALL_GATHER_COLUMNS,
    ALL_GATHER_ROWS_S,
};

enum {
    GATHER_LOGITS_C,
    GATHER_LOGITS_COLUMNS,
    GATHER_LOGITS_CONTEXT,
    GATHER_LOGITS_ENDS,
    GATHER_LOGITS_BIAS,
    GATHER_LOGITS_WORDS,
};

enum {
    RANK_SLICE_WIDTH,
    RANK_SLICE_OF,
    RANK_SLICE_ROWS_S,
};

#endif
