/* coded.h - tensors that a file holds as codes of few bits with scales: what a reader of a format gives, and how rows are
 * taken from it into packed weights without being quantised again.
 *
 *   w[n,k] = scale[n, k / group] * (code[n,k] - zero[n, k / group])
 *   w[n,k] = scale[n, k / group] * code[n,k] - minimum[n, k / group]        with minima
 *   w[n,k] = scale[n, k / group] * number of code[n,k]                      fp8
 *
 * A reader (one file a format) makes one Tensor of all that belongs to a matrix: its name is the weight's ("x.weight"), its
 * shape is that of the values ([N,K], an output a row), and `coded` says how one row of it is read. The rest of the room
 * sees no format. Rows are taken in any order, so matrices are joined, cut and permuted as those of 16 bits are (rows.c).
 * Matrices of several forms in one weight have the least form that holds all of them (passes/quantise.c).
 *
 * A reader promises, and checks when the checkpoint is opened: the group divides a row, codes are below 16 (int4) or 256
 * (int8, fp8), scales of PACKED_FP16 and PACKED_FP16_ZEROS are fp16 numbers, zeros are whole numbers of 0 to 255. Scales and
 * minima that are not finite, and codes of fp8 that are NaN, are found while rows are packed. A format whose groups are longer than 128 repeats scales. */
#ifndef FTXC_CODED_H
#define FTXC_CODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../runtime/base/packed.h"

struct Tensor;

typedef struct CodedForm {
    DType type; /* DT_INT4, DT_INT8, DT_FP8; DT_NONE: no form of codes holds the values, they are read as fp32 only */
    PackedScales scales; /* what a group has */
    int64_t group;       /* elements of a row that share a scale: 16, 32, 64 or 128 */
} CodedForm;

typedef struct CodedRow {
    float *scales; /* [K / group] */
    float
        *offsets; /* [K / group] of PACKED_FP16_ZEROS zeros, of PACKED_FP32_MINIMA minima; else the reader leaves it */
    uint8_t *codes; /* [K], unsigned: the symmetric zero is 8 (int4) or 128 (int8); e4m3 (fp8) */
} CodedRow;

typedef struct Coded {
    CodedForm form;
    /* Reads one row of [N,K], or of [X,N,K] row x * N + n. codes: as form says; NULL if form.type is DT_NONE. values: as
     * fp32; NULL: they are computed from codes. */
    void (*codes)(const struct Tensor *t, int64_t row, const CodedRow *to);
    void (*values)(const struct Tensor *t, int64_t row, float *to);
    /* Column n of matrix x of [X,K,N] (x 0: of [K,N]) as fp32, where a file has it in a row: what a transpose reads. NULL:
     * a transpose reads rows. */
    void (*column)(const struct Tensor *t, int64_t x, int64_t n, float *to);
    bool across; /* form and codes are those of the transpose of each matrix: rows x * N + n of [X,N,K] for [X,K,N] */
    const void *parts; /* the reader's own: the tensors of the file */
} Coded;

/* Rows of codes in memory, one after another: scales, offsets and codes of each. */
size_t coded_row_bytes(const CodedForm *f, int64_t columns);
CodedRow coded_row(const CodedForm *f, int64_t columns, void *rows, int64_t row);

/* Elements of a row of codes. */
int64_t coded_columns(const struct Tensor *t);

/* A row of a tensor in a form that holds its own: a type of as many bits or more (fp8: fp8), a group that divides its group, fp32 where
 * it has fp32, zeros or minima where it has them. Offsets are always written: a symmetric zero is one. */
void coded_read(const struct Tensor *t, int64_t row, const CodedForm *as, const CodedRow *to);

/* A row of a tensor as fp32; a row of codes as fp32. */
void coded_values(const struct Tensor *t, int64_t row, float *to);
void coded_row_values(const CodedForm *f, int64_t columns, const CodedRow *row, float *to);

#endif
