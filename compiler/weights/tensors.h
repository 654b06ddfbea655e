/* tensors.h - what the files of this room share: the tensors of a checkpoint. */
#ifndef FTXC_TENSORS_H
#define FTXC_TENSORS_H

#include "weights.h"

enum { TENSOR_MAX_RANK = 8 };

typedef struct Tensor {
    const char *name;
    const char *stored; /* the type as the file calls it: "BF16" */
    DType type;         /* DT_NONE: a type that is not read ("I64"); refused where it is used */
    uint32_t rank;
    int64_t dim[TENSOR_MAX_RANK];
    const unsigned char *at; /* little-endian elements, row-major; not aligned */
    uint64_t bytes, elements;
    const char *file; /* the base name of its file */
} Tensor;

typedef struct TensorList {
    Tensor *at;
    size_t n, cap;
} TensorList;

struct Checkpoint {
    const char *path; /* as given: what messages name */
    struct {
        FileMap *at;
        size_t n, cap;
    } maps;
    TensorList tensors; /* sorted by name */
};

/* Reads the header of one mapped safetensors file and appends its tensors. */
bool safetensors_read(const char *path, const FileMap *map, Arena *keep, TensorList *out, Diag *d);

/* The tensor of a weight: of its name, of that name without or with a prefix of the spec, or of an older form of its
 * end (Spec.renamed). NULL: none. */
const Tensor *checkpoint_find(const Checkpoint *c, const Spec *spec, const char *name);

/* Releases the pages that were read, so that a large checkpoint takes little memory. A page that is needed again is
 * read from the file. */
void checkpoint_forget(const Checkpoint *c);

/* Rows [from, from + count) of a sinusoid value: [count, dim]. */
void sinusoid_rows(const Value *v, int64_t from, int64_t count, float *out);
/* Rows [from, from + count) of a rope_table value: [count, rot/2, {cos, sin}]. */
void rope_rows(const Value *v, int64_t from, int64_t count, float *out);

#endif
