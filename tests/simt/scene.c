/* scene.c - data of one launch: the rows of a step, their KV pages and history, random weights and
 * activations, with NaN wherever the kernel should not read. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t dice;

static uint32_t bits(void)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice >> 33);
}

int scene_below(int n)
{
    return (int)(bits() % (uint32_t)n);
}

float scene_uniform(void)
{
    return (float)bits() / 1073741824.0f - 1.0f;
}

uint32_t scene_form(const Catalog *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_forms; i++)
        if (strcmp(c->forms[i].name, name) == 0)
            return i;
    fail_msg("there is no form %s", name);
    return 0;
}

bool unit_reads_form(const Unit *u, Id id)
{
    for (size_t i = 0; i < u->b.contract->args.n; i++)
        if (u->b.arg[i] == id && u->b.form[i] && !u->b.contract->args.at[i].out)
            return true;
    return false;
}

bool unit_leaves_segments(const Unit *u)
{
    const Instance *in = u->fit.instance;
    bool out = false;

    for (size_t i = 0; i < u->b.contract->args.n; i++)
        out |= u->b.contract->args.at[i].out && u->b.contract->args.at[i].named == FTX_NAMED_segments;
    for (size_t i = 0; i < in->n_consts && out; i++)
        if (strcmp(in->consts[i].name, "SEGMENTS") == 0)
            return in->consts[i].i != 0;
    return false;
}

/* Rows of the token type embedding; 0: the unit has none. */
static int types_of(const Unit *u)
{
    for (uint32_t i = 0; i < u->b.n_covered; i++)
        if (ir_value(u->g, u->b.covered[i])->op == OP_TYPES)
            return (int)ir_value(u->g, ir_value(u->g, u->b.covered[i])->args[0])->shape.dim[0].n;
    return 0;
}

/* Two rows share a source (an encoder's output), as beam lanes do; in an encode step each row has its own. */
static int source_of(const Unit *u, int row)
{
    const int sources = (int)u->g->limits.sources;

    return !sources ? 0 : u->facts.encode ? row % sources : (row / 2 + 1) % sources;
}

static void make_rows(Scene *s)
{
    const Case *c = &s->u->c;
    const Limits *m = &s->u->g->limits;
    int *slots = arena_array(s->keep, int, (size_t)m->sequences), at = 0;

    s->S = c->rows;
    for (int r = 0; r < s->S; r++)
        s->T += c->row[r].q_len;
    s->token = arena_array(s->keep, FtxToken, (size_t)s->T + 1);
    for (int i = 0; i < (int)m->sequences; i++)
        slots[i] = i;
    for (int i = (int)m->sequences; i > 1; i--) {
        const int j = scene_below(i), x = slots[i - 1];

        slots[i - 1] = slots[j];
        slots[j] = x;
    }
    for (int r = 0; r < s->S; r++) {
        const bool lane = r < c->lanes;
        const int n = c->row[r].q_len, kv = c->row[lane ? 0 : r].kv_len;

        s->rows[r] = (FtxRow){.q_start = at,
                              .q_len = n,
                              .kv_len = kv,
                              .slot = slots[r],
                              .emit = r % 5 != 4,
                              .group = lane ? 0 : r,
                              .lane = lane ? r : -1,
                              .src_slot = source_of(s->u, r),
                              .src_len = m->source ? 1 + (source_of(s->u, r) * 37 + 10) % (int)m->source : 0,
                              .prompt = lane                ? 1 + kv / 3
                                        : c->whole && n > 1 ? kv
                                        : kv - n > 0        ? kv - n
                                                            : 1,
                              .limit = kv + 1 + r % 2};
        for (int i = 0; i < n; i++)
            s->token[at + i] = (FtxToken){.id = scene_below(7),
                                          .pos = kv - n + i,
                                          .row = r,
                                          .slot = !s->u->facts.encode ? slots[r]
                                                  : types_of(s->u)    ? scene_below(types_of(s->u))
                                                                      : 0};
        at += n;
    }
    s->step = (FtxStep){.tokens = s->T, .rows = s->S, .decode_rows = c->decode_rows, .processors = 1};
}

/* Each row gets its own pages in random order; on the device unused entries are 0. */
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
    for (int r = 0; r < s->S && !s->u->facts.encode; r++)
        for (int i = 0; i * m->kv_block < s->rows[r].kv_len; i++) {
            const int k = scene_below(n);

            assert_true(n > 0);
            s->pages[s->rows[r].slot * s->pages_of + i] = free_pages[k];
            free_pages[k] = free_pages[--n];
        }
}

/* Bad words of each row. Most match the end of the row's history; some have one id; some are longer than the history
 * and match the memory before it, which the kernel must not read. */
static void make_words(Scene *s)
{
    const Limits *m = &s->u->g->limits;

    s->words = arena_array(s->keep, int32_t, (size_t)(m->sequences * m->bad_words) + 1);
    for (int r = 0; r < s->S; r++) {
        const int slot = s->rows[r].slot, n = s->rows[r].kv_len;
        const int32_t *history = s->history + (int64_t)slot * m->context;
        int32_t *words = s->words + (int64_t)slot * m->bad_words;

        for (int at = 0, length; at < s->params[r].n_words; at += length) {
            const int most = s->params[r].n_words - at;

            length = 1 + scene_below(most < 5 ? most : 5);
            for (int k = 0; k < length - 1; k++) {
                const int from = n - (length - 1) + k;

                words[at + k] = from + slot * m->context >= 0 && scene_below(8) ? history[from] : scene_below(20);
            }
            words[at + length - 1] = ~scene_below(20);
        }
    }
}

/* After the prompt, each position of a lane may be stored in any lane's slot; the step's own is in the lane's. */
static void make_owners(Scene *s)
{
    const int context = (int)s->u->g->limits.context;

    s->owner = arena_array(s->keep, int32_t, (size_t)(s->u->g->limits.sequences * context));
    for (int r = 0; r < s->u->c.lanes; r++) {
        int32_t *owner = s->owner + s->rows[r].slot * context;

        for (int p = s->rows[r].prompt; p < s->rows[r].kv_len - 1; p++)
            owner[p] = s->rows[scene_below(s->u->c.lanes)].slot;
        owner[s->rows[r].kv_len - 1] = s->rows[r].slot;
    }
}

static void make_tail(Scene *s)
{
    const Limits *m = &s->u->g->limits;

    s->history = arena_array(s->keep, int32_t, (size_t)(m->sequences * m->context));
    s->ends = arena_array(s->keep, int32_t, (size_t)(m->sequences * m->end_ids) + 1);
    s->bias = arena_array(s->keep, FtxBias, (size_t)(m->sequences * m->logit_bias) + 1);
    for (int64_t i = 0; i < m->sequences * m->context; i++)
        s->history[i] = scene_below(20);
    for (int64_t i = 0; i < m->sequences * m->end_ids; i++)
        s->ends[i] = scene_below(20);
    for (int64_t i = 0; i < m->sequences * m->logit_bias; i++)
        s->bias[i] =
            (FtxBias){i % 4 == 1 ? s->bias[i - 1].id : scene_below(20), 3.0f * scene_uniform()}; /* one id twice */
    for (int r = 0; r < s->S; r++) {
        s->params[r] = s->u->c.params[r];
        s->beams[r].width = m->beams > 1 && r % 3 == 1 ? (int)m->beams : 0;
    }
    make_words(s);
}

/* Gains are near 1. A long array repeats a piece of prime length, so that its rows differ. */
static void fill(char *p, int64_t n, DType type, bool gain, float by)
{
    enum { PIECE = 524287 }; /* a prime */
    const size_t size = dtype_size(type);

    for (int64_t i = 0; i < n && i < PIECE; i++)
        dtype_store(p, (size_t)i, type, gain ? 1.0f + 0.2f * scene_uniform() : by * scene_uniform());
    for (int64_t i = PIECE; i < n; i += PIECE)
        memcpy(p + (size_t)i * size, p, (size_t)(n - i < PIECE ? n - i : PIECE) * size);
}

/* Numbers half-way between two codes of 8 bits, where the largest of a row makes the scale 1. */
static void fill_ties(char *p, int64_t n, DType type, float most)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = rintf(scene_uniform() * (i % 3 ? 2 * most : 40)) / 2;

        dtype_store(p, (size_t)i, type, i % 16 == 0 ? most : i % 5 == 0 ? x / 1024 : x);
    }
}

/* Rows of which some columns are large, in x and in w, and cancel out in pairs: what is left of the other products depends
 * on what stands in a sum while they are added. */
static void fill_cancelling(const Value *v, int64_t n, DType type, char *p)
{
    const int64_t C = v->shape.dim[v->shape.rank - 1].n;
    const bool weight = ir_op_is_weight(v->op);

    for (int64_t i = 0; i + C <= n; i += C)
        for (int64_t k = 3; k + 7 < C; k += 14) {
            const float large = weight ? ldexpf(1 + (float)scene_below(8) / 8, 13) : 32;

            dtype_store(p, (size_t)(i + k), type, large);
            dtype_store(p, (size_t)(i + k + 7), type, weight ? -large : large);
        }
}

static bool is_norm(Op op)
{
    return op == OP_RMSNORM || op == OP_LAYERNORM;
}

static void random_values(const Value *v, int64_t n, DType type, bool gain, char *p)
{
    const int64_t last = v->shape.dim[v->shape.rank - 1].n;
    const bool weight = ir_op_is_weight(v->op);

    if (v->op == OP_ROPE_TABLE)
        ref_rope_table((int)ir_int(v, "positions"), (int)ir_int(v, "rot"), ir_float(v, "theta"), (float *)(void *)p);
    else
        fill(p, n, type, gain,
             !weight              ? (v->shape.dim[0].kind == DIM_S ? 5.0f : 1.0f)
             : v->shape.rank == 1 ? 0.3f
                                  : 1.7f / sqrtf((float)last));
}

/* Index of the cache row of a slot, KV head and position: in the slot's page, or in the keys of a source. */
static size_t cache_row(const Scene *s, int slot, int g, int pos)
{
    const Limits *m = &s->u->g->limits;
    const int G = unit_kv_heads(s->u);

    if (unit_of_source(s->u))
        return (size_t)(((int64_t)slot * G + g) * m->source + pos);
    const int64_t page = s->pages[slot * s->pages_of + pos / (int)m->kv_block];

    return (size_t)((page * G + g) * m->kv_block + pos % m->kv_block);
}

static void fill_cache(Scene *s, int slot, int from, int to)
{
    const RefCache c = scene_cache(s, s->cache);
    const size_t rows = (size_t)(c.G * c.block);
    float x[576];

    for (int w = 0; w < 2; w++)
        for (int pos = from; pos < to; pos++)
            for (int g = 0; g < c.G; g++) {
                const size_t row = cache_row(s, slot, g, pos);
                const CacheRow r = scene_cache_row(&c, row);
                char *device = s->device[unit_of_source(s->u) ? (w ? FTX_NAMED_cross_v : FTX_NAMED_cross_k)
                                         : w                  ? FTX_NAMED_v
                                                              : FTX_NAMED_k];

                for (int e = 0; e < c.E; e++)
                    x[e] = scene_uniform();
                ref_cache(&c, s->cache[w], (int64_t)(row / rows), (int64_t)(row % rows), x);
                simt_write(device + r.at, (char *)s->cache[w] + r.at, r.bytes);
                if (r.scale_bytes)
                    simt_write(device + r.scale_at, (char *)s->cache[w] + r.scale_at, r.scale_bytes);
            }
}

/* Keys and values of the positions before this step (for attention of this step, too), or of the sources. */
static void make_cache(Scene *s)
{
    const Unit *u = s->u;
    const Limits *m = &u->g->limits;
    const Value *v = unit_cache_op(u);
    const bool source = unit_of_source(u);

    if (!v)
        return;
    s->cache_bytes = (size_t)(source ? m->sources * m->source : m->kv_pages * m->kv_block) * (size_t)unit_kv_heads(u) *
                     sizes_row(u->facts.kv, (uint32_t)unit_head_dim(u));
    for (int w = 0; w < 2; w++) {
        s->cache[w] = arena_alloc(s->keep, s->cache_bytes);
        memset(s->cache[w], 0xff, s->cache_bytes);
        s->device[source ? (w ? FTX_NAMED_cross_v : FTX_NAMED_cross_k)
                  : w    ? FTX_NAMED_v
                         : FTX_NAMED_k] = simt_alloc(s->cache_bytes, w ? "values" : "keys");
    }
    for (int r = 0; r < s->S && !(source && unit_appends(u)); r++) {
        const FtxRow *row = &s->rows[r];

        if (!source)
            fill_cache(s, row->slot, 0, row->kv_len - (unit_appends(u) ? row->q_len : 0));
        else if (r == 0 || row->src_slot != s->rows[r - 1].src_slot)
            fill_cache(s, row->src_slot, 0, row->src_len);
    }
}

static void *upload(const void *from, size_t bytes, size_t room, const char *name)
{
    char *p = simt_alloc(room, name);

    if (bytes)
        simt_write(p, from, bytes);
    return p;
}

static size_t segments_bytes(const Unit *u)
{
    const int64_t V = ir_value(u->g, u->g->logits)->shape.dim[1].n;

    return sizeof(FtxSegments) + (size_t)(u->g->limits.sequences * FTX_SEGMENTS(V)) * sizeof(FtxSegment);
}

/* The host's data of a step's rows. Kernels may read entries after the live rows: these are 0, as in a new engine. */
static void *upload_rows(const void *rows, int live, size_t all, size_t bytes, const char *name)
{
    void *device = simt_alloc(all * bytes, name);

    simt_fill(device, 0, all * bytes);
    simt_write(device, rows, (size_t)live * bytes);
    return device;
}

static void make_named(Scene *s)
{
    const Limits *m = &s->u->g->limits;
    const size_t S = (size_t)m->sequences, T = (size_t)s->u->facts.t_max;
    const char *names[FTX_NAMED_COUNT] = {
#define NAMED(name, space, bytes, what) "$" #name,
#include "runtime/artifact/named.def"
#undef NAMED
    };
    const struct {
        int named;
        size_t bytes; /* of a slot */
    } searched[] = {{FTX_NAMED_group, (size_t)m->beams * 4},
                    {FTX_NAMED_lanes, sizeof(FtxLane)},
                    {FTX_NAMED_hyps, (size_t)m->context * 4},
                    {FTX_NAMED_logps, (size_t)m->context * 8}};

    s->device[FTX_NAMED_step] = upload(&s->step, sizeof s->step, sizeof s->step, names[FTX_NAMED_step]);
    s->device[FTX_NAMED_rows] = upload_rows(s->rows, s->S, S, sizeof(FtxRow), names[FTX_NAMED_rows]);
    s->device[FTX_NAMED_params] = upload_rows(s->params, s->S, S, sizeof(FtxParams), names[FTX_NAMED_params]);
    s->device[FTX_NAMED_beams] = upload_rows(s->beams, s->S, S, sizeof(FtxBeam), names[FTX_NAMED_beams]);
    if (s->u->g->logits)
        s->device[FTX_NAMED_segments] = simt_alloc(segments_bytes(s->u), names[FTX_NAMED_segments]);
    s->device[FTX_NAMED_ends] =
        upload(s->ends, S * (size_t)m->end_ids * 4, S * (size_t)m->end_ids * 4, names[FTX_NAMED_ends]);
    s->device[FTX_NAMED_bias] =
        upload(s->bias, S * (size_t)m->logit_bias * 8, S * (size_t)m->logit_bias * 8, names[FTX_NAMED_bias]);
    s->device[FTX_NAMED_bad_words] =
        upload(s->words, S * (size_t)m->bad_words * 4, S * (size_t)m->bad_words * 4, names[FTX_NAMED_bad_words]);
    s->device[FTX_NAMED_token] =
        upload(s->token, (size_t)s->T * sizeof(FtxToken), T * sizeof(FtxToken), names[FTX_NAMED_token]);
    s->device[FTX_NAMED_history] =
        upload(s->history, S * (size_t)m->context * 4, S * (size_t)m->context * 4, names[FTX_NAMED_history]);
    s->device[FTX_NAMED_owner] = upload(s->owner, s->u->c.lanes ? S * (size_t)m->context * 4 : 0,
                                        S * (size_t)m->context * 4, names[FTX_NAMED_owner]);
    if (m->beams > 1) /* state kept between steps: written by search.c and by the kernel */
        for (size_t i = 0; i < LEN(searched); i++)
            s->device[searched[i].named] = simt_alloc(S * searched[i].bytes, names[searched[i].named]);
    s->device[FTX_NAMED_out] = simt_alloc(S * FTX_OUT_RING * sizeof(FtxOut), names[FTX_NAMED_out]);
    simt_polled(s->device[FTX_NAMED_out], sizeof(FtxOut), offsetof(FtxOut, length), S * FTX_OUT_RING);
    for (size_t i = (size_t)s->T; i < T; i++) /* left from an earlier step */
        simt_write((FtxToken *)s->device[FTX_NAMED_token] + i, &(FtxToken){.id = 3, .pos = 1, .row = 0, .slot = 1},
                   sizeof(FtxToken));
    s->device[FTX_NAMED_pages] = simt_alloc(S * (size_t)s->pages_of * 4, names[FTX_NAMED_pages]);
    simt_fill(s->device[FTX_NAMED_pages], 0, S * (size_t)s->pages_of * 4);
    for (size_t i = 0; i < S * (size_t)s->pages_of; i++)
        if (s->pages[i] >= 0)
            simt_write((int32_t *)s->device[FTX_NAMED_pages] + i, &s->pages[i], 4);
}
/* --- arguments ------------------------------------------------------------------------------------ */

static void make_flat(float *x, int64_t n, float by, int levels)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = by * (float)(scene_below(levels) - 64) / 64.0f;
}

/* Rows of an activation after the live ones hold NaN. The reference reads weights from the device memory, which is
 * write-protected; it gets a copy of activations. */
static void *make_input(Scene *s, Id id, DType type, bool gain)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, id);
    const int64_t n = ir_shape_elements(v->shape, s->T, s->S);
    const size_t live = (size_t)n * dtype_size(type);
    const size_t room = (size_t)ir_shape_elements(v->shape, u->facts.t_max, u->facts.s_max) * dtype_size(type);
    char name[32], *p;

    snprintf(name, sizeof name, "%%%u %s", id, ir_op_name(v->op));
    p = simt_alloc(room, name);
    simt_fill(p, 0xff, room);
    if (u->c.flat > 0.0f && (v->shape.dim[0].kind == DIM_S || ir_value(u->g, u->b.root)->op == OP_ROUTE) &&
        type == DT_FP32)
        make_flat((float *)(void *)p, n, u->c.flat, u->c.levels ? u->c.levels : 129);
    else if (u->c.ties > 0.0f && !ir_op_is_weight(v->op))
        fill_ties(p, n, type, u->c.ties);
    else if (v->op == OP_ROUTE)
        scene_make_routes(s, v, (int32_t *)(void *)p);
    else
        random_values(v, n, type, gain, p);
    if (u->c.fixed && v->shape.rank == 2 && !(ir_op_is_weight(v->op) && is_norm(ir_value(u->g, u->b.root)->op)))
        fill_cancelling(v, n, type, p);
    if (unit_norms(u, id))
        scene_shift_rows(v, n, type, p);
    s->input[id] = (RefTensor){p, type};
    if (ir_op_is_weight(v->op))
        simt_protect(p, room);
    else
        s->input[id].p = memcpy(arena_alloc(s->keep, live + 16), p, live);
    return p;
}

static size_t bytes_of(const Unit *u, const Value *v)
{
    return (size_t)ir_shape_elements(v->shape, u->facts.t_max, u->facts.s_max) *
           dtype_size(v->op == OP_QUANTISE ? u->facts.compute : v->type);
}

static bool is_fp8(const Unit *u, size_t i)
{
    return u->fp8_rows && u->b.form[i] == u->fp8_rows;
}

static bool is_digits(const Unit *u, size_t i)
{
    return u->digit_rows && u->b.form[i] == u->digit_rows;
}

static void *make_arg(Scene *s, size_t i)
{
    const Unit *u = s->u;
    const ContractArg *a = &u->b.contract->args.at[i];

    if (a->named >= 0)
        return s->device[a->named];
    if (!u->b.arg[i] || a->of >= 0) /* scene_make makes statistics once their values exist */
        return NULL;
    if (u->b.arg[i] == u->b.root && a->out && is_fp8(u, i))
        return s->y = simt_alloc(scene_fp8_bytes(u, u->b.root), "y");
    if (u->b.arg[i] == u->b.root && a->out && is_digits(u, i))
        return s->y = simt_alloc(scene_digit_bytes(u, u->b.root), "y");
    if (u->b.arg[i] == u->b.root && a->out && u->b.form[i] == u->parts)
        return s->y = simt_alloc(scene_parts_bytes(s, u->b.root, false), "y");
    if (u->b.arg[i] == u->b.root && a->out)
        return s->y = simt_alloc(bytes_of(u, ir_value(u->g, u->b.root)), "y");
    for (size_t k = 0; k < i; k++)
        if (u->b.arg[k] == u->b.arg[i] && u->b.contract->args.at[k].of < 0)
            return s->arg[k];
    if (ir_value(u->g, u->b.arg[i])->op == OP_QUANTISE)
        return scene_make_packed(s, u->b.arg[i]);
    if (u->b.form[i] == u->parts)
        return scene_make_parts(s, u->b.arg[i]);
    if (is_cache(ir_value(u->g, u->b.arg[i])->op)) /* the kernel reads it from $k and $v, or $cross_k and $cross_v */
        return NULL;
    void *p = make_input(s, u->b.arg[i], contract_arg_type(&u->facts, &u->b, i), a->name[strlen(a->name) - 1] == 'g');
    return is_fp8(u, i)      ? scene_make_fp8(s, u->b.arg[i], s->input[u->b.arg[i]])
           : is_digits(u, i) ? scene_make_digits(s, u->b.arg[i], s->input[u->b.arg[i]])
                             : p;
}

/* The rows and columns of argument i. Of $k and $v all pages. */
static void give_shape(const Scene *s, size_t i, SimtMap *map)
{
    const Unit *u = s->u;
    const bool paged = u->b.contract->args.at[i].named >= 0;
    const Shape all = paged ? (Shape){0} : ir_value(u->g, u->b.arg[i])->shape;
    const Limits *m = &u->g->limits;
    Shape row = all;

    row.dim[0] = ir_const(1);
    map->columns = (unsigned)(paged ? unit_head_dim(u) : ir_shape_elements(row, 1, 1));
    map->rows = (unsigned)(paged ? m->kv_pages * m->kv_block * unit_kv_heads(u)
                                 : ir_shape_elements(all, u->facts.t_max, u->facts.s_max) / map->columns);
}

/* Replaces the matrices that the contract wants tiled by TMA descriptors. */
static void give_maps(Scene *s)
{
    const Unit *u = s->u;

    for (size_t i = 0; i < u->b.contract->operands; i++) {
        const int64_t tile_rows = contract_arg_tiled(&u->b, &u->fit, i);
        SimtMap map = {.matrix = s->arg[i], .tile_rows = (unsigned)tile_rows};

        s->matrix[i] = s->arg[i];
        if (!tile_rows)
            continue;
        give_shape(s, i, &map);
        s->arg[i] = upload(&map, sizeof map, sizeof map, "map");
    }
}

double scene_inv_temperature(const FtxParams *p)
{
    const bool by_mass = p->top_needed > 8 && p->top_k == 0 && (p->top_p < 1 || p->min_p == 0) && p->temperature > 0;

    return by_mass ? 1 / (double)p->temperature : 1;
}

FtxSegment scene_segment(const float *row, int first, int width, double inv_temperature)
{
    FtxSegment p = {.top = -INFINITY, .first = first, .width = width, .kept = -1, .at = -1};
    double sum = 0;

    for (int i = 0; i < width; i++)
        if (row[first + i] > p.top || (row[first + i] == p.top && p.at < 0)) {
            p.top = row[first + i];
            p.at = i;
        }
    for (int i = 0; i < width; i++)
        sum += exp(((double)row[first + i] - (isinf(p.top) ? 0.0 : (double)p.top)) * inv_temperature);
    p.sum = (float)sum;
    p.top += 0.0f; /* no -0 */
    return p;
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

void scene_keep(float *row, FtxSegment *p, int need)
{
    float x[256], order[256];
    int n = 0;

    if (need < 2 || need > 8 || p->width < 32)
        return;
    memcpy(x, row + p->first, sizeof *x * (size_t)p->width);
    for (int i = 0; i < p->width; i++)
        if (x[i] > -INFINITY)
            order[n++] = x[i];
    qsort(order, (size_t)n, sizeof *order, by_value);
    need += scene_below(4);
    float low = n < need ? -FLT_MAX : order[need - 1];
    for (int i = 0; i < 4 && low > -FLT_MAX; i++)
        low = nextafterf(low, -FLT_MAX);
    while (n > 0 && !(order[n - 1] >= low))
        n--;
    if (n > 16)
        return;
    p->kept = n;
    for (int i = 0; i < p->width; i++)
        row[p->first + i] = NAN;
    for (int i = scene_below(p->width), seen = 0, k = 0; seen < p->width; seen++, i = (i + 1) % p->width)
        if (x[i] >= low) {
            const int column = p->first + i;

            row[p->first + k] = x[i];
            memcpy(&row[p->first + 16 + k++], &column, sizeof column);
        }
}

void scene_segments(const Scene *s, const float *logits)
{
    const FtxParams *params = s->device[FTX_NAMED_params];
    const Unit *u = s->u;
    const int V = (int)ir_value(u->g, u->g->logits)->shape.dim[1].n;
    FtxSegments *to = s->device[FTX_NAMED_segments];
    FtxSegments head = {0};
    const size_t bytes = sizeof *logits * (size_t)s->S * (size_t)V;
    float *left = arena_array(s->keep, float, (size_t)s->S *(size_t)V);

    memcpy(left, logits, bytes);
    simt_fill(to, 0, segments_bytes(u)); /* as in a new engine */
    for (int first = 0, width; first < V; first += width, head.count++) {
        width = scene_below(5) ? V < 400 ? 1 + scene_below(9) : 96 + scene_below(161) : 0;
        width = width < V - first ? width : V - first;
        assert_true(head.count < FTX_SEGMENTS(V));
        for (int r = 0; r < s->S; r++) {
            FtxSegment p = scene_segment(logits + (int64_t)r * V, first, width, scene_inv_temperature(&params[r]));

            if (!params[r].logits)
                scene_keep(left + (int64_t)r * V, &p, params[r].top_needed);
            simt_write((FtxSegment *)(to + 1) + (int64_t)r * FTX_SEGMENTS(V) + head.count, &p, sizeof p);
        }
    }
    simt_write(to, &head, sizeof head);
    simt_write(s->arg[0], left, bytes);
}

void scene_make(Scene *s, const Unit *u, uint64_t seed, Arena *keep)
{
    const Contract *c = u->b.contract;

    dice = seed * 77 + 1;
    *s = (Scene){.u = u, .keep = keep};
    s->input = arena_array(keep, RefTensor, u->g->values.n);
    make_rows(s);
    make_pages(s);
    make_owners(s);
    make_tail(s);
    make_cache(s);
    scene_make_recurrent(s);
    make_named(s);
    for (; s->n_args < c->operands; s->n_args++) /* inputs and outputs, in the contract's order */
        s->arg[s->n_args] = make_arg(s, s->n_args);
    for (size_t i = c->operands; i < c->args.n; i++) /* not passed to the kernel; the reference reads them */
        if (u->b.arg[i])
            make_input(s, u->b.arg[i], DT_FP32, (int)i == c->folded.gain);
    scene_fold(s);
    for (size_t i = 0; i < c->operands; i++)
        if (c->args.at[i].of >= 0)
            s->arg[i] = !u->b.arg[i]                        ? NULL
                        : c->args.at[i].form == u->fp8_rows ? (void *)scene_make_fp8_scales(s, c->args.at[i].out)
                        : c->args.at[i].form == u->digit_rows
                            ? (void *)scene_make_units(s, u->b.arg[i], c->args.at[i].out)
                        : ir_value(u->g, u->b.arg[i])->op == OP_ROUTE ? (void *)scene_make_by_expert(s, i)
                                                                      : scene_make_stats(s, i);
    give_maps(s);
    if (u->g->logits && unit_reads_form(u, u->g->logits) && ir_value(u->g, u->b.root)->op == OP_SAMPLE)
        scene_segments(s, s->input[u->g->logits].p);
    for (size_t i = 0; i < c->scratch.n; i++)
        s->arg[s->n_args++] = simt_alloc((size_t)u->fit.scratch[i], c->scratch.at[i].name);
    for (size_t i = 0; i < c->zeroed.n; i++) {
        s->arg[s->n_args] = simt_alloc((size_t)u->fit.zeroed[i], c->zeroed.at[i].name);
        simt_fill(s->arg[s->n_args++], 0, (size_t)u->fit.zeroed[i]);
    }
}

void scene_written_in_front(const Scene *s)
{
    const Unit *u = s->u;

    for (size_t i = 0; i < u->b.contract->operands; i++) {
        const Value *v = u->b.arg[i] ? ir_value(u->g, u->b.arg[i]) : NULL;

        if (!v || u->b.arg[i] == u->b.root || ir_op_is_weight(v->op) || !s->arg[i])
            continue;
        if (is_fp8(u, i))
            simt_written_in_front(s->arg[i], scene_fp8_bytes(u, u->b.arg[i]));
        else if (is_digits(u, i))
            simt_written_in_front(s->arg[i], scene_digit_bytes(u, u->b.arg[i]));
        else if (u->b.form[i] == u->parts)
            simt_written_in_front(s->arg[i], scene_parts_bytes(s, u->b.arg[i], true));
        else if (u->b.contract->args.at[i].of >= 0 && u->b.contract->args.at[i].form == u->fp8_rows)
            simt_written_in_front(s->arg[i], (size_t)s->T * 4);
        else if (u->b.contract->args.at[i].of >= 0 && u->b.contract->args.at[i].form == u->digit_rows)
            simt_written_in_front(s->arg[i], scene_unit_bytes(u, u->b.arg[i]));
        else if (u->b.contract->args.at[i].of >= 0)
            simt_written_in_front(s->arg[i],
                                  v->op == OP_ROUTE ? scene_by_expert_bytes(s, i, true) : scene_stats_bytes(s, i));
        else
            simt_written_in_front(s->matrix[i], (size_t)ir_shape_elements(v->shape, s->T, s->S) * dtype_size(v->type));
    }
    if (!unit_cache_op(u) || unit_of_source(u) || unit_appends(u))
        return;
    const RefCache c = scene_cache(s, s->cache);

    for (int t = 0; t < s->T; t++)
        for (int g = 0; g < unit_kv_heads(u); g++)
            for (int k = 0; k < 2; k++) {
                const CacheRow r = scene_cache_row(&c, cache_row(s, s->token[t].slot, g, s->token[t].pos));
                char *cache = s->device[k ? FTX_NAMED_v : FTX_NAMED_k];

                simt_written_in_front(cache + r.at, r.bytes);
                if (r.scale_bytes)
                    simt_written_in_front(cache + r.scale_at, r.scale_bytes);
            }
}
