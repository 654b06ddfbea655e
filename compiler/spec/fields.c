/* fields.c - the fields of the table that ftx.model takes, and how they are read.
 *
 * `fields` has one row for each field: its path, its range and its default. -D, the check for unknown fields and
 * the messages read that table. Decoding settings are rows of runtime/decode.def. */
#include "fields.h"

#include "../../kernels/device/io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum Kind {
    COUNT,  /* a whole number in low..high */
    NUMBER, /* a finite number in low..high */
    TEXT,
    TYPE,  /* fp32 fp16 bf16; `low` 1: or auto; `high` 1: or int8 int4 fp8, 2: or int8 fp8 */
    IDS,   /* a token id or a list of them */
    WORDS, /* a list of words, each a token id or a list of them */
    TEXTS, /* a list of texts */
    FLAG,  /* true or false */
    EARLY, /* false, true or "never": FtxEarly */
    GRAPH,
} Kind;

typedef struct Field {
    const char *path;
    Kind kind;
    double low, high;
    double missing; /* numbers: the default */
    bool required;
    unsigned models; /* bits 1 << FtxModelKind: the models that read it */
} Field;

enum { MAX_TOP_K = 1024, MAX_ID = INT32_MAX };

enum {
    VECTORS = 1 << FTX_MODEL_ENCODER,
    SOURCES = 1 << FTX_MODEL_SEQ2SEQ,
    WRITERS = 1 << FTX_MODEL_DECODER | SOURCES,
    ALL = WRITERS | VECTORS,
};

static const Field fields[] = {
    {"name", TEXT, 0, 0, 0, false, ALL},
    {"graph", GRAPH, 0, 0, 0, true, ALL},
    {"weights", TEXT, 0, 0, 0, false, ALL},
    {"tokenizer", TEXT, 0, 0, 0, false, ALL},
    {"bos", COUNT, -1, MAX_ID, -1, false, ALL},
    {"eos", IDS, 0, MAX_ID, 0, false, ALL},
    {"start", COUNT, -1, MAX_ID, -1, false, SOURCES},
    {"pad", COUNT, -1, MAX_ID, -1, false, ALL},
    {"pooling", TEXT, 0, 0, 0, false, VECTORS},
    {"normalize", FLAG, 0, 0, 0, false, VECTORS},
    {"states", FLAG, 0, 0, 0, false, 1 << FTX_MODEL_DECODER},
    {"labels", TEXTS, 0, 0, 0, false, VECTORS},
    {"scoring", TEXT, 0, 0, 0, false, VECTORS},
    {"precision.weights", TYPE, 0, 1, DT_BF16, false, ALL},
    {"precision.compute", TYPE, 1, 0, DT_NONE, false, ALL},
    {"precision.kv", TYPE, 1, 2, DT_NONE, false, WRITERS},
    {"precision.activations", TEXT, 0, 0, 0, false, ALL},
    {"precision.group", COUNT, 32, 128, 0, false, ALL},
    {"precision.zeros", FLAG, 0, 0, 0, false, ALL},
    {"precision.head", TYPE, 0, 1, DT_NONE, false, ALL},
    {"precision.except", TEXTS, 0, 0, 0, false, ALL},
    {"precision.dequantise", FLAG, 0, 0, 0, false, ALL},
    {"precision.sums", TEXT, 0, 0, 0, false, ALL},
    {"limits.sequences", COUNT, 1, FTX_MAX_SEQUENCES, 16, false, ALL},
    {"limits.context", COUNT, 2, 1 << 20, 0, true, ALL},
    {"limits.tokens", COUNT, 1, 1 << 16, 512, false, ALL},
    {"limits.source", COUNT, 1, 1 << 20, 0, false, SOURCES},
    {"limits.sources", COUNT, 1, FTX_MAX_SEQUENCES, 0, false, SOURCES},
    {"limits.logit_bias", COUNT, 0, 65536, 32, false, WRITERS},
    {"limits.end_ids", COUNT, 1, 256, 16, false, WRITERS},
    {"limits.bad_words", COUNT, 0, 65536, 256, false, WRITERS},
    {"limits.snapshots", COUNT, 0, FTX_MAX_SEQUENCES, 0, false, 1 << FTX_MODEL_DECODER},
    {"limits.masks", FLAG, 0, 0, 0, false, WRITERS},
    {"parallel", COUNT, 1, FTX_MAX_RANKS, 1, false, ALL},
    {"kv.block_size", COUNT, 8, 256, 16, false, WRITERS},
    {"kv.pages", COUNT, 1, 1 << 24, 0, false, WRITERS},
#define DECODE(name, type, low, high, missing, ...) {"decode." #name, type, low, high, missing, false, WRITERS},
#include "../../runtime/decode.def"
#undef DECODE
    {"decode.max_top_k", COUNT, 1, MAX_TOP_K, 64, false, WRITERS},
    {"decode.width", COUNT, 1, 64, 1, false, WRITERS},
    {"decode.bad_words", WORDS, 0, MAX_ID, 0, false, WRITERS},
    {"decode.forced_bos", COUNT, -1, MAX_ID, -1, false, WRITERS},
    {"decode.forced_eos", COUNT, -1, MAX_ID, -1, false, WRITERS},
};

/* --- fields by path --------------------------------------------------------------------------- */

static const Field *field_named(const char *path)
{
    for (size_t i = 0; i < LEN(fields); i++)
        if (strcmp(fields[i].path, path) == 0)
            return &fields[i];
    return NULL;
}

/* "context, sequences": the fields of a group ("limits."; "": of the model), for messages. */
const char *fields_names(Arena *a, const char *group)
{
    const size_t n = strlen(group);
    const char *list = "", *last = "";

    for (size_t i = 0; i < LEN(fields); i++) {
        const char *name;
        size_t bytes;

        if (strncmp(fields[i].path, group, n) != 0)
            continue;
        name = fields[i].path + n;
        bytes = strcspn(name, ".");
        if (strncmp(last, name, bytes) == 0 && strlen(last) == bytes) /* the fields of a group are neighbours */
            continue;
        last = arena_strndup(a, name, bytes);
        list = arena_printf(a, "%s%s%s", list, list[0] ? ", " : "", last);
    }
    return list;
}

/* The last -D of a path, or NULL. */
const char *field_override(const Reader *r, const char *path)
{
    const size_t n = strlen(path);

    for (size_t i = r->n_overrides; i-- > 0;)
        if (strncmp(r->overrides[i].text, path, n) == 0 && r->overrides[i].text[n] == '=')
            return r->overrides[i].text;
    return NULL;
}

const char *field_shown(lua_State *L, int i)
{
    switch (lua_type(L, i)) {
    case LUA_TNIL: return "nothing";
    case LUA_TNUMBER: return lua_pushfstring(L, "%s", sandbox_text(L, i));
    case LUA_TSTRING: return lua_pushfstring(L, "\"%s\"", lua_tostring(L, i));
    case LUA_TBOOLEAN: return lua_toboolean(L, i) ? "true" : "false";
    case LUA_TUSERDATA: return "a graph value";
    default: return lua_pushfstring(L, "a %s", luaL_typename(L, i));
    }
}

int field_refuse(lua_State *L, const char *path, const char *expected, int i)
{
    const char *by = field_override(reader_of(L), path);

    if (by)
        return sandbox_fail_at(L, (Loc){arena_printf(sandbox_of(L)->keep, "-D %.200s", by), 0}, "%s must be %s", path,
                               expected);
    return sandbox_fail(L, "%s must be %s, got %s", path, expected, field_shown(L, i));
}

static const char *range_text(Arena *a, const Field *f)
{
    switch (f->kind) {
    case COUNT: return arena_printf(a, "a whole number from %.0f to %.0f", f->low, f->high);
    case NUMBER: return arena_printf(a, "a number from %g to %g", f->low, f->high);
    case TEXT: return "a text";
    case TYPE:
        return f->high == 2   ? "one of auto, fp32, fp16, bf16, int8, fp8"
               : f->low != 0  ? "one of auto, fp32, fp16, bf16"
               : f->high != 0 ? "one of fp32, fp16, bf16, int8, int4, fp8"
                              : "one of fp32, fp16, bf16";
    case IDS: return "a token id or a list of up to 8";
    case WORDS: return "a list of words, each a token id or a list of ids";
    case TEXTS: return "a list of texts";
    case FLAG: return "true or false";
    case EARLY: return "false, true or \"never\"";
    case GRAPH: return "what a family returns, as in graph = llama { ... }";
    }
    return "";
}

/* Pushes the value at a path of the table at t; nil where a group is missing. */
void field_push(lua_State *L, int t, const char *path)
{
    const char *dot = strchr(path, '.');

    if (!dot) {
        lua_getfield(L, t, path);
        return;
    }
    lua_pushlstring(L, path, (size_t)(dot - path));
    lua_gettable(L, t);
    if (lua_istable(L, -1))
        lua_getfield(L, -1, dot + 1);
    else
        lua_pushnil(L);
    lua_remove(L, -2);
}

/* A number field, checked, or its default. */
double field_number(lua_State *L, int t, const char *path)
{
    const Field *f = field_named(path);
    Arena *a = sandbox_of(L)->keep;
    double x;

    field_push(L, t, path);
    if (lua_isnil(L, -1)) {
        if (f->required)
            sandbox_fail(L, "%s is missing; it must be %s", path, range_text(a, f));
        lua_pop(L, 1);
        return f->missing;
    }
    x = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : NAN;
    if (!isfinite(x) || x < f->low || x > f->high || (f->kind == COUNT && x != floor(x)))
        field_refuse(L, path, range_text(a, f), -1);
    lua_pop(L, 1);
    return x;
}

int64_t field_count(lua_State *L, int t, const char *path)
{
    return (int64_t)field_number(L, t, path);
}

DType field_type(lua_State *L, int t, const char *path)
{
    const Field *f = field_named(path);
    const char *s;
    DType type;

    field_push(L, t, path);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return (DType)f->missing;
    }
    s = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    if (f->low != 0 && strcmp(s, "auto") == 0)
        type = DT_NONE;
    else if ((type = dtype_parse(s)),
             type != DT_FP32 && type != DT_FP16 && type != DT_BF16 &&
                 (f->high == 0 || (type != DT_INT8 && type != DT_FP8 && (f->high != 1 || type != DT_INT4))))
        field_refuse(L, path, range_text(sandbox_of(L)->keep, f), -1);
    lua_pop(L, 1);
    return type;
}

bool field_flag(lua_State *L, int t, const char *path)
{
    bool flag;

    field_push(L, t, path);
    if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
        field_refuse(L, path, field_expected(L, path), -1);
    flag = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return flag;
}

FtxEarly field_early(lua_State *L, int t, const char *path)
{
    FtxEarly early = FTX_EARLY_FALSE;

    field_push(L, t, path);
    if (lua_type(L, -1) == LUA_TBOOLEAN)
        early = lua_toboolean(L, -1) ? FTX_EARLY_TRUE : FTX_EARLY_FALSE;
    else if (lua_type(L, -1) == LUA_TSTRING && strcmp(lua_tostring(L, -1), "never") == 0)
        early = FTX_EARLY_NEVER;
    else if (!lua_isnil(L, -1))
        field_refuse(L, path, field_expected(L, path), -1);
    lua_pop(L, 1);
    return early;
}

const char *field_text(lua_State *L, int t, const char *path)
{
    const char *s = NULL;

    field_push(L, t, path);
    if (!lua_isnil(L, -1)) {
        if (lua_type(L, -1) != LUA_TSTRING || strlen(lua_tostring(L, -1)) != lua_rawlen(L, -1) ||
            lua_rawlen(L, -1) > 4000)
            field_refuse(L, path, "a text", -1);
        s = arena_strdup(sandbox_of(L)->keep, lua_tostring(L, -1));
    }
    lua_pop(L, 1);
    return s;
}

/* Every key of the table at t is a field of the group, and every group a table. */
void fields_check(lua_State *L, int t, const char *group)
{
    Arena *a = sandbox_of(L)->keep;

    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        const char *path = key ? arena_printf(a, "%s%.100s", group, key) : "";
        const char *inner = arena_printf(a, "%s.", path);

        if (key && (field_named(path) || (strcmp(group, "decode.") == 0 && strcmp(key, "strategy") == 0)))
            continue;
        if (!key || group[0] || !fields_names(a, inner)[0])
            sandbox_fail(L, "%.*s has no field '%s'; the fields are: %s", group[0] ? (int)strlen(group) - 1 : 9,
                         group[0] ? group : "ftx.model", sandbox_text(L, -2), fields_names(a, group));
        if (!lua_istable(L, -1))
            sandbox_fail(L, "%s must be a table with the fields %s, got %s", key, fields_names(a, inner),
                         field_shown(L, -1));
        fields_check(L, lua_gettop(L), inner);
    }
}

/* --- overrides ------------------------------------------------------------------------------------ */

/* Pushes the list of "1,2,3" ("": an empty one), up to the character `stop`. Returns what follows it; NULL: not
 * such a list. */
static const char *push_ids(lua_State *L, const char *text, char stop)
{
    lua_newtable(L);
    for (lua_Integer i = 1; *text; i++) {
        char *end;
        const long long id = strtoll(text, &end, 10);

        if (end == text || (*end && *end != ',' && *end != stop))
            return NULL;
        lua_pushinteger(L, id);
        lua_rawseti(L, -2, i);
        text = *end ? end + 1 : end;
        if (*end && *end == stop)
            return text;
    }
    return text;
}

/* Pushes the lists of "1,2;3", which is two words. False: not such a list. */
static bool push_words(lua_State *L, const char *text)
{
    lua_newtable(L);
    for (lua_Integer i = 1; text && *text; i++) {
        text = push_ids(L, text, ';');
        lua_rawseti(L, -2, i);
    }
    return text;
}

/* Pushes the list of "one,two"; nil for "". */
static void push_texts(lua_State *L, const char *text)
{
    if (!*text) {
        lua_pushnil(L);
        return;
    }
    lua_newtable(L);
    for (lua_Integer i = 1;; i++) {
        const size_t n = strcspn(text, ",");

        lua_pushlstring(L, text, n);
        lua_rawseti(L, -2, i);
        if (!text[n])
            return;
        text += n + 1;
    }
}

/* Pushes the value of a -D in the form of its field. */
static void push_override(lua_State *L, const Field *f, const char *text)
{
    const char *what = range_text(sandbox_of(L)->keep, f);
    char *end;

    switch (f->kind) {
    case COUNT:
    case NUMBER: {
        const double x = strtod(text, &end);

        if (end == text || *end)
            field_refuse(L, f->path, what, 0);
        lua_pushnumber(L, x);
        return;
    }
    case TEXT:
    case TYPE: lua_pushstring(L, text); return;
    case FLAG:
    case EARLY:
        if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
            lua_pushboolean(L, text[0] == 't');
        else
            lua_pushstring(L, text);
        return;
    case IDS:
        if (!push_ids(L, text, 0))
            field_refuse(L, f->path, "token ids: 1 or 1,2,3", 0);
        return;
    case WORDS:
        if (!push_words(L, text))
            field_refuse(L, f->path, "words of token ids: 1 or 1,2;3", 0);
        return;
    case TEXTS: push_texts(L, text); return;
    case GRAPH: return; /* refused by the caller */
    }
}

void fields_took(lua_State *L, const char *path)
{
    Reader *r = reader_of(L);

    if (field_override(r, path))
        r->asked = arena_printf(r->box.keep, "%s%s\n", r->asked ? r->asked : "\n", path);
}

/* Whether a family has read this -D (graph.layers=2). */
static bool is_taken(const Reader *r, const char *path)
{
    return r->asked && strstr(r->asked, arena_printf(r->box.keep, "\n%s\n", path));
}

void fields_override(lua_State *L, int t)
{
    const Reader *r = reader_of(L);
    Arena *a = r->box.keep;

    for (size_t i = 0; i < r->n_overrides; i++) {
        const char *text = r->overrides[i].text;
        const char *whole = arena_printf(a, "-D %.200s", text);
        const char *equals = strchr(text, '=');
        const char *path = equals ? arena_strndup(a, text, (size_t)(equals - text)) : text;
        const char *dot = strchr(path, '.');
        const Field *f = field_named(path);
        const char *group = dot ? arena_strndup(a, path, (size_t)(dot - path) + 1) : "";

        if (!equals)
            sandbox_fail_at(L, (Loc){whole, 0}, "field=value was expected, as in -D limits.context=256");
        if (strncmp(path, "graph.", 6) == 0) {
            if (!is_taken(r, path))
                sandbox_fail_at(L, (Loc){whole, 0}, "the graph's family has no field '%s'", path + 6);
            continue;
        }
        if (!f && dot && fields_names(a, group)[0])
            sandbox_fail_at(L, (Loc){whole, 0}, "%.*s has no field '%s'; the fields are: %s", (int)(dot - path), path,
                            dot + 1, fields_names(a, group));
        if (!f)
            sandbox_fail_at(L, (Loc){whole, 0}, "a model has no field '%s'; the fields are: %s", path,
                            fields_names(a, ""));
        if (f->kind == GRAPH)
            sandbox_fail_at(L, (Loc){whole, 0},
                            "the graph is what the spec computes; -D sets fields of its family, as in graph.layers=2");
        lua_pushvalue(L, t);
        if (dot) {
            lua_pushlstring(L, path, (size_t)(dot - path));
            if (lua_gettable(L, t) != LUA_TTABLE) {
                lua_pop(L, 1);
                lua_newtable(L);
                lua_pushlstring(L, path, (size_t)(dot - path));
                lua_pushvalue(L, -2);
                lua_settable(L, t);
            }
        }
        push_override(L, f, equals + 1);
        lua_setfield(L, -2, dot ? dot + 1 : path);
        lua_settop(L, t);
    }
}

/* "this model generates text": what a model does, beside the fields that it does not read. */
static const char *what_model_does(FtxModelKind kind)
{
    switch (kind) {
    case FTX_MODEL_DECODER: return "generates text and reads no source";
    case FTX_MODEL_ENCODER: return "is an encoder, which generates no text";
    case FTX_MODEL_SEQ2SEQ: return "reads a source and generates text";
    }
    return "";
}

void fields_fit(lua_State *L, int t)
{
    const Reader *r = reader_of(L);
    const FtxModelKind kind = r->graph->kind;

    for (size_t i = 0; i < LEN(fields); i++) {
        const Field *f = &fields[i];
        const char *by = field_override(r, f->path), *whole;

        if (f->models & 1U << kind)
            continue;
        field_push(L, t, f->path);
        whole = arena_printf(r->box.keep, "%s is for models that %s; this model %s", f->path,
                             f->models == VECTORS   ? "make vectors of texts (encoders)"
                             : f->models == SOURCES ? "read a source"
                                                    : "generate text",
                             what_model_does(kind));
        if (by)
            sandbox_fail_at(L, (Loc){arena_printf(r->box.keep, "-D %.200s", by), 0}, "%s", whole);
        if (f->models == VECTORS && !lua_isnil(L, -1))
            sandbox_fail(L, "%s", whole);
        lua_pop(L, 1);
    }
}

const char *field_expected(lua_State *L, const char *path)
{
    return range_text(sandbox_of(L)->keep, field_named(path));
}

bool field_range(const char *path, double *low, double *high)
{
    const Field *f = field_named(path);

    *low = f->low;
    *high = f->high;
    return f->kind == COUNT;
}

bool field_exists(const char *path)
{
    return field_named(path) != NULL;
}
