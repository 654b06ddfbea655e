/* settings.c - the fields of ftx.model beside its graph: limits, precision, decoding, ids, labels, paths.
 *
 * fields.c checks each field alone; here are the checks that need the graph or several fields. */
#include "settings.h"
#include "fields.h"

#include <string.h>

#include "../../runtime/base/file.h"
#include "../../runtime/base/packed.h"
#include "../../runtime/artifact/ftx_format.h"

/* --- limits ------------------------------------------------------------------------------------------ */

uint32_t settings_positions(const Graph *g, bool encoder)
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

/* The longest source: as long as the context where the spec says nothing. */
static int64_t read_source(lua_State *L, int t)
{
    Reader *r = reader_of(L);
    Limits *l = &r->graph->limits;
    const uint32_t positions = settings_positions(r->graph, true);
    int64_t source = field_count(L, t, "limits.source");

    source = source ? source : l->context;
    if (positions && source > positions) {
        lua_pushinteger(L, source);
        field_refuse(L, "limits.source",
                     lua_pushfstring(L, "at most %d, the number of the encoder's learned positions", (int)positions),
                     -2);
    }
    if (l->tokens < source) {
        lua_pushinteger(L, l->tokens);
        field_refuse(
            L, "limits.tokens",
            lua_pushfstring(L, "at least limits.source (%I): a source is read in one step", (lua_Integer)source), -2);
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

/* Copies of recurrent states, where the spec says nothing: half as many as sequences, 2 to 16. */
static int64_t read_snapshots(lua_State *L, int t)
{
    const Reader *r = reader_of(L);
    const int64_t half = r->graph->limits.sequences / 2, n = field_count(L, t, "limits.snapshots");

    field_push(L, t, "limits.snapshots");
    if (n && !r->recurrent)
        field_refuse(L, "limits.snapshots", "0: the model has no recurrent states", -1);
    if (!r->recurrent || !lua_isnil(L, -1))
        return n;
    return half < 2 ? 2 : half > 16 ? 16 : half;
}

/* An encoder reads a whole text in one step. */
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
                                     "at least limits.context (%I): an encoder reads a text in "
                                     "one step",
                                     (lua_Integer)l->context),
                     -2);
    }
}

void settings_limits(lua_State *L, int t)
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
    l->ranks = field_count(L, t, "parallel");
    l->beams = read_width(L, t);
    if (l->beams > l->sequences) {
        lua_pushinteger(L, l->beams);
        field_refuse(L, "decode.width",
                     lua_pushfstring(L, "at most limits.sequences (%I): each beam is a row of a step", l->sequences),
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
    l->snapshots = read_snapshots(L, t);
    if (l->tokens < l->sequences) {
        lua_pushinteger(L, l->tokens);
        field_refuse(L, "limits.tokens",
                     lua_pushfstring(L, "at least limits.sequences (%I): a step has one token of each", l->sequences),
                     -2);
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
                     lua_pushfstring(L, "at least %I, the pages of one sequence of limits.context tokens", needed), -2);
    }
    if (r->spec->positions && l->context > r->spec->positions) {
        lua_pushinteger(L, l->context);
        field_refuse(
            L, "limits.context",
            lua_pushfstring(L, "at most %d, the number of the model's learned positions", (int)r->spec->positions), -2);
    }
}

/* The patterns of precision.except. */
static void read_except(lua_State *L, int t, Quantising *q)
{
    Arena *keep = reader_of(L)->box.keep;

    field_push(L, t, "precision.except");
    if (lua_isnil(L, -1))
        return;
    if (!lua_istable(L, -1))
        field_refuse(L, "precision.except", field_expected(L, "precision.except"), -1);
    q->n_except = (size_t)lua_rawlen(L, -1);
    q->except = arena_array(keep, const char *, q->n_except + 1);
    for (size_t i = 0; i < q->n_except; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        if (lua_type(L, -1) != LUA_TSTRING || !lua_rawlen(L, -1) || strlen(lua_tostring(L, -1)) != lua_rawlen(L, -1))
            field_refuse(L, "precision.except", "names of weights, as in { \"layers.*.down_proj\" }", -1);
        q->except[i] = arena_strdup(keep, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
}

/* Raises an error for a field that says how weights are quantised where none are. */
static void refuse_unquantised(lua_State *L, int t)
{
    static const char *const names[] = {"precision.group", "precision.zeros", "precision.except"};

    for (size_t i = 0; i < LEN(names); i++) {
        field_push(L, t, names[i]);
        if (!lua_isnil(L, -1))
            field_refuse(L, names[i], "left out unless precision.weights is int8, int4 or fp8", -1);
        lua_pop(L, 1);
    }
}

static bool read_sums(lua_State *L, int t)
{
    const char *sums = field_text(L, t, "precision.sums");

    if (sums && strcmp(sums, "free") != 0 && strcmp(sums, "fixed") != 0)
        field_refuse(L, "precision.sums", "one of free, fixed", (lua_pushstring(L, sums), -1));
    return sums && strcmp(sums, "fixed") == 0;
}

static DType read_activations(lua_State *L, int t)
{
    const char *type = field_text(L, t, "precision.activations");

    if (type && strcmp(type, "auto") != 0 && strcmp(type, "fp8") != 0)
        field_refuse(L, "precision.activations", "one of auto, fp8", (lua_pushstring(L, type), -1));
    return type && strcmp(type, "fp8") == 0 ? DT_FP8 : DT_NONE;
}

/* Matrices that are not quantised have the type of activations if it has 16 bits, else bf16. */
static void read_precision(lua_State *L, int t)
{
    Precision *p = &reader_of(L)->spec->precision;
    Quantising *q = &p->quant;
    DType head = field_type(L, t, "precision.head");

    p->weights = field_type(L, t, "precision.weights");
    p->compute = field_type(L, t, "precision.compute");
    p->kv = field_type(L, t, "precision.kv");
    p->activations = read_activations(L, t);
    p->dequantise = field_flag(L, t, "precision.dequantise");
    p->fixed_sums = read_sums(L, t);
    if (!packed_type(p->weights)) {
        refuse_unquantised(L, t);
        if (head && head != p->weights)
            field_refuse(L, "precision.head", "left out unless precision.weights is int8, int4 or fp8",
                         (field_push(L, t, "precision.head"), -1));
        return;
    }
    *q = (Quantising){.type = p->weights, .head = head ? head : DT_INT8};
    p->weights = p->compute == DT_FP16 ? DT_FP16 : DT_BF16;
    if (!packed_type(q->head) && q->head != p->weights)
        field_refuse(L, "precision.head",
                     lua_pushfstring(L, "one of int8, int4, fp8, %s: matrices that are not quantised have the type %s",
                                     dtype_name(p->weights), dtype_name(p->weights)),
                     (field_push(L, t, "precision.head"), -1));
    q->group = field_count(L, t, "precision.group");
    if (q->group && q->group != 32 && q->group != 64 && q->group != 128)
        field_refuse(L, "precision.group", "one of 32, 64, 128", (field_push(L, t, "precision.group"), -1));
    q->zeros = field_flag(L, t, "precision.zeros");
    if (q->zeros && q->type != DT_INT4)
        field_refuse(L, "precision.zeros",
                     q->type == DT_FP8 ? "false: weights of fp8 have no zeros" : "false: weights of int8 have no zeros",
                     (lua_pushboolean(L, 1), -1));
    read_except(L, t, q);
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

/* The settings of runtime/decode.def. */
static void read_settings(lua_State *L, int t, FtxDecode *c)
{
#define READ_COUNT (int32_t) field_count
#define READ_NUMBER (float)field_number
#define READ_EARLY (int32_t) field_early
#define DECODE(name, type, ...) c->name = READ_##type(L, t, "decode." #name);
#include "../../runtime/decode.def"
#undef DECODE
}

/* Raises an error if a setting is larger than another field. */
static void check_most(lua_State *L, const char *field, int64_t v, const char *of, int64_t most)
{
    if (v <= most)
        return;
    lua_pushinteger(L, v);
    field_refuse(L, field, lua_pushfstring(L, "at most %s (%I)", of, (lua_Integer)most), -2);
}

/* "sample", "greedy" or "beam"; "": only -D sets decoding fields; NULL: nothing does, so decoding is greedy. */
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

/* Reads one id or a list of at most `most`. `limit` is the field that bounds their number at `room`. */
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

/* The first id of the decoder, and the id that fills rows of results. */
static void read_special(lua_State *L, int t)
{
    Spec *spec = reader_of(L)->spec;

    spec->start = read_id(L, t, "start");
    spec->pad = read_id(L, t, "pad");
    if (reader_of(L)->graph->kind == FTX_MODEL_SEQ2SEQ && spec->start < 0)
        sandbox_fail(L, "start is missing; a decoder with a source needs a first token id");
}

enum { MAX_WORDS = 65536 }; /* ids of all bad words of a model */

/* Reads the ids of the word at the top of the stack; the last is stored as ~id. Returns their number. */
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

/* The words that are never generated. On the device a request's words stand in one row with these. */
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

/* The names of a classifier's classes, one for each number of a text's vector, or without one of a token's, and how numbers
 * become scores. */
static void read_labels(lua_State *L, int t)
{
    static const char *const scorings[] = {"none", "sigmoid", "softmax"}; /* FtxScoring */
    Spec *spec = reader_of(L)->spec;
    const char *scoring = field_text(L, t, "scoring");
    const char *list = "";

    const char *pooling = field_text(L, t, "pooling");
    const uint32_t n = spec->pooled ? spec->pooled : spec->hidden;

    spec->scoring = scoring ? 0 : FTX_SCORING_SOFTMAX;
    while (scoring && spec->scoring < LEN(scorings) && strcmp(scoring, scorings[spec->scoring]) != 0)
        spec->scoring++;
    if (spec->scoring == LEN(scorings))
        field_refuse(L, "scoring", "one of none, sigmoid, softmax", (lua_pushstring(L, scoring), -1));
    field_push(L, t, "labels");
    if (lua_isnil(L, -1) || (pooling && strcmp(pooling, "model") != 0)) /* another vector has no classes */
        return;
    if (!lua_istable(L, -1) || lua_rawlen(L, -1) != n)
        field_refuse(L, "labels",
                     lua_pushfstring(L, "%d texts, one for each number of %s vector", (int)n,
                                     spec->pooled ? "the pooled" : "a token's"),
                     -2);
    for (uint32_t i = 1; i <= n; i++) {
        const char *name;

        lua_rawgeti(L, -1, (lua_Integer)i);
        name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "\n";
        if (strlen(name) != lua_rawlen(L, -1) || strchr(name, '\n'))
            field_refuse(L, "labels", "texts of one line each", -1);
        list = arena_printf(reader_of(L)->box.keep, "%s%s\n", list, name);
        lua_pop(L, 1);
    }
    spec->labels = list;
    spec->n_labels = n;
}

/* A path in a spec is relative to its folder, a path in -D to the current folder. */
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

void settings_read(lua_State *L, int t)
{
    Reader *r = reader_of(L);
    Graph *g = r->graph;
    const char *name = field_text(L, t, "name");

    read_precision(L, t);
    read_decode(L, t);
    read_ends(L, t);
    read_special(L, t);
    read_bad_words(L, t);
    read_labels(L, t);
    if (name) {
        if (!name[0] || strlen(name) > 200 || strpbrk(name, "\n\r\t"))
            field_refuse(L, "name", "one line of 1 to 200 characters", (field_push(L, t, "name"), -1));
        r->spec->name = name;
        g->name = arena_strdup(g->keep, name);
    }
    r->spec->weights = read_path(L, t, "weights");
    if (r->spec->checkout && !r->spec->weights && !field_override(r, "weights"))
        sandbox_fail_at(L, (Loc){r->box.folder, 0},
                        "the checkout has no model.safetensors and no "
                        "model.safetensors.index.json; -D weights= makes a model with random weights");
    r->spec->tokenizer = read_path(L, t, "tokenizer");
}
