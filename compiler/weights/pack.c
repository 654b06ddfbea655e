/* pack.c - evaluates the values that are made of weights alone: row by row, converted, written in a stream.
 *
 * Any range of rows of a nest of operations is computed alone (rows.c), so 16 GB pass through a window of CHUNKS pieces.
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

#include "rows.h"
#include "../../runtime/base/hash.h"
#include "../../runtime/base/memory.h"
#include "../../runtime/base/team.h"

enum { CHUNK_BYTES = 1 << 20, CHUNKS = 16, TABLE_ALIGN = 256 };

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
    if (!rows_finite(out, n, type))
        for (uint64_t i = 0; i < n; i++)
            if (!isfinite(dtype_load(out, i, type)))
                rows_note(fault, NULL, first + i, in[i]);
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
    else if (packed_type(type))
        diag_error(d, (Loc){s->c->path, 0},
                   "weight \"%.200s\": the scale of the group at element [%s] is more than fp16 can hold",
                   weights_name(s->g, id, a), at);
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
    float *w = rows_floats(row);

    for (int64_t r = 0; r < count; r++) {
        double sum = (double)f[r];

        rows_read(source, matrix, first + r, 1, w, fault);
        for (int64_t k = 0; k < row; k++)
            sum += (double)w[k] * (double)shift[k];
        f[r] = (float)sum;
    }
    free(w);
}

/* Bytes of rows of a packed weight. */
static size_t packed_bytes(const PackedWeight *w, int64_t rows, int64_t row)
{
    if (w->form_name)
        return packed_tiles((uint64_t)rows) * packed_tile(w->type, (uint64_t)row, (uint64_t)w->group, w->scales);
    return (size_t)(rows * row) * dtype_size(w->type);
}

/* Notes the first element whose scale fp16 does not hold. */
static void check_scales(const CodedForm *form, void *codes, int64_t first, int64_t count, int64_t row, Fault *fault)
{
    for (int64_t r = 0; r < count; r++)
        for (int64_t g = 0; g < row / form->group; g++)
            if (!isfinite(coded_row(form, row, codes, r).scales[g]))
                rows_note(fault, NULL, (uint64_t)((first + r) * row + g * form->group), INFINITY);
}

/* The rows of a piece as codes (f: room for them as fp32) in tiles. */
static void pack_quantised(const Source *source, const PackedWeight *w, int64_t first, int64_t count, int64_t row,
                           float *f, void *out, Fault *fault)
{
    const Value *v = ir_value(source->g, w->value);
    const CodedForm form = rows_form(v);
    void *codes = rows_codes(source, v, first, count, f, fault);

    if (!fault->found)
        check_scales(&form, codes, first, count, row, fault);
    if (!fault->found)
        pack_tiles(&form, w->form_name, count, row, codes, out);
    free(codes);
}

/* Packs the rows of a piece: copies them, or reads them as fp32 (into f), folds and converts them. fold: the gain or
 * the shift; NULL: none. */
static void pack_piece(const Source *source, const PackedWeight *w, const float *fold, int64_t first, int64_t count,
                       int64_t row, float *f, void *out, Fault *fault)
{
    if (!f) {
        rows_read(source, w->value, first, count, out, fault);
        return;
    }
    if (w->form_name) {
        pack_quantised(source, w, first, count, row, f, out, fault);
        return;
    }
    rows_read(source, w->value, first, count, f, fault);
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
    float *f = id ? rows_floats(rows_count(ir_value(source->g, id))) : NULL;

    if (id)
        rows_read(source, id, 0, rows_count(ir_value(source->g, id)), f, fault);
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
    float *f = v->source->type == v->w->type && !v->fold ? NULL : rows_floats(v->step * v->row);

    (void)piece;
    for (int i = share; i < v->chunks; i += shares) {
        const int64_t from = i * v->step, left = v->n - from, count = left < v->step ? left : v->step;
        const size_t at = packed_bytes(v->w, from, v->row);
        unsigned char *to = v->at + at;

        pack_piece(v->source, v->w, v->fold, v->first + from, count, v->row, f, to, &v->faults[i]);
        if (!v->faults[i].found)
            file_write_at(v->stream->out, v->stream->at + v->stream->done + at, to, packed_bytes(v->w, count, v->row),
                          &v->errors[i]);
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
    account(s, v->at, packed_bytes(v->w, v->n, v->row));
    return true;
}

/* Packs a value window by window. fold: as in pack_piece. */
static bool put_rows(Stream *s, const Source *source, const PackedWeight *w, const float *fold)
{
    const Value *v = ir_value(source->g, w->value);
    const int64_t rows = rows_count(v), row = row_elements(v);
    const int64_t read = w->fold.matrix ? row_elements(ir_value(source->g, w->fold.matrix)) : row;
    const int64_t unit = w->form_name ? PACKED_ROWS : 1; /* rows that are packed together */
    const int64_t fit = CHUNK_BYTES / 4 / (read ? read : 1) / unit * unit, step = fit > 0 ? fit : unit;

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
                         .at = window_of(s, packed_bytes(w, chunks * step, row))};

        if (!put_window(s, &window))
            return false;
    }
    return true;
}

/* Finds what calibration says of the inputs of a matrix that becomes int4; others need nothing. */
static bool find_inputs(Source *source, Id matrix, Diag *d)
{
    const Value *v = ir_value(source->g, matrix);
    const Calibration *of = source->c ? source->c->calibration : NULL;
    Arena *a;
    const char *name;
    bool found;

    if (!of || v->op != OP_QUANTISE || ir_int(v, "stored") || rows_form(v).type != DT_INT4)
        return true;
    a = arena_open();
    name = weights_name(source->g, matrix, a);
    for (size_t i = 0; i < of->n && !source->inputs; i++)
        if (strcmp(of->at[i].weight, name) == 0 && of->at[i].columns == row_elements(v))
            source->inputs = &of->at[i];
    found = source->inputs != NULL;
    if (!found)
        diag_error(d, (Loc){source->c->path, 0},
                   "weight \"%.200s\": no text of --calibrate has reached it; name it in precision.except", name);
    arena_close(a);
    return found;
}

static bool put_value(Stream *s, Source source, const PackedWeight *w)
{
    const Value *v = ir_value(source.g, w->value);
    const Id values[] = {w->value, w->fold.gain, w->fold.shift, w->fold.matrix};
    Fault fault = {0};
    Merging *merging;
    float *fold;
    bool ok;

    if (w->bytes != packed_bytes(w, rows_count(v), row_elements(v)) ||
        (!w->form_name && (w->type < DT_FP32 || w->type > DT_BF16)))
        die("weight %%%u is planned as %" PRIu64 " bytes of %s", w->value, w->bytes, dtype_name(w->type));
    if (!find_inputs(&source, w->value, s->d))
        return false;
    merging = source.c ? merging_open(source.c, source.spec, values, LEN(values)) : NULL;
    source.merging = merging;
    fold = read_fold(&source, w, &fault);
    if (!fold && rows_stored_as(&source, w->value, w->type))
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

bool weights_pack(const Checkpoint *c, const Spec *spec, const Packing *packing, int64_t rank, FileOut *out,
                  uint64_t at, uint64_t *checksum, void (*progress)(void *user, uint64_t done, uint64_t all),
                  void *user, Diag *d)
{
    const Source source = {c, spec, spec->graph, DT_FP32, NULL, NULL, rank, NULL};
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
    const Source source = {c, spec, spec->graph, DT_FP32, merging, NULL, 0, NULL};
    const Value *v = ir_value(spec->graph, value);
    Fault fault = {0};

    *n = (size_t)(rows_count(v) * row_elements(v));
    *out = arena_array(keep, float, *n);
    rows_read(&source, value, 0, rows_count(v), *out, &fault);
    merging_close(merging);
    return fault.found ? report(&source, value, DT_FP32, &fault, d) : true;
}
