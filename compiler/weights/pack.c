/* pack.c - evaluates the values that are made of weights alone: row by row, converted, written in a stream.
 *
 * Each operation on weights says which rows of its arguments a row of its result needs. So any range of rows of a
 * nest of operations is computed without the values in between, and 16 GB pass through a window of CHUNKS pieces.
 * Threads fill and write the pieces of a window; one of them hashes it in order.
 *
 *   value  [N,K] or [N]:  |-- chunk 0 --|-- chunk 1 --| ... |-- chunk 15 --|  next window ...
 *
 * Vectors are matrices of one column.
 *
 * The gain g and the shift c of a norm are folded into the linear w, b that reads it (Fold in catalog.h):
 *
 *   layernorm(x, g, c) w^T + b = (x - mean) / sd * g w^T + c w^T + b = 1 / sd * x w'^T + b'
 *
 *   w'[n,k] = w[n,k] g[k] - mean of w[n,.] g        b'[n] = b[n] + sum over k of w[n,k] c[k]
 *
 * Rows of w' have the mean 0. So x' = x - mean needs no subtraction: what is added to all elements of x adds 0. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"
#include "../../runtime/base/hash.h"
#include "../../runtime/base/memory.h"
#include "../../runtime/base/team.h"

enum { CHUNK_BYTES = 1 << 20, CHUNKS = 16, TABLE_ALIGN = 256 };

typedef struct Source {
    const Checkpoint *c; /* NULL: tables only */
    const Spec *spec;
    const Graph *g;
    DType type; /* of the rows that are read: fp32, or the type in which all their tensors are stored */
    const Merging *merging;
} Source;

/* The first value that is refused: NaN, infinity, or too large for the packed type. */
typedef struct Fault {
    bool found;
    const Tensor *tensor; /* NULL: the value does not fit into the packed type */
    uint64_t index;       /* element of the tensor, or of the packed value */
    float value;
} Fault;

static int64_t rows_count(const Value *v)
{
    return v->shape.dim[0].n;
}

static int64_t row_elements(const Value *v)
{
    int64_t n = 1;

    for (uint32_t i = 1; i < v->shape.rank; i++)
        n *= v->shape.dim[i].n;
    return n;
}

/* --- leaves ---------------------------------------------------------------------------------- */

static void note(Fault *f, const Tensor *t, uint64_t index, float value)
{
    if (!f->found)
        *f = (Fault){true, t, index, value};
}

/* Whether all n elements are finite, eight bytes at a time. The sign bit is masked away; adding 1 to the lowest bit
 * of an exponent of all ones carries into it. */
static bool all_finite(const unsigned char *p, uint64_t n, DType type)
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

/* Elements [from, from + n) of a tensor, as they are stored or as fp32. */
static void read_elements(const Source *s, const Tensor *t, uint64_t from, uint64_t n, void *out, Fault *fault)
{
    const unsigned char *p = t->at + from * dtype_size(t->type);
    float *f = out;

    if (!all_finite(p, n, t->type))
        for (uint64_t i = 0; i < n; i++)
            if (!isfinite(tensor_element(t, from + i)))
                note(fault, t, from + i, tensor_element(t, from + i));
    if (s->type == t->type)
        memcpy(out, p, n * dtype_size(t->type));
    else if (t->type == DT_BF16)
        for (uint64_t i = 0; i < n; i++)
            f[i] = bf16_to_float(tensor_half(t, from + i));
    else
        for (uint64_t i = 0; i < n; i++)
            f[i] = fp16_to_float(tensor_half(t, from + i));
}

/* Columns [from, from + count) of a stored matrix [K,N] as rows: [count, K]. */
static void read_columns(const Source *s, const Tensor *t, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t rows = t->dim[0], columns = t->dim[1];

    for (int64_t k = 0; k < rows; k++)
        for (int64_t j = 0; j < count; j++) {
            const uint64_t i = (uint64_t)(k * columns + from + j);
            const float f = tensor_element(t, i);

            if (s->type == DT_FP32)
                ((float *)out)[j * rows + k] = f;
            else
                ((uint16_t *)out)[j * rows + k] = tensor_half(t, i);
            if (!isfinite(f))
                note(fault, t, i, f);
        }
}

static float *floats(int64_t n)
{
    float *f = malloc((size_t)n * sizeof *f);

    if (!f)
        die("out of memory: %" PRId64 " elements", n);
    return f;
}

/* --- rows of a value ------------------------------------------------------------------------- */

static void read_rows(const Source *s, Id id, int64_t from, int64_t count, void *out, Fault *fault);

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
    return (char *)rows + (size_t)(i * elements) * dtype_size(s->type);
}

static void transpose_rows(const Source *s, Id arg, int64_t from, int64_t count, void *out, Fault *fault)
{
    const Value *a = ir_value(s->g, arg);
    const int64_t rows = rows_count(a), columns = row_elements(a);
    const size_t size = dtype_size(s->type);
    char *row;

    if (a->op == OP_WEIGHT && !ir_int(a, "stack")) {
        read_columns(s, tensor_of(s, a, 0), from, count, out, fault);
        merging_add(s->merging, arg, true, from, count, out);
        return;
    }
    row = malloc((size_t)columns * size); /* rare: the transpose of a computed value */
    if (!row)
        die("out of memory: %" PRId64 " elements", columns);
    for (int64_t k = 0; k < rows; k++) {
        read_rows(s, arg, k, 1, row, fault);
        for (int64_t j = 0; j < count; j++)
            memcpy(row_at(s, out, j * rows + k, 1), row + (size_t)(from + j) * size, size);
    }
    free(row);
}

static void concat_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t row = row_elements(v);

    for (int i = 0; i < IR_MAX_ARGS && count; i++) {
        const int64_t have = v->args[i] ? rows_count(ir_value(s->g, v->args[i])) : 0;
        const int64_t n = from >= have ? 0 : count < have - from ? count : have - from;

        if (n) {
            read_rows(s, v->args[i], from, n, out, fault);
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

        read_rows(s, v->args[0], r - i + at, 1, row_at(s, out, r - from, row), fault);
    }
}

/* Rows of a ROWS value: a run of each block that they come from. */
static void rows_of_blocks(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t each = ir_int(v, "count"), row = row_elements(v);

    for (int64_t n, done = 0; done < count; done += n) {
        const int64_t block = (from + done) / each, at = (from + done) % each;

        n = each - at < count - done ? each - at : count - done;
        read_rows(s, v->args[0], block * ir_int(v, "every") + ir_int(v, "from") + at, n, row_at(s, out, done, row),
                  fault);
    }
}

static void plus_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    float *f = out;

    read_rows(s, v->args[0], from, count, out, fault);
    for (int64_t i = 0; i < count; i++)
        f[i] += (float)ir_float(v, "by");
}

/* Rows of a weight, which may lie in several tensors of as many rows each. */
static void weight_rows(const Source *s, const Value *v, int64_t from, int64_t count, void *out, Fault *fault)
{
    const int64_t row = row_elements(v), each = rows_count(v) / checkpoint_tensors(v);

    for (int64_t n; count; from += n, count -= n) {
        const int64_t left = each - from % each;

        n = count < left ? count : left;
        read_elements(s, tensor_of(s, v, from / each), (uint64_t)(from % each * row), (uint64_t)(n * row), out, fault);
        out = row_at(s, out, n, row);
    }
}

static void read_rows(const Source *s, Id id, int64_t from, int64_t count, void *out, Fault *fault)
{
    const Value *v = ir_value(s->g, id);
    const int64_t row = row_elements(v);

    if (v->op == OP_WEIGHT) {
        weight_rows(s, v, from, count, out, fault);
        merging_add(s->merging, id, false, from, count, out);
    } else if (v->op == OP_TRANSPOSE)
        transpose_rows(s, v->args[0], from, count, out, fault);
    else if (v->op == OP_CONCAT)
        concat_rows(s, v, from, count, out, fault);
    else if (v->op == OP_INTERLEAVE)
        for (int64_t r = from; r < from + count; r++)
            read_rows(s, v->args[r % 2], r / 2, 1, row_at(s, out, r - from, row), fault);
    else if (v->op == OP_PAIRS)
        pairs_rows(s, v, from, count, out, fault);
    else if (v->op == OP_ROWS)
        rows_of_blocks(s, v, from, count, out, fault);
    else if (v->op == OP_PLUS)
        plus_rows(s, v, from, count, out, fault);
    else if (v->op == OP_FILL)
        for (int64_t i = 0; i < count; i++)
            ((float *)out)[i] = (float)ir_float(v, "value");
    else if (v->op == OP_ROPE_TABLE)
        rope_rows(v, from, count, out);
    else if (v->op == OP_SINUSOID)
        sinusoid_rows(v, from, count, out);
    else
        die("%s is no weight-only op", ir_op_name(v->op));
}

/* Whether every tensor that a value is made of is stored as `type`, and neither an adapter nor an op adds to it. Then its
 * rows are copied without conversion. */
static bool stored_as(const Source *s, Id id, DType type)
{
    const Value *v = ir_value(s->g, id);

    if (s->merging)
        return false;
    for (int64_t i = 0; v->op == OP_WEIGHT && i < checkpoint_tensors(v); i++)
        if (tensor_of(s, v, i)->type != type)
            return false;
    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (v->args[i] && !stored_as(s, v->args[i], type))
            return false;
    return v->op != OP_PLUS && !ir_op_is_table(v->op);
}

/* --- conversion ------------------------------------------------------------------------------ */

static void convert(const float *in, uint64_t n, uint64_t first, DType type, void *out, Fault *fault)
{
    uint16_t *half = out;

    if (type == DT_FP32)
        memcpy(out, in, n * sizeof *in);
    else if (type == DT_BF16)
        for (uint64_t i = 0; i < n; i++)
            half[i] = bf16_from_float(in[i]);
    else
        for (uint64_t i = 0; i < n; i++)
            half[i] = fp16_from_float(in[i]);
    if (!all_finite(out, n, type))
        for (uint64_t i = 0; i < n; i++)
            if (!isfinite(dtype_load(out, i, type)))
                note(fault, NULL, first + i, in[i]);
}

static bool report(const Source *s, Id id, DType type, const Fault *f, Diag *d)
{
    const Value *v = ir_value(s->g, id);
    Arena *a = arena_open();
    const char *at = "";
    uint64_t index = f->index;

    const uint32_t rank = f->tensor ? f->tensor->rank : v->shape.rank;
    for (uint32_t i = rank; i-- > 0;) {
        const uint64_t n = (uint64_t)(f->tensor ? f->tensor->dim[i] : v->shape.dim[i].n);

        at = arena_printf(a, "%" PRIu64 "%s%s", index % n, *at ? "," : "", at);
        index /= n;
    }
    if (f->tensor)
        diag_error(d, (Loc){f->tensor->path, 0}, "tensor \"%.200s\": element [%s] is %s", f->tensor->name, at,
                   isnan(f->value) ? "NaN"
                   : f->value < 0  ? "-infinity"
                                   : "infinity");
    else
        diag_error(d, (Loc){s->c->path, 0}, "weight \"%.200s\": element [%s] is %g, more than %s can hold",
                   weights_name(s->g, id, a), at, (double)f->value, dtype_name(type));
    arena_close(a);
    return false;
}

/* --- the stream ------------------------------------------------------------------------------ */

typedef struct Stream {
    FileOut *out;
    uint64_t at, done, all; /* file offset of byte 0; bytes so far and in all */
    HashStream *hash;
    Team *team;            /* NULL: no value was large enough */
    unsigned char *window; /* [CHUNKS][chunk bytes] */
    size_t window_bytes;
    void (*progress)(void *user, uint64_t done, uint64_t all);
    void *user;
    Diag *d;
} Stream;

/* Hashes and counts bytes that were written. */
static void account(Stream *s, const void *p, size_t bytes)
{
    if (!bytes)
        return;
    hash_stream_add(s->hash, p, bytes);
    s->done += bytes;
    if (s->progress)
        s->progress(s->user, s->done, s->all);
}

static bool pad_to(Stream *s, uint64_t offset)
{
    static const unsigned char zeros[4096];

    if (offset < s->done)
        die("packed weights overlap at byte %" PRIu64, offset);
    while (s->done < offset) {
        const uint64_t left = offset - s->done;
        const size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
        FtxError err;

        if (file_write_at(s->out, s->at + s->done, zeros, n, &err))
            return diag_machine(s->d, "%s", err.text);
        account(s, zeros, n);
    }
    return true;
}

static unsigned char *window_of(Stream *s, size_t bytes)
{
    if (s->window_bytes < bytes) {
        free(s->window);
        s->window = malloc(bytes);
        if (!s->window)
            die("out of memory: %zu bytes", bytes);
        s->window_bytes = bytes;
    }
    return s->window;
}

/* Multiplies rows of a matrix by the gain and subtracts their mean. */
static void fold_gain(const float *gain, int64_t count, int64_t row, float *f)
{
    for (int64_t r = 0; r < count; r++, f += row) {
        double mean = 0;

        for (int64_t k = 0; k < row; k++)
            mean += (double)f[k] * (double)gain[k] / (double)row;
        for (int64_t k = 0; k < row; k++)
            f[k] = (float)((double)f[k] * (double)gain[k] - mean);
    }
}

/* Adds to elements [first, first + count) of a bias the products of those rows of the matrix with the shift. */
static void fold_shift(const Source *source, Id matrix, const float *shift, int64_t first, int64_t count, float *f,
                       Fault *fault)
{
    const int64_t row = row_elements(ir_value(source->g, matrix));
    float *w = floats(row);

    for (int64_t r = 0; r < count; r++) {
        double sum = (double)f[r];

        read_rows(source, matrix, first + r, 1, w, fault);
        for (int64_t k = 0; k < row; k++)
            sum += (double)w[k] * (double)shift[k];
        f[r] = (float)sum;
    }
    free(w);
}

/* Packs the rows of a piece: copies them, or reads them as fp32 (into f), folds and converts them. fold: the gain or
 * the shift; NULL: none. */
static void pack_piece(const Source *source, const PackedWeight *w, const float *fold, int64_t first, int64_t count,
                       int64_t row, float *f, void *out, Fault *fault)
{
    if (!f) {
        read_rows(source, w->value, first, count, out, fault);
        return;
    }
    read_rows(source, w->value, first, count, f, fault);
    if (w->fold.gain)
        fold_gain(fold, count, row, f);
    if (w->fold.shift)
        fold_shift(source, w->fold.matrix, fold, first, count, f, fault);
    if (!fault->found)
        convert(f, (uint64_t)(count * row), (uint64_t)(first * row), w->type, out, fault);
}

/* The values of the gain or the shift that is folded into a weight; NULL: none. */
static float *read_fold(const Source *source, const PackedWeight *w, Fault *fault)
{
    const Id id = w->fold.gain ? w->fold.gain : w->fold.shift;
    float *f = id ? floats(rows_count(ir_value(source->g, id))) : NULL;

    if (id)
        read_rows(source, id, 0, rows_count(ir_value(source->g, id)), f, fault);
    return f;
}

/* A window of a value: pieces of `step` rows, packed and written by the threads of the team. */
typedef struct Window {
    const Stream *stream;
    const Source *source;
    const PackedWeight *w;
    const float *fold; /* as in pack_piece */
    int64_t first, n, step, row;
    int chunks;
    unsigned char *at; /* [n][row] of w->type */
    Fault faults[CHUNKS];
    FtxError errors[CHUNKS];
} Window;

/* TeamJob: every so many of the window's pieces. */
static void pack_share(void *user, int piece, int share, int shares)
{
    Window *v = user;
    const size_t row_bytes = (size_t)v->row * dtype_size(v->w->type);
    float *f = v->source->type == v->w->type && !v->fold ? NULL : floats(v->step * v->row);

    (void)piece;
    for (int i = share; i < v->chunks; i += shares) {
        const int64_t from = i * v->step, left = v->n - from, count = left < v->step ? left : v->step;
        unsigned char *to = v->at + (size_t)from * row_bytes;

        pack_piece(v->source, v->w, v->fold, v->first + from, count, v->row, f, to, &v->faults[i]);
        if (!v->faults[i].found)
            file_write_at(v->stream->out, v->stream->at + v->stream->done + (size_t)from * row_bytes, to,
                          (size_t)count * row_bytes, &v->errors[i]);
    }
    free(f);
}

static bool put_window(Stream *s, Window *v)
{
    const Memory memory = memory_of(NULL);
    const int cpus = team_default_threads();
    FtxError err;

    if (v->chunks > 1 && !s->team && team_open(&memory, cpus < CHUNKS ? cpus : CHUNKS, &s->team, &err))
        return diag_machine(s->d, "%s", err.text);
    if (v->chunks > 1)
        team_run(s->team, pack_share, v, 1);
    else
        pack_share(v, 0, 0, 1);
    for (int i = 0; i < v->chunks; i++)
        if (v->faults[i].found)
            return report(v->source, v->w->value, v->w->type, &v->faults[i], s->d);
        else if (v->errors[i].status)
            return diag_machine(s->d, "%s", v->errors[i].text);
    account(s, v->at, (size_t)(v->n * v->row) * dtype_size(v->w->type));
    return true;
}

/* Packs a value window by window. fold: as in pack_piece. */
static bool put_rows(Stream *s, const Source *source, const PackedWeight *w, const float *fold)
{
    const Value *v = ir_value(source->g, w->value);
    const int64_t rows = rows_count(v), row = row_elements(v);
    const int64_t read = w->fold.matrix ? row_elements(ir_value(source->g, w->fold.matrix)) : row;
    const int64_t fit = CHUNK_BYTES / 4 / (read ? read : 1), step = fit > 0 ? fit : 1;

    for (int64_t first = 0; first < rows; first += step * CHUNKS) {
        const int64_t left = rows - first, n = left < step * CHUNKS ? left : step * CHUNKS;
        const int chunks = (int)((n + step - 1) / step);
        Window window = {.stream = s,
                         .source = source,
                         .w = w,
                         .fold = fold,
                         .first = first,
                         .n = n,
                         .step = step,
                         .row = row,
                         .chunks = chunks,
                         .at = window_of(s, (size_t)(chunks * step * row) * dtype_size(w->type))};

        if (!put_window(s, &window))
            return false;
    }
    return true;
}

static bool put_value(Stream *s, Source source, const PackedWeight *w)
{
    const Value *v = ir_value(source.g, w->value);
    const Id values[] = {w->value, w->fold.gain, w->fold.shift, w->fold.matrix};
    Fault fault = {0};
    Merging *merging;
    float *fold;
    bool ok;

    if (w->bytes != (uint64_t)rows_count(v) * (uint64_t)row_elements(v) * dtype_size(w->type) || w->type < DT_FP32 ||
        w->type > DT_BF16)
        die("weight %%%u is planned as %" PRIu64 " bytes of %s", w->value, w->bytes, dtype_name(w->type));
    merging = source.c ? merging_open(source.c, source.spec, values, LEN(values)) : NULL;
    source.merging = merging;
    fold = read_fold(&source, w, &fault);
    if (!fold && stored_as(&source, w->value, w->type))
        source.type = w->type;
    ok = fault.found ? report(&source, w->value, w->type, &fault, s->d) : put_rows(s, &source, w, fold);
    merging_close(merging);
    free(fold);
    if (ok && source.c && w->bytes >= CHUNK_BYTES)
        checkpoint_forget(source.c);
    return ok;
}

/* --- weights.h -------------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const PackedWeight *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

uint64_t weights_stored_bytes(const Packing *packing, bool tables_only)
{
    uint64_t bytes = 0;

    if (!tables_only)
        return packing->bytes;
    for (size_t i = 0; i < packing->weights.n; i++)
        if (packing->weights.at[i].kind == FTX_WEIGHT_TABLE)
            bytes = round_up(bytes, TABLE_ALIGN) + packing->weights.at[i].bytes;
    return bytes;
}

bool weights_pack(const Checkpoint *c, const Spec *spec, const Packing *packing, FileOut *out, uint64_t at,
                  uint64_t *checksum, void (*progress)(void *user, uint64_t done, uint64_t all), void *user, Diag *d)
{
    const Source source = {c, spec, spec->graph, DT_FP32, NULL};
    Stream s = {.out = out,
                .at = at,
                .all = weights_stored_bytes(packing, !c),
                .hash = hash_stream_new(),
                .progress = progress,
                .user = user,
                .d = d};
    const size_t n = packing->weights.n;
    PackedWeight *order = malloc((n + 1) * sizeof *order);
    bool ok = true;

    if (!order || !s.hash)
        die("out of memory: %zu weights", n);
    memcpy(order, packing->weights.at, n * sizeof *order);
    if (c)
        qsort(order, n, sizeof *order, by_offset);
    for (size_t i = 0; ok && i < n; i++)
        if (c || order[i].kind == FTX_WEIGHT_TABLE)
            ok = pad_to(&s, c ? order[i].offset : round_up(s.done, TABLE_ALIGN)) && put_value(&s, source, &order[i]);
    ok = ok && pad_to(&s, s.all);
    *checksum = hash_stream_end(s.hash);
    team_close(s.team);
    free(s.window);
    free(order);
    return ok;
}

bool weights_value(const Checkpoint *c, const Spec *spec, Id value, Arena *keep, float **out, size_t *n, Diag *d)
{
    Merging *merging = c ? merging_open(c, spec, &value, 1) : NULL;
    const Source source = {c, spec, spec->graph, DT_FP32, merging};
    const Value *v = ir_value(spec->graph, value);
    Fault fault = {0};

    *n = (size_t)(rows_count(v) * row_elements(v));
    *out = arena_array(keep, float, *n);
    read_rows(&source, value, 0, rows_count(v), *out, &fault);
    merging_close(merging);
    return fault.found ? report(&source, value, DT_FP32, &fault, d) : true;
}
