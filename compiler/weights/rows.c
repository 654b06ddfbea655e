/* rows.c - any range of rows of a value that is made of weights alone: tensors, and operations on them.
 *
 * Each operation says which rows of its arguments a row of its result needs, so no value in between is ever whole in
 * memory. Vectors are matrices of one column. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

/* --- leaves ---------------------------------------------------------------------------------- */

void rows_note(Fault *f, const Tensor *t, uint64_t index, float value)
{
    if (!f->found)
        *f = (Fault){true, t, index, value};
}

/* Whether all n elements are finite, eight bytes at a time. The sign bit is masked away; adding 1 to the lowest bit
 * of an exponent of all ones carries into it. */
bool rows_finite(const unsigned char *p, uint64_t n, DType type)
{
    const uint64_t bytes = n * dtype_size(type);
    const uint64_t mask = type == DT_FP32   ? 0x7f8000007f800000u
                          : type == DT_BF16 ? 0x7f807f807f807f80u
                                            : 0x7c007c007c007c00u;
    const uint64_t one = type == DT_FP32   ? 0x0080000000800000u
                         : type == DT_BF16 ? 0x0080008000800080u
                                           : 0x0400040004000400u;
    const uint64_t sign = type == DT_FP32 ? 0x8000000080000000u : 0x8000800080008000u;
    uint64_t carried = 0, i = 0;

    for (uint64_t x; i + 8 <= bytes; i += 8) {
        memcpy(&x, p + i, 8);
        carried |= (x & mask) + one;
    }
    if (i < bytes) {
        uint64_t x = 0;

        memcpy(&x, p + i, (size_t)(bytes - i));
        carried |= (x & mask) + one;
    }
    return !(carried & sign);
}

/* Whole rows of a tensor of codes as fp32. */
static void read_values(const Tensor *t, uint64_t from, uint64_t n, float *out, Fault *fault)
{
    const uint64_t columns = (uint64_t)t->dim[t->rank - 1];

    for (uint64_t i = 0; i < n; i += columns)
        coded_values(t, (int64_t)((from + i) / columns), out + i);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            rows_note(fault, t, from + i, out[i]);
}

/* The element of a tensor that has code k of a row of codes. */
static uint64_t element_of_code(const Tensor *t, int64_t row, int64_t k)
{
    const int64_t columns = coded_columns(t), N = t->dim[t->rank - 1];

    return (uint64_t)(t->coded->across ? (row / N * columns + k) * N + row % N : row * columns + k);
}

/* One row of a tensor of codes. */
static void read_codes(const Source *s, const Tensor *t, int64_t row, void *out, Fault *fault)
{
    const int64_t columns = coded_columns(t);
    const CodedRow to = coded_row(s->form, columns, out, 0);

    coded_read(t, row, s->form, &to);
    for (int64_t g = 0; g < columns / s->form->group; g++)
        if (!isfinite(to.scales[g]) || !isfinite(to.offsets[g]))
            rows_note(fault, t, element_of_code(t, row, g * s->form->group),
                      isfinite(to.scales[g]) ? to.offsets[g] : to.scales[g]);
    for (int64_t k = 0; s->form->type == DT_FP8 && k < columns; k++)
        if ((to.codes[k] & 0x7f) == 0x7f)
            rows_note(fault, t, element_of_code(t, row, k), NAN);
}

/* Elements [from, from + n) of a tensor, as they are stored or as fp32. */
static void read_elements(const Source *s, const Tensor *t, uint64_t from, uint64_t n, void *out, Fault *fault)
{
    const unsigned char *p = t->coded ? NULL : t->at + from * dtype_size(t->type);
    float *f = out;

    if (t->coded) {
        read_values(t, from, n, out, fault);
        return;
    }
    if (!rows_finite(p, n, t->type))
        for (uint64_t i = 0; i < n; i++)
            if (!isfinite(tensor_element(t, from + i)))
                rows_note(fault, t, from + i, tensor_element(t, from + i));
    if (s->type == t->type)
        memcpy(out, p, n * dtype_size(t->type));
    else if (t->type == DT_BF16)
        for (uint64_t i = 0; i < n; i++)
            f[i] = bf16_to_float(tensor_half(t, from + i));
    else
        for (uint64_t i = 0; i < n; i++)
            f[i] = fp16_to_float(tensor_half(t, from + i));
}

/* Column n of matrix x of a tensor of codes that has columns. */
static void read_column(const Tensor *t, int64_t x, int64_t n, int64_t rows, float *out, Fault *fault)
{
    t->coded->column(t, x, n, out);
    for (int64_t k = 0; k < rows; k++)
        if (!isfinite(out[k]))
            rows_note(fault, t, (uint64_t)((x * rows + k) * t->dim[t->rank - 1] + n), out[k]);
}

/* Columns [from, from + count) of matrix x of a tensor of matrices [rows,columns] as rows: [count, rows]. */
static void read_columns(const Source *s, const Tensor *t, int64_t x, int64_t rows, int64_t columns, int64_t from,
                         int64_t count, void *out, Fault *fault)
{
    for (int64_t j = 0; t->coded && j < count; j++)
        read_column(t, x, from + j, rows, (float *)out + j * rows, fault);
    for (int64_t k = 0; !t->coded && k < rows; k++)
        for (int64_t j = 0; j < count; j++) {
            const uint64_t i = (uint64_t)((x * rows + k) * columns + from + j);
            const float f = tensor_element(t, i);

            if (s->type == DT_FP32)
                ((float *)out)[j * rows + k] = f;
            else
                ((uint16_t *)out)[j * rows + k] = tensor_half(t, i);
            if (!isfinite(f))
                rows_note(fault, t, i, f);
        }
}

float *rows_floats(int64_t n)
{
    float *f = malloc((size_t)n * sizeof *f);

    if (!f)
        die("out of memory: %" PRId64 " elements", n);
    return f;
}

/* --- rows of a value ------------------------------------------------------------------------- */

/* Tensor i of a weight, or what an adapter has in its place. */
static const Tensor *tensor_of(const Source *s, const Value *v, int64_t i)
{
    const Merge *m = s->c ? checkpoint_merge(s->c, ir_word(v, "name")) : NULL;
    char name[TENSOR_MAX_NAME];
    const Tensor *t = m && m->replaced ? m->replaced : s->c ? checkpoint_tensor(s->c, s->spec, v, i, name) : NULL;

    if (!t || t->type == DT_NONE)
        die("weight %s is read before checkpoint_check", ir_word(v, "name"));
    return t;
}

static void *row_at(const Source *s, void *rows, int64_t i, int64_t elements)
{
    return (char *)rows +
           (size_t)i * (s->form ? coded_row_bytes(s->form, elements) : (size_t)elements * dtype_size(s->type));
}

/* Columns [from, from + count) of `rows` rows of value `arg`, from row `first` on. */
static void transpose_block(const Source *s, Id arg, int64_t first, int64_t rows, int64_t from, int64_t count,
                            void *out, Fault *fault)
{
    const Value *a = ir_value(s->g, arg);
    const int64_t columns = row_elements(a), each = a->op == OP_WEIGHT ? rows_count(a) / checkpoint_tensors(a) : 0;
    const bool whole = a->op == OP_WEIGHT && !ir_int(a, "stack") && rows == rows_count(a);
    const Tensor *t = a->op == OP_WEIGHT ? tensor_of(s, a, first / each) : NULL;
    const size_t size = dtype_size(s->type);
    char *row;

    if (s->form && t && t->coded->across) {
        for (int64_t j = 0; j < count; j++)
            read_codes(s, t, first % each / rows * columns + from + j, row_at(s, out, j, rows), fault);
        return;
    }
    if (t && (!t->coded || t->coded->column) && each % rows == 0 && (whole || !s->merging)) {
        read_columns(s, t, first % each / rows, rows, columns, from, count, out, fault);
        if (whole)
            merging_add(s->merging, arg, true, from, count, out);
        return;
    }
    row = malloc((size_t)columns * size); /* rare: the transpose of a computed value, or of codes */
    if (!row)
        die("out of memory: %" PRId64 " elements", columns);
    for (int64_t k = 0; k < rows; k++) {
        rows_read(s, arg, first + k, 1, row, fault);
        for (int64_t j = 0; j < count; j++)
            memcpy(row_at(s, out, j * rows + k, 1), row + (size_t)(from + j) * size, size);
    }
    free(row);
}

static void transpose_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t rows = row_elements(v), columns = rows_count(v) / ir_int(v, "stack");

    for (int64_t n; count; from += n, count -= n) {
        const int64_t left = columns - from % columns;

        n = count < left ? count : left;
        transpose_block(s, v->args[0], from / columns * rows, rows, from % columns, n, out, fault);
        out = row_at(s, out, n, rows);
    }
}

static void concat_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t row = row_elements(v);

    for (int i = 0; i < IR_MAX_ARGS && count; i++) {
        const int64_t have = v->args[i] ? rows_count(ir_value(s->g, v->args[i])) : 0;
        const int64_t n = from >= have ? 0 : count < have - from ? count : have - from;

        if (n) {
            rows_read(s, v->args[i], from, n, out, fault);
            out = row_at(s, out, n, row);
            count -= n;
            from += n;
        }
        from -= have;
    }
}

/* In each head of E rows, for i < rot/2, row 2i is the argument's row i and row 2i+1 its row i + rot/2. */
static void pairs_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t E = ir_int(v, "head_dim"), rot = ir_int(v, "rot"), row = row_elements(v);

    for (int64_t r = from; r < from + count; r++) {
        const int64_t i = r % E;
        const int64_t at = i >= rot ? i : i / 2 + (i % 2 ? rot / 2 : 0);

        rows_read(s, v->args[0], r - i + at, 1, row_at(s, out, r - from, row), fault);
    }
}

/* Rows of a ROWS value: a run of each block that they come from. */
static void rows_of_blocks(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t each = ir_int(v, "count"), row = row_elements(v);

    for (int64_t n, done = 0; done < count; done += n) {
        const int64_t block = (from + done) / each, at = (from + done) % each;

        n = each - at < count - done ? each - at : count - done;
        rows_read(s, v->args[0], block * ir_int(v, "every") + ir_int(v, "from") + at, n, row_at(s, out, done, row),
                  fault);
    }
}

static void plus_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    float *f = out;

    rows_read(s, v->args[0], from, count, out, fault);
    for (int64_t i = 0; i < count; i++)
        f[i] += (float)ir_float(v, "by"); /* NOLINT(clang-analyzer-core.uninitialized.Assign): rows_read fills them */
}

static void unit_rows(const Source *s, const Value *v, int64_t from, int64_t count, float *f, Fault *fault)
{
    const int64_t row = row_elements(v);

    rows_read(s, v->args[0], from, count, f, fault);
    for (int64_t r = 0; !fault->found && r < count; r++, f += row) {
        double squares = 0.0;
        float inverse;

        for (int64_t k = 0; k < row; k++) {
            const double x = f[k]; /* NOLINT(clang-analyzer-core.uninitialized.Assign): as above */

            squares += x * x;
        }
        inverse = (float)(1.0 / fmax(sqrt(squares), 1e-12));
        for (int64_t k = 0; k < row; k++)
            f[k] *= inverse;
    }
}

static void norm_rows(const Source *s, const Value *v, int64_t from, int64_t count, float *f, Fault *fault)
{
    const int64_t row = row_elements(v);
    float *g = rows_floats(2 * row), *b = g + row;

    rows_read(s, v->args[0], from, count, f, fault);
    rows_read(s, v->args[1], 0, row, g, fault);
    rows_read(s, v->args[2], 0, row, b, fault);
    for (int64_t r = 0; r < count && !fault->found; r++, f += row) {
        double mean = 0.0, squares = 0.0;

        for (int64_t k = 0; k < row; k++)
            mean += (double)f[k] / (double)row; /* NOLINT(clang-analyzer-core.uninitialized.Assign): as above */
        for (int64_t k = 0; k < row; k++)
            squares += ((double)f[k] - mean) * ((double)f[k] - mean) / (double)row;
        for (int64_t k = 0; k < row; k++)
            f[k] = (float)(((double)f[k] - mean) / sqrt(squares + ir_float(v, "eps")) * (double)g[k] + (double)b[k]);
    }
    free(g);
}

/* Rows of a weight, which may lie in several tensors of as many rows each. */
static void weight_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t row = row_elements(v), each = rows_count(v) / checkpoint_tensors(v);

    for (int64_t n; count; from += n, count -= n) {
        const int64_t left = each - from % each;

        n = count < left ? count : left;
        for (int64_t i = 0; s->form && i < n; i++)
            read_codes(s, tensor_of(s, v, from / each), from % each + i, row_at(s, out, i, row), fault);
        if (!s->form)
            read_elements(s, tensor_of(s, v, from / each), (uint64_t)(from % each * row), (uint64_t)(n * row), out,
                          fault);
        out = row_at(s, out, n, row);
    }
}

CodedForm rows_form(const Value *v)
{
    return (CodedForm){dtype_parse(ir_word(v, "to")), (PackedScales)ir_int(v, "scales"), ir_int(v, "group")};
}

void *rows_codes(const Source *s, const Value *v, int64_t from, int64_t count, float *f, Fault *fault)
{
    const CodedForm form = rows_form(v);
    const int64_t columns = row_elements(v);
    const bool stored = ir_int(v, "stored") != 0;
    Source as = *s;
    void *codes = malloc(coded_row_bytes(&form, columns) * (size_t)count);

    if (!codes)
        die("out of memory: %" PRId64 " rows of codes", count);
    as.form = stored ? &form : NULL;
    rows_read(&as, v->args[0], from, count, stored ? codes : f, fault);
    for (int64_t r = 0; !stored && !fault->found && r < count; r++) {
        const CodedRow to = coded_row(&form, columns, codes, r);

        quantise_row(f + r * columns, columns, &form, s->inputs, &to);
    }
    return codes;
}

/* The rows of a quantised value, which are to be read as fp32, as its readers will see them. */
static void quantised_rows(const Source *s, const Value *v, int64_t from, int64_t count, float *out, Fault *fault)
{
    void *codes = rows_codes(s, v, from, count, out, fault);
    const CodedForm form = rows_form(v);
    const int64_t columns = row_elements(v);

    for (int64_t r = 0; !fault->found && r < count; r++) {
        const CodedRow row = coded_row(&form, columns, codes, r);

        coded_row_values(&form, columns, &row, out + r * columns);
    }
    free(codes);
}

void rows_read(const Source *s, Id id, int64_t from, int64_t count, void *out, Fault *fault)
{
    const Value *v = ir_value(s->g, id);
    const int64_t row = row_elements(v);

    if (v->op == OP_WEIGHT) {
        weight_rows(s, v, from, count, out, fault);
        if (!s->form)
            merging_add(s->merging, id, false, from, count, out);
    } else if (v->op == OP_TRANSPOSE)
        transpose_rows(s, v, from, count, out, fault);
    else if (v->op == OP_CONCAT)
        concat_rows(s, v, from, count, out, fault);
    else if (v->op == OP_INTERLEAVE)
        for (int64_t r = from; r < from + count; r++)
            rows_read(s, v->args[r % 2], r / 2, 1, row_at(s, out, r - from, row), fault);
    else if (v->op == OP_PAIRS)
        pairs_rows(s, v, from, count, out, fault);
    else if (v->op == OP_ROWS)
        rows_of_blocks(s, v, from, count, out, fault);
    else if (v->op == OP_REPEAT)
        for (int64_t r = from; r < from + count; r++)
            rows_read(s, v->args[0], r / ir_int(v, "times"), 1, row_at(s, out, r - from, row), fault);
    else if (v->op == OP_PART)
        part_rows(s, v, from, count, out, fault);
    else if (v->op == OP_PLUS)
        plus_rows(s, v, from, count, out, fault);
    else if (v->op == OP_UNIT_ROWS)
        unit_rows(s, v, from, count, out, fault);
    else if (v->op == OP_NORM_ROWS)
        norm_rows(s, v, from, count, out, fault);
    else if (v->op == OP_FILL)
        for (int64_t i = 0; i < count; i++)
            ((float *)out)[i] = (float)ir_float(v, "value");
    else if (v->op == OP_ALIBI)
        alibi_rows(v, from, count, out);
    else if (v->op == OP_DISTANCE_BIAS)
        distance_rows(s, v, from, count, out, fault);
    else if (v->op == OP_DISTANCE_HEADS)
        distance_heads_rows(s, v, from, count, out, fault);
    else if (v->op == OP_QUANTISE)
        quantised_rows(s, v, from, count, out, fault);
    else if (v->op == OP_ROPE_TABLE)
        rope_rows(v, from, count, out);
    else if (v->op == OP_SINUSOID)
        sinusoid_rows(v, from, count, out);
    else
        die("%s is no weight-only op", ir_op_name(v->op));
}

bool rows_stored_as(const Source *s, Id id, DType type)
{
    const Value *v = ir_value(s->g, id);

    if (s->merging)
        return false;
    for (int64_t i = 0; v->op == OP_WEIGHT && i < checkpoint_tensors(v); i++)
        if (tensor_of(s, v, i)->coded || tensor_of(s, v, i)->type != type)
            return false;
    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (v->args[i] && !rows_stored_as(s, v->args[i], type))
            return false;
    return v->op != OP_PLUS && v->op != OP_UNIT_ROWS && v->op != OP_NORM_ROWS && v->op != OP_DISTANCE_HEADS &&
           v->op != OP_QUANTISE && !ir_op_is_table(v->op);
}
