/* test_meaning.c - simplify does not change what a graph computes: random small decoders are evaluated in double precision
 * before and after.
 *
 * One sequence of T tokens at positions 0 .. T-1. Weights are random numbers that depend on their names, so both graphs
 * have the same. Every op is evaluated as ops.def defines it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/pass.h"
#include "runtime/base/hash.h"

enum { T = 5, LAYERS = 4, SOURCES = LAYERS /* caches of the source come after those of the layers */ };

typedef struct Tensor {
    double *at;
    int64_t rows, row; /* product of the first sizes, the last size */
} Tensor;

typedef struct Machine {
    const Graph *g;
    Arena *a;
    Tensor *v;
    struct {
        double *k, *v;
        int64_t heads, head_dim;
    } cache[2 * LAYERS];
} Machine;

static double uniform(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*seed >> 33) / (double)(UINT64_C(1) << 30) - 1;
}

static double act(const char *kind, double x)
{
    if (strcmp(kind, "relu") == 0)
        return x > 0 ? x : 0;
    if (strcmp(kind, "gelu_erf") == 0)
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    if (strcmp(kind, "gelu_tanh") == 0)
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    if (strcmp(kind, "tanh") == 0)
        return tanh(x);
    if (strcmp(kind, "relu2") == 0)
        return x > 0 ? x * x : 0;
    if (strcmp(kind, "sigmoid") == 0)
        return 1 / (1 + exp(-x));
    return x / (1 + exp(-(strcmp(kind, "quick_gelu") == 0 ? 1.702 : 1) * x)); /* or silu */
}

/* Rotates a head of E values at position pos; the two values of a pair are `step` apart. */
static void rotate(double *x, const Tensor *table, int64_t pos, int64_t pairs, bool half)
{
    for (int64_t i = 0; i < pairs; i++) {
        const double c = table->at[(pos * pairs + i) * 2], s = table->at[(pos * pairs + i) * 2 + 1];
        double *a = half ? &x[i] : &x[2 * i], *b = half ? &x[i + pairs] : &x[2 * i + 1];
        const double u = *a, w = *b;

        *a = u * c - w * s;
        *b = w * c + u * s;
    }
}

/* causal: a token attends to itself and earlier tokens, else to the whole sequence. v: an attend, which may have a bias,
 * slopes and sinks; NULL: another op. */
static void attend(Machine *m, const double *q, int64_t heads, int64_t layer, double scale, int64_t window,
                   double softcap, bool causal, const Value *v, double *y)
{
    const Tensor *bias = v && v->args[3] ? &m->v[v->args[3]] : NULL,
                 *slopes = v && v->args[4] ? &m->v[v->args[4]] : NULL;
    const Tensor *sinks = v && v->args[5] ? &m->v[v->args[5]] : NULL;
    const int64_t E = m->cache[layer].head_dim, G = m->cache[layer].heads;

    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t g = h / (heads / G);
            double score[T], most = sinks ? sinks->at[h] : -1e300, sum = 0;

            const int64_t last = causal ? t : T - 1;

            for (int64_t s = 0; s <= last; s++) {
                score[s] = 0;
                for (int64_t e = 0; e < E; e++)
                    score[s] += q[(t * heads + h) * E + e] * m->cache[layer].k[(s * G + g) * E + e];
                score[s] *= scale;
                if (softcap > 0)
                    score[s] = softcap * tanh(score[s] / softcap);
                if (bias) {
                    const int64_t half = bias->row / 2, away = s - t;

                    score[s] += bias->at[h * bias->row + (away < -half ? -half : away > half ? half : away) + half];
                }
                if (slopes)
                    score[s] += slopes->at[h] * (double)(s - t);
                if (window && (causal ? t - s >= window : llabs(t - s) > window))
                    score[s] = -1e300;
                most = score[s] > most ? score[s] : most;
            }
            if (sinks)
                sum = exp(sinks->at[h] - most);
            for (int64_t s = 0; s <= last; s++)
                sum += score[s] = exp(score[s] - most);
            for (int64_t e = 0; e < E; e++) {
                double *to = &y[(t * heads + h) * E + e];

                *to = 0;
                for (int64_t s = 0; s <= last; s++)
                    *to += score[s] / sum * m->cache[layer].v[(s * G + g) * E + e];
            }
        }
}

static void keep(Machine *m, int64_t layer, const double *k, const double *v, int64_t stride_k, int64_t stride_v,
                 int64_t heads, int64_t head_dim)
{
    const size_t row = sizeof(double) * (size_t)(heads * head_dim);

    m->cache[layer].heads = heads;
    m->cache[layer].head_dim = head_dim;
    m->cache[layer].k = arena_array(m->a, double, T *heads *head_dim);
    m->cache[layer].v = arena_array(m->a, double, T *heads *head_dim);
    for (int64_t t = 0; t < T; t++) {
        memcpy(m->cache[layer].k + t * heads * head_dim, k + t * stride_k, row);
        memcpy(m->cache[layer].v + t * heads * head_dim, v + t * stride_v, row);
    }
}

static void norm(const Value *v, const Tensor *x, const Tensor *g, const Tensor *b, double *y)
{
    for (int64_t t = 0; t < x->rows; t++) {
        double mean = 0, square = 0;

        for (int64_t c = 0; c < x->row && b; c++)
            mean += x->at[t * x->row + c] / (double)x->row;
        for (int64_t c = 0; c < x->row; c++)
            square += pow(x->at[t * x->row + c] - mean, 2) / (double)x->row;
        for (int64_t c = 0; c < x->row; c++)
            y[t * x->row + c] = g->at[(t * x->row + c) % (g->rows * g->row)] * (x->at[t * x->row + c] - mean) /
                                    sqrt(square + ir_float(v, "eps")) +
                                (b ? b->at[c] : 0);
    }
}

/* The element of w that multiplies element i of x: w has their shape, a column, or a row. */
static int64_t factor_of(const Tensor *x, const Tensor *w, int64_t i)
{
    if (w->rows * w->row == x->rows * x->row)
        return i;
    return w->rows == x->rows ? i / x->row : i % x->row;
}

static void append(Machine *m, const Value *v, const Tensor *x, const Tensor *table, double *y)
{
    const int64_t H = ir_int(v, "heads"), G = ir_int(v, "kv_heads"), E = ir_int(v, "head_dim"), N = (H + 2 * G) * E;
    double *all = arena_array(m->a, double, T *N);

    memcpy(all, x->at, sizeof(double) * (size_t)(T * N));
    for (int64_t i = 0; i < T * (H + 2 * G) && v->args[2]; i++) {
        const int64_t head = i % (H + 2 * G);
        const Tensor heads = {all + i * E, 1, E};

        if (head < H + G)
            norm(v, &heads, &m->v[v->args[head < H ? 2 : 3]], NULL, all + i * E);
    }
    for (int64_t t = 0; t < T; t++) {
        for (int64_t h = 0; h < H + G && ir_int(v, "rot"); h++)
            rotate(all + t * N + h * E, table, t, ir_int(v, "rot") / 2, false);
        memcpy(y + t * H * E, all + t * N, sizeof(double) * (size_t)(H * E));
    }
    keep(m, ir_int(v, "layer"), all + H * E, all + (H + G) * E, N, N, G, E);
}

static void compute(Machine *m, Id id)
{
    const Value *v = ir_value(m->g, id);
    const Tensor *x = v->args[0] ? &m->v[v->args[0]] : NULL, *w = v->args[1] ? &m->v[v->args[1]] : NULL;
    const Tensor *b = v->args[2] ? &m->v[v->args[2]] : NULL;
    Tensor *to = &m->v[id];
    const int64_t n = ir_shape_elements(v->shape, T, 1);
    double *y;

    to->at = y = arena_array(m->a, double, n);
    to->row = v->shape.rank == 1 && ir_op_is_weight(v->op) ? 1 : v->shape.dim[v->shape.rank - 1].n;
    if (v->shape.rank == 1 && !ir_op_is_weight(v->op))
        to->row = 1;
    to->rows = n / to->row;
    switch (v->op) {
    case OP_WEIGHT: {
        const char *name = ir_word(v, "name");
        uint64_t seed = hash64(name, strlen(name));

        for (int64_t i = 0; i < n; i++)
            y[i] = uniform(&seed);
        break;
    }
    case OP_IDS:
    case OP_MASK:
    case OP_SAMPLE:
    case OP_BEAM:
        for (int64_t i = 0; i < n; i++)
            y[i] = (double)(i % 3);
        break;
    case OP_TRANSPOSE:
        for (int64_t i = 0; i < to->rows; i++)
            for (int64_t k = 0; k < to->row; k++)
                y[i * to->row + k] = x->at[k * x->row + i];
        break;
    case OP_CONCAT:
        for (int i = 0, at = 0; i < 3 && v->args[i]; i++) {
            const Tensor *part = &m->v[v->args[i]];

            memcpy(y + at, part->at, sizeof(double) * (size_t)(part->rows * part->row));
            at += (int)(part->rows * part->row);
        }
        break;
    case OP_INTERLEAVE:
        for (int64_t i = 0; i < x->rows; i++)
            for (int64_t k = 0; k < x->row; k++) {
                y[2 * i * x->row + k] = x->at[i * x->row + k];
                y[(2 * i + 1) * x->row + k] = w->at[i * x->row + k];
            }
        break;
    case OP_PAIRS:
        for (int64_t r = 0; r < x->rows; r++) {
            const int64_t E = ir_int(v, "head_dim"), half = ir_int(v, "rot") / 2, e = r % E;
            const int64_t from = e >= 2 * half ? r : r - e + e / 2 + (e % 2 ? half : 0);

            memcpy(y + r * x->row, x->at + from * x->row, sizeof(double) * (size_t)x->row);
        }
        break;
    case OP_ROWS:
        for (int64_t r = 0; r < to->rows; r++) {
            const int64_t count = ir_int(v, "count"), from = r / count * ir_int(v, "every") + ir_int(v, "from");

            memcpy(y + r * x->row, x->at + (from + r % count) * x->row, sizeof(double) * (size_t)x->row);
        }
        break;
    case OP_REPEAT:
        for (int64_t r = 0; r < to->rows; r++)
            memcpy(y + r * x->row, x->at + r / ir_int(v, "times") * x->row, sizeof(double) * (size_t)x->row);
        break;
    case OP_PLUS:
        for (int64_t i = 0; i < n; i++)
            y[i] = x->at[i] + ir_float(v, "by");
        break;
    case OP_UNIT_ROWS:
        for (int64_t r = 0; r < to->rows; r++) {
            double squares = 0.0;

            for (int64_t k = 0; k < to->row; k++)
                squares += x->at[r * to->row + k] * x->at[r * to->row + k];
            for (int64_t k = 0; k < to->row; k++)
                y[r * to->row + k] = x->at[r * to->row + k] / fmax(sqrt(squares), 1e-12);
        }
        break;
    case OP_FILL:
        for (int64_t i = 0; i < n; i++)
            y[i] = ir_float(v, "value");
        break;
    case OP_ALIBI:
        for (int64_t i = 0; i < n; i++)
            y[i] = pow(2, -(double)(i + 1));
        break;
    case OP_SINUSOID:
        for (int64_t p = 0; p < to->rows; p++)
            for (int64_t i = 0; i < to->row / 2; i++) {
                const double angle = (double)p * pow(ir_float(v, "theta"), -2.0 * (double)i / (double)to->row);

                y[p * to->row + i] = sin(angle);
                y[p * to->row + to->row / 2 + i] = cos(angle);
            }
        break;
    case OP_ROPE_TABLE:
        for (int64_t p = 0; p < v->shape.dim[0].n; p++)
            for (int64_t i = 0; i < v->shape.dim[1].n; i++) {
                const double angle = (double)p * pow(ir_float(v, "theta"), -2.0 * (double)i / (double)ir_int(v, "rot"));

                y[(p * v->shape.dim[1].n + i) * 2] = cos(angle);
                y[(p * v->shape.dim[1].n + i) * 2 + 1] = sin(angle);
            }
        break;
    case OP_EMBED:
        for (int64_t t = 0; t < T; t++)
            memcpy(y + t * w->row, w->at + (int64_t)x->at[t] * w->row, sizeof(double) * (size_t)w->row);
        break;
    case OP_POSITIONS: memcpy(y, x->at + ir_int(v, "offset") * x->row, sizeof(double) * (size_t)n); break;
    case OP_LINEAR:
        for (int64_t t = 0; t < x->rows; t++)
            for (int64_t i = 0; i < w->rows; i++) {
                double sum = b ? b->at[i] : 0;

                for (int64_t k = 0; k < x->row; k++)
                    sum += x->at[t * x->row + k] * w->at[i * w->row + k];
                y[t * w->rows + i] = sum;
            }
        break;
    case OP_ADD:
    case OP_MUL:
        for (int64_t i = 0; i < n; i++)
            y[i] = v->op == OP_ADD ? x->at[i] + w->at[i] : x->at[i] * w->at[factor_of(x, w, i)];
        break;
    case OP_SCALE:
        for (int64_t i = 0; i < n; i++)
            y[i] = x->at[i] * ir_float(v, "by");
        break;
    case OP_RMSNORM:
    case OP_LAYERNORM: norm(v, x, w, v->op == OP_LAYERNORM ? b : NULL, y); break;
    case OP_ACT:
        for (int64_t i = 0; i < n; i++)
            y[i] = act(ir_word(v, "kind"), x->at[i]);
        break;
    case OP_GLU:
        for (int64_t i = 0; i < n; i++)
            y[i] = act(ir_word(v, "kind"), x->at[2 * i]) * x->at[2 * i + 1];
        break;
    case OP_SPLIT_HEADS:
    case OP_JOIN_HEADS: memcpy(y, x->at, sizeof(double) * (size_t)n); break;
    case OP_ROPE:
        memcpy(y, x->at, sizeof(double) * (size_t)n);
        for (int64_t i = 0; i < to->rows; i++)
            rotate(y + i * to->row, w, i / v->shape.dim[1].n, ir_value(m->g, v->args[1])->shape.dim[1].n,
                   strcmp(ir_word(v, "style"), "half") == 0);
        break;
    case OP_CACHE: keep(m, ir_int(v, "layer"), x->at, w->at, n / T, n / T, v->shape.dim[1].n, v->shape.dim[2].n); break;
    case OP_APPEND: append(m, v, x, w, y); break;
    case OP_ATTEND: {
        const bool full = strcmp(ir_word(v, "scope"), "full") == 0, source = strcmp(ir_word(v, "scope"), "source") == 0;
        const Shape k = ir_value(m->g, v->args[1])->shape;
        const int64_t row = k.dim[1].n * k.dim[2].n;

        if (v->args[2])
            keep(m, 0, w->at, b->at, row, row, k.dim[1].n, k.dim[2].n);
        attend(m, x->at, v->shape.dim[1].n, (source ? SOURCES : 0) + ir_int(v, "layer"), ir_float(v, "scale"),
               ir_int(v, "window"), ir_float(v, "softcap"), !full && !source, v, y);
        break;
    }
    case OP_ATTEND_PAGED:
        attend(m, x->at, ir_value(m->g, v->args[0])->shape.dim[1].n, ir_int(v, "layer"), ir_float(v, "scale"),
               ir_int(v, "window"), ir_float(v, "softcap"), true, NULL, y);
        break;
    case OP_TYPES: /* the token's type is 0 */
        for (int64_t t = 0; t < T; t++)
            memcpy(y + t * x->row, x->at, sizeof(double) * (size_t)x->row);
        break;
    case OP_ATTEND_PACKED: {
        const int64_t H = ir_int(v, "heads"), G = ir_int(v, "kv_heads"), E = ir_int(v, "head_dim");
        double *q = arena_array(m->a, double, T *H *E);

        for (int64_t t = 0; t < T; t++)
            memcpy(q + t * H * E, x->at + t * x->row, sizeof(double) * (size_t)(H * E));
        keep(m, 0, x->at + H * E, x->at + (H + G) * E, x->row, x->row, G, E);
        attend(m, q, H, 0, ir_float(v, "scale"), 0, 0, false, NULL, y);
        break;
    }
    case OP_CROSS_CACHE:
        keep(m, SOURCES + ir_int(v, "layer"), x->at, w->at, n / T, n / T, v->shape.dim[1].n, v->shape.dim[2].n);
        break;
    case OP_CROSS_APPEND:
        keep(m, SOURCES + ir_int(v, "layer"), x->at, x->at + x->row / 2, x->row, x->row, ir_int(v, "kv_heads"),
             ir_int(v, "head_dim"));
        break;
    case OP_ATTEND_CROSS:
        attend(m, x->at, ir_int(v, "heads"), SOURCES + ir_int(v, "layer"), ir_float(v, "scale"), 0, 0, false, NULL, y);
        break;
    case OP_CONVOLVE:
        for (int64_t i = 0; i < n; i++) {
            const int64_t t = i / x->row, c = i % x->row;

            y[i] = b ? b->at[c] : 0;
            for (int64_t j = 0; j < w->row && j <= t; j++)
                y[i] += w->at[c * w->row + w->row - 1 - j] * x->at[(t - j) * x->row + c];
        }
        break;
    case OP_SELECT_ID:
    case OP_SELECT_FIRST: memcpy(y, x->at, sizeof(double) * (size_t)n); break;
    case OP_SELECT_LAST: memcpy(y, x->at + (T - 1) * x->row, sizeof(double) * (size_t)n); break;
    case OP_POOL_MEAN:
        for (int64_t t = 0; t < T; t++)
            for (int64_t i = 0; i < n; i++)
                y[i] += x->at[t * x->row + i] / T;
        break;
    case OP_SLICE:
        for (int64_t i = 0; i < n; i++)
            y[i] = x->at[i / to->row * x->row + ir_int(v, "from") + i % to->row];
        break;
    case OP_JOIN:
        for (int64_t i = 0; i < n; i++) {
            const int64_t r = i / to->row, c = i % to->row;

            y[i] = c < x->row ? x->at[r * x->row + c] : w->at[r * w->row + c - x->row];
        }
        break;
    case OP_CLAMP:
        for (int64_t i = 0; i < n; i++)
            y[i] = fmin(fmax(x->at[i], ir_float(v, "low")), ir_float(v, "high"));
        break;
    case OP_NORMALIZE:
        for (int64_t t = 0; t < x->rows; t++) {
            double square = 0;

            for (int64_t i = 0; i < x->row; i++)
                square += x->at[t * x->row + i] * x->at[t * x->row + i];
            for (int64_t i = 0; i < x->row; i++)
                y[t * x->row + i] = x->at[t * x->row + i] / fmax(sqrt(square), ir_float(v, "eps"));
        }
        break;
    case OP_ROW_RMS: /* not centred */
        for (int64_t t = 0; t < x->rows; t++) {
            double square = 0;

            for (int64_t i = 0; i < x->row; i++)
                square += x->at[t * x->row + i] * x->at[t * x->row + i] / (double)x->row;
            square = sqrt(fmax(square, ir_float(v, "floor")));
            y[t] = ir_int(v, "inverse") ? 1 / square : square;
        }
        break;
    case OP_QUANTISE: /* no random decoder has quantised weights, buckets, experts or latent attention; tests/models has */
    case OP_DISTANCE_BIAS:
    case OP_DISTANCE_HEADS:
    case OP_NORM_ROWS:
    case OP_PREVIOUS:
    case OP_NEIGHBOURS:
    case OP_XIELU:
    case OP_GLU_CLAMPED:
    case OP_SCALE_BY_POSITION:
    case OP_PART:
    case OP_EMBED_PART:
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
    case OP_GATHER_LOGITS:
    case OP_RANK_SLICE:
    case OP_ROUTE_WEIGHTS:
    case OP_HEAD_LINEAR:
    case OP_RECUR:
    case OP_SLICE_HEADS:
    case OP_JOIN_PARTS:
    case OP_ROUTE:
    case OP_EXPERT_LINEAR:
    case OP_EXPERT_SUM:
    case OP_NONE:
    case OP_COUNT: fail();
    }
}

static double *results(const Graph *g, Arena *a, int64_t *n)
{
    Machine m = {.g = g, .a = a};

    m.v = arena_array(a, Tensor, g->values.n);
    for (Id id = 1; id < g->values.n; id++)
        compute(&m, id);
    *n = ir_shape_elements(ir_value(g, g->logits)->shape, T, 1);
    return m.v[g->logits].at;
}

/* --- random decoders -------------------------------------------------------------------------------- */

typedef struct Maker {
    Graph *g;
    uint64_t seed;
    int names;
    bool others; /* attention that no fused op computes: norms over heads, biases, slopes, sinks */
} Maker;

static bool coin(Maker *m)
{
    return uniform(&m->seed) > 0;
}

static Id add(Maker *m, Op op, Id a, Id b, Id c, Attr one, Attr two)
{
    const Id args[IR_MAX_ARGS] = {a, b, c};
    const Attr given[] = {one, two};
    const uint32_t n = (one.name != NULL) + (two.name != NULL);
    Shape shape = {0};
    DType type;
    Diag d = {0};
    Id id;

    if (!ir_infer(m->g, op, args, given, n, DT_NONE, (Loc){0}, &shape, &type, &d))
        fail_msg("%s", d.text);
    id = ir_value_add(m->g, op, args, shape, type, (Loc){0});
    for (uint32_t i = 0; i < n; i++)
        if (given[i].kind == ATTR_INT)
            ir_attr_int(m->g, id, given[i].name, given[i].i);
        else if (given[i].kind == ATTR_FLOAT)
            ir_attr_float(m->g, id, given[i].name, given[i].f);
        else
            ir_attr_word(m->g, id, given[i].name, given[i].s);
    return id;
}

#define NO ((Attr){0})
#define INT(n, v) ((Attr){.name = n, .kind = ATTR_INT, .i = v})
#define FLOAT(n, v) ((Attr){.name = n, .kind = ATTR_FLOAT, .f = v})
#define WORD(n, v) ((Attr){.name = n, .kind = ATTR_WORD, .s = v})

static Id weight(Maker *m, int64_t rows, int64_t row)
{
    char name[16];
    Id id;

    snprintf(name, sizeof name, "w%d", m->names++);
    id = ir_value_add(m->g, OP_WEIGHT, NULL,
                      row ? ir_shape(2, ir_const(rows), ir_const(row), (Dim){0})
                          : ir_shape(1, ir_const(rows), (Dim){0}, (Dim){0}),
                      DT_NONE, (Loc){0});
    ir_attr_word(m->g, id, "name", name);
    return id;
}

static Id linear(Maker *m, Id x, int64_t n, bool bias)
{
    const int64_t k = ir_value(m->g, x)->shape.dim[1].n;

    return add(m, OP_LINEAR, x, weight(m, n, k), bias ? weight(m, n, 0) : 0, NO, NO);
}

static Id maybe_scale(Maker *m, Id x)
{
    return coin(m) ? x : add(m, OP_SCALE, x, 0, 0, FLOAT("by", coin(m) ? 0.5 : 1), NO);
}

/* A weight, 1 + a weight, or ones. */
static Id gain(Maker *m, int64_t c)
{
    if (coin(m))
        return weight(m, c, 0);
    return coin(m) ? add(m, OP_PLUS, weight(m, c, 0), 0, 0, FLOAT("by", 1), NO)
                   : add(m, OP_FILL, 0, 0, 0, INT("count", c), FLOAT("value", 1));
}

static Id norm_of(Maker *m, Id x)
{
    const int64_t c = ir_value(m->g, x)->shape.dim[1].n;

    return coin(m) ? add(m, OP_RMSNORM, x, gain(m, c), 0, FLOAT("eps", 1e-5), NO)
                   : add(m, OP_LAYERNORM, x, gain(m, c), weight(m, c, 0), FLOAT("eps", 1e-5), NO);
}

/* A norm of each head; each has its own gain, or all share one. */
static Id norm_heads(Maker *m, Id x)
{
    const Shape s = ir_value(m->g, x)->shape;
    const Id gain = coin(m) ? weight(m, s.dim[2].n, 0) : weight(m, s.dim[1].n, s.dim[2].n);

    return coin(m) ? add(m, OP_RMSNORM, x, gain, 0, FLOAT("eps", 1e-5), NO)
                   : add(m, OP_LAYERNORM, x, gain, weight(m, s.dim[2].n, 0), FLOAT("eps", 1e-5), NO);
}

static Id attention(Maker *m, Id x, int layer)
{
    const int64_t E = 8, G = coin(m) ? 1 : 2, H = G * (coin(m) ? 1 : 3), D = ir_value(m->g, x)->shape.dim[1].n;
    const bool bias = coin(m), rope = coin(m), whole = coin(m);
    const int64_t sizes[] = {H * E, G * E, G * E};
    const char *style = coin(m) ? "half" : "neighbour";
    const Id all = whole ? weight(m, (H + 2 * G) * E, D) : 0,
             all_bias = whole && bias ? weight(m, (H + 2 * G) * E, 0) : 0;
    const int64_t rot = coin(m) ? E : 4;
    Id part[3], y;

    for (int64_t i = 0, from = 0; i < 3; from += sizes[i++]) {
        part[i] =
            whole ? add(m, OP_LINEAR, x, add(m, OP_ROWS, all, 0, 0, INT("from", from), INT("count", sizes[i])),
                        bias ? add(m, OP_ROWS, all_bias, 0, 0, INT("from", from), INT("count", sizes[i])) : 0, NO, NO)
                  : linear(m, x, sizes[i], bias);
        if (i < 2)
            part[i] = maybe_scale(m, part[i]);
        part[i] = add(m, OP_SPLIT_HEADS, part[i], 0, 0, INT("heads", sizes[i] / E), NO);
        if (m->others && i < 2 && coin(m))
            part[i] = norm_heads(m, part[i]);
        if (rope && i < 2) {
            const Id table = ir_value_add(m->g, OP_ROPE_TABLE, NULL,
                                          ir_shape(3, ir_const(16), ir_const(rot / 2), ir_const(2)), DT_FP32, (Loc){0});

            ir_attr_int(m->g, table, "positions", 16);
            ir_attr_int(m->g, table, "rot", rot);
            ir_attr_float(m->g, table, "theta", 100);
            part[i] = maybe_scale(m, add(m, OP_ROPE, part[i], table, 0, WORD("style", style), NO));
        }
    }
    const Id bias_table = m->others && coin(m) ? weight(m, H, coin(m) ? 3 : 9) : 0;
    const Id slopes = m->others && coin(m) ? weight(m, H, 0) : 0, sinks = m->others && coin(m) ? weight(m, H, 0) : 0;

    y = add(m, OP_CACHE, part[1], part[2], 0, INT("layer", layer), NO);
    y = add(m, OP_ATTEND, part[0], y, 0, INT("layer", layer), FLOAT("scale", 0.4));
    if (coin(m))
        ir_attr_int(m->g, y, "window", 3);
    if (coin(m))
        ir_attr_float(m->g, y, "softcap", 2);
    ir_value(m->g, y)->args[3] = bias_table;
    ir_value(m->g, y)->args[4] = slopes;
    ir_value(m->g, y)->args[5] = sinks;
    return linear(m, add(m, OP_JOIN_HEADS, y, 0, 0, NO, NO), D, bias);
}

static Id feed_forward(Maker *m, Id x)
{
    static const char *const kinds[] = {"silu",       "gelu_erf", "gelu_tanh", "relu",
                                        "quick_gelu", "tanh",     "relu2",     "sigmoid"};
    const int64_t D = ir_value(m->g, x)->shape.dim[1].n, F = 12;
    const char *kind = kinds[(m->seed >> 40) % LEN(kinds)];
    const bool bias = coin(m);
    Id gate = linear(m, x, F, bias), up;

    gate = add(m, OP_ACT, gate, 0, 0, WORD("kind", kind), NO);
    if (coin(m)) {
        up = linear(m, x, F, coin(m) ? bias : !bias);
        gate = coin(m) ? add(m, OP_MUL, gate, up, 0, NO, NO) : add(m, OP_MUL, up, gate, 0, NO, NO);
    }
    if (coin(m)) { /* a gate of one number for each row, and a factor for each column */
        const Id one = add(m, OP_ACT, linear(m, x, 1, bias), 0, 0, WORD("kind", "sigmoid"), NO);

        gate = add(m, OP_MUL, linear(m, x, F, bias), one, 0, NO, NO);
        gate = add(m, OP_MUL, gate, weight(m, F, 0), 0, NO, NO);
        gate = add(m, OP_JOIN, add(m, OP_SLICE, gate, 0, 0, INT("from", 8), INT("count", 4)), gate, 0, NO, NO);
    }
    return linear(m, gate, D, bias);
}

static Graph *random_decoder(uint64_t seed, bool others)
{
    Maker m = {ir_graph_new("random"), seed, 0, others};
    const int layers = 1 + (int)(seed % 2);
    const Id embedding = weight(&m, 11, 16);
    Id h;

    m.g->limits = (Limits){.sequences = 2, .context = 16, .tokens = 8, .kv_block = 4, .kv_pages = 8};
    h = add(&m, OP_EMBED, add(&m, OP_IDS, 0, 0, 0, NO, NO), embedding, 0, NO, NO);
    if (coin(&m))
        h = add(&m, OP_ADD, h, add(&m, OP_POSITIONS, weight(&m, 16, 16), 0, 0, INT("offset", 2), NO), 0, NO, NO);
    for (int i = 0; i < layers; i++) {
        h = add(&m, OP_ADD, h, attention(&m, norm_of(&m, h), i), 0, NO, NO);
        h = add(&m, OP_ADD, feed_forward(&m, coin(&m) ? norm_of(&m, h) : h), h, 0, NO, NO);
        h = maybe_scale(&m, maybe_scale(&m, h));
    }
    if (coin(&m)) {
        h = norm_of(&m, add(&m, OP_SELECT_LAST, h, 0, 0, NO, NO));
        h = add(&m, OP_LINEAR, h, embedding, 0, NO, NO);
    } else {
        h = maybe_scale(&m, add(&m, OP_LINEAR, norm_of(&m, h), embedding, 0, NO, NO));
        h = add(&m, OP_SELECT_LAST, h, 0, 0, NO, NO);
    }
    m.g->output = add(&m, OP_SAMPLE, h, 0, 0, NO, NO);
    m.g->logits = h;
    return m.g;
}

/* A cache that several layers read, and what its keys and their queries have in common. */
typedef struct Shared {
    Id cache;
    int64_t G, rot;
    const char *style;
    bool rope, norm;
} Shared;

/* Heads of x as the queries and keys of a shared cache are made. odd: perhaps rotated otherwise. */
static Id shared_heads(Maker *m, Id x, const Shared *s, int64_t heads, bool odd)
{
    const int64_t E = 8, rot = odd && !(m->seed >> 40 & 3) ? 12 - s->rot : s->rot;
    const char *other = strcmp(s->style, "half") == 0 ? "neighbour" : "half";
    Id y = add(m, OP_SPLIT_HEADS, maybe_scale(m, linear(m, x, heads * E, coin(m))), 0, 0, INT("heads", heads), NO),
       table;

    if (s->norm)
        y = add(m, OP_RMSNORM, add(m, OP_SPLIT_HEADS, linear(m, x, heads * E, false), 0, 0, INT("heads", heads), NO),
                weight(m, E, 0), 0, FLOAT("eps", 1e-5), NO);
    if (!s->rope || (odd && !(m->seed >> 42 & 7)))
        return y;
    table = ir_value_add(m->g, OP_ROPE_TABLE, NULL, ir_shape(3, ir_const(16), ir_const(rot / 2), ir_const(2)), DT_FP32,
                         (Loc){0});
    ir_attr_int(m->g, table, "positions", 16);
    ir_attr_int(m->g, table, "rot", rot);
    ir_attr_float(m->g, table, "theta", 100);
    return maybe_scale(m,
                       add(m, OP_ROPE, y, table, 0, WORD("style", odd && !(m->seed >> 45 & 3) ? other : s->style), NO));
}

static Id shared_attention(Maker *m, Id x, Shared *s)
{
    const int64_t D = ir_value(m->g, x)->shape.dim[1].n, H = s->G * (coin(m) ? 1 : 3);
    const Id q = shared_heads(m, x, s, H, s->cache && coin(m));
    Id y;

    if (!s->cache) {
        const Id k = shared_heads(m, coin(m) || coin(m) ? x : maybe_scale(m, x), s, s->G, false);
        const Id v = add(m, OP_SPLIT_HEADS, linear(m, x, s->G * 8, false), 0, 0, INT("heads", s->G), NO);

        s->cache = add(m, OP_CACHE, k, v, 0, INT("layer", 0), NO);
    }
    /* sinks: what no kernel over pages computes */
    const Id sinks = coin(m) && coin(m) && coin(m) ? weight(m, H, 0) : 0;

    y = add(m, OP_ATTEND, q, s->cache, 0, INT("layer", 0), FLOAT("scale", 0.4));
    if (coin(m))
        ir_attr_int(m->g, y, "window", 3);
    ir_value(m->g, y)->args[5] = sinks;
    return linear(m, add(m, OP_JOIN_HEADS, y, 0, 0, NO, NO), D, false);
}

static Graph *random_shared(uint64_t seed, bool others)
{
    Maker m = {ir_graph_new("random"), seed, 0, others};
    const Id embedding = weight(&m, 11, 16);
    Shared s = {.style = coin(&m) ? "half" : "neighbour", .rope = coin(&m) || coin(&m), .norm = coin(&m)};
    Id h;

    s.G = coin(&m) ? 1 : 2;
    s.rot = coin(&m) ? 8 : 4;
    m.g->limits = (Limits){.sequences = 2, .context = 16, .tokens = 8, .kv_block = 4, .kv_pages = 8};
    h = add(&m, OP_EMBED, add(&m, OP_IDS, 0, 0, 0, NO, NO), embedding, 0, NO, NO);
    for (int i = 0; i < 3; i++)
        h = add(&m, OP_ADD, h, shared_attention(&m, norm_of(&m, h), &s), 0, NO, NO);
    h = add(&m, OP_LINEAR, add(&m, OP_SELECT_LAST, h, 0, 0, NO, NO), embedding, 0, NO, NO);
    m.g->output = add(&m, OP_SAMPLE, h, 0, 0, NO, NO);
    m.g->logits = h;
    return m.g;
}

static int count(const Graph *g, Op op)
{
    int n = 0;

    for (Id id = 1; id < g->values.n; id++)
        n += ir_value(g, id)->op == op;
    return n;
}

static void check_seed(Graph *g, uint64_t seed, bool others, int counts[4])
{
    const Precision p = {.weights = DT_FP32};
    Arena *a = arena_open();
    Diag d = {0};
    int64_t n, m;
    double *before, *after;

    if (!ir_verify(g, &d))
        fail_msg("%s", d.text);
    before = results(g, a, &n);
    if (!passes_run_one(g, "simplify", &p, &d))
        fail_msg("%s", d.text);
    after = results(g, a, &m);
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(before[i] - after[i]) <= 1e-9 * (1 + fabs(before[i]))))
            fail_msg("seed %d: logit %d is %g, was %g", (int)seed, (int)i, after[i], before[i]);
    if (!others)
        assert_int_equal(count(g, OP_ATTEND) + count(g, OP_CACHE) + count(g, OP_ROPE) + count(g, OP_SPLIT_HEADS), 0);
    counts[0] += count(g, OP_GLU);
    counts[1] += count(g, OP_APPEND);
    counts[2] += count(g, OP_ATTEND);
    counts[3] += count(g, OP_CACHE);
    arena_close(a);
    ir_graph_close(g);
}

static void same_results(void **state)
{
    int counts[4] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++)
        check_seed(random_decoder(seed, false), seed, false, counts);
    assert_true(counts[0] > 50 && counts[1] >= 300);
}

/* Attention that stays in parts, or of which only the cache and the attention over its pages stand apart. */
static void same_parts(void **state)
{
    int counts[4] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++)
        check_seed(random_decoder(seed, true), seed, true, counts);
    assert_true(counts[2] > 50 && counts[3] > counts[2] + 10 && counts[1] > 5);
}

/* Layers that read the cache of the first one, which an append writes if all of their queries can be moved as its keys. */
static void same_shared(void **state)
{
    int counts[4] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 600; seed++)
        check_seed(random_shared(seed, true), seed, true, counts);
    assert_int_equal(counts[1] + counts[3], 600); /* one of them writes the cache */
    assert_true(counts[1] > 60 && counts[3] > 60 && counts[2] > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_results), cmocka_unit_test(same_parts),
                                       cmocka_unit_test(same_shared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
