/* norms.c - inputs and checks for norms without a launch of their own: the previous kernel leaves row statistics, and
 * gain and shift are folded into the weights of the linear layer that follows. */
#include "scene.h"

#include <math.h>
#include <string.h>

static int64_t last_of(const Value *v)
{
    return v->shape.dim[v->shape.rank - 1].n;
}

bool unit_norms(const Unit *u, Id id)
{
    for (size_t i = 0; i < u->b.contract->operands; i++)
        if (u->b.contract->args.at[i].of >= 0 && !u->b.contract->args.at[i].out && u->b.arg[i] == id &&
            ir_value(u->g, id)->op != OP_ROUTE)
            return true;
    return false;
}

void scene_shift_rows(const Value *v, int64_t n, DType type, char *p)
{
    for (int64_t i = 0; i < n; i++)
        dtype_store(p, (size_t)i, type, dtype_load(p, (size_t)i, type) + 0.75f * (float)(i / last_of(v) % 3 - 1));
}

void scene_stats(RefTensor x, int64_t from, int64_t n, double *sum, double *squares, double *sizes)
{
    *sum = *squares = *sizes = 0;
    for (int64_t i = from; i < from + n; i++) {
        *sum += ref_at(x, i);
        *squares += ref_at(x, i) * ref_at(x, i);
        *sizes += fabs(ref_at(x, i));
    }
}

/* Number of statistics parts of a value's rows together, if each part covers so many columns. */
static int64_t parts_of(const Unit *u, Id id, int64_t columns, int64_t T, int64_t S)
{
    const Value *v = ir_value(u->g, id);

    return ir_shape_elements(v->shape, T, S) / last_of(v) * ((last_of(v) + columns - 1) / columns);
}

/* Columns of a block of the statistics in argument i. */
static int64_t columns_of(const Unit *u, size_t i)
{
    return facts_param(&u->facts, u->b.arg[i], u->b.contract->args.at[i].form);
}

size_t scene_stats_bytes(const Scene *s, size_t i)
{
    const Unit *u = s->u;

    return (size_t)parts_of(u, u->b.arg[i], columns_of(u, i), s->T, s->S) * 8;
}

float *scene_make_stats(Scene *s, size_t i)
{
    const Unit *u = s->u;
    const Id id = u->b.arg[i];
    const bool out = u->b.contract->args.at[i].out;
    const int64_t columns = !id ? 0 : out ? u->fit.param : columns_of(u, i);

    if (!columns)
        return NULL;

    const int64_t N = last_of(ir_value(u->g, id)), parts = (N + columns - 1) / columns;
    const int64_t room = parts_of(u, id, columns, u->facts.t_max, u->facts.s_max);
    float *p = simt_alloc((size_t)room * 8, out ? "statistics of y" : "statistics of x");

    if (out)
        return s->left = p;
    simt_fill(p, 0xff, (size_t)room * 8);
    for (int64_t k = 0; k < parts_of(u, id, columns, s->T, s->S); k++) {
        const int64_t from = k % parts * columns;
        double sum, squares, sizes;

        scene_stats(s->input[id], k / parts * N + from, columns < N - from ? columns : N - from, &sum, &squares,
                    &sizes);
        simt_write(&p[2 * k], (float[]){(float)sum, (float)squares}, 8);
    }
    return p;
}

/* w'[n,k] = w[n,k] g[k], minus the mean of row n, rounded to `type`. The reference applies the gain itself, so its
 * weights become w'[n,k] / g[k], with the same rounding. */
static void fold_gain(Scene *s, Id w, Id g, DType type, char *p)
{
    const Value *v = ir_value(s->u->g, w);
    const int64_t K = last_of(v), n = ir_shape_elements(v->shape, 1, 1);
    float *back = arena_array(s->keep, float, (size_t)n);

    for (int64_t r = 0; r < n; r += K) {
        double mean = 0;

        for (int64_t k = 0; k < K; k++)
            mean += ref_at(s->input[w], r + k) * ref_at(s->input[g], k) / (double)K;
        for (int64_t k = 0; k < K; k++) {
            const float x = (float)(ref_at(s->input[w], r + k) * ref_at(s->input[g], k) - mean);

            dtype_store(p, (size_t)(r + k), type, x);
            back[r + k] = dtype_load(p, (size_t)(r + k), type) / (float)ref_at(s->input[g], k);
        }
    }
    s->input[w] = (RefTensor){back, DT_FP32};
}

/* b'[n] = b[n] + sum over k of w[n,k] c[k] */
static void fold_shift(Scene *s, Id b, Id w, Id c, float *p)
{
    const int64_t K = last_of(ir_value(s->u->g, w)), n = last_of(ir_value(s->u->g, b));

    s->input[b].p = memcpy(arena_array(s->keep, float, (size_t)n), p, sizeof *p * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < K; k++)
            p[i] = (float)((double)p[i] + ref_at(s->input[w], i * K + k) * ref_at(s->input[c], k));
}

void scene_fold(Scene *s)
{
    const Unit *u = s->u;
    const Contract *c = u->b.contract;
    const int w = c->folded.matrix, b = c->folded.bias, g = c->folded.gain;

    if (!g || !u->b.arg[g])
        return;
    fold_gain(s, u->b.arg[w], u->b.arg[g], contract_arg_type(&u->facts, &u->b, (size_t)w), s->arg[w]);
    fold_shift(s, u->b.arg[b], u->b.arg[w], u->b.arg[c->folded.shift], s->arg[b]);
}
