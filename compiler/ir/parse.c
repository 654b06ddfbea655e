/* parse.c - text to graph, the inverse of print.c.
 *
 * The text is untrusted: every mistake is a diagnostic with its line. Only the form is checked here; ir_verify checks
 * the meaning. */
#include "ir.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reader {
    const char *at;
    Loc loc;
    Graph *g;
    Diag *d;
} Reader;

static bool fail(Reader *r, const char *what)
{
    char found[24];

    snprintf(found, sizeof found, "%.20s", r->at);
    found[strcspn(found, "\n")] = 0;
    return diag_error(r->d, r->loc, "%s expected, found \"%s\"", what, found);
}

static void spaces(Reader *r)
{
    r->at += strspn(r->at, " \t\r");
}

/* Ends a line: only blanks may follow. */
static bool line_end(Reader *r)
{
    spaces(r);
    if (*r->at && *r->at != '\n')
        return fail(r, "end of line");
    if (*r->at) {
        r->at++;
        r->loc.line++;
    }
    return true;
}

static bool accept(Reader *r, char c)
{
    spaces(r);
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

/* A name: letters, digits, `_`. */
static bool name(Reader *r, char *out, size_t size, const char *what)
{
    size_t n = 0;

    spaces(r);
    while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')
        n++;
    if (!n || n >= size)
        return fail(r, what);
    memcpy(out, r->at, n);
    out[n] = 0;
    r->at += n;
    return true;
}

static bool integer(Reader *r, int64_t *out)
{
    char *end;

    spaces(r);
    if (*r->at != '-' && !isdigit((unsigned char)*r->at))
        return fail(r, "integer");
    errno = 0;
    *out = strtoll(r->at, &end, 10);
    if (end == r->at || errno)
        return fail(r, "integer of 64 bits");
    r->at = end;
    return true;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool string(Reader *r, const char **out)
{
    const char *end;
    char *to;

    if (!accept(r, '"'))
        return fail(r, "string");
    for (end = r->at; *end && *end != '"' && *end != '\n'; end++)
        if (*end == '\\' && end[1])
            end++;
    if (*end != '"')
        return fail(r, "closing quote");
    *out = to = arena_alloc(r->g->keep, (size_t)(end - r->at) + 1);
    while (r->at < end) {
        if (*r->at != '\\') {
            *to++ = *r->at++;
        } else if (r->at[1] == 'x' && hex(r->at[2]) >= 0 && hex(r->at[3]) >= 0) {
            *to = (char)(hex(r->at[2]) * 16 + hex(r->at[3]));
            if (!*to++)
                return fail(r, "character that is not NUL");
            r->at += 4;
        } else if (r->at[1] == '"' || r->at[1] == '\\') {
            *to++ = r->at[1];
            r->at += 2;
        } else {
            return fail(r, "escape");
        }
    }
    r->at++;
    return true;
}

/* {name=value ...} of value v. */
static bool attrs(Reader *r, Id v)
{
    char key[32];
    const char *s;
    AttrRule rule;

    while (!accept(r, '}')) {
        if (!name(r, key, sizeof key, "attribute"))
            return false;
        if (!ir_op_attr_named(ir_value(r->g, v)->op, key, &rule))
            return diag_error(r->d, r->loc, "%s has no attribute \"%s\"", ir_op_name(ir_value(r->g, v)->op), key);
        if (ir_attr(ir_value(r->g, v), key))
            return diag_error(r->d, r->loc, "attribute \"%s\" is given twice", key);
        if (!accept(r, '='))
            return fail(r, "=");
        if (rule.kind == ATTR_INT) {
            int64_t i;

            if (!integer(r, &i))
                return false;
            ir_attr_int(r->g, v, key, i);
        } else if (rule.kind == ATTR_FLOAT) {
            char *end;

            spaces(r);
            const double f = strtod(r->at, &end);

            if (end == r->at)
                return fail(r, "number");
            r->at = end;
            ir_attr_float(r->g, v, key, f);
        } else {
            if (!string(r, &s))
                return false;
            ir_attr_word(r->g, v, key, s);
        }
    }
    return true;
}

static bool shape(Reader *r, Shape *s)
{
    if (!accept(r, '['))
        return fail(r, "shape");
    while (!accept(r, ']')) {
        Dim d = {DIM_CONST, 1};

        if (s->rank == IR_MAX_RANK)
            return fail(r, "]");
        if (s->rank && !accept(r, ','))
            return fail(r, ",");
        if (accept(r, 'T'))
            d.kind = DIM_T;
        else if (accept(r, 'S'))
            d.kind = DIM_S;
        if ((d.kind == DIM_CONST || accept(r, '*')) && !integer(r, &d.n))
            return false;
        if (d.n < 1 || d.n > INT64_C(1) << 40)
            return diag_error(r->d, r->loc, "a size is %lld, it must be 1 to 2^40", (long long)d.n);
        s->dim[s->rank++] = d;
    }
    return true;
}

static bool value(Reader *r)
{
    Graph *g = r->g;
    const Loc here = r->loc;
    Id args[IR_MAX_ARGS] = {0};
    char word[32];
    int64_t i;
    Shape s = {0};
    Loc loc = {0};
    Id v;
    Op op;

    if (!integer(r, &i))
        return false;
    if (i != (int64_t)g->values.n)
        return diag_error(r->d, here, "the next value must be %%%zu, found %%%lld", g->values.n, (long long)i);
    if (!accept(r, '='))
        return fail(r, "=");
    if (!name(r, word, sizeof word, "op"))
        return false;
    op = ir_op_parse(word);
    if (!op)
        return diag_error(r->d, here, "no op is called \"%s\"", word);
    for (int n = 0;; n++) {
        const bool missing = accept(r, '-');

        if (!missing && !accept(r, '%'))
            break;
        if (n == IR_MAX_ARGS)
            return diag_error(r->d, here, "more than %d arguments", IR_MAX_ARGS);
        if (missing)
            continue;
        if (!integer(r, &i))
            return false;
        if (i < 1 || i >= (int64_t)g->values.n)
            return diag_error(r->d, here, "%%%lld is not defined before %%%zu", (long long)i, g->values.n);
        args[n] = (Id)i;
    }
    v = ir_value_add(g, op, args, s, DT_NONE, loc);
    if (accept(r, '{') && !attrs(r, v))
        return false;
    if (!accept(r, ':'))
        return fail(r, ":");
    if (!shape(r, &s) || !name(r, word, sizeof word, "type"))
        return false;
    ir_value(g, v)->shape = s;
    ir_value(g, v)->type = dtype_parse(word);
    if (!ir_value(g, v)->type && strcmp(word, "none") != 0)
        return diag_error(r->d, here, "no type is called \"%s\"", word);
    if (accept(r, ';')) {
        if (!string(r, &loc.file))
            return false;
        if (!accept(r, ':'))
            return fail(r, ":");
        if (!integer(r, &i))
            return false;
        loc.line = (int)i;
        ir_value(g, v)->loc = loc;
    } else {
        ir_value(g, v)->loc = (Loc){0};
    }
    return true;
}

static bool limits(Reader *r)
{
    Limits *l = &r->g->limits;
    const struct {
        const char *name;
        int64_t *to;
    } fields[] = {
        {"sequences", &l->sequences}, {"context", &l->context},     {"tokens", &l->tokens},
        {"kv_block", &l->kv_block},   {"kv_pages", &l->kv_pages},   {"logit_bias", &l->logit_bias},
        {"end_ids", &l->end_ids},     {"source", &l->source},       {"sources", &l->sources},
        {"beams", &l->beams},         {"bad_words", &l->bad_words}, {"ranks", &l->ranks},
        {"snapshots", &l->snapshots},
    };
    char key[32];

    for (spaces(r); *r->at && *r->at != '\n'; spaces(r)) {
        size_t i = 0;

        if (!name(r, key, sizeof key, "limit"))
            return false;
        while (i < LEN(fields) && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == LEN(fields))
            return diag_error(r->d, r->loc, "no limit is called \"%s\"", key);
        if (!accept(r, '='))
            return fail(r, "=");
        if (!integer(r, fields[i].to))
            return false;
    }
    return true;
}

static bool facts(Reader *r)
{
    char word[32];

    for (spaces(r); *r->at && *r->at != '\n'; spaces(r)) {
        if (!name(r, word, sizeof word, "fact"))
            return false;
        if (strcmp(word, "clean") == 0)
            r->g->facts |= IR_CLEAN;
        else if (strcmp(word, "precise") == 0)
            r->g->facts |= IR_PRECISE;
        else
            return diag_error(r->d, r->loc, "no fact is called \"%s\"", word);
    }
    return true;
}

static bool kind(Reader *r)
{
    static const char *const words[] = {"decoder", "encoder", "seq2seq"};
    char word[32];

    if (!name(r, word, sizeof word, "kind"))
        return false;
    for (uint32_t i = 0; i < LEN(words); i++)
        if (strcmp(words[i], word) == 0) {
            r->g->kind = i;
            return true;
        }
    return diag_error(r->d, r->loc, "no kind is called \"%s\"; it must be decoder, encoder or seq2seq", word);
}

/* A line that begins with a word: graph, limits, kind, facts, output, pooled, states, entry. */
static bool statement(Reader *r)
{
    char word[32];
    int64_t i;

    if (!name(r, word, sizeof word, "statement"))
        return false;
    if (strcmp(word, "graph") == 0)
        return string(r, &r->g->name);
    if (strcmp(word, "limits") == 0)
        return limits(r);
    if (strcmp(word, "facts") == 0)
        return facts(r);
    if (strcmp(word, "kind") == 0)
        return kind(r);
    if (strcmp(word, "output") != 0 && strcmp(word, "pooled") != 0 && strcmp(word, "states") != 0 &&
        strcmp(word, "entry") != 0)
        return diag_error(r->d, r->loc, "no statement is called \"%s\"", word);
    if (!accept(r, '%'))
        return fail(r, "%");
    if (!integer(r, &i))
        return false;
    if (i < 1 || i >= (int64_t)r->g->values.n)
        return diag_error(r->d, r->loc, "%s: the graph has no value %%%lld", word, (long long)i);
    if (word[0] != 'o') {
        *(word[0] == 'p' ? &r->g->pooled : word[0] == 's' ? &r->g->states : &r->g->entry) = (Id)i;
        return true;
    }
    r->g->output = (Id)i;
    r->g->logits = ir_logits(r->g);
    return true;
}

Graph *ir_parse(const char *file, const char *text, Diag *d)
{
    Graph *g = ir_graph_new("");
    Reader r = {text, {arena_strdup(g->keep, file), 1}, g, d};

    while (*r.at) {
        bool ok = true;

        spaces(&r);
        if (*r.at == '#')
            r.at += strcspn(r.at, "\n");
        else if (accept(&r, '%'))
            ok = value(&r);
        else if (*r.at && *r.at != '\n')
            ok = statement(&r);
        if (!ok || !line_end(&r)) {
            ir_graph_close(g);
            return NULL;
        }
    }
    return g;
}
