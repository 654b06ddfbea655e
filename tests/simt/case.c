/* case.c - kernels against the reference, one small graph at a time. */
#include "case.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/instantiate/instantiate.h"
#include "kernels/ref/ref.h"

enum { MAX_UNITS = 2048 };

typedef struct Unit { /* one kernel for one case */
    Case c;
    const char *name;
    Graph *g;
    Target target;
    ProgramFacts facts;
    Binding b;
    Fitted fit;
} Unit;

struct Suite {
    Arena *keep, *scratch;
    Catalog catalog;
    Build *build;
    Unit *at;
    size_t n, launches;
};

Suite *suite_open(const char *dir)
{
    Arena *keep = arena_open();
    Suite *s = arena_alloc(keep, sizeof *s);
    Diag d = {0};

    *s = (Suite){.keep = keep, .scratch = arena_open(), .build = build_open(dir)};
    s->at = calloc(MAX_UNITS, sizeof *s->at);
    if (!catalog_open(keep, &s->catalog, &d))
        fail_msg("%s", d.text);
    return s;
}

void suite_close(Suite *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (i == 0 || s->at[i].g != s->at[i - 1].g)
            ir_graph_close(s->at[i].g);
    build_close(s->build);
    free(s->at);
    arena_close(s->scratch);
    arena_close(s->keep);
}

static int tokens_of(const Case *c)
{
    int T = 0;

    for (int i = 0; i < c->rows; i++)
        T += c->row[i].q_len;
    return T;
}

static ProgramFacts facts_of(const Case *c, const Graph *g, Target t)
{
    const int64_t most = c->bucket ? c->bucket : c->decode ? g->limits.sequences : g->limits.tokens;

    assert_true(tokens_of(c) <= most && c->rows <= g->limits.sequences);
    return (ProgramFacts){.g = g,
                          .decode = c->decode,
                          .encode = c->encode,
                          .bucket = c->bucket,
                          .t_max = most,
                          .s_max = most < g->limits.sequences ? most : g->limits.sequences,
                          .arch = t.id / 10,
                          .smem = target_smem_bytes(t),
                          .kv = c->kv,
                          .target = t.id};
}

static void add_unit(Suite *s, const Unit *u)
{
    const Instance *i = u->fit.instance;

    for (size_t k = 0; k < s->n; k++) /* a - b may match two ways: one is enough */
        if (s->at[k].g == u->g && strcmp(s->at[k].fit.instance->entry, i->entry) == 0)
            return;
    assert_true(s->n < MAX_UNITS);
    s->at[s->n++] = *u;
    build_add(s->build, i->entry, instantiate_text(i, u->target, s->keep));
}

size_t suite_add(Suite *s, const Case *c, const char *name)
{
    Unit u = {.c = *c, .name = arena_strdup(s->keep, name)};
    const size_t before = s->n;
    const char *reason = NULL;
    uint32_t *uses;
    Diag d = {0};

    u.g = ir_parse(name, c->graph, &d);
    if (!u.g || !ir_verify(u.g, &d) || !target_parse(c->target, &u.target, &d))
        fail_msg("%s: %s\n%s", name, d.text, c->graph);
    u.facts = facts_of(c, u.g, u.target);
    uses = ir_uses(u.g);
    for (size_t i = 0; i < s->catalog.n; i++) {
        const Contract *k = s->catalog.at[i];

        if (k->device != KD_CUDA || (c->only && strcmp(c->only, k->family) != 0) ||
            (k->rows == ROWS_DECODE && c->decode_rows == 0) || (k->rows == ROWS_PREFILL && c->decode))
            continue;
        for (size_t m = 0; m < k->matches.n; m++)
            for (uint32_t way = 0; way < match_ways(&k->matches.at[m]); way++)
                if (match_at(&u.facts, uses, k, &k->matches.at[m], way, u.g->output, &u.b, NULL, s->scratch) &&
                    contract_fit(&u.facts, &u.b, s->keep, s->scratch, &u.fit, &reason))
                    add_unit(s, &u);
    }
    if (s->n == before)
        ir_graph_close(u.g);
    return s->n - before;
}

void suite_build(Suite *s)
{
    build_run(s->build);
}

/* Findings are said as they come, and fail the test when all has run. */
static size_t failures;

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void wrong(const char *format, ...)
{
    char text[600];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_message("wrong: %s\n", text);
    failures++;
}

/* --- data --------------------------------------------------------------------------------------- */

static uint64_t dice;

static uint32_t bits(void)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice >> 33);
}

static int below(int n)
{
    return (int)(bits() % (uint32_t)n);
}

static float uniform(void) /* -1 .. 1 */
{
    return (float)bits() / 1073741824.0f - 1.0f;
}

typedef struct Scene { /* what a launch works on; host copies of what the kernel may change */
    const Unit *u;
    Arena *keep;
    int T, S, pages_of;
    FtxStep step;
    FtxRow rows[CASE_ROWS];
    FtxToken *token;
    int32_t *pages, *history, *ends;
    FtxBias *bias;
    FtxParams params[CASE_ROWS];
    void *cache[2]; /* before the launch */
    size_t cache_bytes;
    RefTensor *input; /* by Id: what the kernel reads */
    void *device[FTX_NAMED_COUNT];
    void *matrix[CONTRACT_MAX_ARGS]; /* of an argument, also where a map of it is given */
    void *arg[CONTRACT_MAX_ARGS + 8];
    size_t n_args;
} Scene;

static const Value *append_of(const Unit *u)
{
    for (uint32_t i = 0; i < u->b.n_covered; i++)
        if (ir_value(u->g, u->b.covered[i])->op == OP_APPEND || ir_value(u->g, u->b.covered[i])->op == OP_ATTEND_PAGED)
            return ir_value(u->g, u->b.covered[i]);
    return NULL;
}

/* Head size of the layer's cache; 0: none. */
static int head_dim(const Unit *u)
{
    const Value *v = append_of(u);

    if (!v)
        return 0;
    return v->op == OP_APPEND ? (int)ir_int(v, "head_dim") : (int)ir_value(u->g, v->args[0])->shape.dim[2].n;
}

static int kv_heads(const Unit *u)
{
    return (int)ir_int(append_of(u), "kv_heads");
}

static void make_rows(Scene *s)
{
    const Case *c = &s->u->c;
    const Limits *m = &s->u->g->limits;
    int slots[CASE_ROWS], at = 0;

    s->S = c->rows;
    s->T = tokens_of(c);
    s->token = arena_array(s->keep, FtxToken, (size_t)s->T + 1);
    for (int i = 0; i < (int)m->sequences; i++)
        slots[i] = i;
    for (int i = (int)m->sequences; i > 1; i--) {
        const int j = below(i), x = slots[i - 1];

        slots[i - 1] = slots[j];
        slots[j] = x;
    }
    for (int r = 0; r < s->S; r++) {
        const int n = c->row[r].q_len, kv = c->row[r].kv_len;

        s->rows[r] = (FtxRow){.q_start = at,
                              .q_len = n,
                              .kv_len = kv,
                              .slot = slots[r],
                              .emit = r % 5 != 4,
                              .group = r,
                              .prompt = kv - n > 0 ? kv - n : 1,
                              .limit = kv + 1 + r % 2};
        for (int i = 0; i < n; i++)
            s->token[at + i] = (FtxToken){.id = below(7), .pos = kv - n + i, .row = r, .slot = slots[r]};
        at += n;
    }
    s->step = (FtxStep){.tokens = s->T, .rows = s->S, .decode_rows = c->decode_rows, .processors = 1};
}

/* Each row has its own pages in any order; entries that nobody needs are 0. */
static void make_pages(Scene *s)
{
    const Limits *m = &s->u->g->limits;
    int32_t *free_pages = arena_array(s->keep, int32_t, (size_t)m->kv_pages);
    int n = (int)m->kv_pages;

    s->pages_of = (int)((m->context + m->kv_block - 1) / m->kv_block);
    s->pages = arena_array(s->keep, int32_t, (size_t)(m->sequences * s->pages_of));
    memset(s->pages, 0xff, sizeof(int32_t) * (size_t)(m->sequences * s->pages_of));
    for (int i = 0; i < n; i++)
        free_pages[i] = i;
    for (int r = 0; r < s->S; r++)
        for (int i = 0; i * m->kv_block < s->rows[r].kv_len; i++) {
            const int k = below(n);

            assert_true(n > 0);
            s->pages[s->rows[r].slot * s->pages_of + i] = free_pages[k];
            free_pages[k] = free_pages[--n];
        }
}

static void make_tail(Scene *s)
{
    const Limits *m = &s->u->g->limits;

    s->history = arena_array(s->keep, int32_t, (size_t)(m->sequences * m->context));
    s->ends = arena_array(s->keep, int32_t, (size_t)(m->sequences * m->end_ids) + 1);
    s->bias = arena_array(s->keep, FtxBias, (size_t)(m->sequences * m->logit_bias) + 1);
    for (int64_t i = 0; i < m->sequences * m->context; i++)
        s->history[i] = below(20);
    for (int64_t i = 0; i < m->sequences * m->end_ids; i++)
        s->ends[i] = below(20);
    for (int64_t i = 0; i < m->sequences * m->logit_bias; i++)
        s->bias[i] = (FtxBias){below(20), 3.0f * uniform()};
    for (int r = 0; r < s->S; r++)
        s->params[r] = s->u->c.params[r];
}

static RefTensor random_tensor(Scene *s, const Value *v, DType type)
{
    const int64_t n = ir_shape_elements(v->shape, s->T, s->S);
    const int64_t last = v->shape.dim[v->shape.rank - 1].n;
    char *p = arena_alloc(s->keep, (size_t)n * dtype_size(type) + 16);
    const bool vector = v->op == OP_WEIGHT && v->shape.rank == 1;
    const char *name = v->op == OP_WEIGHT ? ir_word(v, "name") : "";
    const float by = v->op == OP_WEIGHT && !vector   ? 1.7f / sqrtf((float)last)
                     : v->shape.dim[0].kind == DIM_S ? 5.0f
                                                     : 1.0f;

    if (v->op == OP_ROPE_TABLE)
        ref_rope_table((int)ir_int(v, "positions"), (int)ir_int(v, "rot"), ir_float(v, "theta"), (float *)(void *)p);
    else
        for (int64_t i = 0; i < n; i++)
            dtype_store(p, (size_t)i, type,
                        vector ? (*name == 'g' ? 1.0f + 0.2f * uniform() : 0.3f * uniform()) : by * uniform());
    return (RefTensor){p, type};
}

/* Keys and values of the positions before this step (attention: of the step too). */
static void make_cache(Scene *s)
{
    const Unit *u = s->u;
    const int E = head_dim(u), G = E ? kv_heads(u) : 0;
    const Limits *m = &u->g->limits;
    const bool attend = E && append_of(u)->op == OP_ATTEND_PAGED;
    const size_t row = (size_t)E * dtype_size(u->facts.kv);

    s->cache_bytes = (size_t)(m->kv_pages * G * m->kv_block) * row;
    for (int w = 0; w < 2 && E; w++) {
        char *p = s->cache[w] = arena_alloc(s->keep, s->cache_bytes);
        char *d = s->device[w ? FTX_NAMED_v : FTX_NAMED_k] = simt_alloc(s->cache_bytes, w ? "values" : "keys");

        memset(p, 0xff, s->cache_bytes);
        for (int r = 0; r < s->S; r++)
            for (int pos = 0; pos < s->rows[r].kv_len - (attend ? 0 : s->rows[r].q_len); pos++)
                for (int g = 0; g < G; g++) {
                    const int64_t page = s->pages[s->rows[r].slot * s->pages_of + pos / (int)m->kv_block];
                    const size_t at = (size_t)((page * G + g) * m->kv_block + pos % m->kv_block) * row;

                    for (int e = 0; e < E; e++)
                        dtype_store(p + at, (size_t)e, u->facts.kv, uniform());
                    simt_write(d + at, p + at, row);
                }
    }
}

static void *upload(const void *from, size_t bytes, size_t room, const char *name)
{
    char *p = simt_alloc(room, name);

    if (bytes)
        simt_write(p, from, bytes);
    return p;
}

static void make_named(Scene *s)
{
    const Limits *m = &s->u->g->limits;
    const size_t S = (size_t)m->sequences, T = (size_t)s->u->facts.t_max;
    const char *names[FTX_NAMED_COUNT] = {
#define NAMED(name, space, bytes, what) "$" #name,
#include "runtime/named.def"
#undef NAMED
    };

    s->device[FTX_NAMED_step] = upload(&s->step, sizeof s->step, sizeof s->step, names[FTX_NAMED_step]);
    s->device[FTX_NAMED_rows] = simt_alloc(S * sizeof(FtxRow), names[FTX_NAMED_rows]);
    simt_fill(s->device[FTX_NAMED_rows], 0, S * sizeof(FtxRow));
    simt_write(s->device[FTX_NAMED_rows], s->rows, (size_t)s->S * sizeof(FtxRow));
    s->device[FTX_NAMED_params] = simt_alloc(S * sizeof(FtxParams), names[FTX_NAMED_params]);
    simt_fill(s->device[FTX_NAMED_params], 0, S * sizeof(FtxParams));
    simt_write(s->device[FTX_NAMED_params], s->params, (size_t)s->S * sizeof(FtxParams));
    s->device[FTX_NAMED_ends] =
        upload(s->ends, S * (size_t)m->end_ids * 4, S * (size_t)m->end_ids * 4, names[FTX_NAMED_ends]);
    s->device[FTX_NAMED_bias] =
        upload(s->bias, S * (size_t)m->logit_bias * 8, S * (size_t)m->logit_bias * 8, names[FTX_NAMED_bias]);
    s->device[FTX_NAMED_token] =
        upload(s->token, (size_t)s->T * sizeof(FtxToken), T * sizeof(FtxToken), names[FTX_NAMED_token]);
    s->device[FTX_NAMED_history] =
        upload(s->history, S * (size_t)m->context * 4, S * (size_t)m->context * 4, names[FTX_NAMED_history]);
    s->device[FTX_NAMED_out] = simt_alloc(S * FTX_OUT_RING * sizeof(FtxOut), names[FTX_NAMED_out]);
    for (size_t i = (size_t)s->T; i < T; i++) /* left from an earlier step */
        simt_write((FtxToken *)s->device[FTX_NAMED_token] + i, &(FtxToken){.id = 3, .pos = 1, .row = 0, .slot = 1},
                   sizeof(FtxToken));
    s->device[FTX_NAMED_pages] = simt_alloc(S * (size_t)s->pages_of * 4, names[FTX_NAMED_pages]);
    simt_fill(s->device[FTX_NAMED_pages], 0, S * (size_t)s->pages_of * 4);
    for (size_t i = 0; i < S * (size_t)s->pages_of; i++)
        if (s->pages[i] >= 0)
            simt_write((int32_t *)s->device[FTX_NAMED_pages] + i, &s->pages[i], 4);
}

/* --- the reference ------------------------------------------------------------------------------ */

static FtxAct act_of(const Value *v)
{
    static const char *const names[] = {"", "relu", "gelu_erf", "gelu_tanh", "quick_gelu", "silu"};

    for (int i = 1; i < 6; i++)
        if (strcmp(ir_word(v, "kind"), names[i]) == 0)
            return (FtxAct)i;
    fail_msg("no activation %s", ir_word(v, "kind"));
    return FTX_ACT_NONE;
}

typedef struct Wanted { /* what the launch should leave behind */
    void *cache[2];
    int32_t *history;
} Wanted;

static RefCache cache_of(const Scene *s, void *const cache[2])
{
    return (RefCache){cache[0],       cache[1],      s->u->facts.kv,
                      s->pages,       s->pages_of,   (int)s->u->g->limits.kv_block,
                      kv_heads(s->u), head_dim(s->u)};
}

static RefTensor evaluate(Scene *s, Id id, bool root, Wanted *w)
{
    const Graph *g = s->u->g;
    const Value *v = ir_value(g, id);
    RefTensor a[IR_MAX_ARGS] = {0};
    int64_t n, M;
    float *y;

    if (!root && s->input[id].p)
        return s->input[id];
    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (v->args[i] && ir_value(g, v->args[i])->op != OP_IDS)
            a[i] = evaluate(s, v->args[i], false, w);
    n = ir_shape_elements(v->shape, s->T, s->S);
    M = n / (v->shape.dim[v->shape.rank - 1].n ? v->shape.dim[v->shape.rank - 1].n : 1);
    y = arena_alloc(s->keep, (size_t)n * 4 + 16);
    const int C = (int)v->shape.dim[v->shape.rank - 1].n;
    switch (v->op) {
    case OP_EMBED: ref_embed(s->token, s->T, a[1], (RefTensor){0}, 0, C, w->history, (int)g->limits.context, y); break;
    case OP_POSITIONS:
        for (int t = 0; t < s->T; t++)
            for (int i = 0; i < C; i++)
                y[t * C + i] = (float)ref_at(a[0], (s->token[t].pos + ir_int(v, "offset")) * C + i);
        break;
    case OP_LINEAR: ref_linear(a[0], a[1], a[2], (int)M, C, (int)ir_value(g, v->args[1])->shape.dim[1].n, y); break;
    case OP_ADD: ref_add(a[0], a[1], n, y); break;
    case OP_MUL: ref_mul(a[0], a[1], n, y); break;
    case OP_SCALE: ref_scale(a[0], ir_float(v, "by"), n, y); break;
    case OP_RMSNORM: ref_rmsnorm(a[0], a[1], ir_float(v, "eps"), (int)M, C, y); break;
    case OP_LAYERNORM: ref_layernorm(a[0], a[1], a[2], ir_float(v, "eps"), (int)M, C, y); break;
    case OP_ACT: ref_act(a[0], act_of(v), n, y); break;
    case OP_GLU: ref_glu(a[0], act_of(v), (int)M, C, y); break;
    case OP_SELECT_LAST: ref_select_last(a[0], s->rows, s->S, C, y); break;
    case OP_APPEND: {
        const RefCache cache = cache_of(s, w->cache);

        ref_append(a[0], a[1].p, s->token, s->T, (int)ir_int(v, "heads"), (int)ir_int(v, "rot"), &cache, y);
        break;
    }
    case OP_ATTEND_PAGED: {
        const RefCache cache = cache_of(s, s->cache);

        ref_attend(a[0], s->rows, s->S, (int)ir_value(g, v->args[0])->shape.dim[1].n, ir_float(v, "scale"),
                   (int)ir_int(v, "window"), ir_float(v, "softcap"), &cache, y);
        break;
    }
    default: fail_msg("no reference for %s", ir_op_name(v->op));
    }
    return (RefTensor){y, DT_FP32};
}

/* --- one launch --------------------------------------------------------------------------------- */

/* Largest difference that rounding explains, as a part of the largest value. The 16-bit types keep 8
 * and 11 bits; the fused norms round once more before the product. */
static double tolerance(const Scene *s, DType out)
{
    DType least = out;

    for (size_t i = 0; i < s->u->b.contract->args.n; i++)
        if (s->u->b.arg[i] && dtype_size(ir_value(s->u->g, s->u->b.arg[i])->type) == 2)
            least = ir_value(s->u->g, s->u->b.arg[i])->type;
    if (append_of(s->u) && dtype_size(s->u->facts.kv) == 2)
        least = s->u->facts.kv;
    return least == DT_BF16 ? 1.2e-2 : least == DT_FP16 ? 2e-3 : 2e-6 * 8;
}

static void compare(const Scene *s, const char *what, const void *got, DType type, const float *want, int64_t n,
                    int64_t from)
{
    const double limit = tolerance(s, type);
    double largest = 1e-3;

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = from; i < n; i++) {
        const double y = dtype_load(got, (size_t)i, type);

        if (!(fabs(y - (double)want[i]) <= limit * largest)) {
            wrong("%s: %s: %s[%lld] is %.7g, should be %.7g (the largest is %.3g)", s->u->name,
                  s->u->fit.instance->entry, what, (long long)i, y, (double)want[i], largest);
            return;
        }
    }
}

/* The step's keys and values by tolerance, all others bit by bit. */
static void compare_cache(const Scene *s, const Wanted *w)
{
    const RefCache c = cache_of(s, s->cache);
    const size_t row = (size_t)c.E * dtype_size(c.type), rows = s->cache_bytes / row;
    bool *written = arena_array(s->keep, bool, rows);
    float *want = arena_array(s->keep, float, (size_t)c.E);

    for (int t = 0; t < s->T; t++)
        for (int g = 0; g < c.G; g++)
            written[((int64_t)c.pages[s->token[t].slot * c.pages_of + s->token[t].pos / c.block] * c.G + g) * c.block +
                    s->token[t].pos % c.block] = true;
    for (int k = 0; k < 2; k++)
        for (size_t r = 0; r < rows; r++) {
            const char *got = (const char *)s->device[k ? FTX_NAMED_v : FTX_NAMED_k] + r * row;
            const char *old = (const char *)s->cache[k] + r * row;

            if (!written[r]) {
                if (memcmp(got, old, row) != 0)
                    wrong("%s: %s: a row of the cache changed that is not of this step", s->u->name,
                          s->u->fit.instance->entry);
                continue;
            }
            for (int e = 0; e < c.E; e++)
                want[e] = dtype_load((const char *)w->cache[k] + r * row, (size_t)e, c.type);
            compare(s, k ? "values" : "keys", got, c.type, want, c.E, 0);
        }
}

static void check_sample(const Scene *s)
{
    const Unit *u = s->u;
    const Value *logits = ir_value(u->g, u->b.arg[0]);
    const int V = (int)logits->shape.dim[1].n, context = (int)u->g->limits.context;
    const FtxOut *out = s->device[FTX_NAMED_out];
    const FtxRow *rows = s->device[FTX_NAMED_rows];
    const FtxToken *token = s->device[FTX_NAMED_token];
    double *p = arena_array(s->keep, double, (size_t)V), logprob;
    int32_t *order = arena_array(s->keep, int32_t, (size_t)V);

    for (int r = 0; r < s->S; r++) {
        const RefRow ref = {&s->rows[r], &s->params[r], s->history + (int64_t)s->rows[r].slot * context,
                            s->ends + (int64_t)r * u->g->limits.end_ids,
                            s->bias + (int64_t)r * u->g->limits.logit_bias};
        const int n = s->rows[r].kv_len;
        const FtxOut *o = out + (int64_t)(n % FTX_OUT_RING) * u->g->limits.sequences + r;
        int id, finish = n + 1 >= s->rows[r].limit ? 2 : 0;

        if (!s->rows[r].emit) {
            assert_true(simt_untouched(o, sizeof *o));
            assert_memory_equal(&rows[r], &s->rows[r], sizeof rows[r]);
            continue;
        }
        id = ref_sample(&ref, (const float *)s->input[u->b.arg[0]].p + (int64_t)r * V, V, p, order, &logprob);
        for (int i = 0; i < s->params[r].n_ends; i++)
            if (ref.ends[i] == id)
                finish = 1;
        assert_true(simt_written(o, sizeof *o));
        if (o->token != id || o->finish != finish || o->length != n || !(fabs((double)o->logprob - logprob) < 2e-5))
            wrong("%s: row %d: token %d (%g, finish %d, length %d), should be %d (%g, %d, %d)", u->name, r, o->token,
                  (double)o->logprob, o->finish, o->length, id, logprob, finish, n);
        assert_int_equal(rows[r].done, finish != 0);
        assert_int_equal(rows[r].kv_len, finish ? n : n + 1);
        if (!finish) {
            assert_int_equal(token[r].id, id);
            assert_int_equal(token[r].pos, n);
            assert_int_equal(token[r].slot, s->rows[r].slot);
        }
    }
}

/* Rows of y that this kernel does not serve: [from, to) of the first dimension; a step's attention has
 * one kernel for decode rows and one for prompts. */
static void served(const Scene *s, int64_t rows, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = rows;
    if (s->u->b.contract->rows == ROWS_DECODE)
        *to = s->step.decode_rows;
    if (s->u->b.contract->rows == ROWS_PREFILL)
        *from = s->step.decode_rows;
}

static void check(Scene *s, void *y)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, u->b.root);
    const int64_t rows = v->shape.dim[0].kind == DIM_S ? s->S : s->T;
    Wanted w = {.history = arena_array(s->keep, int32_t, (size_t)(u->g->limits.sequences * u->g->limits.context))};
    int64_t n, from, to;
    RefTensor want;

    if (v->op == OP_SAMPLE) {
        check_sample(s);
        return;
    }
    for (int k = 0; k < 2 && s->cache_bytes; k++) {
        w.cache[k] = arena_alloc(s->keep, s->cache_bytes);
        memcpy(w.cache[k], s->cache[k], s->cache_bytes);
    }
    memcpy(w.history, s->history, sizeof(int32_t) * (size_t)(u->g->limits.sequences * u->g->limits.context));
    want = evaluate(s, u->b.root, true, &w);
    n = ir_shape_elements(v->shape, s->T, s->S) / rows;
    served(s, rows, &from, &to);
    const size_t size = dtype_size(v->type), bytes = (size_t)n * size;
    if (!simt_written((char *)y + (size_t)from * bytes, (size_t)(to - from) * bytes))
        wrong("%s: %s: some of y was not written", u->name, u->fit.instance->entry);
    const int64_t room = v->shape.dim[0].kind == DIM_S ? u->facts.s_max : u->facts.t_max;
    if (!simt_untouched(y, (size_t)from * bytes) ||
        !simt_untouched((char *)y + (size_t)to * bytes, (size_t)(room - to) * bytes))
        wrong("%s: %s: rows of y were written that are not this kernel's", u->name, u->fit.instance->entry);
    compare(s, "y", y, v->type, want.p, to * n, from * n);
    if (v->op == OP_APPEND)
        compare_cache(s, &w);
    for (uint32_t i = 0; i < u->b.n_covered; i++)
        if (ir_value(u->g, u->b.covered[i])->op == OP_EMBED)
            assert_memory_equal(s->device[FTX_NAMED_history], w.history,
                                sizeof(int32_t) * (size_t)(u->g->limits.sequences * u->g->limits.context));
}

static int64_t run_expr(const Expr *e, const int64_t variables[VAR_COUNT])
{
    int64_t n = 1;
    FtxError err;

    if (e->n && expr_run(e->words, e->n, variables, VAR_COUNT, &n, &err))
        fail_msg("%s", err.text);
    return n;
}

/* Rows of an activation beyond the live ones hold NaN. */
static void *make_input(Scene *s, Id id, DType type)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, id);
    const RefTensor t = random_tensor(s, v, type);
    const size_t live = (size_t)ir_shape_elements(v->shape, s->T, s->S) * dtype_size(type);
    const size_t room = (size_t)ir_shape_elements(v->shape, u->facts.t_max, u->facts.s_max) * dtype_size(type);
    char name[32];
    void *p;

    snprintf(name, sizeof name, "%%%u %s", id, ir_op_name(v->op));
    p = upload(t.p, live, room, name);
    if (room > live)
        simt_fill((char *)p + live, 0xff, room - live);
    if (ir_op_is_weight(v->op))
        simt_protect(p, room);
    s->input[id] = t;
    return p;
}

/* Maps in place of the matrices that the contract wants tiled. */
static void give_maps(Scene *s)
{
    const Unit *u = s->u;

    for (size_t i = 0; i < u->b.contract->args.n; i++) {
        const int64_t tile_rows = contract_arg_tiled(&u->b, &u->fit, i);
        const Value *v = ir_value(u->g, u->b.arg[i]);
        SimtMap map = {.matrix = s->arg[i], .tile_rows = (unsigned)tile_rows};

        s->matrix[i] = s->arg[i];
        if (!tile_rows)
            continue;
        map.columns = (unsigned)v->shape.dim[v->shape.rank - 1].n;
        map.rows = (unsigned)(ir_shape_elements(v->shape, u->facts.t_max, u->facts.s_max) / map.columns);
        s->arg[i] = upload(&map, sizeof map, sizeof map, "map");
    }
}

static void *make_scene(Scene *s, const Unit *u, Arena *keep)
{
    const Contract *c = u->b.contract;
    void *y = NULL;

    *s = (Scene){.u = u, .keep = keep};
    s->input = arena_array(keep, RefTensor, u->g->values.n);
    make_rows(s);
    make_pages(s);
    make_tail(s);
    make_cache(s);
    make_named(s);
    for (size_t i = 0; i < c->args.n; i++) { /* ins and outs stand in this order */
        const ContractArg *a = &c->args.at[i];
        void *p = NULL;

        if (a->named >= 0) {
            p = s->device[a->named];
        } else if (u->b.arg[i] && u->b.arg[i] == u->b.root) {
            const Value *v = ir_value(u->g, u->b.root);

            p = y = simt_alloc(
                (size_t)ir_shape_elements(v->shape, u->facts.t_max, u->facts.s_max) * dtype_size(v->type), "y");
        } else if (u->b.arg[i]) {
            for (size_t k = 0; k < i && !p; k++)
                if (u->b.arg[k] == u->b.arg[i])
                    p = s->arg[k];
            if (!p)
                p = make_input(s, u->b.arg[i], contract_arg_type(&u->facts, &u->b, i));
        }
        s->arg[s->n_args++] = p;
    }
    give_maps(s);
    for (size_t i = 0; i < c->scratch.n; i++)
        s->arg[s->n_args++] = simt_alloc((size_t)u->fit.scratch[i], c->scratch.at[i].name);
    for (size_t i = 0; i < c->zeroed.n; i++) {
        s->arg[s->n_args] = simt_alloc((size_t)u->fit.zeroed[i], c->zeroed.at[i].name);
        simt_fill(s->arg[s->n_args++], 0, (size_t)u->fit.zeroed[i]);
    }
    return y;
}

static void check_zeroed(const Scene *s)
{
    const Contract *c = s->u->b.contract;

    for (size_t i = 0; i < c->zeroed.n; i++) {
        const char *p = s->arg[s->n_args - c->zeroed.n + i];

        for (int64_t k = 0; k < s->u->fit.zeroed[i]; k++)
            if (p[k])
                wrong("%s: %s: %s is not left zero", s->u->name, s->u->fit.instance->entry, c->zeroed.at[i].name);
    }
}

/* What the launch in front writes in a program: activations, and the step's keys and values. */
static void written_in_front(const Scene *s)
{
    const Unit *u = s->u;

    for (size_t i = 0; i < u->b.contract->args.n; i++) {
        const Value *v = u->b.arg[i] ? ir_value(u->g, u->b.arg[i]) : NULL;

        if (v && u->b.arg[i] != u->b.root && !ir_op_is_weight(v->op))
            simt_written_in_front(s->matrix[i], (size_t)ir_shape_elements(v->shape, s->T, s->S) * dtype_size(v->type));
    }
    if (!append_of(u) || append_of(u)->op != OP_ATTEND_PAGED)
        return;
    const RefCache c = cache_of(s, s->cache);
    const size_t row = (size_t)c.E * dtype_size(c.type);
    for (int t = 0; t < s->T; t++)
        for (int g = 0; g < c.G; g++)
            for (int k = 0; k < 2; k++)
                simt_written_in_front(
                    (char *)s->device[k ? FTX_NAMED_v : FTX_NAMED_k] +
                        (size_t)(((int64_t)c.pages[s->token[t].slot * c.pages_of + s->token[t].pos / c.block] * c.G +
                                  g) *
                                     c.block +
                                 s->token[t].pos % c.block) *
                            row,
                    row);
}

static void run_unit(Suite *suite, const Unit *u, SimtSchedule schedule, uint64_t seed)
{
    const Instance *in = u->fit.instance;
    const int64_t variables[VAR_COUNT] = {[VAR_T] = u->facts.bucket ? u->facts.t_max : tokens_of(&u->c),
                                          [VAR_S] = u->facts.bucket ? u->facts.s_max : u->c.rows,
                                          [VAR_SMS] = u->c.sms ? u->c.sms : 3};
    Arena *keep = arena_open();
    Scene s;
    SimtLaunch l = {.kernel = build_kernel(suite->build, in->entry), .block = in->block, .smem = in->smem};

    dice = seed * 77 + 1;
    void *y = make_scene(&s, u, keep);
    for (int i = 0; i < 3; i++)
        l.grid[i] = (unsigned)run_expr(&in->grid[i], variables);
    l.args = s.arg;
    if (l.kernel->args_bytes != s.n_args * sizeof(void *))
        fail_msg("%s takes %u bytes, its contract has %zu pointers", in->entry, l.kernel->args_bytes, s.n_args);
    simt_schedule(schedule, seed);
    simt_in_front();
    l.overlap = in->overlap;
    written_in_front(&s);
    if (!simt_launch(&l)) {
        wrong("%s: %zu findings", u->name, simt_reports());
        for (size_t i = 0; i < simt_reports(); i++)
            print_message("  %s\n", simt_report(i)->text);
        simt_clear();
    } else {
        check(&s, y);
        check_zeroed(&s);
    }
    simt_free_all();
    arena_close(keep);
    suite->launches++;
}

void suite_run(Suite *s, int schedules, uint64_t seed)
{
    failures = 0;
    for (size_t i = 0; i < s->n; i++)
        for (int k = 0; k < schedules; k++)
            run_unit(s, &s->at[i], (SimtSchedule)((i + (size_t)k) % SIMT_SCHEDULES), seed + (uint64_t)k);
    if (failures)
        fail_msg("%zu launches went wrong", failures);
}

void suite_summary(const Suite *s, FILE *out)
{
    for (size_t i = 0; i < s->catalog.n; i++) {
        const char *family = s->catalog.at[i]->family;
        size_t n = 0;

        if (s->catalog.at[i]->device != KD_CUDA)
            continue;
        for (size_t k = 0; k < s->n; k++)
            n += strcmp(s->at[k].fit.instance->family, family) == 0;
        if (n)
            fprintf(out, "%-20s %zu cases\n", family, n);
    }
    fprintf(out, "%zu kernels, %zu launches, %llu threads, %llu accesses checked\n", build_count(s->build), s->launches,
            (unsigned long long)simt_counts.threads, (unsigned long long)simt_counts.accesses);
}
