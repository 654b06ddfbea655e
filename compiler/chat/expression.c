/* expression.c - expressions of a template to a tree, with the precedence of Jinja's parser:
 *
 *   if-else, or, and, not, comparisons, + and -, ~, * / // %, **, sign, postfix ( . [] () ), filters and tests */
#include <string.h>

#include "parts.h"

enum { MOST_NESTING = 200 };

const Token *token_now(const Parser *p)
{
    return &p->tokens.at[p->at];
}

bool token_is(const Parser *p, TokenKind kind, const char *text)
{
    return token_now(p)->kind == kind && (!text || strcmp(token_now(p)->text, text) == 0);
}

bool token_take(Parser *p, TokenKind kind, const char *text)
{
    const bool is = token_is(p, kind, text);

    p->at += is && token_now(p)->kind != T_END;
    return is;
}

bool parse_fail(Parser *p, const char *what)
{
    const Token *t = token_now(p);

    return diag_error(p->d, (Loc){p->file, t->line}, "chat template: %s%s%.60s%s", what,
                      t->kind == T_END ? ", at its end" : ", at '", t->kind == T_END ? "" : t->text,
                      t->kind == T_END ? "" : "'");
}

bool token_need(Parser *p, TokenKind kind, const char *text)
{
    char what[80] = "expected '";

    if (token_take(p, kind, text))
        return true;
    strcat(strncat(what, text ? text : "name", 40), "'");
    return parse_fail(p, what);
}

bool parse_deeper(Parser *p)
{
    return ++p->deep <= MOST_NESTING || parse_fail(p, "it is nested too deep");
}

Node *node_new(Parser *p, NodeKind kind, int line)
{
    Node *n = arena_new(p->keep, Node);

    n->kind = kind;
    n->line = line;
    return n;
}

bool node_add(Parser *p, Node *n, Node *kid)
{
    if (kid)
        *arena_push(p->keep, n->kids) = kid;
    return kid != NULL;
}

static Node *with_text(Parser *p, NodeKind kind, const Token *t)
{
    Node *n = node_new(p, kind, t->line);

    n->text = t->text;
    n->n_text = t->n;
    return n;
}

static Node *constant(Parser *p, ChatConstKind kind, int line)
{
    Node *n = node_new(p, N_CONST, line);

    n->constant = kind;
    return n;
}

/* --- what stands alone -------------------------------------------------------------------------------- */

static Node *string_literal(Parser *p)
{
    const Token *t = token_now(p);
    Node *n = constant(p, CHAT_STRING, t->line);
    char *all = NULL;

    for (; token_is(p, T_STRING, NULL); p->at++) { /* neighbours are one string */
        t = token_now(p);
        all = arena_grow(p->keep, all, n->n_text, n->n_text + t->n + 1);
        memcpy(all + n->n_text, t->text, t->n);
        n->n_text += t->n;
    }
    n->text = all;
    return n;
}

static Node *name_or_constant(Parser *p)
{
    static const struct {
        const char *name;
        ChatConstKind kind;
    } rows[] = {{"true", CHAT_TRUE},   {"True", CHAT_TRUE}, {"false", CHAT_FALSE},
                {"False", CHAT_FALSE}, {"none", CHAT_NONE}, {"None", CHAT_NONE}};
    const Token *t = token_now(p);

    p->at++;
    for (size_t i = 0; i < LEN(rows); i++)
        if (strcmp(t->text, rows[i].name) == 0)
            return constant(p, rows[i].kind, t->line);
    return with_text(p, N_NAME, t);
}

static Node *number(Parser *p)
{
    const Token *t = token_now(p);
    Node *n = constant(p, t->kind == T_INTEGER ? CHAT_INT : CHAT_FLOAT, t->line);

    n->i = t->i;
    n->f = t->f;
    p->at++;
    return n;
}

static Node *list_literal(Parser *p)
{
    Node *n = node_new(p, N_LIST, token_now(p)->line);

    p->at++;
    while (!token_take(p, T_OPERATOR, "]")) {
        if (n->kids.n && !token_need(p, T_OPERATOR, ","))
            return NULL;
        if (token_take(p, T_OPERATOR, "]"))
            break;
        if (!node_add(p, n, parse_expression(p)))
            return NULL;
    }
    return n;
}

static Node *dict_literal(Parser *p)
{
    Node *n = node_new(p, N_DICT, token_now(p)->line);

    p->at++;
    while (!token_take(p, T_OPERATOR, "}")) {
        if (n->kids.n && !token_need(p, T_OPERATOR, ","))
            return NULL;
        if (token_take(p, T_OPERATOR, "}"))
            break;
        if (!node_add(p, n, parse_expression(p)) || !token_need(p, T_OPERATOR, ":") ||
            !node_add(p, n, parse_expression(p)))
            return NULL;
    }
    return n;
}

static Node *in_parentheses(Parser *p)
{
    Node *n;

    p->at++;
    if (token_is(p, T_OPERATOR, ")"))
        n = node_new(p, N_TUPLE, token_now(p)->line);
    else
        n = parse_tuple(p, true, false);
    return n && token_need(p, T_OPERATOR, ")") ? n : NULL;
}

static Node *primary(Parser *p)
{
    switch (token_now(p)->kind) {
    case T_NAME: return name_or_constant(p);
    case T_STRING: return string_literal(p);
    case T_INTEGER:
    case T_FLOAT: return number(p);
    case T_OPERATOR:
        if (token_is(p, T_OPERATOR, "("))
            return in_parentheses(p);
        if (token_is(p, T_OPERATOR, "["))
            return list_literal(p);
        if (token_is(p, T_OPERATOR, "{"))
            return dict_literal(p);
        break;
    case T_END:
    case T_DATA:
    case T_PRINT:
    case T_BLOCK:
    case T_CLOSE: break;
    }
    parse_fail(p, "expected an expression");
    return NULL;
}

/* --- what stands behind ------------------------------------------------------------------------------- */

/* The arguments in parentheses become kids of n. */
static bool arguments(Parser *p, Node *n)
{
    bool first = true, named = false;

    p->at++;
    for (; !token_take(p, T_OPERATOR, ")"); first = false) {
        if (!first && !token_need(p, T_OPERATOR, ","))
            return false;
        if (token_take(p, T_OPERATOR, ")"))
            break;
        if (token_is(p, T_NAME, NULL) && p->tokens.at[p->at + 1].kind == T_OPERATOR &&
            strcmp(p->tokens.at[p->at + 1].text, "=") == 0) {
            Node *kid = with_text(p, N_NAMED, token_now(p));

            named = true;
            p->at += 2;
            if (!node_add(p, kid, parse_expression(p)) || !node_add(p, n, kid))
                return false;
        } else if (named || token_is(p, T_OPERATOR, "*") || token_is(p, T_OPERATOR, "**")) {
            return parse_fail(p, named ? "a value behind a named one" : "* in arguments is not supported");
        } else if (!node_add(p, n, parse_expression(p))) {
            return false;
        }
    }
    return true;
}

static Node *subscript(Parser *p, Node *value)
{
    Node *n = node_new(p, N_ITEM, token_now(p)->line), *parts[3] = {NULL, NULL, NULL};
    int count = 0;

    p->at++;
    while (!token_is(p, T_OPERATOR, "]")) {
        if (token_take(p, T_OPERATOR, ":")) {
            if (++count > 2) {
                parse_fail(p, "a slice has three parts");
                return NULL;
            }
        } else if (parts[count] || !(parts[count] = parse_expression(p))) {
            parse_fail(p, "expected ']'");
            return NULL;
        }
    }
    p->at++;
    node_add(p, n, value);
    if (count == 0) {
        if (!node_add(p, n, parts[0]))
            parse_fail(p, "an index is missing");
        return n->kids.n == 2 ? n : NULL;
    }
    n->kind = N_SLICE;
    for (int i = 0; i < 3; i++)
        node_add(p, n, parts[i] ? parts[i] : constant(p, CHAT_NONE, n->line));
    return n;
}

static Node *attribute(Parser *p, Node *value)
{
    Node *n;

    p->at++;
    if (token_is(p, T_INTEGER, NULL)) {
        n = node_new(p, N_ITEM, token_now(p)->line);
        return node_add(p, n, value) && node_add(p, n, number(p)) ? n : NULL;
    }
    if (!token_is(p, T_NAME, NULL)) {
        parse_fail(p, "expected a name");
        return NULL;
    }
    n = with_text(p, N_ATTR, token_now(p));
    p->at++;
    return node_add(p, n, value) ? n : NULL;
}

static Node *postfix(Parser *p, Node *n)
{
    while (n) {
        if (token_is(p, T_OPERATOR, ".")) {
            n = attribute(p, n);
        } else if (token_is(p, T_OPERATOR, "[")) {
            n = subscript(p, n);
        } else if (token_is(p, T_OPERATOR, "(")) {
            Node *call = node_new(p, N_CALL, token_now(p)->line);

            node_add(p, call, n);
            n = arguments(p, call) ? call : NULL;
        } else {
            break;
        }
    }
    return n;
}

/* A filter or a test by its name, with arguments in parentheses. */
static Node *applied(Parser *p, NodeKind kind, Node *value)
{
    Node *n;

    if (!token_is(p, T_NAME, NULL)) {
        parse_fail(p, "expected a name");
        return NULL;
    }
    n = with_text(p, kind, token_now(p));
    p->at++;
    *arena_push(p->keep, n->kids) = value;
    return !token_is(p, T_OPERATOR, "(") || arguments(p, n) ? n : NULL;
}

static Node *test(Parser *p, Node *value)
{
    static const char *const ends[] = {"else", "or", "and", "is"};
    const bool negated = token_take(p, T_NAME, "not");
    Node *n = applied(p, N_TEST, value), *outer;
    bool one;

    if (!n)
        return NULL;
    one = token_is(p, T_NAME, NULL) || token_is(p, T_STRING, NULL) || token_is(p, T_INTEGER, NULL) ||
          token_is(p, T_FLOAT, NULL) || token_is(p, T_OPERATOR, "[") || token_is(p, T_OPERATOR, "{");
    for (size_t i = 0; i < LEN(ends); i++)
        one &= !token_is(p, T_NAME, ends[i]);
    if (one && n->kids.n == 1 && p->tokens.at[p->at - 1].kind == T_NAME && !node_add(p, n, postfix(p, primary(p))))
        return NULL;
    if (!negated)
        return n;
    outer = node_new(p, N_NOT, n->line);
    node_add(p, outer, n);
    return outer;
}

Node *parse_filters(Parser *p, Node *value)
{
    Node *n = applied(p, N_FILTER, value);

    while (n && token_take(p, T_OPERATOR, "|"))
        n = applied(p, N_FILTER, n);
    return n;
}

static Node *filters_and_tests(Parser *p, Node *n)
{
    while (n) {
        if (token_take(p, T_OPERATOR, "|")) {
            n = applied(p, N_FILTER, n);
        } else if (token_take(p, T_NAME, "is")) {
            n = test(p, n);
        } else if (token_is(p, T_OPERATOR, "(")) {
            Node *call = node_new(p, N_CALL, token_now(p)->line);

            node_add(p, call, n);
            n = arguments(p, call) ? call : NULL;
        } else {
            break;
        }
    }
    return n;
}

/* --- operators ------------------------------------------------------------------------------------------ */

static Node *unary(Parser *p, bool with_filters)
{
    const int line = token_now(p)->line;
    Node *n = NULL;

    if (!parse_deeper(p))
        return NULL;
    if (token_is(p, T_OPERATOR, "-") || token_is(p, T_OPERATOR, "+")) {
        n = node_new(p, token_is(p, T_OPERATOR, "-") ? N_NEGATE : N_PLUS, line);
        p->at++;
        if (!node_add(p, n, unary(p, false)))
            n = NULL;
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    p->deep--;
    return with_filters ? filters_and_tests(p, n) : n;
}

typedef struct Operator {
    const char *text;
    ChatBinary op;
} Operator;

static Node *binary(Parser *p, Node *(*next)(Parser *), const Operator *rows, size_t n_rows)
{
    Node *n = next(p);

    for (size_t i = 0; n && i < n_rows; i++)
        if (token_is(p, T_OPERATOR, rows[i].text)) {
            Node *both = node_new(p, N_BINARY, token_now(p)->line);

            p->at++;
            both->i = rows[i].op;
            node_add(p, both, n);
            n = node_add(p, both, next(p)) ? both : NULL;
            i = (size_t)-1; /* look again from the first row */
        }
    return n;
}

static Node *operand(Parser *p)
{
    return unary(p, true);
}

static Node *power(Parser *p)
{
    static const Operator rows[] = {{"**", CHAT_POW}};

    return binary(p, operand, rows, LEN(rows));
}

static Node *product(Parser *p)
{
    static const Operator rows[] = {{"*", CHAT_MUL}, {"/", CHAT_DIV}, {"//", CHAT_FLOORDIV}, {"%", CHAT_MOD}};

    return binary(p, power, rows, LEN(rows));
}

static Node *concat(Parser *p)
{
    Node *n = product(p), *all;

    if (!n || !token_is(p, T_OPERATOR, "~"))
        return n;
    all = node_new(p, N_CONCAT, token_now(p)->line);
    node_add(p, all, n);
    while (token_take(p, T_OPERATOR, "~"))
        if (!node_add(p, all, product(p)))
            return NULL;
    return all;
}

static Node *sum(Parser *p)
{
    static const Operator rows[] = {{"+", CHAT_ADD}, {"-", CHAT_SUB}};

    return binary(p, concat, rows, LEN(rows));
}

/* True, and the operator is taken. */
static bool take_comparison(Parser *p, ChatCompare *op)
{
    static const struct {
        const char *text;
        ChatCompare op;
    } rows[] = {{"==", CHAT_EQ}, {"!=", CHAT_NE}, {"<", CHAT_LT}, {"<=", CHAT_LE}, {">", CHAT_GT}, {">=", CHAT_GE}};

    for (size_t i = 0; i < LEN(rows); i++)
        if (token_take(p, T_OPERATOR, rows[i].text)) {
            *op = rows[i].op;
            return true;
        }
    *op = CHAT_IN;
    if (token_take(p, T_NAME, "in"))
        return true;
    *op = CHAT_NOT_IN;
    if (!token_is(p, T_NAME, "not") || strcmp(p->tokens.at[p->at + 1].text, "in") != 0)
        return false;
    p->at += 2;
    return true;
}

static Node *comparison(Parser *p)
{
    Node *n = sum(p), *all = NULL;
    ChatCompare op;

    while (n && take_comparison(p, &op)) {
        Node *next = node_new(p, N_OPERAND, token_now(p)->line);

        if (!all) {
            all = node_new(p, N_COMPARE, n->line);
            node_add(p, all, n);
        }
        next->i = op;
        if (!node_add(p, next, sum(p)))
            return NULL;
        node_add(p, all, next);
    }
    return all && n ? all : n;
}

static Node *negation(Parser *p)
{
    const int line = token_now(p)->line;
    Node *n, *kid;

    if (!token_take(p, T_NAME, "not"))
        return comparison(p);
    n = node_new(p, N_NOT, line);
    if (!parse_deeper(p))
        return NULL;
    kid = negation(p);
    p->deep--;
    return node_add(p, n, kid) ? n : NULL;
}

static Node *logical(Parser *p, const char *word, NodeKind kind, Node *(*next)(Parser *))
{
    Node *n = next(p);

    while (n && token_is(p, T_NAME, word)) {
        Node *both = node_new(p, kind, token_now(p)->line);

        p->at++;
        node_add(p, both, n);
        n = node_add(p, both, next(p)) ? both : NULL;
    }
    return n;
}

static Node *conjunction(Parser *p)
{
    return logical(p, "and", N_AND, negation);
}

static Node *disjunction(Parser *p)
{
    return logical(p, "or", N_OR, conjunction);
}

Node *parse_expression(Parser *p)
{
    Node *n;

    if (!parse_deeper(p))
        return NULL;
    n = disjunction(p);
    while (n && token_is(p, T_NAME, "if")) {
        Node *all = node_new(p, N_IF_ELSE, token_now(p)->line);

        p->at++;
        node_add(p, all, n);
        if (!node_add(p, all, disjunction(p)))
            return NULL;
        if (token_take(p, T_NAME, "else") && !node_add(p, all, parse_expression(p)))
            return NULL;
        n = all;
    }
    p->deep--;
    return n;
}

static bool ends_tuple(const Parser *p)
{
    return token_is(p, T_CLOSE, NULL) || token_is(p, T_OPERATOR, ")") || token_is(p, T_NAME, "in") ||
           token_is(p, T_OPERATOR, "=");
}

Node *parse_tuple(Parser *p, bool with_condition, bool names_only)
{
    Node *n = NULL, *tuple = NULL;
    const int line = token_now(p)->line;

    for (;;) {
        if (tuple && ends_tuple(p))
            return tuple;
        n = names_only ? postfix(p, primary(p)) : with_condition ? parse_expression(p) : disjunction(p);
        if (!n)
            return NULL;
        if (tuple)
            node_add(p, tuple, n);
        if (!token_take(p, T_OPERATOR, ","))
            return tuple ? tuple : n;
        if (!tuple) {
            tuple = node_new(p, N_TUPLE, line);
            node_add(p, tuple, n);
        }
    }
}
