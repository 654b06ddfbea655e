/* merge.c - adds what adapters change to rows of weights, in fp32: W' = W + scale * B A.
 *
 * Row i of the rows that the stream asks for needs row i of one small matrix ("left", [rows, rank]) and all of the other
 * ("right", [rank, columns]). Which is which depends on how the weight is stored, and on whether its rows are read or
 * its columns:
 *
 *   stored [N,K], rows; stored [K,N], columns:   a row is an output:  left = B [N, rank],     right = A [rank, K]
 *   stored [K,N], rows; stored [N,K], columns:   a row is an input:   left = A^T [K, rank],   right = B^T [rank, N]
 *
 * Both lie in memory as fp32 while one packed value is written. The rank is filled up with zeros to a multiple of 4.
 *
 * DoRA (Liu et al. 2024, eq. 5) then scales each output n to the norm m[n]: W'[n,:] * m[n] / |W'[n,:]|. Where a row is
 * an input, the norms are computed before, in one pass over the weight. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "tensors.h"
#include "../../runtime/base/memory.h"

enum { UNROLL = 4 };

typedef struct Factors { /* of one delta, for rows or for columns of the stored weight */
    bool outputs;        /* a row is an output */
    int64_t rank, columns;
    float scale;
    float *left, *right; /* [rows, rank], [rank, columns] */
    float *magnitude;    /* [N]: what each output is multiplied with or, where a row is an output, its norm */
} Factors;

typedef struct Part { /* all deltas of a weight, for rows or for columns */
    Id weight;
    bool by_columns;
    Factors *at;
    size_t n;
} Part;

struct Merging {
    const Checkpoint *c;
    const Spec *spec;
    Part *at;
    size_t n, cap;
};

static float *numbers(int64_t n)
{
    float *f = calloc((size_t)n, sizeof *f);

    if (!f)
        die("out of memory: %" PRId64 " numbers of an adapter", n);
    return f;
}

/* t [rows, columns] as fp32, each row `stride` apart; transposed: t^T. */
static void copy_matrix(const Tensor *t, int64_t rows, int64_t columns, bool transposed, int64_t stride, float *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[transposed ? j * stride + i : i * stride + j] = tensor_element(t, (uint64_t)(i * columns + j));
}

/* sum over k of left[k] * right[k,:], added up in the order of k */
static void add_product(const Factors *f, const float *left, float *sum)
{
    memset(sum, 0, (size_t)f->columns * sizeof *sum);
    for (int64_t k = 0; k < f->rank; k += UNROLL) {
        const float *r = f->right + k * f->columns, *s = r + f->columns, *t = s + f->columns, *u = t + f->columns;

        for (int64_t j = 0; j < f->columns; j++)
            sum[j] = sum[j] + left[k] * r[j] + left[k + 1] * s[j] + left[k + 2] * t[j] + left[k + 3] * u[j];
    }
}

static double square_sum(const float *f, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)f[i] * (double)f[i];
    return sum;
}

/* Row i of the weight, to which the deltas before this one are added. sum: [columns] */
static void add_row(const Factors *f, int64_t i, float *row, float *sum)
{
    add_product(f, f->left + i * f->rank, sum);
    for (int64_t j = 0; j < f->columns; j++)
        row[j] += f->scale * sum[j];
    if (f->magnitude && f->outputs) {
        const float by = f->magnitude[i] / (float)sqrt(square_sum(row, f->columns));

        for (int64_t j = 0; j < f->columns; j++)
            row[j] *= by;
    } else if (f->magnitude) {
        for (int64_t j = 0; j < f->columns; j++)
            row[j] *= f->magnitude[j];
    }
}

/* A matrix that the file has as codes as fp32: *all, which the caller frees. */
static Tensor plain_matrix(const Tensor *t, float **all)
{
    const int64_t columns = t->dim[t->rank - 1];

    *all = numbers((int64_t)t->elements);
    for (int64_t i = 0; i < (int64_t)t->elements / columns; i++)
        coded_values(t, i, *all + i * columns);
    return (Tensor){.type = DT_FP32, .at = (const unsigned char *)*all};
}

/* From the norms that DoRA asks for, what the columns are multiplied with: each is an output of the weight. DoRA comes
 * first among the deltas (lora.c), so W' is the stored weight and this delta. */
static void divide_by_norms(Factors *f, const Tensor *stored, bool by_columns, int64_t rows)
{
    float *magnitude = f->magnitude, *row = numbers(2 * f->columns), *all = NULL;
    double *squares = calloc((size_t)f->columns, sizeof *squares);
    const Tensor plain = stored->coded ? plain_matrix(stored, &all) : *stored, *weight = &plain;

    if (!squares)
        die("out of memory: %" PRId64 " norms", f->columns);
    f->magnitude = NULL;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < f->columns; j++)
            row[j] = tensor_element(weight, (uint64_t)(by_columns ? j * rows + i : i * f->columns + j));
        add_row(f, i, row, row + f->columns);
        for (int64_t j = 0; j < f->columns; j++)
            squares[j] += (double)row[j] * (double)row[j];
    }
    for (int64_t j = 0; j < f->columns; j++)
        magnitude[j] /= (float)sqrt(squares[j]);
    f->magnitude = magnitude;
    free(squares);
    free(row);
    free(all);
}

static Factors factors_of(const Delta *d, const Tensor *weight, bool by_columns)
{
    const int64_t N = d->b->dim[0], K = d->a ? d->a->dim[1] : 1;
    const int64_t rank = (d->rank + UNROLL - 1) / UNROLL * UNROLL;
    Factors f = {.outputs = !d->a || d->inputs_first == by_columns, .rank = rank, .scale = d->scale};
    const int64_t rows = f.outputs ? N : K;

    f.columns = f.outputs ? K : N;
    f.left = numbers(rows * rank);
    f.right = numbers(rank * f.columns);
    copy_matrix(d->b, N, d->rank, !f.outputs, f.outputs ? rank : N, f.outputs ? f.left : f.right);
    if (d->a)
        copy_matrix(d->a, d->rank, K, !f.outputs, f.outputs ? K : rank, f.outputs ? f.right : f.left);
    else
        f.right[0] = 1; /* a vector is added: its rows have one column */
    if (d->magnitude) {
        f.magnitude = numbers(N);
        copy_matrix(d->magnitude, 1, N, false, N, f.magnitude);
        if (!f.outputs)
            divide_by_norms(&f, weight, by_columns, rows);
    }
    return f;
}

static const Part *find_part(const Merging *m, Id weight, bool by_columns)
{
    for (size_t i = 0; m && i < m->n; i++)
        if (m->at[i].weight == weight && m->at[i].by_columns == by_columns)
            return &m->at[i];
    return NULL;
}

static void add_part(Merging *m, Id weight, bool by_columns)
{
    const char *name = ir_word(ir_value(m->spec->graph, weight), "name");
    const Merge *merge = checkpoint_merge(m->c, name);
    const Tensor *t = merge && merge->replaced ? merge->replaced : checkpoint_find(m->c, m->spec, name);
    Part *p;

    if (!merge || !merge->deltas.n || find_part(m, weight, by_columns))
        return;
    if (m->n == m->cap) {
        m->cap = 2 * m->cap + 4;
        m->at = realloc(m->at, m->cap * sizeof *m->at);
        if (!m->at)
            die("out of memory: %zu weights with adapters", m->cap);
    }
    p = &m->at[m->n++];
    *p = (Part){weight, by_columns, calloc(merge->deltas.n, sizeof *p->at), merge->deltas.n};
    if (!p->at)
        die("out of memory: %zu adapters", p->n);
    for (size_t i = 0; i < p->n; i++) {
        assert(i == 0 || !merge->deltas.at[i].magnitude);
        p->at[i] = factors_of(&merge->deltas.at[i], t, by_columns);
    }
}

/* The weights that a value is made of. Columns are read of a stored weight whose transpose it is (pack.c). */
static void add_parts(Merging *m, Id value)
{
    const Value *v = ir_value(m->spec->graph, value);

    if (v->op == OP_WEIGHT)
        add_part(m, value, false);
    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (v->args[i] && v->op == OP_TRANSPOSE && ir_value(m->spec->graph, v->args[i])->op == OP_WEIGHT)
            add_part(m, v->args[i], true);
        else if (v->args[i])
            add_parts(m, v->args[i]);
}

Merging *merging_open(const Checkpoint *c, const Spec *spec, const Id *values, size_t n)
{
    Merging *m;

    if (!c->merges.n)
        return NULL;
    m = calloc(1, sizeof *m);
    if (!m)
        die("out of memory: adapters");
    m->c = c;
    m->spec = spec;
    for (size_t i = 0; i < n; i++)
        if (values[i])
            add_parts(m, values[i]);
    if (m->n)
        return m;
    free(m);
    return NULL;
}

void merging_close(Merging *m)
{
    for (size_t i = 0; m && i < m->n; i++) {
        for (size_t k = 0; k < m->at[i].n; k++) {
            free(m->at[i].at[k].left);
            free(m->at[i].at[k].right);
            free(m->at[i].at[k].magnitude);
        }
        free(m->at[i].at);
    }
    free(m ? m->at : NULL);
    free(m);
}

void merging_add(const Merging *m, Id weight, bool columns, int64_t from, int64_t count, float *f)
{
    const Part *p = find_part(m, weight, columns);
    float *sum;

    if (!p)
        return;
    sum = numbers(p->at[0].columns);
    for (int64_t i = 0; i < count; i++)
        for (size_t k = 0; k < p->n; k++)
            add_row(&p->at[k], from + i, f + i * p->at[k].columns, sum);
    free(sum);
}

const Merge *checkpoint_merge(const Checkpoint *c, const char *weight)
{
    size_t low = 0, high = c->merges.n;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(c->merges.at[middle].weight, weight);

        if (order == 0)
            return &c->merges.at[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
