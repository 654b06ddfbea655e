/* expr.c - launch expressions: parsed to postfix words, checked, run.
 *
 * The parser folds constants. A subexpression with a known value has no words until an operand that is not known
 * needs it; then its PUSH is inserted before the words that followed. Jumps are relative and only forward, so moving
 * a finished subexpression does not break it, and every list ends. */
#include "expr.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_STACK = 32, MAX_NESTING = 64, MAX_NAME = 64 };

typedef enum Word {
    W_PUSH = 1, /* value */
    W_LOAD,     /* variable */
    W_JUMP,     /* words to skip */
    W_JUMP_IF_ZERO,
    W_ADD,
    W_SUB,
    W_MUL,
    W_DIV,
    W_MOD,
    W_CEIL_DIV,
    W_EQ,
    W_NE,
    W_LT,
    W_LE,
    W_GT,
    W_GE,
    W_MIN,
    W_MAX,
    W_ROUND_UP,
    W_NEG,
    W_NOT,
    W_BOOL,
    W_POW2,
    W_COUNT,
} Word;

static bool has_operand(int64_t w)
{
    return w == W_PUSH || w == W_LOAD || w == W_JUMP || w == W_JUMP_IF_ZERO;
}

static bool is_unary(int64_t w)
{
    return w >= W_NEG && w <= W_POW2;
}

/* --- arithmetic ------------------------------------------------------------------------------ */

/* The result of a binary word; the reason as text where there is none, else NULL. */
static const char *apply_binary(Word w, int64_t a, int64_t b, int64_t *out)
{
    static const char *const overflow = "overflow", *const zero = "division by zero";
    int64_t q;

    switch (w) {
    case W_ADD: return __builtin_add_overflow(a, b, out) ? overflow : NULL;
    case W_SUB: return __builtin_sub_overflow(a, b, out) ? overflow : NULL;
    case W_MUL: return __builtin_mul_overflow(a, b, out) ? overflow : NULL;
    case W_DIV:
    case W_MOD:
    case W_CEIL_DIV:
    case W_ROUND_UP:
        if (b == 0)
            return zero;
        if (a == INT64_MIN && b == -1)
            return overflow;
        q = a / b;
        if (w == W_DIV) {
            *out = q;
            return NULL;
        }
        if (w == W_MOD) {
            *out = a % b;
            return NULL;
        }
        q += a % b != 0 && (a < 0) == (b < 0); /* C rounds towards zero; up is one more if positive */
        if (w == W_CEIL_DIV) {
            *out = q;
            return NULL;
        }
        return __builtin_mul_overflow(q, b, out) ? overflow : NULL;
    case W_EQ: *out = a == b; return NULL;
    case W_NE: *out = a != b; return NULL;
    case W_LT: *out = a < b; return NULL;
    case W_LE: *out = a <= b; return NULL;
    case W_GT: *out = a > b; return NULL;
    case W_GE: *out = a >= b; return NULL;
    case W_MIN: *out = a < b ? a : b; return NULL;
    case W_MAX: *out = a > b ? a : b; return NULL;
    default: return "unknown word";
    }
}

static const char *apply_unary(Word w, int64_t a, int64_t *out)
{
    if (w == W_NEG)
        return __builtin_sub_overflow((int64_t)0, a, out) ? "overflow" : NULL;
    if (w == W_NOT || w == W_BOOL) {
        *out = (a != 0) == (w == W_BOOL);
        return NULL;
    }
    if (a > INT64_C(1) << 62)
        return "overflow";
    for (*out = 1; *out < a; *out *= 2)
        ;
    return NULL;
}

/* --- parsing --------------------------------------------------------------------------------- */

typedef struct Parser {
    const char *text, *at;
    ExprLookup *lookup;
    void *user;
    Expr *out;
    FtxError *err;
    int nesting;
    int dead;  /* inside a subexpression that is never run: its arithmetic may fail */
    int maybe; /* inside one that may not run: its errors are left to run time */
    bool failed;
} Parser;

/* A parsed subexpression: a known value, or words at the end of the list. */
typedef struct Part {
    bool known;
    int64_t value;
} Part;

static const Part nothing = {true, 0};

static Part fail(Parser *p, const char *reason)
{
    if (!p->failed)
        ftx_fail(p->err, FTX_EINVAL, "expression \"%s\": %s at \"%s\"", p->text, reason, *p->at ? p->at : "end");
    p->failed = true;
    return nothing;
}

static void insert(Parser *p, uint32_t at, int64_t word)
{
    if (p->out->n == EXPR_MAX_WORDS) {
        fail(p, "too long");
        return;
    }
    memmove(p->out->words + at + 1, p->out->words + at, sizeof(int64_t) * (p->out->n - at));
    p->out->words[at] = word;
    p->out->n++;
}

static void emit(Parser *p, int64_t word)
{
    insert(p, p->out->n, word);
}

static Part emitted(void)
{
    return (Part){false, 0};
}

/* Writes a known value as words at `at`, where the list ended before the words that followed. */
static void settle(Parser *p, Part a, uint32_t at)
{
    if (!a.known)
        return;
    insert(p, at, a.value);
    insert(p, at, W_PUSH);
}

static bool accept(Parser *p, const char *token)
{
    p->at += strspn(p->at, " \t");
    if (strncmp(p->at, token, strlen(token)) != 0)
        return false;
    p->at += strlen(token);
    return true;
}

static Part expression(Parser *p);

static Part unary_part(Parser *p, Word w, Part a)
{
    const char *reason;
    int64_t value = 0;

    if (a.known) {
        reason = apply_unary(w, a.value, &value);
        if (!reason || p->dead)
            return (Part){true, value};
        if (!p->maybe)
            return fail(p, reason);
    }
    settle(p, a, p->out->n);
    emit(p, w);
    return emitted();
}

/* The words of a begin at `from`, those of b at `middle`. */
static Part binary_part(Parser *p, Word w, Part a, Part b, uint32_t middle)
{
    const char *reason;
    int64_t value = 0;

    if (a.known && b.known) {
        reason = apply_binary(w, a.value, b.value, &value);
        if (!reason || p->dead)
            return (Part){true, reason ? 0 : value};
        if (!p->maybe)
            return fail(p, reason);
    }
    settle(p, a, middle);
    settle(p, b, p->out->n);
    emit(p, w);
    return emitted();
}

static Part number(Parser *p)
{
    int64_t value = 0;

    for (; isdigit((unsigned char)*p->at); p->at++)
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)(*p->at - '0'), &value))
            return fail(p, "a number of more than 63 bits");
    if (isalpha((unsigned char)*p->at) || *p->at == '_' || *p->at == '.')
        return fail(p, "an operator is missing");
    return (Part){true, value};
}

static bool read_name(Parser *p, char out[MAX_NAME])
{
    size_t n = 0;

    p->at += strspn(p->at, " \t");
    if (!isalpha((unsigned char)*p->at) && *p->at != '_')
        return false;
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_' || p->at[n] == '.')
        n++;
    if (n >= MAX_NAME)
        return false;
    memcpy(out, p->at, n);
    out[n] = 0;
    p->at += n;
    return true;
}

static Part named(Parser *p, const char *name)
{
    ExprKind kind = EXPR_CONSTANT;
    int64_t value = 0;
    char reason[MAX_NAME * 2 + 64];

    if (!p->lookup || !p->lookup(p->user, name, &kind, &value)) {
        snprintf(reason, sizeof reason, "unknown name \"%s\"", name);
        return fail(p, reason);
    }
    if (kind == EXPR_CONSTANT)
        return (Part){true, value};
    emit(p, W_LOAD);
    emit(p, value);
    return emitted();
}

static Part call(Parser *p, const char *name)
{
    static const struct {
        const char *name;
        Word word;
    } functions[] = {
        {"min", W_MIN}, {"max", W_MAX}, {"ceil_div", W_CEIL_DIV}, {"round_up", W_ROUND_UP}, {"pow2", W_POW2},
    };
    char argument[MAX_NAME], whole[MAX_NAME * 2 + 4];
    Part a, b;
    uint32_t middle;

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        a = expression(p);
        if (is_unary(functions[i].word))
            return accept(p, ")") ? unary_part(p, functions[i].word, a) : fail(p, "\")\" expected");
        if (!accept(p, ","))
            return fail(p, "\",\" expected");
        middle = p->out->n;
        b = expression(p);
        if (!accept(p, ")"))
            return fail(p, "\")\" expected");
        return binary_part(p, functions[i].word, a, b, middle);
    }
    if (!read_name(p, argument) || !accept(p, ")"))
        return fail(p, "a function that takes one name expected");
    snprintf(whole, sizeof whole, "%s(%s)", name, argument);
    return named(p, whole);
}

static Part unary(Parser *p)
{
    char name[MAX_NAME];
    Part a;

    p->at += strspn(p->at, " \t");
    if (p->failed)
        return nothing;
    if (++p->nesting > MAX_NESTING)
        return fail(p, "nested too deeply");
    if (accept(p, "-")) {
        a = unary_part(p, W_NEG, unary(p));
    } else if (*p->at == '!' && p->at[1] != '=') {
        p->at++;
        a = unary_part(p, W_NOT, unary(p));
    } else if (isdigit((unsigned char)*p->at)) {
        a = number(p);
    } else if (read_name(p, name)) {
        a = accept(p, "(") ? call(p, name) : named(p, name);
    } else if (accept(p, "(")) {
        a = expression(p);
        if (!accept(p, ")"))
            a = fail(p, "\")\" expected");
    } else {
        a = fail(p, "a number, a name or \"(\" expected");
    }
    p->nesting--;
    return a;
}

/* Operators of one level, longest first where one begins another. */
typedef struct Level {
    struct {
        const char *token;
        Word word;
    } operators[7];
} Level;

static const Level levels[] = {
    {{{"==", W_EQ}, {"!=", W_NE}, {"<=", W_LE}, {">=", W_GE}, {"<", W_LT}, {">", W_GT}}},
    {{{"+", W_ADD}, {"-", W_SUB}}},
    {{{"/^", W_CEIL_DIV}, {"*", W_MUL}, {"/", W_DIV}, {"%", W_MOD}}},
};
enum { LEVELS = sizeof levels / sizeof *levels };

static Part binary(Parser *p, int level)
{
    Part a;

    if (level == LEVELS)
        return unary(p);
    a = binary(p, level + 1);
    for (int i = 0; !p->failed && levels[level].operators[i].token;) {
        if (!accept(p, levels[level].operators[i].token)) {
            i++;
            continue;
        }
        const uint32_t middle = p->out->n;
        const Part b = binary(p, level + 1);

        a = binary_part(p, levels[level].operators[i].word, a, b, middle);
        i = 0;
    }
    return a;
}

/* Ends `condition ? yes : no`, whose words are [.. condition][yes][no]; known values have none yet. The words of the
 * condition end at `middle`, those of yes at `end`. */
static Part choose(Parser *p, Part yes, Part no, uint32_t middle, uint32_t end)
{
    const uint32_t before = p->out->n;

    settle(p, no, before);
    settle(p, yes, end);
    end += yes.known ? 2 : 0;
    insert(p, end, p->failed ? 0 : (int64_t)(p->out->n - end)); /* over no */
    insert(p, end, W_JUMP);
    insert(p, middle, (int64_t)(end + 2 - middle)); /* over yes and its jump */
    insert(p, middle, W_JUMP_IF_ZERO);
    return emitted();
}

/* a && b is a ? b != 0 : 0;  a || b is a ? 1 : b != 0. */
static Part logic(Parser *p, bool is_or)
{
    Part a = is_or ? logic(p, false) : binary(p, 0);

    while (!p->failed && accept(p, is_or ? "||" : "&&")) {
        const bool skip = a.known && (a.value != 0) == is_or;
        const uint32_t middle = p->out->n;
        Part b;

        p->dead += skip;
        p->maybe += !a.known;
        b = is_or ? logic(p, false) : binary(p, 0);
        p->dead -= skip;
        p->maybe -= !a.known;
        if (skip) {
            p->out->n = middle;
            a = (Part){true, is_or};
            continue;
        }
        b = unary_part(p, W_BOOL, b);
        if (a.known)
            a = b;
        else if (is_or)
            a = choose(p, (Part){true, 1}, b, middle, middle);
        else
            a = choose(p, b, (Part){true, 0}, middle, p->out->n);
    }
    return a;
}

static Part expression(Parser *p)
{
    Part a, yes, no;
    uint32_t middle, end;

    if (++p->nesting > MAX_NESTING)
        return fail(p, "nested too deeply");
    a = logic(p, true);
    if (!p->failed && accept(p, "?")) {
        middle = p->out->n;
        p->maybe += !a.known;
        p->dead += a.known && !a.value;
        yes = expression(p);
        p->dead -= a.known && !a.value;
        if (!accept(p, ":"))
            return fail(p, "\":\" expected");
        if (a.known && !a.value)
            p->out->n = middle;
        end = p->out->n;
        p->dead += a.known && a.value;
        no = expression(p);
        p->dead -= a.known && a.value;
        p->maybe -= !a.known;
        if (a.known && a.value)
            p->out->n = end;
        a = !a.known ? choose(p, yes, no, middle, end) : a.value ? yes : no;
    }
    p->nesting--;
    return a;
}

FtxStatus expr_parse(const char *text, ExprLookup *lookup, void *user, Expr *out, FtxError *err)
{
    Parser p = {.text = text, .at = text, .lookup = lookup, .user = user, .out = out, .err = err};
    Part a;

    *out = (Expr){0};
    a = expression(&p);
    settle(&p, a, out->n);
    p.at += strspn(p.at, " \t");
    if (!p.failed && *p.at)
        fail(&p, "an operator expected");
    if (p.failed)
        return FTX_EINVAL;
    return expr_check(out->words, out->n, (size_t)INT_MAX, err);
}

/* --- checking and running -------------------------------------------------------------------- */

/* Computes the stack depth through the list once; where a jump lands, both ways must agree. */
FtxStatus expr_check(const int64_t *words, size_t n, size_t n_variables, FtxError *err)
{
    int depth_at[EXPR_MAX_WORDS + 1];
    bool begins[EXPR_MAX_WORDS + 1] = {false};
    int depth = 0; /* -1: cannot be reached from the word before */

    if (n == 0 || n > EXPR_MAX_WORDS)
        return ftx_fail(err, FTX_EFORMAT, "an expression of %zu words, 1 to %d are allowed", n, EXPR_MAX_WORDS);
    for (size_t i = 0; i <= n; i++)
        depth_at[i] = -1;
    for (size_t at = 0; at <= n;) {
        begins[at] = true;
        if (depth < 0)
            depth = depth_at[at];
        else if (depth_at[at] >= 0 && depth_at[at] != depth)
            return ftx_fail(err, FTX_EFORMAT, "expression word %zu: two stack depths meet", at);
        if (depth < 0)
            return ftx_fail(err, FTX_EFORMAT, "expression word %zu is never reached", at);
        if (at == n)
            break;
        const int64_t w = words[at];

        if (w < W_PUSH || w >= W_COUNT || (has_operand(w) && at + 1 == n))
            return ftx_fail(err, FTX_EFORMAT, "expression word %zu is %lld, no opcode", at, (long long)w);
        if (w == W_LOAD && (words[at + 1] < 0 || (uint64_t)words[at + 1] >= n_variables))
            return ftx_fail(err, FTX_EFORMAT, "expression word %zu: variable %lld of %zu", at, (long long)words[at + 1],
                            n_variables);
        depth += w == W_PUSH || w == W_LOAD ? 1 : w == W_JUMP || is_unary(w) ? 0 : -1;
        if (depth < (w == W_JUMP_IF_ZERO ? 0 : 1) || depth > MAX_STACK)
            return ftx_fail(err, FTX_EFORMAT, "expression word %zu: the stack would hold %d", at, depth);
        if (w == W_JUMP || w == W_JUMP_IF_ZERO) {
            const int64_t skip = words[at + 1];

            if (skip < 0 || (uint64_t)skip > n - at - 2)
                return ftx_fail(err, FTX_EFORMAT, "expression word %zu jumps out of the list", at);
            const size_t to = at + 2 + (size_t)skip;

            if (depth_at[to] >= 0 && depth_at[to] != depth)
                return ftx_fail(err, FTX_EFORMAT, "expression word %zu: two stack depths meet", to);
            depth_at[to] = depth;
            if (w == W_JUMP)
                depth = -1;
        }
        at += has_operand(w) ? 2 : 1;
    }
    for (size_t i = 0; i <= n; i++)
        if (depth_at[i] >= 0 && !begins[i])
            return ftx_fail(err, FTX_EFORMAT, "expression word %zu is jumped to, but no opcode", i);
    if (depth != 1)
        return ftx_fail(err, FTX_EFORMAT, "an expression leaves %d values, not 1", depth);
    return FTX_OK;
}

FtxStatus expr_run(const int64_t *words, size_t n, const int64_t *variables, size_t n_variables, int64_t *value,
                   FtxError *err)
{
    int64_t stack[MAX_STACK + 1];
    size_t depth = 0;
    const char *reason = NULL;

    for (size_t at = 0; at < n && !reason;) {
        const int64_t w = words[at];
        const int64_t operand = at + 1 < n ? words[at + 1] : 0;
        const size_t need = w == W_PUSH || w == W_LOAD || w == W_JUMP ? 0 : is_unary(w) || w == W_JUMP_IF_ZERO ? 1 : 2;

        at += has_operand(w) ? 2 : 1;
        if (at > n || depth < need || depth >= MAX_STACK + (need > 0)) {
            reason = "malformed";
        } else if (w == W_PUSH) {
            stack[depth++] = operand;
        } else if (w == W_LOAD) {
            if (operand < 0 || (uint64_t)operand >= n_variables)
                reason = "unknown variable";
            else
                stack[depth++] = variables[operand];
        } else if (w == W_JUMP || w == W_JUMP_IF_ZERO) {
            if (operand < 0 || (uint64_t)operand > n - at)
                reason = "malformed";
            else if (w == W_JUMP || stack[--depth] == 0)
                at += (size_t)operand;
        } else if (need == 1) {
            reason = apply_unary((Word)w, stack[depth - 1], &stack[depth - 1]);
        } else {
            reason = apply_binary((Word)w, stack[depth - 2], stack[depth - 1], &stack[depth - 2]);
            depth--;
        }
    }
    if (!reason && depth != 1)
        reason = "malformed";
    if (reason)
        return ftx_fail(err, FTX_EFORMAT, "launch expression: %s", reason);
    *value = stack[0];
    return FTX_OK;
}
