/* code.c - trees to the instructions of runtime/chat/ops.def, and those to a section. */
#include <string.h>

#include "parts.h"
#include "../../runtime/chat/names.h"

typedef struct Writer {
    struct {
        ChatInstr *at;
        size_t n, cap;
    } code; /* of one function at a time */
    struct {
        ChatInstr *at;
        size_t n, cap;
    } all;
    struct {
        ChatConst *at;
        size_t n, cap;
    } consts;
    struct {
        ChatFunction *at;
        size_t n, cap;
    } functions;
    struct {
        uint32_t *at;
        size_t n, cap;
    } params;
    struct {
        char *at;
        size_t n, cap;
    } bytes;
    struct {
        size_t *at;
        size_t n, cap;
    } breaks;       /* of all loops around; each knows where its own begin */
    size_t loop;    /* the NEXT of the innermost loop that break and continue reach; SIZE_MAX: none */
    size_t scopes;  /* begun in that loop's body */
    int conditions; /* around: what is unknown there is an error only when it is reached, as in Jinja */
    uint32_t loop_name;
    const char *file;
    Arena *keep;
    Diag *d;
} Writer;

static bool code_fail(Writer *w, int line, const char *what, const char *name)
{
    return diag_error(w->d, (Loc){w->file, line}, "chat template: %s%.60s", what, name);
}

static size_t emit(Writer *w, ChatOp op, int line, size_t n, size_t arg)
{
    *arena_push(w->keep, w->code) =
        (ChatInstr){(uint8_t)op, (uint8_t)n, (uint16_t)(line < UINT16_MAX ? line : UINT16_MAX), (uint32_t)arg};
    return w->code.n - 1;
}

/* The instruction at `at` jumps to what is written next. */
static void land(Writer *w, size_t at)
{
    w->code.at[at].arg = (uint32_t)w->code.n;
}

/* --- constants: each once ------------------------------------------------------------------------------ */

static uint32_t add_const(Writer *w, ChatConst k)
{
    for (size_t i = 0; i < w->consts.n; i++)
        if (w->consts.at[i].kind == k.kind && w->consts.at[i].word == k.word && w->consts.at[i].bytes == k.bytes)
            return (uint32_t)i;
    *arena_push(w->keep, w->consts) = k;
    return (uint32_t)w->consts.n - 1;
}

static uint32_t add_string(Writer *w, const char *text, size_t n)
{
    ChatConst k = {CHAT_STRING, (uint32_t)n, w->bytes.n};

    for (size_t i = 0; i < w->consts.n; i++)
        if (w->consts.at[i].kind == CHAT_STRING && w->consts.at[i].bytes == n &&
            (!n || memcmp(w->bytes.at + w->consts.at[i].word, text, n) == 0))
            return (uint32_t)i;
    if (w->bytes.n + n > w->bytes.cap) {
        w->bytes.cap = (w->bytes.n + n) * 2 + 64;
        w->bytes.at = arena_grow(w->keep, w->bytes.at, w->bytes.n, w->bytes.cap);
    }
    if (n)
        memcpy(w->bytes.at + w->bytes.n, text, n);
    w->bytes.n += n;
    *arena_push(w->keep, w->consts) = k;
    return (uint32_t)w->consts.n - 1;
}

static uint32_t add_name(Writer *w, const Node *n)
{
    const uint32_t name = add_string(w, n->text, n->n_text);

    if (strcmp(n->text, "loop") == 0)
        w->loop_name = name;
    return name;
}

static uint32_t node_const(Writer *w, const Node *n)
{
    ChatConst k = {n->constant, 0, 0};

    if (n->constant == CHAT_STRING)
        return add_string(w, n->text, n->n_text);
    if (n->constant == CHAT_FLOAT)
        memcpy(&k.word, &n->f, sizeof k.word);
    if (n->constant == CHAT_INT)
        k.word = (uint64_t)n->i;
    return add_const(w, k);
}

/* --- expressions ----------------------------------------------------------------------------------------- */

static bool value(Writer *w, const Node *n);

static bool values(Writer *w, const Node *n)
{
    for (size_t i = 0; i < n->kids.n; i++)
        if (!value(w, n->kids.at[i]))
            return false;
    return true;
}

/* a < b < c: each comparison keeps its right side for the next. */
static bool comparisons(Writer *w, const Node *n)
{
    const size_t last = n->kids.n - 1;
    size_t first = SIZE_MAX;

    if (!value(w, n->kids.at[0]))
        return false;
    for (size_t i = 1; i <= last; i++) {
        const Node *next = n->kids.at[i];

        if (!value(w, next->kids.at[0]))
            return false;
        if (i < last)
            emit(w, CHAT_TUCK, n->line, 0, 0);
        emit(w, CHAT_COMPARE, n->line, 0, (size_t)next->i);
        if (i < last) { /* chained jumps are linked by their targets until the end is known */
            const size_t at = emit(w, CHAT_CHAIN, n->line, 0, first);

            first = at;
        }
    }
    while (first != SIZE_MAX) {
        const uint32_t before = w->code.at[first].arg;

        land(w, first);
        first = before == UINT32_MAX ? SIZE_MAX : before;
    }
    return true;
}

static bool if_else(Writer *w, const Node *n)
{
    size_t to_other, to_end;

    if (!value(w, n->kids.at[1]))
        return false;
    to_other = emit(w, CHAT_JUMP_FALSE, n->line, 0, 0);
    w->conditions++;
    if (!value(w, n->kids.at[0]))
        return false;
    to_end = emit(w, CHAT_JUMP, n->line, 0, 0);
    land(w, to_other);
    if (n->kids.n < 3)
        emit(w, CHAT_UNDEFINED, n->line, 0, 0);
    else if (!value(w, n->kids.at[2]))
        return false;
    w->conditions--;
    land(w, to_end);
    return true;
}

static bool either(Writer *w, const Node *n)
{
    size_t at;

    if (!value(w, n->kids.at[0]))
        return false;
    at = emit(w, n->kind == N_AND ? CHAT_AND : CHAT_OR, n->line, 0, 0);
    if (!value(w, n->kids.at[1]))
        return false;
    land(w, at);
    return true;
}

static bool call(Writer *w, const Node *n)
{
    size_t positional = 0, named = 0;

    for (size_t i = 0; i < n->kids.n; i++) {
        const Node *kid = n->kids.at[i];

        if (kid->kind == N_NAMED) {
            emit(w, CHAT_CONST, kid->line, 0, add_string(w, kid->text, kid->n_text));
            kid = kid->kids.at[0];
            named++;
        } else {
            positional += i > 0;
        }
        if (!value(w, kid))
            return false;
    }
    if (positional > 200 || named > 200)
        return code_fail(w, n->line, "too many arguments", "");
    emit(w, CHAT_CALL, n->line, positional, named);
    return true;
}

/* A filter or a test by its row in names.def: every parameter has its place, MISSING where nothing is given. */
static bool apply(Writer *w, const Node *n, bool filter)
{
    const int row = filter ? chat_filter(n->text) : chat_test(n->text);
    const char *params = row < 0 ? "" : filter ? chat_filters[row].params : chat_tests[row].params;
    const size_t count = chat_param_count(params);
    const Node *given[8] = {NULL};

    if (row < 0 && w->conditions) {
        const char *why = arena_printf(w->keep, "No %s named '%s'.", filter ? "filter" : "test", n->text);

        emit(w, CHAT_LOAD, n->line, 0, add_string(w, "raise_exception", strlen("raise_exception")));
        emit(w, CHAT_CONST, n->line, 0, add_string(w, why, strlen(why)));
        emit(w, CHAT_CALL, n->line, 1, 0);
        return true;
    }
    if (row < 0)
        return code_fail(w, n->line, filter ? "there is no filter " : "there is no test ", n->text);
    if (n->kids.at[0] && !value(w, n->kids.at[0]))
        return false;
    for (size_t i = 1; i < n->kids.n; i++) {
        const Node *kid = n->kids.at[i];
        const int at = kid->kind == N_NAMED ? chat_param_find(params, kid->text, kid->n_text) : (int)i - 1;

        if (at < 0 || (size_t)at >= count || given[at])
            return code_fail(w, kid->line, "an argument that is not supported, of ", n->text);
        given[at] = kid->kind == N_NAMED ? kid->kids.at[0] : kid;
    }
    for (size_t i = 0; i < count; i++) {
        if (!given[i])
            emit(w, CHAT_MISSING, n->line, 0, 0);
        else if (!value(w, given[i]))
            return false;
    }
    emit(w, filter ? CHAT_FILTER : CHAT_TEST, n->line, count + 1, (size_t)row);
    return true;
}

/* The values of all kids, then one instruction. */
static bool after_values(Writer *w, const Node *n, ChatOp op, size_t arg)
{
    if (!values(w, n))
        return false;
    emit(w, op, n->line, 0, arg);
    return true;
}

static bool value(Writer *w, const Node *n)
{
    switch (n->kind) {
    case N_CONST: emit(w, CHAT_CONST, n->line, 0, node_const(w, n)); return true;
    case N_NAME: emit(w, CHAT_LOAD, n->line, 0, add_name(w, n)); return true;
    case N_ATTR: return after_values(w, n, CHAT_ATTR, add_name(w, n));
    case N_ITEM: return after_values(w, n, CHAT_ITEM, 0);
    case N_SLICE: return after_values(w, n, CHAT_SLICE, 0);
    case N_LIST: return after_values(w, n, CHAT_LIST, n->kids.n);
    case N_TUPLE: return after_values(w, n, CHAT_TUPLE, n->kids.n);
    case N_DICT: return after_values(w, n, CHAT_DICT, n->kids.n / 2);
    case N_BINARY: return after_values(w, n, CHAT_BINARY, (size_t)n->i);
    case N_CONCAT: return after_values(w, n, CHAT_CONCAT, n->kids.n);
    case N_COMPARE: return comparisons(w, n);
    case N_NOT: return after_values(w, n, CHAT_NOT, 0);
    case N_NEGATE: return after_values(w, n, CHAT_NEGATE, 0);
    case N_PLUS: return after_values(w, n, CHAT_PLUS, 0);
    case N_AND:
    case N_OR: return either(w, n);
    case N_IF_ELSE: return if_else(w, n);
    case N_CALL: return call(w, n);
    case N_FILTER: return apply(w, n, true);
    case N_TEST: return apply(w, n, false);
    case N_OPERAND:
    case N_NAMED:
    case N_BODY:
    case N_DATA:
    case N_PRINT:
    case N_IF:
    case N_FOR:
    case N_SET:
    case N_SET_TEXT:
    case N_WRITE_TEXT:
    case N_MACRO:
    case N_BREAK:
    case N_CONTINUE: break;
    }
    die("a statement in an expression");
}

/* --- statements ------------------------------------------------------------------------------------------ */

static bool statements(Writer *w, const Node *body);

/* The value on the stack goes to the target. */
static bool store(Writer *w, const Node *target)
{
    if (target->kind == N_ATTR) {
        emit(w, CHAT_LOAD, target->line, 0, add_name(w, target->kids.at[0]));
        emit(w, CHAT_SET_ATTR, target->line, 0, add_name(w, target));
        return true;
    }
    if (target->kind == N_TUPLE)
        emit(w, CHAT_UNPACK, target->line, 0, target->kids.n);
    for (size_t i = 0; i < target->kids.n; i++)
        emit(w, CHAT_STORE, target->line, 0, add_name(w, target->kids.at[i]));
    if (target->kind == N_NAME)
        emit(w, CHAT_STORE, target->line, 0, add_name(w, target));
    return true;
}

static bool write_if(Writer *w, const Node *n)
{
    size_t to_other, to_end;

    if (!value(w, n->kids.at[0]))
        return false;
    to_other = emit(w, CHAT_JUMP_FALSE, n->line, 0, 0);
    w->conditions++;
    if (!statements(w, n->kids.at[1]))
        return false;
    w->conditions--;
    if (n->kids.n < 3) {
        land(w, to_other);
        return true;
    }
    w->conditions++;
    to_end = emit(w, CHAT_JUMP, n->line, 0, 0);
    land(w, to_other);
    if (!(n->kids.at[2]->kind == N_IF ? write_if(w, n->kids.at[2]) : statements(w, n->kids.at[2])))
        return false;
    w->conditions--;
    land(w, to_end);
    return true;
}

/* The iterator on the stack loses the items that fail the condition. */
static bool write_condition(Writer *w, const Node *n)
{
    const size_t next = emit(w, CHAT_NEXT, n->line, 0, 0);

    emit(w, CHAT_COPY, n->line, 0, 0);
    store(w, n->kids.at[0]);
    if (!value(w, n->kids.at[2]))
        return false;
    emit(w, CHAT_KEEP, n->line, 0, 0);
    emit(w, CHAT_JUMP, n->line, 0, next);
    land(w, next);
    emit(w, CHAT_KEPT, n->line, 0, 0);
    return true;
}

static bool write_for(Writer *w, const Node *n)
{
    const size_t outer = w->loop;
    const size_t breaks = w->breaks.n, scopes = w->scopes;
    size_t next, end;

    if (!value(w, n->kids.at[1]))
        return false;
    emit(w, CHAT_ITER, n->line, 0, 0);
    if (n->kids.at[2] && !write_condition(w, n))
        return false;
    next = emit(w, CHAT_NEXT, n->line, 1, 0);
    w->loop = next;
    w->scopes = 1; /* NEXT begins one */
    store(w, n->kids.at[0]);
    if (!statements(w, n->kids.at[3]))
        return false;
    w->loop = outer;
    w->scopes = scopes;
    emit(w, CHAT_END_SCOPE, n->line, 0, 0);
    if (n->kids.at[4])
        emit(w, CHAT_RAN, n->line, 0, 0);
    emit(w, CHAT_JUMP, n->line, 0, next);
    land(w, next);
    for (; w->breaks.n > breaks; w->breaks.n--)
        land(w, w->breaks.at[w->breaks.n - 1]);
    end = emit(w, CHAT_END_LOOP, n->line, 0, 0);
    if (n->kids.at[4]) {
        emit(w, CHAT_SCOPE, n->line, 0, 0);
        w->scopes++;
        if (!statements(w, n->kids.at[4]))
            return false;
        w->scopes--;
        emit(w, CHAT_END_SCOPE, n->line, 0, 0);
    }
    land(w, end);
    return true;
}

/* The output of a body as a text on the stack. Loops around it cannot be left from inside. */
static bool captured(Writer *w, const Node *body)
{
    const size_t outer = w->loop;

    w->loop = SIZE_MAX;
    emit(w, CHAT_SCOPE, body->line, 0, 0);
    emit(w, CHAT_CAPTURE, body->line, 0, 0);
    if (!statements(w, body))
        return false;
    emit(w, CHAT_END_CAPTURE, body->line, 0, 0);
    emit(w, CHAT_END_SCOPE, body->line, 0, 0);
    w->loop = outer;
    return true;
}

static bool leave_loop(Writer *w, const Node *n)
{
    if (w->loop == SIZE_MAX)
        return code_fail(w, n->line, n->kind == N_BREAK ? "break" : "continue", " outside of a loop");
    for (size_t i = 0; i < w->scopes; i++)
        emit(w, CHAT_END_SCOPE, n->line, 0, 0);
    if (n->kind == N_CONTINUE)
        emit(w, CHAT_JUMP, n->line, 0, w->loop);
    else
        *arena_push(w->keep, w->breaks) = emit(w, CHAT_JUMP, n->line, 0, 0);
    return true;
}

/* Writes a function apart; its jumps count from the start of all code. */
static bool function(Writer *w, const Node *body, const Node *macro, uint32_t *id)
{
    const Writer outer = *w;
    const size_t first_param = w->params.n, n_params = macro ? macro->kids.n - 1 : 0;
    bool ok = true;

    memset(&w->code, 0, sizeof w->code);
    w->loop = SIZE_MAX;
    for (size_t i = 0; i < n_params; i++)
        *arena_push(w->keep, w->params) = add_name(w, macro->kids.at[i + 1]); /* cppcheck-suppress nullPointer */
    for (size_t i = 0; i < n_params && ok; i++) {
        const Node *param = macro->kids.at[i + 1]; /* cppcheck-suppress nullPointer */
        size_t at;

        if (!param->kids.n)
            continue;
        emit(w, CHAT_ABSENT, param->line, 0, add_name(w, param));
        at = emit(w, CHAT_JUMP_FALSE, param->line, 0, 0);
        ok = value(w, param->kids.at[0]);
        emit(w, CHAT_STORE, param->line, 0, add_name(w, param));
        land(w, at);
    }
    ok = ok && statements(w, body);
    emit(w, CHAT_RETURN, body->line, 0, 0);
    *id = (uint32_t)w->functions.n;
    *arena_push(w->keep, w->functions) =
        (ChatFunction){(uint32_t)w->all.n, (uint32_t)w->code.n, (uint32_t)first_param, (uint32_t)n_params};
    for (size_t i = 0, first = w->all.n; i < w->code.n; i++) {
        ChatInstr *to = arena_push(w->keep, w->all);

        *to = w->code.at[i];
        if (chat_args[to->op] == CHAT_ARG_JUMP)
            to->arg += (uint32_t)first;
    }
    w->code.at = outer.code.at;
    w->code.n = outer.code.n;
    w->code.cap = outer.code.cap;
    w->loop = outer.loop;
    return ok;
}

static bool statement(Writer *w, const Node *n)
{
    uint32_t id;

    switch (n->kind) {
    case N_DATA: emit(w, CHAT_TEXT, n->line, 0, add_string(w, n->text, n->n_text)); return true;
    case N_PRINT: return after_values(w, n, CHAT_OUT, 0);
    case N_IF: return write_if(w, n);
    case N_FOR: return write_for(w, n);
    case N_SET: return value(w, n->kids.at[1]) && store(w, n->kids.at[0]);
    case N_SET_TEXT:
        return captured(w, n->kids.at[1]) && (n->kids.n < 3 || value(w, n->kids.at[2])) && store(w, n->kids.at[0]);
    case N_WRITE_TEXT:
        if (!captured(w, n->kids.at[0]) || (n->kids.n > 1 && !value(w, n->kids.at[1])))
            return false;
        emit(w, CHAT_OUT, n->line, 0, 0);
        return true;
    case N_MACRO:
        if (!function(w, n->kids.at[0], n, &id))
            return false;
        emit(w, CHAT_MACRO, n->line, 0, id);
        emit(w, CHAT_STORE, n->line, 0, add_name(w, n));
        return true;
    case N_BREAK:
    case N_CONTINUE: return leave_loop(w, n);
    default: break;
    }
    die("an expression among statements");
}

static bool statements(Writer *w, const Node *body)
{
    for (size_t i = 0; i < body->kids.n; i++)
        if (!statement(w, body->kids.at[i]))
            return false;
    return true;
}

/* --- the section ------------------------------------------------------------------------------------------- */

static char *put_part(char *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    return to + bytes;
}

static void *section_of(Writer *w, const ChatTemplate *templates, size_t n, const ChatVar *vars, size_t n_vars,
                        size_t *bytes)
{
    const struct {
        const void *at;
        size_t bytes;
    } parts[] = {{w->consts.at, w->consts.n * sizeof *w->consts.at},
                 {w->all.at, w->all.n * sizeof *w->all.at},
                 {w->functions.at, w->functions.n * sizeof *w->functions.at},
                 {templates, n * sizeof *templates},
                 {vars, n_vars * sizeof *vars},
                 {w->params.at, w->params.n * sizeof *w->params.at},
                 {w->bytes.at, w->bytes.n}};
    ChatHeader h = {.format = CHAT_FORMAT, .loop = w->loop_name};
    char *section, *to;

    memcpy(h.magic, CHAT_MAGIC, sizeof h.magic);
    h.consts = (uint32_t)w->consts.n;
    h.code = (uint32_t)w->all.n;
    h.functions = (uint32_t)w->functions.n;
    h.templates = (uint32_t)n;
    h.vars = (uint32_t)n_vars;
    h.params = (uint32_t)w->params.n;
    h.bytes = (uint32_t)w->bytes.n;
    *bytes = sizeof h;
    for (size_t i = 0; i < LEN(parts); i++)
        *bytes += parts[i].bytes;
    section = arena_alloc(w->keep, *bytes);
    to = put_part(section, &h, sizeof h);
    for (size_t i = 0; i < LEN(parts); i++)
        to = put_part(to, parts[i].at, parts[i].bytes);
    return section;
}

bool chat_compile(const ChatSource *sources, size_t n, const ChatToken *tokens, size_t n_tokens, Arena *keep,
                  void **section, size_t *bytes, Diag *d)
{
    Writer w = {.loop_name = UINT32_MAX, .loop = SIZE_MAX, .keep = keep, .d = d};
    ChatTemplate *templates = arena_array(keep, ChatTemplate, n);
    ChatVar *vars = arena_array(keep, ChatVar, n_tokens);

    for (size_t i = 0; i < n; i++) {
        Parser p = {.file = sources[i].file, .keep = keep, .d = d};
        const Node *body;

        w.file = sources[i].file;
        if (!lex(&sources[i], keep, &p.tokens, d) || !(body = parse_template(&p)) ||
            !function(&w, body, NULL, &templates[i].function))
            return false;
        templates[i].name = add_string(&w, sources[i].name, strlen(sources[i].name));
    }
    for (size_t i = 0; i < n_tokens; i++) {
        vars[i].name = add_string(&w, tokens[i].name, strlen(tokens[i].name));
        vars[i].value = add_string(&w, tokens[i].text, strlen(tokens[i].text));
    }
    *section = section_of(&w, templates, n, vars, n_tokens, bytes);
    return true;
}
