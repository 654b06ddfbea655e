/* read_form.c - the lines of forms.def, and those of a contract that say which forms it writes and in which order it adds. */
#include "reader.h"

#include <stdlib.h>
#include <string.h>

bool read_form(Reader *r)
{
    const char *name = reader_name(r);
    Form *f;

    if (!name)
        return reader_fail(r, "name of the form");
    if (r->c)
        return diag_error(r->d, r->loc, "contract: forms stand before the first kernel line");
    for (size_t i = 0; i < r->forms.n; i++)
        if (strcmp(r->forms.at[i].name, name) == 0)
            return diag_error(r->d, r->loc, "contract: form %s is given twice", name);
    if (r->forms.n == CONTRACT_MAX_FORMS)
        return diag_error(r->d, r->loc, "contract: there are more than %d forms", CONTRACT_MAX_FORMS);
    f = arena_push(r->keep, r->forms);
    *f = (Form){.name = name, .loc = r->loc};
    return true;
}

/* The form that the last `form` line began; NULL: there is none, and r->d says so. */
static Form *last_form(Reader *r)
{
    if (!r->c && r->forms.n > 1)
        return &r->forms.at[r->forms.n - 1];
    diag_error(r->d, r->loc, "contract: the line belongs to a form: //@ form NAME");
    return NULL;
}

/* A form of quantised weights, which the compiler writes. */
bool read_packed(Reader *r)
{
    Form *f = last_form(r);

    if (!f)
        return false;
    f->packed = true;
    return (reader_accept(r, "16") && !*r->at) || reader_fail(r, "16, the rows of a tile");
}

static bool lookup_size(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    static const char *const names[] = {"ROWS", "COLUMNS", "PARAM"};
    const int64_t *sizes = user;

    *kind = sizes ? EXPR_CONSTANT : EXPR_VARIABLE;
    for (size_t i = 0; i < LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *value = sizes ? sizes[i] : 0;
            return true;
        }
    return false;
}

bool form_bytes(const char *expression, int64_t rows, int64_t columns, int64_t param, int64_t *bytes)
{
    int64_t sizes[] = {rows, columns, param};
    Expr e;

    return expr_parse(expression, lookup_size, sizes, &e, NULL) == FTX_OK &&
           expr_run(e.words, e.n, NULL, 0, bytes, NULL) == FTX_OK && *bytes >= 0;
}

bool read_instead(Reader *r)
{
    const char *at = r->at;
    Form *f = last_form(r);
    int64_t bytes;

    if (!f)
        return false;
    f->instead = reader_text(r, "");
    if (form_bytes(f->instead, 0, 0, 1, &bytes) && bytes >= 1 && bytes <= 16)
        return true;
    r->at = at;
    return reader_fail(r, "1 to 16 bytes, or so many times PARAM");
}

bool read_companion(Reader *r)
{
    Form *f = last_form(r);
    const bool is_named = f && reader_accept(r, "$");
    FtxError err = {0};
    Companion *c;

    if (!f)
        return false;
    c = arena_push(r->keep, f->companions);
    *c = (Companion){.name = reader_name(r), .named = -1};
    if (!c->name)
        return reader_fail(r, "name of the companion");
    if (is_named) {
        c->named = reader_named(c->name);
        return c->named >= 0 ||
               diag_error(r->d, r->loc, "contract: runtime/artifact/named.def has no buffer $%s", c->name);
    }
    c->bytes = reader_text(r, "");
    return expr_parse(c->bytes, lookup_size, NULL, &(Expr){0}, &err) == FTX_OK ||
           diag_error(r->d, r->loc, "contract: %s", err.text);
}

/* y as FORM number */
bool read_gives(Reader *r)
{
    GivesLine *g = arena_push(r->keep, r->c->gives);
    const char *s = reader_name(r);

    g->arg = s ? reader_arg(r->c, s) : -1;
    if (g->arg < 0 || !r->c->args.at[g->arg].out || r->c->args.at[g->arg].of >= 0 || r->c->args.at[g->arg].named >= 0)
        return reader_fail(r, "output");
    if (!reader_accept(r, "as ") || !reader_form(r, &g->form) || !g->form)
        return reader_fail(r, "as FORM");
    for (size_t i = 0; i + 1 < r->c->gives.n; i++)
        if (r->c->gives.at[i].form == g->form)
            return diag_error(r->d, r->loc, "contract: %s is given twice as %s", s, r->forms.at[g->form].name);
    g->param = (NamedText){"gives", reader_text(r, ""), r->loc};
    r->c->no_plain |= r->forms.at[g->form].instead != NULL;
    return *g->param.text || reader_fail(r, "number of the form");
}

/* OP = WORD number */
bool read_sums(Reader *r)
{
    const char *op = reader_name(r);
    SumsLine line = {.op = op ? ir_op_parse(op) : OP_NONE};

    if (!line.op)
        return reader_fail(r, "op");
    for (size_t i = 0; i < r->c->sums.n; i++)
        if (r->c->sums.at[i].op == line.op)
            return diag_error(r->d, r->loc, "contract: the order of %s is given twice", op);
    if (r->c->sums.n == CONTRACT_MAX_SUMS)
        return diag_error(r->d, r->loc, "contract: there are more than %d sums lines", CONTRACT_MAX_SUMS);
    if (!reader_accept(r, "=") || !(line.order.name = reader_name(r)))
        return reader_fail(r, "= WORD number");
    line.order.loc = r->loc;
    line.order.text = reader_text(r, "");
    *(SumsLine *)arena_push(r->keep, r->c->sums) = line;
    return *line.order.text || reader_fail(r, "number of the order");
}
