/* read_match.c - the lines of a contract that are compared with the graph: args, folded, match. */
#include "reader.h"

#include <string.h>

/* --- args ------------------------------------------------------------------------------------ */

/* FORM(x), or FORM.NAME(x) where the form has several: a companion of x, `name` being the word before the bracket. */
static bool read_companion_of(Reader *r, ContractArg *a, const char *name)
{
    const char *part = NULL;
    const Form *f;

    while (a->form < r->forms.n && strcmp(r->forms.at[a->form].name, name) != 0)
        a->form++;
    if (a->form == r->forms.n)
        return diag_error(r->d, r->loc, "contract: compiler/ir/forms.def has no form %s", name);
    f = &r->forms.at[a->form];
    if (reader_accept(r, ".") && !(part = reader_name(r)))
        return reader_fail(r, "companion");
    while (a->companion < f->companions.n && part && strcmp(f->companions.at[a->companion].name, part) != 0)
        a->companion++;
    if (a->companion == f->companions.n || f->companions.at[a->companion].named >= 0)
        return diag_error(r->d, r->loc, "contract: the form %s has no companion%s%s in the workspace", name,
                          part ? " " : "", part ? part : "");
    a->type = DT_FP32;
    return reader_accept(r, "(") && (a->of_name = reader_name(r)) != NULL && reader_accept(r, ")")
               ? true
               : reader_fail(r, "FORM(argument)");
}

static bool read_arg(Reader *r, bool out)
{
    const bool is_named = reader_accept(r, "$");
    ContractArg *a;
    const char *s = reader_name(r);

    if (!s)
        return reader_fail(r, "argument");
    if (r->c->args.n == CONTRACT_MAX_ARGS || (!is_named && reader_arg(r->c, s) >= 0))
        return diag_error(r->d, r->loc, "contract: argument %s is given twice, or there are more than %d", s,
                          CONTRACT_MAX_ARGS);
    a = arena_push(r->keep, r->c->args);
    *a = (ContractArg){.name = s, .named = is_named ? reader_named(s) : -1, .out = out, .of = -1, .loc = r->loc};
    if (is_named && a->named < 0)
        return diag_error(r->d, r->loc, "contract: runtime/artifact/named.def has no buffer $%s", s);
    if (*r->at == '[') {
        r->at++;
        for (a->shaped = true; !reader_accept(r, "]");) {
            if (a->rank == IR_MAX_RANK)
                return reader_fail(r, "]");
            a->dims[a->rank++] = reader_text(r, ",]");
            if (!*a->dims[a->rank - 1])
                return reader_fail(r, "size");
            reader_accept(r, ",");
        }
    }
    if (*r->at == '?')
        r->at++;
    if (*r->at != ':')
        return true;
    r->at++;
    s = reader_name(r);
    if (s && strcmp(s, "type") == 0 && reader_accept(r, "(")) {
        a->type_of = reader_name(r);
        return (a->type_of && reader_accept(r, ")")) || reader_fail(r, "type(argument)");
    }
    if (s && (*r->at == '(' || *r->at == '.'))
        return read_companion_of(r, a, s);
    a->type = s ? dtype_parse(s) : DT_NONE;
    return a->type || reader_fail(r, "type");
}

bool read_args(Reader *r)
{
    bool out = false;

    for (reader_spaces(r); *r->at; reader_spaces(r)) {
        if (reader_accept(r, "->"))
            out = true;
        else if (!read_arg(r, out))
            return false;
    }
    for (size_t i = 0; i < r->c->args.n; i++) {
        const char *of = r->c->args.at[i].type_of;
        const int at = of ? reader_arg(r->c, of) : -1;

        if (of && at < 0)
            return diag_error(r->d, r->loc, "contract: type(%s): the kernel has no such argument", of);
        if (of && r->c->args.at[at].type_of)
            return diag_error(r->d, r->loc, "contract: type(%s): %s itself has the type of another argument, %s", of,
                              of, r->c->args.at[at].type_of);
    }
    for (size_t i = 0; i < r->c->args.n; i++) {
        ContractArg *a = &r->c->args.at[i];

        if (!a->of_name)
            continue;
        a->of = reader_arg(r->c, a->of_name);
        if (a->of < 0 || r->c->args.at[a->of].out != a->out || r->c->args.at[a->of].of_name)
            return diag_error(r->d, r->loc, "contract: %s(%s): no such argument on the same side of ->",
                              r->forms.at[a->form].name, a->of_name);
    }
    r->c->operands = (uint32_t)r->c->args.n;
    return true;
}

/* matrix bias gain shift: the first two are arguments. The others are names that match lines bind; the kernel gets no
 * pointers to them. */
bool read_folded(Reader *r)
{
    Contract *c = r->c;
    int at[4];

    for (int i = 0; i < 4; i++) {
        const char *s = reader_name(r);

        if (!s)
            return reader_fail(r, "matrix bias gain shift");
        if ((reader_arg(c, s) >= 0) != (i < 2) || c->args.n == CONTRACT_MAX_ARGS)
            return diag_error(r->d, r->loc, "contract: folded: %s %s", s,
                              i < 2 ? "is not an argument" : "is an argument already");
        at[i] = i < 2 ? reader_arg(c, s) : (int)c->args.n;
        if (i >= 2)
            *(ContractArg *)arena_push(r->keep, c->args) =
                (ContractArg){.name = s, .named = -1, .of = -1, .type = DT_FP32};
    }
    c->folded.matrix = at[0];
    c->folded.bias = at[1];
    c->folded.gain = at[2];
    c->folded.shift = at[3];
    return true;
}

/* --- match lines ------------------------------------------------------------------------------ */

static const Pattern *read_pattern(Reader *r, int depth)
{
    Pattern *p = arena_new(r->keep, Pattern);
    const char *s = reader_name(r);
    char declared[16];
    bool optional;
    int n = 0;

    if (!s || depth > 8) {
        reader_fail(r, "op or argument");
        return NULL;
    }
    if (depth && strcmp(s, "_") == 0) {
        p->arg = -1;
        p->optional = reader_accept(r, "?");
        return p;
    }
    if (!reader_accept(r, "(")) {
        p->arg = reader_arg(r->c, s);
        p->optional = reader_accept(r, "?");
        p->form_name = r->forms.at[0].name;
        if (p->arg < 0 || r->c->args.at[p->arg].named >= 0 || r->c->args.at[p->arg].of >= 0) {
            diag_error(r->d, r->loc, "contract: %s is not an argument that a match line can bind", s);
            return NULL;
        }
        if (reader_accept(r, ":")) {
            if (!reader_form(r, &p->form))
                return NULL;
            p->form_name = r->forms.at[p->form].name;
        }
        return p;
    }
    p->op = ir_op_parse(s);
    if (!p->op) {
        diag_error(r->d, r->loc, "contract: there is no op %s; `ftxc ops` lists them", s);
        return NULL;
    }
    while (!reader_accept(r, ")")) {
        if (n == IR_MAX_ARGS || !ir_op_arg(p->op, n, declared, &optional)) {
            diag_error(r->d, r->loc, "contract: %s takes %s", s,
                       *ir_op_args(p->op) ? ir_op_args(p->op) : "no arguments");
            return NULL;
        }
        if (optional && reader_accept(r, "-")) {
            n++;
        } else {
            p->sub[n] = read_pattern(r, depth + 1);
            if (!p->sub[n++])
                return NULL;
        }
        if (!reader_accept(r, ",") && *r->at != ')') {
            reader_fail(r, "\",\" or \")\"");
            return NULL;
        }
    }
    for (; ir_op_arg(p->op, n, declared, &optional); n++)
        if (!optional) {
            diag_error(r->d, r->loc, "contract: %s: %s is missing", s, declared);
            return NULL;
        }
    return p;
}

bool read_match(Reader *r)
{
    reader_spaces(r);
    if (strcmp(r->at, "none") == 0)
        return r->c->unmatched = true;

    MatchLine *m = arena_push(r->keep, r->c->matches);
    const bool is_named = reader_accept(r, "$");
    const char *out = reader_name(r);

    m->loc = r->loc;
    if (!out || !reader_accept(r, "="))
        return reader_fail(r, "output =");
    m->out = is_named ? -1 : reader_arg(r->c, out);
    if (m->out >= 0 && (r->c->args.at[m->out].named >= 0 || !r->c->args.at[m->out].out))
        m->out = -1;
    m->root = read_pattern(r, 0);
    if (!m->root)
        return false;
    if (!m->root->op && m->out < 0)
        return diag_error(r->d, r->loc, "contract: a conversion writes its result to an output");
    if (reader_accept(r, "|"))
        for (reader_spaces(r); *r->at; reader_spaces(r)) {
            NamedText *t = arena_push(r->keep, m->consts);
            ContractConst *k;
            ConstKind kind;

            t->loc = r->loc;
            t->name = reader_name(r);
            if (!t->name || !reader_accept(r, "="))
                return reader_fail(r, "CONSTANT=value");
            t->text = reader_text(r, " \t");
            if (!reader_const_kind(r, t->text, &kind))
                return false;
            k = reader_const(r->c, t->name);
            if (k && !k->of_match) {
                if (!k->value.text || strcmp(k->value.text, t->name) != 0)
                    return diag_error(r->d, r->loc, "contract: constant %s is given twice", t->name);
                k->of_match = k->placed = true; /* "NAME: NAME" stood before */
                k->value.text = NULL;
            }
            if (!k) {
                k = arena_push(r->keep, r->c->consts);
                *k = (ContractConst){.value = {t->name, NULL, r->loc}, .of_match = true};
            }
            if (kind != CONST_INT)
                k->kind = kind;
        }
    reader_spaces(r);
    return !*r->at || reader_fail(r, "end of line");
}
