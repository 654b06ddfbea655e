/* model.c - ftx.*: from the table of a model (fields.c) to the Spec, with the checks that need more
 * than one field. */
#include "fields.h"

#include <math.h>
#include <string.h>

#include "../../runtime/base/file.h"

/* --- parts of the Spec ------------------------------------------------------------------------------ */

/* How many positions a learned table has room for; 0: no bound. */
static uint32_t positions_of(const Graph *g, bool encoder)
{
    const bool *side = ir_encoder_side(g);
    uint32_t least = 0;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id), *w = ir_value(g, v->args[0]);
        const int64_t rows = v->op == OP_POSITIONS ? w->shape.dim[0].n - ir_int(v, "offset") : 0;

        if (rows && w->op != OP_SINUSOID && side[id] == encoder && (!least || rows < least))
            least = (uint32_t)rows;
    }
    return least;
}

/* The longest source: as long as the context unless said otherwise. */
static int64_t read_source(lua_State *L, int t)
{
    Reader *r = reader_of(L);
    Limits *l = &r->graph->limits;
    const uint32_t positions = positions_of(r->graph, true);
    int64_t source = field_count(L, t, "limits.source");

    source = source ? source : l->context;
    if (positions && source > positions) {
        lua_pushinteger(L, source);
        field_refuse(L, "limits.source",
                     lua_pushfstring(L, "at most %d: the encoder has so many learned positions", (int)positions), -2);
    }
    if (l->tokens < source) {
        lua_pushinteger(L, l->tokens);
        field_refuse(L, "limits.tokens",
                     lua_pushfstring(L, "at least limits.source (%I): a source is read at once", (lua_Integer)source),
                     -2);
    }
    return source;
}

enum { USUAL_BEAMS = 4 };

/* The most beams that a request may have. A model that reads a source gets USUAL_BEAMS where the spec says
 * nothing, because translators are mostly searched with beams; one sequence after another stays the default. */
static int64_t read_width(lua_State *L, int t)
{
    const Graph *g = reader_of(L)->graph;
    int64_t width = field_count(L, t, "decode.width"), usual = USUAL_BEAMS;

    field_push(L, t, "decode.width");
    if (!lua_isnil(L, -1))
        return width;
    if (width < field_count(L, t, "decode.beams"))
        width = field_count(L, t, "decode.beams");
    usual = usual < g->limits.sequences ? usual : g->limits.sequences;
    usual = usual < reader_of(L)->spec->vocab ? usual : reader_of(L)->spec->vocab;
    return g->kind == FTX_MODEL_SEQ2SEQ && width < usual ? usual : width;
}

/* Sources that are kept at once, where the spec says nothing: one for each request of a full step. A width in
 * the spec means that requests have so many beams; without one they have a sequence each. */
static int64_t read_sources(lua_State *L, int t)
{
    const Limits *l = &reader_of(L)->graph->limits;
    const int64_t sources = field_count(L, t, "limits.sources");
    const int64_t width = field_count(L, t, "decode.width"), beams = field_count(L, t, "decode.beams");
    const int64_t lanes = width > beams ? width : beams > 1 ? beams : 1;

    if (sources > l->sequences) {
        lua_pushinteger(L, sources);
        field_refuse(L, "limits.sources",
                     lua_pushfstring(L, "at most limits.sequences (%I): each is read by a row of a step", l->sequences),
                     -2);
    }
    return sources ? sources : (l->sequences + lanes - 1) / lanes;
}

/* An encoder reads a text at once and has no cache. */
static void check_encoder_limits(lua_State *L, int t)
{
    Limits *l = &reader_of(L)->graph->limits;

    field_push(L, t, "limits.tokens");
    if (lua_isnil(L, -1) && l->tokens < l->context)
        l->tokens = l->context;
    if (l->tokens < l->context) {
        lua_pushinteger(L, l->tokens);
        field_refuse(L, "limits.tokens",
                     lua_pushfstring(L,
                                     "at least limits.context (%I): an encoder reads a text at "
                                     "once",
                                     (lua_Integer)l->context),
                     -2);
    }
}

static void read_limits(lua_State *L, int t)
{
    Reader *r = reader_of(L);
    Limits *l = &r->graph->limits;
    int64_t needed;

    l->sequences = field_count(L, t, "limits.sequences");
    l->context = field_count(L, t, "limits.context");
    l->tokens = field_count(L, t, "limits.tokens");
    l->logit_bias = field_count(L, t, "limits.logit_bias");
    l->end_ids = field_count(L, t, "limits.end_ids");
    l->kv_block = field_count(L, t, "kv.block_size");
    l->kv_pages = field_count(L, t, "kv.pages");
    l->beams = read_width(L, t);
    if (l->beams > l->sequences) {
        lua_pushinteger(L, l->beams);
        field_refuse(L, "decode.width",
                     lua_pushfstring(L, "at most limits.sequences (%I): each lane is a row of a step", l->sequences),
                     -2);
    }
    if (l->beams > r->spec->vocab) {
        lua_pushinteger(L, l->beams);
        field_refuse(L, "decode.width",
                     lua_pushfstring(L, "at most the size of the vocabulary, %d", (int)r->spec->vocab), -2);
    }
    if (r->graph->kind == FTX_MODEL_SEQ2SEQ) {
        l->source = read_source(L, t);
        l->sources = read_sources(L, t);
    }
    if (r->graph->kind == FTX_MODEL_ENCODER)
        check_encoder_limits(L, t);
    if (l->tokens < l->sequences) {
        lua_pushinteger(L, l->tokens);
        field_refuse(
            L, "limits.tokens",
            lua_pushfstring(L, "at least limits.sequences (%I): a step brings one token of each", l->sequences), -2);
    }
    if (l->kv_block % 8) {
        lua_pushinteger(L, l->kv_block);
        field_refuse(L, "kv.block_size", "a multiple of 8 from 8 to 256", -1);
    }
    needed = (l->context + l->kv_block - 1) / l->kv_block;
    if (r->graph->kind == FTX_MODEL_ENCODER)
        needed = l->kv_pages = 0;
    else if (!l->kv_pages)
        l->kv_pages = l->sequences * needed;
    if (l->kv_pages < needed) {
        lua_pushinteger(L, l->kv_pages);
        field_refuse(L, "kv.pages",
                     lua_pushfstring(L, "at least %I: one sequence of limits.context tokens needs as many", needed),
                     -2);
    }
    if (r->spec->positions && l->context > r->spec->positions) {
        lua_pushinteger(L, l->context);
        field_refuse(L, "limits.context",
                     lua_pushfstring(L, "at most %d: the model has so many learned positions", (int)r->spec->positions),
                     -2);
    }
}

static void read_precision(lua_State *L, int t)
{
    Precision *p = &reader_of(L)->spec->precision;

    p->weights = field_type(L, t, "precision.weights");
    p->compute = field_type(L, t, "precision.compute");
    p->kv = field_type(L, t, "precision.kv");
}

static int32_t read_id(lua_State *L, int t, const char *field)
{
    const uint32_t vocab = reader_of(L)->spec->vocab;
    const int64_t id = field_count(L, t, field);

    if (id >= (int64_t)vocab) {
        lua_pushinteger(L, id);
        field_refuse(L, field, lua_pushfstring(L, "below the vocabulary's size %d", (int)vocab), -2);
    }
    return (int32_t)id;
}

/* Every setting by its row in runtime/decode.def. */
static void read_settings(lua_State *L, int t, FtxDecode *c)
{
#define READ_COUNT (int32_t) field_count
#define READ_NUMBER (float)field_number
#define READ_EARLY (int32_t) field_early
#define DECODE(name, type, ...) c->name = READ_##type(L, t, "decode." #name);
#include "../../runtime/decode.def"
#undef DECODE
}

/* Raises unless a setting is at most another field. */
static void check_most(lua_State *L, const char *field, int64_t v, const char *of, int64_t most)
{
    if (v <= most)
        return;
    lua_pushinteger(L, v);
    field_refuse(L, field, lua_pushfstring(L, "at most %s (%I)", of, (lua_Integer)most), -2);
}

/* "sample", "greedy", "beam"; "": only -D says something of decoding; NULL: nothing does, which is greedy. */
static const char *strategy_of(lua_State *L, int t)
{
    field_push(L, t, "decode");
    if (!lua_istable(L, -1))
        return NULL;
    return lua_getfield(L, -1, "strategy") == LUA_TSTRING ? lua_tostring(L, -1) : "";
}

/* With ftx.beam a request has `width` beams unless the spec or the request says otherwise; a width beside
 * another strategy is only the most that a request may have. */
static void read_beams(lua_State *L, int t, FtxDecode *c)
{
    const int64_t width = reader_of(L)->graph->limits.beams;
    const char *strategy = strategy_of(L, t);
    int64_t beams;

    field_push(L, t, "decode.beams");
    if (lua_isnil(L, -1) && strategy && strcmp(strategy, "beam") == 0)
        c->beams = (int32_t)width;
    check_most(L, "decode.beams", c->beams, "decode.width", width);
    check_most(L, "decode.n_best", c->n_best, "decode.width", width);
    beams = c->beams > 1 ? c->beams : width;
    if (c->beam_groups > 1 && beams % c->beam_groups) {
        lua_pushinteger(L, c->beam_groups);
        field_refuse(L, "decode.beam_groups",
                     lua_pushfstring(L, "a divisor of decode.width (%I): groups are of one size", (lua_Integer)beams),
                     -2);
    }
    c->forced_bos = read_id(L, t, "decode.forced_bos");
    c->forced_eos = read_id(L, t, "decode.forced_eos");
}

/* A count beyond the context means the same as all of it. */
static void fit_context(FtxDecode *c, int64_t context)
{
    int32_t *const counts[] = {&c->max_new, &c->repetition_window, &c->no_repeat_ngram};

    for (size_t i = 0; i < LEN(counts); i++)
        if (*counts[i] > context)
            *counts[i] = (int32_t)context;
}

static void read_decode(lua_State *L, int t)
{
    const Reader *r = reader_of(L);
    FtxDecode *c = &r->spec->decode;
    const Limits *l = &r->graph->limits;
    const char *strategy;

    read_settings(L, t, c);
    strategy = strategy_of(L, t);
    if (!strategy || (strategy[0] && strcmp(strategy, "sample") != 0 && !field_override(r, "decode.temperature")))
        c->temperature = 0;
    check_most(L, "decode.samples", c->samples, "limits.sequences", l->sequences);
    read_beams(L, t, c);
    field_push(L, t, "decode.max_top_k");
    c->max_top_k = (int32_t)field_count(L, t, "decode.max_top_k");
    if (lua_isnil(L, -1) && c->max_top_k < c->top_k)
        c->max_top_k = c->top_k;
    check_most(L, "decode.top_k", c->top_k, "decode.max_top_k", c->max_top_k);
    if (c->max_new)
        check_most(L, "decode.min_new", c->min_new, "decode.max_new", c->max_new);
    check_most(L, "decode.min_new", c->min_new, "limits.context", l->context);
    fit_context(c, l->context);
}

/* One id or a list of at most `most`, for which limits.ROOM must have as many entries. */
static uint32_t read_ids(lua_State *L, int t, const char *field, uint32_t most, int32_t *ids, const char *limit,
                         int64_t room, const char *what)
{
    const int vocab = (int)reader_of(L)->spec->vocab;
    uint32_t n = 0;

    field_push(L, t, field);
    if (lua_isnil(L, -1))
        return 0;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        lua_createtable(L, 1, 0);
        lua_insert(L, -2);
        lua_rawseti(L, -2, 1);
    }
    if (!lua_istable(L, -1) || lua_rawlen(L, -1) > most)
        field_refuse(L, field, field_expected(L, field), -1);
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, -1); i++) {
        int whole;
        lua_Integer id;

        lua_rawgeti(L, -1, i);
        id = lua_tointegerx(L, -1, &whole);
        if (!whole || lua_type(L, -1) != LUA_TNUMBER || id < 0 || id >= vocab)
            field_refuse(L, field, lua_pushfstring(L, "token ids from 0 to %d", vocab - 1), -2);
        ids[n++] = (int32_t)id;
        lua_pop(L, 1);
    }
    if (n > room) {
        lua_pushinteger(L, room);
        field_refuse(L, limit, lua_pushfstring(L, "at least %d, the number of %s ids", (int)n, what), -2);
    }
    return n;
}

static void read_ends(lua_State *L, int t)
{
    Spec *spec = reader_of(L)->spec;

    spec->bos = read_id(L, t, "bos");
    spec->n_ends =
        read_ids(L, t, "eos", FTX_MAX_ENDS, spec->ends, "limits.end_ids", reader_of(L)->graph->limits.end_ids, "eos");
}

/* The id that the decoder starts from, and the one that fills rows elsewhere. */
static void read_special(lua_State *L, int t)
{
    Spec *spec = reader_of(L)->spec;

    spec->start = read_id(L, t, "start");
    spec->pad = read_id(L, t, "pad");
    if (reader_of(L)->graph->kind == FTX_MODEL_SEQ2SEQ && spec->start < 0)
        sandbox_fail(L, "start is missing; a decoder with a source needs a first token id");
}

enum { MAX_WORDS = 65536 }; /* ids of all bad words of a model */

/* The ids of a word, which stands at the top of the stack; the last as ~id. Gives how many. */
static uint32_t read_word(lua_State *L, int32_t *ids, uint32_t room)
{
    const int vocab = (int)reader_of(L)->spec->vocab;
    const char *expected =
        lua_pushfstring(L, "words of one or more token ids from 0 to %d, together at most %d", vocab - 1, MAX_WORDS);
    const bool one = lua_type(L, -2) == LUA_TNUMBER;
    const lua_Integer n = one ? 1 : lua_istable(L, -2) ? (lua_Integer)lua_rawlen(L, -2) : 0;

    if (n < 1 || n > room)
        field_refuse(L, "decode.bad_words", expected, -2);
    for (lua_Integer i = 1; i <= n; i++) {
        int whole;
        lua_Integer id;

        if (one)
            lua_pushvalue(L, -2);
        else
            lua_rawgeti(L, -2, i);
        id = lua_tointegerx(L, -1, &whole);
        if (!whole || lua_type(L, -1) != LUA_TNUMBER || id < 0 || id >= vocab)
            field_refuse(L, "decode.bad_words", expected, -1);
        ids[i - 1] = (int32_t)(i < n ? id : ~id);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return (uint32_t)n;
}

/* Words that are never said. A row of the device's table holds them and those of a request. */
static void read_bad_words(lua_State *L, int t)
{
    Reader *r = reader_of(L);
    Limits *l = &r->graph->limits;
    int32_t *ids;

    l->bad_words = field_count(L, t, "limits.bad_words");
    field_push(L, t, "decode.bad_words");
    if (r->graph->kind == FTX_MODEL_ENCODER)
        l->bad_words = 0;
    if (lua_isnil(L, -1))
        return;
    if (r->graph->kind == FTX_MODEL_ENCODER)
        sandbox_fail(L, "decode.bad_words: an encoder writes no words");
    if (!lua_istable(L, -1))
        field_refuse(L, "decode.bad_words", field_expected(L, "decode.bad_words"), -1);
    ids = arena_array(r->box.keep, int32_t, MAX_WORDS);
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, -1); i++) {
        lua_rawgeti(L, -1, i);
        r->spec->n_bad_words += read_word(L, ids + r->spec->n_bad_words, MAX_WORDS - r->spec->n_bad_words);
        lua_pop(L, 1);
    }
    r->spec->bad_words = ids;
    l->bad_words += r->spec->n_bad_words;
}

/* Names of a classifier's classes, one for each number of the pooled vector, and how they are scored. */
static void read_labels(lua_State *L, int t)
{
    static const char *const scorings[] = {"none", "sigmoid", "softmax"}; /* FtxScoring */
    Spec *spec = reader_of(L)->spec;
    const char *scoring = field_text(L, t, "scoring");
    const char *list = "";

    const char *pooling = field_text(L, t, "pooling");

    spec->scoring = scoring ? 0 : FTX_SCORING_SOFTMAX;
    while (scoring && spec->scoring < LEN(scorings) && strcmp(scoring, scorings[spec->scoring]) != 0)
        spec->scoring++;
    if (spec->scoring == LEN(scorings))
        field_refuse(L, "scoring", "one of none, sigmoid, softmax", (lua_pushstring(L, scoring), -1));
    field_push(L, t, "labels");
    if (lua_isnil(L, -1) || (pooling && strcmp(pooling, "model") != 0)) /* another vector has no classes */
        return;
    if (!lua_istable(L, -1) || !spec->pooled || lua_rawlen(L, -1) != spec->pooled)
        field_refuse(L, "labels",
                     lua_pushfstring(L, "%d texts, as many as the pooled vector is wide", (int)spec->pooled), -2);
    for (uint32_t i = 1; i <= spec->pooled; i++) {
        const char *name;

        lua_rawgeti(L, -1, (lua_Integer)i);
        name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "\n";
        if (strlen(name) != lua_rawlen(L, -1) || strchr(name, '\n'))
            field_refuse(L, "labels", "texts of one line each", -1);
        list = arena_printf(reader_of(L)->box.keep, "%s%s\n", list, name);
        lua_pop(L, 1);
    }
    spec->labels = list;
    spec->n_labels = spec->pooled;
}

/* A path of the spec is relative to its folder, one of -D to where the user is. */
static const char *read_path(lua_State *L, int t, const char *field)
{
    const Reader *r = reader_of(L);
    Arena *keep = r->box.keep;
    const char *s = field_text(L, t, field), *path = s;

    if (!s || !s[0]) /* -D weights= : none */
        return NULL;
    if (s[0] != '/' && !field_override(r, field))
        path = arena_printf(keep, "%s%s", r->box.folder, s);
    if (strcmp(field, "weights") == 0)
        path = checkpoint_path(keep, path);
    if (!file_exists(path)) {
        lua_pushstring(L, path);
        field_refuse(L, field, "a file that is there", -1);
    }
    return path;
}

/* --- the graph -------------------------------------------------------------------------------------- */

static void same_heads(lua_State *L, const Value *v, int64_t heads, int64_t kv_heads, int64_t head_dim)
{
    Spec *spec = reader_of(L)->spec;

    if (spec->layers && (heads != spec->heads || kv_heads != spec->kv_heads || head_dim != spec->head_dim))
        sandbox_fail_at(L, v->loc,
                        "this layer has %d heads, %d kv_heads, head_dim %d, the first has %u, %u, %u; all "
                        "layers must be alike",
                        (int)heads, (int)kv_heads, (int)head_dim, spec->heads, spec->kv_heads, spec->head_dim);
    spec->heads = (uint32_t)heads;
    spec->kv_heads = (uint32_t)kv_heads;
    spec->head_dim = (uint32_t)head_dim;
    spec->layers++;
}

/* Sets the facts of an encoder from its ops. */
static void read_encoder_facts(lua_State *L)
{
    const Graph *g = reader_of(L)->graph;
    Spec *spec = reader_of(L)->spec;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id), *x = ir_value(g, v->args[0]);

        if (v->op == OP_EMBED)
            spec->vocab = (uint32_t)ir_value(g, v->args[1])->shape.dim[0].n;
        if (v->op == OP_TYPES)
            spec->types = (uint32_t)x->shape.dim[0].n;
        if (v->op == OP_ATTEND_FULL)
            same_heads(L, v, v->shape.dim[1].n, ir_value(g, v->args[1])->shape.dim[1].n, v->shape.dim[2].n);
    }
    spec->hidden = (uint32_t)ir_value(g, g->output)->shape.dim[1].n;
    spec->pooled = g->pooled ? (uint32_t)ir_value(g, g->pooled)->shape.dim[1].n : 0;
    spec->input = g->entry ? (uint32_t)ir_value(g, g->entry)->shape.dim[1].n : 0;
    spec->positions = positions_of(g, true);
    if (!spec->layers || !spec->vocab)
        sandbox_fail(L, "graph has no %s: an encoder embeds ids and attends to all of a text in every layer",
                     spec->vocab ? "attend_full" : "embed");
}

/* Of what reads a source: its vocabulary, and that every layer of the decoder reads it once. */
static void read_source_facts(lua_State *L)
{
    const Reader *r = reader_of(L);
    const Graph *g = r->graph;
    Spec *spec = r->spec;
    const bool *side = ir_encoder_side(g);
    int64_t reads = 0;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id), *x = ir_value(g, v->args[0]);

        if (v->op == OP_EMBED && side[id])
            spec->source_vocab = (uint32_t)ir_value(g, v->args[1])->shape.dim[0].n;
        if (v->op == OP_TYPES)
            spec->types = (uint32_t)x->shape.dim[0].n;
        if (v->op != OP_ATTEND_SOURCE)
            continue;
        if (ir_value(g, v->args[1])->shape.dim[1].n != spec->kv_heads || v->shape.dim[2].n != spec->head_dim)
            sandbox_fail_at(L, v->loc, "the source has %d kv_heads of %d, the decoder %u of %u; they must be alike",
                            (int)ir_value(g, v->args[1])->shape.dim[1].n, (int)v->shape.dim[2].n, spec->kv_heads,
                            spec->head_dim);
        reads++;
    }
    if (reads != r->sources || reads != r->layers)
        sandbox_fail(L, "graph has %d layers, %d sources for them and %d reads of those; each layer has one of each",
                     (int)r->layers, (int)r->sources, (int)reads);
}

/* Sets the facts of the decoder from its ops. All layers must have caches of one form. */
static void read_facts(lua_State *L)
{
    Reader *r = reader_of(L);
    Graph *g = r->graph;
    Spec *spec = r->spec;

    if (g->kind == FTX_MODEL_ENCODER) {
        read_encoder_facts(L);
        return;
    }

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);
        const Shape s = v->shape;

        if (v->op == OP_EMBED)
            spec->hidden = (uint32_t)s.dim[1].n;
        if (v->op == OP_SAMPLE)
            spec->vocab = (uint32_t)ir_value(g, v->args[0])->shape.dim[1].n;
        if (v->op == OP_ATTEND) {
            const Shape k = ir_value(g, v->args[1])->shape;

            same_heads(L, v, s.dim[1].n, k.dim[1].n, s.dim[2].n);
        }
    }
    spec->positions = positions_of(g, false);
    if (!spec->layers || !spec->hidden)
        sandbox_fail(L, "graph has no %s: a decoder embeds ids and attends to a cache in every layer",
                     spec->hidden ? "attend" : "embed");
    if (spec->layers != r->layers)
        sandbox_fail(L, "graph has %d caches and %d attends; each layer has one of each", (int)r->layers,
                     (int)spec->layers);
    if (g->kind == FTX_MODEL_SEQ2SEQ)
        read_source_facts(L);
}

/* Tables of positions are as long as a sequence or a source may be, which only the limits say. */
static void size_tables(Graph *g)
{
    const int64_t n = g->limits.context > g->limits.source ? g->limits.context : g->limits.source;

    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_ROPE_TABLE || ir_value(g, id)->op == OP_SINUSOID) {
            ir_attr_int(g, id, "positions", n);
            ir_value(g, id)->shape.dim[0] = ir_const(n);
        }
}

/* Pages are addressed by kernels in 64 bits; this only stops what no machine has. */
static void check_cache_bytes(lua_State *L)
{
    const Spec *spec = reader_of(L)->spec;
    const Limits *l = &reader_of(L)->graph->limits;
    const double gb =
        8.0 * spec->layers * (double)l->kv_pages * (double)l->kv_block * spec->kv_heads * spec->head_dim / (1 << 30);

    if (gb > 4096)
        sandbox_fail(L,
                     "the cache of keys and values would take %.0f GB in fp32, at most 4096 are allowed; lower "
                     "limits.sequences, limits.context or kv.pages",
                     gb);
}

/* pooling and normalize: another vector a text than the family's own. */
static void read_pooling(lua_State *L, int t)
{
    Graph *g = reader_of(L)->graph;
    const char *kind = field_text(L, t, "pooling");

    if (!kind || strcmp(kind, "model") == 0)
        kind = NULL;
    else if (strcmp(kind, "none") == 0)
        g->pooled = 0;
    else if (strcmp(kind, "first") == 0 || strcmp(kind, "mean") == 0)
        g->pooled = nn_apply(L, kind[0] == 'f' ? OP_SELECT_FIRST : OP_POOL_MEAN, g->output);
    else
        field_refuse(L, "pooling", "one of model, first, mean, none", (lua_pushstring(L, kind), -1));
    if (field_flag(L, t, "normalize")) {
        if (!g->pooled)
            sandbox_fail(L, "normalize: there is no pooled vector; pooling = \"mean\" makes one");
        g->pooled = nn_apply(L, OP_NORMALIZE, g->pooled);
    }
}

static int ftx_model(lua_State *L)
{
    Reader *r = reader_of(L);
    Graph *g = r->graph;
    const char *name;
    Diag d = {0};

    if (!lua_istable(L, 1))
        return sandbox_fail(L, "ftx.model takes a table, got %s", lua_gettop(L) ? field_shown(L, 1) : "nothing");
    if (r->finished)
        return sandbox_fail(L, "ftx.model was called twice; a spec is one model");
    lua_settop(L, 1);
    fields_override(L, 1);
    fields_check(L, 1, "");
    field_push(L, 1, "graph");
    if (!luaL_testudata(L, -1, "graph value"))
        field_refuse(L, "graph", field_expected(L, "graph"), -1);
    g->output = nn_value(L, -1, "graph");
    if (g->kind == FTX_MODEL_ENCODER) {
        read_pooling(L, 1);
    } else if (ir_value(g, g->output)->op != OP_SAMPLE) {
        return sandbox_fail(L, "graph must end with nn.sample(logits), it ends with %s",
                            ir_op_name(ir_value(g, g->output)->op));
    } else {
        g->logits = ir_value(g, g->output)->args[0];
        g->kind = r->sources ? FTX_MODEL_SEQ2SEQ : FTX_MODEL_DECODER;
    }
    ir_sweep(g);
    read_facts(L);
    read_limits(L, 1);
    if (g->limits.beams > 1)
        g->output = nn_beam(L, g->output);
    size_tables(g);
    check_cache_bytes(L);
    read_precision(L, 1);
    read_decode(L, 1);
    read_ends(L, 1);
    read_special(L, 1);
    read_bad_words(L, 1);
    read_labels(L, 1);
    name = field_text(L, 1, "name");
    if (name) {
        if (!name[0] || strlen(name) > 200 || strpbrk(name, "\n\r\t"))
            field_refuse(L, "name", "one line of 1 to 200 characters", (field_push(L, 1, "name"), -1));
        r->spec->name = name;
        g->name = arena_strdup(g->keep, name);
    }
    r->spec->weights = read_path(L, 1, "weights");
    if (r->spec->checkout && !r->spec->weights && !field_override(r, "weights"))
        return sandbox_fail_at(L, (Loc){r->box.folder, 0},
                               "the checkout has no model.safetensors and no "
                               "model.safetensors.index.json; -D weights= makes a model with random weights");
    r->spec->tokenizer = read_path(L, 1, "tokenizer");
    if (!ir_verify(g, &d))
        return sandbox_fail(L, "%s", d.text);
    r->finished = true;
    lua_pushboolean(L, 1);
    return 1;
}

/* --- decode --------------------------------------------------------------------------------------------- */

static bool is_of_draws(const char *key)
{
    static const char *const keys[] = {"temperature", "top_p", "top_k", "min_p", "typical_p", "samples"};

    for (size_t i = 0; i < LEN(keys); i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static int strategy(lua_State *L, const char *name)
{
    Arena *a = sandbox_of(L)->keep;

    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    if (!lua_istable(L, 1))
        return sandbox_fail(L, "ftx.%s takes a table, got %s", name, field_shown(L, 1));
    lua_settop(L, 1);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const char *path = arena_printf(a, "decode.%.100s", key);

        if (!field_exists(path))
            return sandbox_fail(L, "ftx.%s: there is no field '%s'; the fields are: %s", name, sandbox_text(L, -2),
                                fields_names(a, "decode."));
        if (strcmp(name, "beam") != 0 && strcmp(key, "beams") == 0)
            return sandbox_fail(L, "ftx.%s searches by no beams; ftx.beam does", name);
        if (strcmp(name, "sample") != 0 && is_of_draws(key))
            return sandbox_fail(L, "ftx.%s takes the most likely %s: %s means nothing there; ftx.sample has it", name,
                                strcmp(name, "greedy") == 0 ? "token" : "texts", key);
    }
    lua_pushstring(L, name);
    lua_setfield(L, 1, "strategy");
    return 1;
}

static int ftx_sample(lua_State *L)
{
    return strategy(L, "sample");
}

static int ftx_greedy(lua_State *L)
{
    return strategy(L, "greedy");
}

/* width: how many continuations run on side by side */
static int ftx_beam(lua_State *L)
{
    strategy(L, "beam");
    if (lua_getfield(L, 1, "width") == LUA_TNIL)
        return sandbox_fail(L, "ftx.beam: width is missing; it must be %s", field_expected(L, "decode.width"));
    lua_settop(L, 1);
    return 1;
}

/* --- for families and checkouts --------------------------------------------------------------------------- */

/* ftx.field_refuse(file, reason): a mistake in a file that is not Lua */
static int ftx_refuse(lua_State *L)
{
    return sandbox_fail_at(L, (Loc){luaL_checkstring(L, 1), 0}, "%s", luaL_checkstring(L, 2));
}

/* ftx.override("graph.layers"): the text that -D gives it, or nil */
static int ftx_override(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *text = field_override(reader_of(L), path);

    if (text)
        lua_pushstring(L, text + strlen(path) + 1);
    else
        lua_pushnil(L);
    fields_took(L, path);
    return 1;
}

/* ftx.has("hf/LlamaForCausalLM"): is there such a module */
static int ftx_has(lua_State *L)
{
    lua_pushboolean(L, sandbox_module_exists(L, luaL_checkstring(L, 1)));
    return 1;
}

/* ftx.range("decode.top_k"): the least and the most that a field may be, and whether it is a whole number */
static int ftx_range(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    double low, high;
    bool whole;

    if (!field_exists(path))
        return sandbox_fail(L, "ftx.range: a model has no field '%s'", path);
    whole = field_range(path, &low, &high);
    lua_pushnumber(L, low);
    lua_pushnumber(L, high);
    lua_pushboolean(L, whole);
    return 3;
}

int ftx_open(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"model", ftx_model},       {"sample", ftx_sample}, {"greedy", ftx_greedy},
        {"beam", ftx_beam},         {"refuse", ftx_refuse}, {"has", ftx_has},
        {"override", ftx_override}, {"range", ftx_range},   {NULL, NULL},
    };

    luaL_newlib(L, functions);
    sandbox_strict(L, "ftx");
    return 1;
}
