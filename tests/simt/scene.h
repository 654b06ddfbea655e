/* scene.h - one kernel, the data of one launch, and the expected results.
 *
 *   case.c    which kernels are run        scene.c   data of a launch      expect.c   expected results
 *                                          norms.c   row statistics, folded weights
 *                                          heads.c   caches; expected results of ops on heads
 *                                          routes.c  routes, and rows by expert
 *                                          packed.c  quantised weights      fp8_rows.c   rows of fp8
 *                                          digit_rows.c   rows of digits
 *                                          recurrent.c   recurrent states
 *                                          search.c  data and results of the launches of `beam` */
#ifndef FTX_SIMT_SCENE_H
#define FTX_SIMT_SCENE_H

#include "case.h"
#include "compiler/passes/pass.h"
#include "kernels/ref/ref.h"
#include "runtime/artifact/sizes.h"

typedef struct Unit { /* one kernel for one case */
    Case c;
    const char *name;
    const Graph *g;
    Target target;
    ProgramFacts facts;
    Binding b;
    Fitted fit;
    uint32_t fp8_rows, digit_rows, parts; /* the numbers of these forms (fp8: e4m3_rows) */
} Unit;

typedef struct Scene { /* the host keeps copies of what the kernel may change */
    const Unit *u;
    Arena *keep;
    int T, S, pages_of;
    FtxStep step;
    FtxRow rows[CASE_ROWS];
    FtxToken *token;
    int32_t *pages, *owner, *history, *ends, *words;
    FtxBias *bias;
    FtxParams params[CASE_ROWS];
    FtxBeam beams[CASE_ROWS];
    void *cache[2]; /* keys, values before the launch: KV pages, or those of the encoder's output */
    size_t cache_bytes;
    float *recurrent; /* states of all slots before the launch; NULL: none */
    RefTensor *input; /* by value Id: what the kernel reads */
    void *device[FTX_NAMED_COUNT];
    void *matrix[CONTRACT_MAX_ARGS]; /* the matrix of an argument, also if the kernel gets its TMA descriptor */
    void *arg[CONTRACT_MAX_ARGS + 8];
    size_t n_args;
    void *y;                  /* the output; NULL: none */
    float *left;              /* row statistics of y: sum, sum of squares, [rows][slices][2]; NULL: not written */
    float *fp8_scales;        /* of rows of fp8: those that the kernel reads, or writes */
    float *units;             /* of rows of digits: those that the kernel reads, or writes */
    int32_t *starts, *sorted; /* y's form by_expert; NULL: not written */
} Scene;

/* Whether the unit reads row statistics of this value. scene_shift_rows gives some of its rows a mean other than 0. */
bool unit_norms(const Unit *u, Id id);
void scene_shift_rows(const Value *v, int64_t n, DType type, char *p);
/* Row statistics for argument i: an input's are filled in as the previous kernel would, y's are left unwritten.
 * scene_stats_bytes: the size of an input's. */
float *scene_make_stats(Scene *s, size_t i);
size_t scene_stats_bytes(const Scene *s, size_t i);
/* Folds gains and shifts into the weights, as the compiler does. */
void scene_fold(Scene *s);
/* Sum and sum of squares of columns [from, from + n) of a row; sizes: the sum of their absolute values. */
void scene_stats(RefTensor x, int64_t from, int64_t n, double *sum, double *squares, double *sizes);

/* Routes of random logits; the form by_expert for argument i, a companion of routes: of an input it is filled in, of y left
 * unwritten; and what the router's kernel wrote, compared with the reference. */
void scene_make_routes(const Scene *s, const Value *v, int32_t *y);
int32_t *scene_make_by_expert(Scene *s, size_t i);
size_t scene_by_expert_bytes(const Scene *s, size_t i, bool live);
void scene_check_routes(const Scene *s, RefTensor logits, RefTensor bias);
/* A sum of experts as parts: random ones for the kernel, whose sums the reference reads; their bytes, of the live rows or of all;
 * what each part of the unit's value should be. */
void *scene_make_parts(Scene *s, Id id);
size_t scene_parts_bytes(const Scene *s, Id id, bool live);
float *scene_expected_parts(const Scene *s);

/* A quantised weight: its tiles for the kernel, its values for the reference; and what a kernel unpacked, compared with them. */
void *scene_make_packed(Scene *s, Id id);
void scene_check_unpacked(const Scene *s);

/* Rows of fp8: the codes of x for the kernel, whose values the reference reads from then on; their scales, or room for those of y;
 * the bytes of a value's codes; what a kernel wrote, compared with x as rows of fp8, code for code if `exact`. */
void *scene_make_fp8(Scene *s, Id id, RefTensor x);
float *scene_make_fp8_scales(Scene *s, bool out);
size_t scene_fp8_bytes(const Unit *u, Id id);
void scene_check_fp8(const Scene *s, RefTensor x, bool exact);

/* The same of rows of digits; units are those of `id`. */
void *scene_make_digits(Scene *s, Id id, RefTensor x);
float *scene_make_units(Scene *s, Id id, bool out);
size_t scene_digit_bytes(const Unit *u, Id id);
size_t scene_unit_bytes(const Unit *u, Id id);
void scene_check_digits(const Scene *s, RefTensor x, bool exact);

/* Makes the launch's data from `seed` and copies it to the device. */
void scene_make(Scene *s, const Unit *u, uint64_t seed, Arena *keep);
/* Marks what the previous launch of a program writes: activations, and the step's keys and values. */
void scene_written_in_front(const Scene *s);

/* Random numbers from the scene's seed: an integer in 0 .. n-1; a float in -1 .. 1. */
int scene_below(int n);
float scene_uniform(void);

/* The unit's op that reads or writes a cache (append, attention, cross-attention); NULL: none. */
const Value *unit_cache_op(const Unit *u);
bool is_cache(Op op);             /* its result is a cache, which has no buffer */
bool unit_appends(const Unit *u); /* it writes the step's keys and values to the KV pages, or those of a source */
bool unit_of_source(const Unit *u);
int unit_head_dim(const Unit *u);
int unit_kv_heads(const Unit *u);
int unit_caches(const Unit *u); /* 1: keys alone, which hold the values; 2 */

/* The floats of a recurrent state that the unit reads and writes; 0: none. Its data; a copy, which an op of kernels/ref changes;
 * and what the kernel left, compared with that: the states of other slots stay. */
size_t unit_recurrent(const Unit *u);
void scene_make_recurrent(Scene *s);
float *scene_copy_recurrent(const Scene *s);
void scene_check_recurrent(const Scene *s, const float *want);

/* Compares elements [from, n) with a tolerance by their type. what: their name in a message. */
void scene_compare(const Scene *s, const char *what, const void *got, DType type, const float *want, int64_t n,
                   int64_t from);

/* The number of a form of compiler/ir/forms.def. */
uint32_t scene_form(const Catalog *c, const char *name);
/* Whether the unit reads a value in a form other than plain. */
bool unit_reads_form(const Unit *u, Id id);
/* Whether the unit also writes segments of the logits. */
bool unit_leaves_segments(const Unit *u);
/* The segment of columns [first, first + width) of a row of logits. */
FtxSegment scene_segment(const float *row, int first, int width, double inv_temperature);
/* The sum of a segment is of exp((x - top) * inv_temperature); this is the row's factor. */
double scene_inv_temperature(const FtxParams *p);
/* What the LM head leaves of a segment's logits if the `need` largest suffice: `kept` candidates at the segment's
 * start, NaN in its other columns; or kept = -1 and all logits. */
void scene_keep(float *row, FtxSegment *p, int need);
/* Writes what an LM head kernel may write for logits [S, V]: segments of any width, also empty ones. */
void scene_segments(const Scene *s, const float *logits);

/* Where a row (page * G * block + place in it) of a cache lies, in bytes; codes have a scale apart. */
typedef struct CacheRow {
    size_t at, bytes, scale_at, scale_bytes;
} CacheRow;
CacheRow scene_cache_row(const RefCache *c, size_t row);

/* A paged cache of the layer; of a beam search lane its positions, copied into one page. */
RefCache scene_cache(const Scene *s, void *const cache[2]);
RefCache scene_lane_cache(const Scene *s, const RefCache *c, const FtxRow *row);
/* The result of an op on heads: attend, cache, cross_cache, rope, a norm. a: its arguments; cache: expected contents after it.
 * False: v is another op. */
bool scene_heads(const Scene *s, const Value *v, const RefTensor *a, void *const cache[2], float *y);

/* A norm of M rows; with fixed sums in the order that the contract states. b absent: RMS norm. */
void scene_norm(const Scene *s, const Value *v, RefTensor x, RefTensor g, RefTensor b, int M, int C, float *y);

/* The rows of append, heads of q and k normed. */
RefTensor scene_normed_heads(const Scene *s, const Value *v, const RefTensor *a);

/* Compares with the reference. If only some blocks ran (Case.blocks), compares only what they wrote. */
void scene_check(Scene *s);
/* Checks that a host that polls has read this result. */
void scene_check_polled(const Scene *s, const FtxOut *o);
/* Checks that the buffers that are zero before the launch are zero after it. */
void scene_check_zeroed(const Scene *s);

/* The kernel `beam`: each launch is one step of the searches; there are SEARCH_KINDS sets of settings. */
enum { SEARCH_KINDS = 3 };
typedef struct Searches Searches;
bool unit_searches(const Unit *u);
Searches *searches_begin(Scene *s, int kind);
bool searches_next(Searches *all); /* makes rows and logits of the next step; false: all searches are over */
void searches_check(Searches *all);

/* Prints a wrong result and counts it. */
void scene_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern size_t scene_failures;

#endif
