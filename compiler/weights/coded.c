/* coded.c - rows of tensors that a file holds as codes: in their own form, in one that they share with others, as fp32. */
#include "coded.h"

#include <stdlib.h>

#include "tensors.h"

static bool has_zeros(PackedScales s)
{
    return s == PACKED_FP16_ZEROS || s == PACKED_FP32_MINIMA;
}

size_t coded_row_bytes(const CodedForm *f, int64_t columns)
{
    return (size_t)(columns / f->group) * 2 * sizeof(float) + (size_t)columns;
}

CodedRow coded_row(const CodedForm *f, int64_t columns, void *rows, int64_t row)
{
    float *scales = (float *)(void *)((char *)rows + (size_t)row * coded_row_bytes(f, columns));
    const int64_t groups = columns / f->group;

    return (CodedRow){scales, scales + groups, (uint8_t *)(scales + 2 * groups)};
}

int64_t coded_columns(const Tensor *t)
{
    return t->dim[t->rank - (t->coded->across ? 2 : 1)];
}

/* A row in the tensor's own form. */
static void read_own(const Tensor *t, int64_t row, const CodedRow *to)
{
    const CodedForm *f = &t->coded->form;
    const int64_t groups = coded_columns(t) / f->group;

    for (int64_t g = 0; g < groups && !has_zeros(f->scales); g++)
        to->offsets[g] = (float)packed_zero(f->type);
    t->coded->codes(t, row, to);
}

void coded_read(const Tensor *t, int64_t row, const CodedForm *as, const CodedRow *to)
{
    const CodedForm *own = &t->coded->form;
    const int64_t columns = coded_columns(t);
    const bool symmetric = !has_zeros(as->scales), minima = as->scales == PACKED_FP32_MINIMA;
    const uint32_t up = symmetric ? packed_zero(as->type) - packed_zero(own->type) : 0;
    CodedRow from;
    void *memory;

    if (own->type == as->type && own->scales == as->scales && own->group == as->group) {
        read_own(t, row, to);
        return;
    }
    memory = malloc(coded_row_bytes(own, columns));
    if (!memory)
        die("out of memory: a row of %s", t->name);
    from = coded_row(own, columns, memory, 0);
    read_own(t, row, &from);
    for (int64_t g = 0; g < columns / as->group; g++) {
        const int64_t of = g * as->group / own->group;
        const bool scaled = minima && own->scales != PACKED_FP32_MINIMA; /* a zero becomes a minimum */

        to->scales[g] = from.scales[of];
        to->offsets[g] = scaled ? from.scales[of] * from.offsets[of] : from.offsets[of] + (float)up;
    }
    for (int64_t k = 0; k < columns; k++)
        to->codes[k] = (uint8_t)(from.codes[k] + up);
    free(memory);
}

void coded_row_values(const CodedForm *f, int64_t columns, const CodedRow *row, float *to)
{
    for (int64_t k = 0; k < columns; k++) {
        const float scale = row->scales[k / f->group], offset = row->offsets[k / f->group];

        to[k] = f->type == DT_FP8                 ? scale * e4m3_to_float(row->codes[k])
                : f->scales == PACKED_FP32_MINIMA ? scale * (float)row->codes[k] - offset
                                                  : scale * ((float)row->codes[k] - offset);
    }
}

void coded_values(const Tensor *t, int64_t row, float *to)
{
    const CodedForm *f = &t->coded->form;
    const int64_t columns = t->dim[t->rank - 1];
    CodedRow codes;
    void *memory;

    if (t->coded->values) {
        t->coded->values(t, row, to);
        return;
    }
    memory = malloc(coded_row_bytes(f, columns));
    if (!memory)
        die("out of memory: a row of %s", t->name);
    codes = coded_row(f, columns, memory, 0);
    read_own(t, row, &codes);
    coded_row_values(f, columns, &codes, to);
    free(memory);
}
