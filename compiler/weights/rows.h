/* rows.h - rows of the values that are made of weights alone, for pack.c. */
#ifndef FTXC_WEIGHTS_ROWS_H
#define FTXC_WEIGHTS_ROWS_H

#include "tensors.h"

typedef struct Source {
    const Checkpoint *c; /* NULL: tables only */
    const Spec *spec;
    const Graph *g;
    DType type; /* of the rows that are read: fp32, or the type in which all their tensors are stored */
    const Merging *merging;
    const CodedForm *form; /* rows are read as codes (coded_row); NULL: as elements of `type` */
    int64_t rank;          /* whose parts are read */
    const Moments *inputs; /* of the matrix that is packed; NULL: not known */
} Source;

/* The first value that is refused: NaN, infinity, or too large for the packed type. */
typedef struct Fault {
    bool found;
    const Tensor *tensor; /* NULL: the value does not fit into the packed type */
    uint64_t index;       /* element of the tensor, or of the packed value */
    float value;
} Fault;

static inline int64_t rows_count(const Value *v)
{
    return v->shape.dim[0].n;
}

static inline int64_t row_elements(const Value *v)
{
    int64_t n = 1;

    for (uint32_t i = 1; i < v->shape.rank; i++)
        n *= v->shape.dim[i].n;
    return n;
}

/* Notes the first fault. t: as in Fault. */
void rows_note(Fault *f, const Tensor *t, uint64_t index, float value);
/* Whether all n elements of a floating-point type are finite. */
bool rows_finite(const unsigned char *p, uint64_t n, DType type);
/* Memory for n elements, which the caller frees; out of memory ends the program. */
float *rows_floats(int64_t n);

/* Rows [from, from + count) of a value. */
void rows_read(const Source *s, Id id, int64_t from, int64_t count, void *out, Fault *fault);
/* Whether every tensor that a value is made of is stored as `type`, and nothing is computed from its elements. Then its
 * rows are copied without conversion. */
bool rows_stored_as(const Source *s, Id id, DType type);
/* part.c. Rows of a part value: those of the source's rank. */
void part_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault);
/* distance.c. Rows of a distance_bias value. */
void distance_rows(const Source *s, const Value *v, int64_t from, int64_t count, float *out, Fault *fault);
/* by_distance.c. Rows of a distance_heads value. */
void distance_heads_rows(const Source *s, const Value *v, int64_t from, int64_t count, float *out, Fault *fault);
/* The form of a quantised value; and its rows as codes, which the caller frees. f: room for them as fp32. */
CodedForm rows_form(const Value *v);
void *rows_codes(const Source *s, const Value *v, int64_t from, int64_t count, float *f, Fault *fault);

#endif
