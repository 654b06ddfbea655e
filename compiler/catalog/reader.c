/* reader.c - words, names, expressions and labels of one `//@` line. */
#include "reader.h"

#include <ctype.h>
#include <string.h>

bool reader_fail(Reader *r, const char *what)
{
    return diag_error(r->d, r->loc, "contract: expected %s, found \"%.30s\"; the line is: %s", what, r->at, r->form);
}

void reader_spaces(Reader *r)
{
    r->at += strspn(r->at, " \t");
}

bool reader_accept(Reader *r, const char *token)
{
    reader_spaces(r);
    if (strncmp(r->at, token, strlen(token)) != 0)
        return false;
    r->at += strlen(token);
    return true;
}

const char *reader_name(Reader *r)
{
    size_t n = 0;

    reader_spaces(r);
    while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')
        n++;
    if (!n || isdigit((unsigned char)r->at[0]))
        return NULL;
    r->at += n;
    return arena_strndup(r->keep, r->at - n, n);
}

const char *reader_text(Reader *r, const char *ends)
{
    const char *from, *to;
    int depth = 0;

    reader_spaces(r);
    for (from = r->at; *r->at && (depth || !strchr(ends, *r->at)); r->at++)
        depth += *r->at == '(' ? 1 : *r->at == ')' && depth ? -1 : 0;
    for (to = r->at; to > from && isspace((unsigned char)to[-1]); to--)
        ;
    return arena_strndup(r->keep, from, (size_t)(to - from));
}

int reader_named(const char *s)
{
    static const char *const names[] = {
#define NAMED(name, space, bytes, what) #name,
#include "../../runtime/artifact/named.def"
#undef NAMED
    };

    for (size_t i = 0; i < LEN(names); i++)
        if (strcmp(names[i], s) == 0)
            return (int)i;
    return -1;
}

bool reader_form(Reader *r, uint32_t *form)
{
    const char *s = reader_name(r);

    for (*form = 0; s && *form < r->forms.n; ++*form)
        if (strcmp(r->forms.at[*form].name, s) == 0)
            return true;
    return s ? diag_error(r->d, r->loc, "contract: compiler/ir/forms.def has no form %s", s) : reader_fail(r, "form");
}

int reader_arg(const Contract *c, const char *s)
{
    for (size_t i = 0; i < c->args.n; i++)
        if (strcmp(c->args.at[i].name, s) == 0)
            return (int)i;
    return -1;
}

ContractConst *reader_const(Contract *c, const char *s)
{
    for (size_t i = 0; i < c->consts.n; i++)
        if (strcmp(c->consts.at[i].value.name, s) == 0)
            return &c->consts.at[i];
    return NULL;
}

bool reader_const_kind(Reader *r, const char *text, ConstKind *kind)
{
    const char *dot = strchr(text, '.');
    char op[24];
    AttrRule rule;

    *kind = strncmp(text, "type(", 5) == 0 && strcspn(text, ")") == strlen(text) - 1 ? CONST_TYPE : CONST_INT;
    if (dtype_parse(text))
        *kind = CONST_TYPE;
    if (!dot || (size_t)(dot - text) >= sizeof op || text[strspn(text, "abcdefghijklmnopqrstuvwxyz_.")])
        return true;
    memcpy(op, text, (size_t)(dot - text));
    op[dot - text] = 0;
    if (!ir_op_parse(op) || !ir_op_attr_named(ir_op_parse(op), dot + 1, &rule))
        return diag_error(r->d, r->loc, "contract: %s is not an attribute of an op; `ftxc ops` lists them", text);
    if (rule.kind == ATTR_FLOAT)
        *kind = CONST_FLOAT;
    return true;
}

/* --- labels: `NAME, NAME:` before the keyword ----------------------------------------------------- */

static size_t name_length(const char *at)
{
    size_t n = 0;

    while (isalnum((unsigned char)at[n]) || at[n] == '_')
        n++;
    return n;
}

const char *reader_label(const char *at, const char **name, size_t *n)
{
    *name = at + strspn(at, " \t");
    *n = name_length(*name);
    at = *name + *n;
    return *n && (*at == ':' || *at == ',') ? at : NULL;
}

const char *reader_line_of(const char *line, const char *variant)
{
    bool named = false;
    const char *name, *end;
    size_t n;

    for (const char *at = line; (end = reader_label(at, &name, &n)) != NULL; at = end + 1) {
        named |= variant && strlen(variant) == n && strncmp(variant, name, n) == 0;
        if (*end == ':')
            return named ? end + 1 : NULL;
    }
    return line;
}

const char *catalog_text_line(const char *line, const char *variant)
{
    const char *at = reader_line_of(line + 3, variant);

    at = at ? at + strspn(at, " \t") : "";
    return strncmp(at, "text ", 5) == 0 ? at + 5 : NULL;
}
