/* parse.c - the statements of a template to a tree. */
#include <string.h>

#include "parts.h"

static Node *body(Parser *p, const char *const *ends);

static bool at_tag(const Parser *p, const char *name)
{
    const Token *t = token_now(p);

    return t->kind == T_BLOCK && t[1].kind == T_NAME && strcmp(t[1].text, name) == 0;
}

/* Behind the tag {% name %}, at which a body has ended. */
static bool skip_tag(Parser *p)
{
    p->at += 2;
    return token_need(p, T_CLOSE, NULL);
}

static bool is_target(Parser *p, const Node *n)
{
    bool ok = n->kind == N_NAME || n->kind == N_TUPLE || (n->kind == N_ATTR && n->kids.at[0]->kind == N_NAME);

    for (size_t i = 0; n->kind == N_TUPLE && i < n->kids.n; i++)
        ok &= n->kids.at[i]->kind == N_NAME;
    return ok || parse_fail(p, "this cannot be assigned to");
}

static Node *parse_if(Parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    Node *n = node_new(p, N_IF, token_now(p)->line), *inner = n;

    for (;;) {
        if (!node_add(p, inner, parse_tuple(p, false, false)) || !token_need(p, T_CLOSE, NULL) ||
            !node_add(p, inner, body(p, ends)))
            return NULL;
        if (!at_tag(p, "elif"))
            break;
        p->at += 2;
        {
            Node *next = node_new(p, N_IF, token_now(p)->line);

            node_add(p, inner, next);
            inner = next;
        }
    }
    if (at_tag(p, "else") && (!skip_tag(p) || !node_add(p, inner, body(p, last))))
        return NULL;
    return skip_tag(p) ? n : NULL;
}

static Node *parse_for(Parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    Node *n = node_new(p, N_FOR, token_now(p)->line);
    Node *target = parse_tuple(p, false, true), *items, *condition = NULL, *inside, *other = NULL;

    if (!target || !is_target(p, target))
        return NULL;
    if (target->kind == N_ATTR) {
        parse_fail(p, "a loop needs names");
        return NULL;
    }
    if (!token_need(p, T_NAME, "in") || !(items = parse_tuple(p, false, false)))
        return NULL;
    if (token_take(p, T_NAME, "if") && !(condition = parse_expression(p)))
        return NULL;
    if (token_is(p, T_NAME, "recursive")) {
        parse_fail(p, "recursive loops are not supported");
        return NULL;
    }
    if (!token_need(p, T_CLOSE, NULL) || !(inside = body(p, ends)))
        return NULL;
    if (at_tag(p, "else") && (!skip_tag(p) || !(other = body(p, last))))
        return NULL;
    *arena_push(p->keep, n->kids) = target;
    *arena_push(p->keep, n->kids) = items;
    *arena_push(p->keep, n->kids) = condition;
    *arena_push(p->keep, n->kids) = inside;
    *arena_push(p->keep, n->kids) = other;
    return skip_tag(p) ? n : NULL;
}

static Node *parse_set(Parser *p)
{
    static const char *const ends[] = {"endset", NULL};
    Node *n = node_new(p, N_SET, token_now(p)->line), *target = parse_tuple(p, false, true);

    if (!target || !is_target(p, target) || !node_add(p, n, target))
        return NULL;
    if (token_take(p, T_OPERATOR, "="))
        return node_add(p, n, parse_tuple(p, true, false)) && token_need(p, T_CLOSE, NULL) ? n : NULL;
    n->kind = N_SET_TEXT;
    if (token_take(p, T_OPERATOR, "|")) {
        Node *filters = parse_filters(p, NULL);

        if (!filters || !token_need(p, T_CLOSE, NULL) || !node_add(p, n, body(p, ends)))
            return NULL;
        node_add(p, n, filters);
    } else if (!token_need(p, T_CLOSE, NULL) || !node_add(p, n, body(p, ends))) {
        return NULL;
    }
    return skip_tag(p) ? n : NULL;
}

static Node *parse_filter_block(Parser *p)
{
    static const char *const ends[] = {"endfilter", NULL};
    Node *n = node_new(p, N_WRITE_TEXT, token_now(p)->line), *filters = parse_filters(p, NULL);

    if (!filters || !token_need(p, T_CLOSE, NULL) || !node_add(p, n, body(p, ends)))
        return NULL;
    node_add(p, n, filters);
    return skip_tag(p) ? n : NULL;
}

/* {% generation %} marks the assistant's text for training; here it is a scope. */
static Node *parse_generation(Parser *p)
{
    static const char *const ends[] = {"endgeneration", NULL};
    Node *n = node_new(p, N_WRITE_TEXT, token_now(p)->line);

    if (!token_need(p, T_CLOSE, NULL) || !node_add(p, n, body(p, ends)))
        return NULL;
    return skip_tag(p) ? n : NULL;
}

static Node *parse_macro(Parser *p)
{
    static const char *const ends[] = {"endmacro", NULL};
    Node *n = node_new(p, N_MACRO, token_now(p)->line);
    Nodes params = {0};

    n->text = token_now(p)->text;
    n->n_text = token_now(p)->n;
    if (!token_need(p, T_NAME, NULL) || !token_need(p, T_OPERATOR, "("))
        return NULL;
    while (!token_take(p, T_OPERATOR, ")")) {
        Node *param = node_new(p, N_NAMED, token_now(p)->line);

        if (params.n && !token_need(p, T_OPERATOR, ","))
            return NULL;
        param->text = token_now(p)->text;
        param->n_text = token_now(p)->n;
        if (!token_need(p, T_NAME, NULL) ||
            (token_take(p, T_OPERATOR, "=") && !node_add(p, param, parse_expression(p))))
            return NULL;
        *arena_push(p->keep, params) = param;
    }
    if (!token_need(p, T_CLOSE, NULL) || !node_add(p, n, body(p, ends)))
        return NULL;
    for (size_t i = 0; i < params.n; i++)
        node_add(p, n, params.at[i]);
    return skip_tag(p) ? n : NULL;
}

static Node *parse_word(Parser *p, NodeKind kind)
{
    Node *n = node_new(p, kind, token_now(p)->line);

    return token_need(p, T_CLOSE, NULL) ? n : NULL;
}

/* Behind "{%". */
static Node *statement(Parser *p)
{
    Node *n = NULL;

    if (token_take(p, T_NAME, "if"))
        n = parse_if(p);
    else if (token_take(p, T_NAME, "for"))
        n = parse_for(p);
    else if (token_take(p, T_NAME, "set"))
        n = parse_set(p);
    else if (token_take(p, T_NAME, "macro"))
        n = parse_macro(p);
    else if (token_take(p, T_NAME, "filter"))
        n = parse_filter_block(p);
    else if (token_take(p, T_NAME, "generation"))
        n = parse_generation(p);
    else if (token_take(p, T_NAME, "break"))
        n = parse_word(p, N_BREAK);
    else if (token_take(p, T_NAME, "continue"))
        n = parse_word(p, N_CONTINUE);
    else
        parse_fail(p, "a tag that is not supported");
    return n;
}

static Node *print(Parser *p)
{
    Node *n = node_new(p, N_PRINT, token_now(p)->line);

    return node_add(p, n, parse_tuple(p, true, false)) && token_need(p, T_CLOSE, NULL) ? n : NULL;
}

/* Up to one of the tags `ends`, which stays. */
static Node *body(Parser *p, const char *const *ends)
{
    Node *n = node_new(p, N_BODY, token_now(p)->line), *next;

    if (!parse_deeper(p))
        return NULL;
    for (;;) {
        for (size_t i = 0; ends[i]; i++)
            if (at_tag(p, ends[i])) {
                p->deep--;
                return n;
            }
        if (token_is(p, T_END, NULL)) {
            if (ends[0])
                parse_fail(p, "a block is not closed");
            p->deep--;
            return ends[0] ? NULL : n;
        }
        if (token_is(p, T_DATA, NULL)) {
            next = node_new(p, N_DATA, token_now(p)->line);
            next->text = token_now(p)->text;
            next->n_text = token_now(p)->n;
            p->at++;
        } else if (token_take(p, T_PRINT, NULL)) {
            next = print(p);
        } else {
            p->at++; /* {% */
            next = statement(p);
        }
        if (!node_add(p, n, next))
            return NULL;
    }
}

Node *parse_template(Parser *p)
{
    static const char *const none[] = {NULL};

    return body(p, none);
}
