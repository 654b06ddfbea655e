/* tensors.h - what the files of this room share: the tensors of a checkpoint, and what adapters make of them. */
#ifndef FTXC_TENSORS_H
#define FTXC_TENSORS_H

#include <string.h>

#include "coded.h"
#include "weights.h"

enum { TENSOR_MAX_RANK = 8, TENSOR_MAX_NAME = 1024 };

typedef struct Tensor {
    const char *name;
    const char *stored; /* the type as the file calls it: "BF16" */
    DType type;         /* DT_NONE: a type that is not read ("I64"); refused where it is used. Of codes DT_FP32 */
    uint32_t rank;
    int64_t dim[TENSOR_MAX_RANK];
    const unsigned char *at; /* little-endian elements, row-major; not aligned */
    uint64_t bytes, elements;
    const char *path;   /* of its file, as given */
    const char *file;   /* the base name of its file */
    const Coded *coded; /* how codes are read, in place of `at`; NULL: elements are stored as numbers */
} Tensor;

typedef struct TensorList {
    Tensor *at;
    size_t n, cap;
} TensorList;

/* What one adapter adds to a weight: W' = W + scale * B A. */
typedef struct Delta {
    const Tensor *a, *b;     /* lora_A [rank, K] and lora_B [N, rank]; a NULL: b is the bias of lora_B, [N] */
    const Tensor *magnitude; /* DoRA's [N]: each output of W' is then scaled to this norm; NULL: not DoRA */
    int64_t rank;
    float scale;
    bool inputs_first; /* the weight is stored [K,N], as Conv1D and embeddings are, not [N,K] */
} Delta;

/* What all adapters make of one weight. */
typedef struct Merge {
    const char *weight;     /* its name in the graph */
    const Tensor *replaced; /* stands for the checkpoint's tensor; NULL: nothing does */
    struct {
        Delta *at;
        size_t n, cap;
    } deltas; /* added in this order */
} Merge;

struct Checkpoint {
    const char *path; /* as given: what messages name */
    FileMaps maps;
    TensorList tensors; /* sorted by name */
    struct {
        Merge *at;
        size_t n, cap;
    } merges;                       /* sorted by weight */
    const char *adapters;           /* a line each; NULL: none */
    const char *stored;             /* a line about quantised matrices; NULL: there are none */
    const Calibration *calibration; /* NULL: none */
};

/* Element i, which may be NaN or infinite. Of a type that is read. */
static inline uint16_t tensor_half(const Tensor *t, uint64_t i)
{
    return (uint16_t)(t->at[2 * i] | t->at[2 * i + 1] << 8);
}

static inline float tensor_element(const Tensor *t, uint64_t i)
{
    float f;

    if (t->type == DT_BF16)
        return bf16_to_float(tensor_half(t, i));
    if (t->type == DT_FP16)
        return fp16_to_float(tensor_half(t, i));
    memcpy(&f, t->at + 4 * i, 4);
    return f;
}

/* Leading sizes of 1 do not count: [1,V] is a bias [V], [D] is a matrix [1,D]. */
bool tensor_has_shape(const Tensor *t, const Shape *s);
const char *tensor_shape(const Tensor *t, Arena *a); /* "[2,3]" */

/* Reads the header of one mapped safetensors file and appends its tensors. */
bool safetensors_read(const char *path, const FileMap *map, Arena *keep, TensorList *out, Diag *d);

/* The same of a mapped GGUF file and of the other files of its model, which are added to maps (gguf.c). */
bool gguf_tensors(const char *path, const FileMap *map, FileMaps *maps, Arena *keep, TensorList *out, Diag *d);

/* Sorts the tensors by name. A name that is there twice is an error. */
bool checkpoint_sort(Checkpoint *c, Diag *d);

/* The tensor of exactly this name; NULL: none. */
const Tensor *checkpoint_named(const Checkpoint *c, const char *name);

/* The tensor of a weight: of its name, of that name without or with a prefix of the spec or with one in place of
 * another, or of an older form of its end (Spec.renamed). NULL: none. */
const Tensor *checkpoint_find(const Checkpoint *c, const Spec *spec, const char *name);

/* Tensors of a weight: those of a stack of experts that has a * in its name, or one. */
int64_t checkpoint_tensors(const Value *weight);
/* Tensor i of a weight. NULL: none; then name, if it is not NULL, is what was looked for. */
const Tensor *checkpoint_tensor(const Checkpoint *c, const Spec *spec, const Value *weight, int64_t i,
                                char name[TENSOR_MAX_NAME]);

/* Whether the spec lists a tensor of this name as one that may stay unused. */
bool checkpoint_ignores(const Spec *spec, const char *name);

/* What the adapters make of a weight. NULL: nothing. */
const Merge *checkpoint_merge(const Checkpoint *c, const char *weight);

/* Releases the pages that were read, so that a large checkpoint takes little memory. A page that is needed again is
 * read from the file. */
void checkpoint_forget(const Checkpoint *c);

/* The deltas of the weights that some values are made of, ready to be added to rows. NULL: there are none. */
typedef struct Merging Merging;
Merging *merging_open(const Checkpoint *c, const Spec *spec, const Id *values, size_t n);
void merging_close(Merging *m); /* NULL is fine */

/* Adds the deltas of a weight to its rows [from, from + count) in fp32. columns: f holds columns of the stored matrix
 * instead, as rows. */
void merging_add(const Merging *m, Id weight, bool columns, int64_t from, int64_t count, float *f);

/* quantise.c. A row of finite fp32 values to codes (inputs: what the row multiplies; NULL: not known); rows of codes (coded_row)
 * to tiles in a form of quantised weights. */
void quantise_row(const float *x, int64_t columns, const CodedForm *f, const Moments *inputs, const CodedRow *to);
void pack_tiles(const CodedForm *f, const char *form, int64_t rows, int64_t columns, void *codes, uint8_t *out);

/* Rows [from, from + count) of a sinusoid value: [count, dim]. */
void alibi_rows(const Value *v, int64_t from, int64_t count, float *out);
void sinusoid_rows(const Value *v, int64_t from, int64_t count, float *out);
/* Rows [from, from + count) of a rope_table value: [count, rot/2, {cos, sin}]. */
void rope_rows(const Value *v, int64_t from, int64_t count, float *out);

#endif
