/* ref.h - the reference kernels: every op as plain loops that a reader can check against its formula. Both back ends are
 * tested against them. They are not made for speed; all sums are in double, results are rounded once to fp32.
 *
 * A tensor is a pointer and its storage type; results are fp32. No function allocates; scratch is the caller's. No
 * function depends on processor features. Usable from C and C++. */
#ifndef FTX_REF_H
#define FTX_REF_H

#include <stdbool.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../runtime/base/dtype.h"
#include "../../runtime/artifact/ftx_format.h" /* FtxAct */
#include "../device/io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct RefTensor {
    const void *p; /* NULL: absent */
    DType type;
} RefTensor;

static inline double ref_at(RefTensor t, int64_t i)
{
    return t.type == DT_FP32 ? ((const float *)t.p)[i] : dtype_load(t.p, (size_t)i, t.type);
}

/* y[t,:] = w[token.id,:] + p[token.pos + offset,:] (p may be absent); history[slot][pos] = id. */
void ref_embed(const FtxToken *token, int T, RefTensor w, RefTensor p, int offset, int D, int32_t *history, int context,
               float *y);

/* y[M,N] = x[M,K] w[N,K]^T + b[N] (b may be absent) */
void ref_linear(RefTensor x, RefTensor w, RefTensor b, int M, int N, int K, float *y);
/* The same in fp32 in an order that contracts state: "slices 2", "chains 8", "lanes 32". Products of 16 k are added to 0 one
 * after another, as tests/simt does for mma and wgmma. False: there is no such order. */
bool ref_linear_in_order(const char *order, RefTensor x, RefTensor w, RefTensor b, int M, int N, int K, float *y);

/* The number that a code of e4m3 stands for: 4 bits of exponent (bias 7), 3 of mantissa; the codes of NaN count as 480. */
double ref_e4m3(int code);

/* Rows of codes: x[r,k] = scales[r, k / group] * (codes[r,k] - offsets[r, k / group]) */
typedef struct RefCodes {
    const uint8_t *codes;
    const float *scales;
    const float *offsets; /* zeros; with minima those */
    int64_t group;
    bool minima; /* x[r,k] = scales[..] * codes[r,k] - offsets[..] */
    bool e4m3;   /* codes are numbers; offsets is not read */
} RefCodes;

void ref_dequantise(const RefCodes *w, int64_t rows, int64_t columns, float *x);
/* Rows of activations as signed codes of 8 bits; sums: of every 32 codes. */
void ref_quantise(const float *x, int64_t rows, int64_t columns, int64_t group, int8_t *codes, float *scales,
                  int32_t *sums);
/* Rows of activations as codes of fp8 with a scale each. */
void ref_quantise_e4m3(const float *x, int64_t rows, int64_t columns, uint8_t *codes, float *scales);
/* The same as two digits of 8 bits with a unit for each 128 columns: x = units[row, column / 128] * (256 * high + low). */
void ref_digits(const float *x, int64_t rows, int64_t columns, int8_t *high, int8_t *low, float *units);

void ref_add(RefTensor a, RefTensor b, int64_t n, float *y);
void ref_mul(RefTensor a, RefTensor b, int64_t n, float *y);
/* y[m,i] = a[m,i] * b[m] (of_row) or * b[i] */
void ref_mul_by(RefTensor a, RefTensor b, bool of_row, int M, int C, float *y);
/* y [M,C]: columns of a [M,A] beginning with `from`; behind its last, if from is 0, those of b [M,C-A] */
void ref_columns(RefTensor a, int A, int from, RefTensor b, int M, int C, float *y);
void ref_scale(RefTensor x, double by, int64_t n, float *y);

/* Routes as ops.def has them: y [M,2k] i32, experts, then the bits of weights. */
typedef struct RefRoute {
    int experts, k, groups, groups_kept;
    bool sigmoid, chosen, renorm, best_two;
    double scale, near;
} RefRoute;
void ref_route(RefTensor logits, RefTensor bias, const RefRoute *r, int M, int32_t *y);
/* y[M,R*N]: x[m] with the matrix of each of its R experts; w [X*N,K], b [X*N] (may be absent) */
void ref_expert_linear(RefTensor x, const int32_t *routes, RefTensor w, RefTensor b, int M, int R, int N, int K,
                       float *y);
/* y[M,N]: the weighted sum over the R parts of x [M,R*K] */
void ref_expert_sum(RefTensor x, const int32_t *routes, RefTensor w, RefTensor b, int M, int R, int N, int K, float *y);

double ref_act_of(double x, FtxAct kind);
void ref_act(RefTensor x, FtxAct kind, int64_t n, float *y);
/* y[m,i] = kind(x[m,2i]) * x[m,2i+1], x [M,2F] */
void ref_glu(RefTensor x, FtxAct kind, int M, int F, float *y);

void ref_clamp(RefTensor x, double low, double high, int64_t n, float *y);
/* y = w[2] * x + softplus(w[0]) * x^2 for x > 0, else w[2] * x + (w[2] + softplus(w[1])) * (e^min(x, -1e-6) - 1 - x) */
void ref_xielu(RefTensor x, RefTensor w, int64_t n, float *y);
/* y[m,i] = g * sigmoid(alpha * g) * (u + 1): g = x[m,2i] at most limit, u = x[m,2i+1] at most limit away from 0 */
void ref_glu_clamped(RefTensor x, double alpha, double limit, int M, int F, float *y);
/* y[t,i] = x[t,i] * (1 + by * log(1 + floor((position + offset) / every))) */
void ref_scale_by_position(RefTensor x, const FtxToken *token, int T, int C, double by, int every, int offset,
                           float *y);
/* y [T,H,A+B]: in each head the elements of a [T,H,A], then those of b [T,HB,B]; HB is H or 1 */
void ref_join_parts(RefTensor a, RefTensor b, int T, int H, int A, int HB, int B, float *y);

void ref_rmsnorm(RefTensor x, RefTensor g, double eps, int M, int C, float *y);
void ref_layernorm(RefTensor x, RefTensor g, RefTensor b, double eps, int M, int C, float *y);
/* Either in fp32 in an order that contracts state, "lanes 32", "heads 32", "embedding 96", by lanes that add vectors of `vec`
 * elements, or of less where C is no multiple. b absent: RMSNorm. False: there is no such order. */
bool ref_norm_in_order(const char *order, RefTensor x, RefTensor g, RefTensor b, double eps, int M, int C, int vec,
                       float *y);

/* y[t,h,:] = w[h*N ..][N,K] x[t,h,:]; x [T,H,K] */
void ref_head_linear(RefTensor x, RefTensor w, int T, int H, int N, int K, float *y);

/* recur as ops.def has it: q, k [T,G,K], v [T,H,V], a and beta [T,H], rate and shift [H]; beta may be absent, high 0: no limit.
 * state [slots][H][K][V]: read where the row has tokens before these, written. y [T,H,V] */
typedef struct RefRecur {
    RefTensor q, k, v, a, rate, shift, beta;
    int G, H, K, V; /* K <= 256 */
    bool rates;     /* rate [H,K]: each key has its own */
    double unit, scale, low, high;
} RefRecur;
void ref_recur(const RefRecur *r, const FtxRow *rows, int S, float *state, float *y);

/* y[s,:] = x[last token of row s,:] */
void ref_select_last(RefTensor x, const FtxRow *rows, int S, int C, float *y);

/* The cache of one layer: position p of a slot is row p % block of page pages[slot][p / block] in k and v, each
 * [page][G][block][E] of `type`. Of int8 and fp8 a page has codes, then the rows' scales: [G][block] fp16. */
typedef struct RefCache {
    void *k, *v;
    DType type;
    const int32_t *pages; /* [slots][pages_of] */
    int pages_of, block, G, E;
} RefCache;

/* E numbers out of a row (g * block + place) of a page of base, which is c->k or c->v, and into it. */
void ref_cached(const RefCache *c, const void *base, int64_t page, int64_t row, double *x);
void ref_cache(const RefCache *c, void *base, int64_t page, int64_t row, const float *x);

/* x [T,(H+2G)*E]: q, k, v. Pairs (2i,2i+1), i < rot/2, of q and k heads are rotated by
 * table[pos][i] = {cos, sin} (table NULL: not rotated). Gives q [T,H*E]; k and v go to the cache, rounded to its type. */
void ref_append(RefTensor x, const float *table, const FtxToken *token, int T, int H, int rot, const RefCache *cache,
                float *q);

/* [positions, rot/2, 2] of the plain RoPE: angle = pos * theta^(-2i/rot) */
void ref_rope_table(int positions, int rot, double theta, float *table);

/* Causal attention of each row's tokens over its pages; window and softcap 0: off. y [T,H*E] */
void ref_attend(RefTensor q, const FtxRow *rows, int S, int H, double scale, int window, double softcap,
                const RefCache *cache, float *y);

/* What changes the scores of head h of token i of a sequence: cap(scale * q . k) + bias[h, j - i + span/2] + slope[h] * (j - i)
 * for key j; rounded: scale * (slope[h] * j) in place of the last, with both and their product as bf16 holds them. sinks: e^sink[h] more in the sum of the softmax.
 * by_query, by_key [rows,reach], rows as those of q and k: scale * (by_query[q's row, d] + by_key[k's row, d]) is added, d = j - i + reach/2. Tensors may be absent. */
typedef struct RefScores {
    double scale, softcap;
    RefTensor bias, slopes, sinks; /* [H,span], [H], [H] */
    RefTensor by_query, by_key;
    int span, reach, i;
    bool rounded;
    int v_dim; /* elements of a value; 0: as many as a key has */
} RefScores;
/* One head of one token, q[at ..], over n keys of E elements and values from element place[j] on; place -1: the token does
 * not see it. v is k where values are the first elements of keys. */
void ref_attend_keys(RefTensor q, int64_t at, RefTensor k, RefTensor v, const int64_t *place, int n, int E, int h,
                     const RefScores *s, float *y);
/* Tokens of a sequence's prefix: its prompt without the last `tail` tokens, at least one. */
int ref_prefix(const FtxRow *row, int tail);
/* The tokens with positions that are counted within the prefix (rest: behind it): [T] */
void ref_count(const FtxRow *rows, const FtxToken *token, int T, int tail, bool rest, FtxToken *to);
/* x, y [T,H,E]: pairs i and i + rot/2 (half), else 2i and 2i + 1, rotated by table[pos][i] = {cos, sin} */
void ref_rope(RefTensor x, const float *table, const FtxToken *token, int T, int H, int E, int rot, int half, float *y);

/* One head of one token, q[at ..], over n keys and values at k[from + j * stride], v likewise. */
void ref_attend_rows(RefTensor q, int64_t at, RefTensor k, RefTensor v, int64_t from, int64_t stride, int n, int E,
                     double scale, float *y);
/* x [T,(H+2G)*E]: each token over all tokens of its row. y [T,H*E] */
void ref_attend_packed(const float *x, const FtxRow *rows, int S, int H, int G, int E, double scale, float *y);
/* x, y [T,C], w [C,taps], b [C] or absent: y[t,c] = b[c] + sum over j of w[c, taps-1-j] * x[t-j, c]. state [slots][taps-1][C]: the last
 * rows of x before the step of each row's sequence, then with it; not read for a sequence's first tokens. */
void ref_convolve(RefTensor x, RefTensor w, RefTensor b, const FtxRow *rows, int S, int C, int taps, float *state,
                  float *y);
/* y[s,:] = mean of the row's tokens; y[m,:] = x[m,:] / max(|x[m,:]|, eps) */
void ref_neighbours(RefTensor x, const FtxRow *rows, int S, int C, int from, int count, bool ring, float *y);
void ref_pool_mean(RefTensor x, const FtxRow *rows, int S, int C, float *y);
void ref_normalize(RefTensor x, double eps, int M, int C, float *y);
/* y [M]: sqrt(max(mean(x^2), floor)) of each row, centred: of x less its mean; inverse: 1 / that. */
void ref_row_rms(RefTensor x, bool centred, bool inverse, double floor, int M, int C, float *y);

/* --- from logits to a token, one row at a time --------------------------------------------------- */

typedef struct RefRow {
    const FtxRow *row; /* kv_len, prompt */
    const FtxParams *params;
    const int32_t *history; /* [kv_len] ids of the sequence so far */
    const int32_t *ends;    /* [params.n_ends] */
    const FtxBias *bias;    /* [params.n_bias] */
    const int32_t *words;   /* [params.n_words]: words one after another, of each the last id as ~id */
} RefRow;

/* -infinity for ids of logits[V] whose bit is 0 in bits[V / 32]. */
void ref_mask(const uint32_t *bits, int V, float *logits);

/* Processors before temperature: logit bias, repetition, presence and frequency, no-repeat n-gram,
 * bad words, end ids before the least length. */
void ref_penalties(const RefRow *r, const float *logits, int V, double *z);

/* Probabilities at the temperature, after processors, top-k, top-p, min-p and typical; 0 for ids that do not stay.
 * Greedy: 1 for one id. order [V] is scratch. */
void ref_probabilities(const RefRow *r, const float *logits, int V, double *p, int32_t *order);

/* Four words of Philox4x32-10. */
void ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The uniform number of the draw: 24 bits, in [0, 1). */
double ref_uniform(const RefRow *r);

/* First id whose cumulative probability, ids ascending, exceeds u. */
int ref_draw(const double *p, int V, double u);

/* The chosen id and its log-probability under the raw logits; p and order [V] are scratch. */
int ref_sample(const RefRow *r, const float *logits, int V, double *p, int32_t *order, double *logprob);

double ref_logsumexp(const float *logits, int V);

/* What a rank sends of its C logits, the ids from `first` on (gather.c): sent [C]. Returns how many, -1: all; *rest stands
 * in place of the others. */
int ref_gather(const RefRow *r, const float *x, int first, int C, bool *sent, double *rest);

/* --- beam search: beam.c ------------------------------------------------------------------------- */

typedef struct RefFound {
    double score, sum;
    int length; /* with the prompt */
    int end;    /* ends with an end id, not at the limit */
    int row;    /* of found_ids */
    int group;  /* the diverse group that found it */
} RefFound;

/* Settings and arrays are the caller's; arrays have `width` elements where nothing else is said. */
typedef struct RefBeams {
    int width, V, limit, n_ends;
    int early; /* FtxEarly */
    double length_penalty;
    const int32_t *ends;
    int groups;       /* diverse groups of width / groups lanes each; 0, 1: one */
    double diversity; /* an id's penalty for each lane of an earlier group that takes it in the same step */
    /* state */
    int prompt, length, found, done;
    int32_t *ids;           /* [width, limit]: the running sequences, best first */
    double *score;          /* sums of their log-probabilities; -inf: the lane does not run */
    RefFound *hypothesis;   /* [width + 1]: found of them, best first */
    int32_t *found_ids;     /* [width, limit] */
    int32_t *parent, *next; /* of the last step: the lane from which each goes on, and its new id */
    /* scratch */
    double *total;  /* [width * V] */
    int32_t *order; /* [width * V] */
    double *next_score;
    int32_t *next_ids; /* [width, limit] */
} RefBeams;

void ref_beams_begin(RefBeams *b, const int32_t *prompt, int n);
/* One step: log-probabilities [width, V] after all processors. */
void ref_beams_step(RefBeams *b, const double *logprobs);

#ifdef __cplusplus
}
#endif
#endif
