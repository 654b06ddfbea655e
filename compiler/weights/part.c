/* part.c - the piece of a weight that a rank holds: rows, padded with zeros at the end, or columns.
 *
 *   w [N,K], of = 2, rank 1    dim=0: rows N/2 .. N-1     dim=1: columns K/2 .. K-1 of every row
 *
 * With a stack of matrices each of them is cut. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

static size_t bytes_of(const Source *s, int64_t elements)
{
    return s->form ? coded_row_bytes(s->form, elements) : (size_t)elements * dtype_size(s->type);
}

/* Elements [from, from + n) of a row of `columns`. */
static void cut(const Source *s, void *row, int64_t columns, int64_t from, int64_t n, void *out)
{
    const int64_t group = s->form ? s->form->group : 1;
    CodedRow all, piece;

    if (!s->form) {
        memcpy(out, (char *)row + bytes_of(s, from), bytes_of(s, n));
        return;
    }
    all = coded_row(s->form, columns, row, 0);
    piece = coded_row(s->form, n, out, 0);
    memcpy(piece.scales, all.scales + from / group, (size_t)(n / group) * sizeof *piece.scales);
    memcpy(piece.offsets, all.offsets + from / group, (size_t)(n / group) * sizeof *piece.offsets);
    memcpy(piece.codes, all.codes + from, (size_t)n);
}

static void part_columns(const Source *s, const Value *v, int64_t piece, int64_t from, int64_t count, void *out,
                         Fault *fault)
{
    const int64_t columns = row_elements(ir_value(s->g, v->args[0])), n = row_elements(v);
    char *row = malloc(bytes_of(s, columns));

    if (!row)
        die("out of memory: %" PRId64 " elements", columns);
    for (int64_t r = 0; r < count; r++) {
        rows_read(s, v->args[0], from + r, 1, row, fault);
        cut(s, row, columns, piece * n, n, (char *)out + (size_t)r * bytes_of(s, n));
    }
    free(row);
}

void part_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t piece = s->rank * ir_int(v, "of") / ir_ranks(s->g), stack = ir_int(v, "stack");
    const int64_t whole = rows_count(ir_value(s->g, v->args[0])) / stack, each = rows_count(v) / stack;
    const size_t row = bytes_of(s, row_elements(v));

    if (ir_int(v, "first") && s->rank == 0) {
        rows_read(s, v->args[0], from, count, out, fault);
        return;
    }
    if (ir_int(v, "first")) {
        memset(out, 0, row * (size_t)count);
        return;
    }
    if (ir_int(v, "dim")) {
        part_columns(s, v, piece, from, count, out, fault);
        return;
    }
    for (int64_t n; count; from += n, count -= n) {
        const int64_t at = from % each, there = whole - piece * each - at;

        n = each - at < count ? each - at : count;
        n = there > 0 && there < n ? there : n;
        if (there > 0)
            rows_read(s, v->args[0], from / each * whole + piece * each + at, n, out, fault);
        else
            memset(out, 0, row * (size_t)n);
        out = (char *)out + row * (size_t)n;
    }
}
