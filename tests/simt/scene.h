/* scene.h - one kernel, what it works on in one launch, and what it should leave behind.
 *
 *   case.c    which kernels there are      scene.c   data of a launch      expect.c   what comes out
 *                                          norms.c   statistics, folded weights
 *                                          search.c  data and results of many: the kernel `beam` */
#ifndef FTX_SIMT_SCENE_H
#define FTX_SIMT_SCENE_H

#include "case.h"
#include "compiler/passes/pass.h"
#include "kernels/ref/ref.h"

typedef struct Unit { /* one kernel for one case */
    Case c;
    const char *name;
    const Graph *g;
    Target target;
    ProgramFacts facts;
    Binding b;
    Fitted fit;
} Unit;

typedef struct Scene { /* host copies are of what the kernel may change */
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
    void *cache[2]; /* before the launch: pages, or the sources of a decoder */
    size_t cache_bytes;
    RefTensor *input; /* by Id: what the kernel reads */
    void *device[FTX_NAMED_COUNT];
    void *matrix[CONTRACT_MAX_ARGS]; /* of an argument, also where a map of it is given */
    void *arg[CONTRACT_MAX_ARGS + 8];
    size_t n_args;
    void *y;     /* NULL: there is none */
    float *left; /* sums and squares of y's rows, [rows][parts][2]; NULL: none are wanted */
} Scene;

/* Whether the unit reads statistics of this value's rows; then some have a mean that is not 0. */
bool unit_norms(const Unit *u, Id id);
void scene_shift_rows(const Value *v, int64_t n, DType type, char *p);
/* Argument i: those of x as the previous kernel left them, in so many bytes; room for those of y. */
float *scene_make_stats(Scene *s, size_t i);
size_t scene_stats_bytes(const Scene *s, size_t i);
/* Packs anew the weights into which the compiler folds others. */
void scene_fold(Scene *s);
/* Sum and sum of squares of columns [from, from + n) of a row; sizes: the sum of their absolute values. */
void scene_stats(RefTensor x, int64_t from, int64_t n, double *sum, double *squares, double *sizes);

/* Data made of `seed`, on the device. */
void scene_make(Scene *s, const Unit *u, uint64_t seed, Arena *keep);
/* What the previous launch writes in a program: activations, and the step's keys and values. */
void scene_written_in_front(const Scene *s);

/* Of the scene's seed: 0 .. n-1; -1 .. 1. */
int scene_below(int n);
float scene_uniform(void);

/* The op of a unit that reads or writes a cache (append, attention, of sources too); NULL: none. */
const Value *unit_cache_op(const Unit *u);
bool unit_appends(const Unit *u); /* the step's own keys and values to the pages */
bool unit_of_source(const Unit *u);
int unit_head_dim(const Unit *u);
int unit_kv_heads(const Unit *u);

/* Whether the unit writes segments of logits, too. */
bool unit_leaves_segments(const Unit *u);
/* The segment of columns [first, first + width) of a row of logits. */
FtxSegment scene_segment(const float *row, int first, int width, double inv_temperature);
/* The sums of a row's segments are of exp((x - top) * this). */
double scene_inv_temperature(const FtxParams *p);
/* What it keeps of the row beside that, for the `need` greatest: candidates, in place of the columns, or, kept = -1,
 * all columns. The other columns become NaN. */
void scene_keep(float *row, FtxSegment *p, int need);
/* What an LM head kernel may write for these logits, [S, V]: segments of any width, also empty ones. */
void scene_segments(const Scene *s, const float *logits);

/* Compares with the reference. If only some blocks ran (Case.blocks), what they wrote. */
void scene_check(Scene *s);
/* A host that reads the result as soon as it is told of it has this one. */
void scene_check_polled(const Scene *s, const FtxOut *o);
/* What a kernel finds zero it leaves zero. */
void scene_check_zeroed(const Scene *s);

/* Whether a unit is `beam`, whose launches are steps of searches; of these there are SEARCH_KINDS sets. */
enum { SEARCH_KINDS = 3 };
typedef struct Searches Searches;
bool unit_searches(const Unit *u);
Searches *searches_begin(Scene *s, int kind);
bool searches_next(Searches *all); /* rows and logits of the next step; false: all are over */
void searches_check(Searches *all);

/* A finding: said as it comes, counted. */
void scene_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern size_t scene_failures;

#endif
