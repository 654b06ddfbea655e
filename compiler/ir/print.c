/* print.c - a graph as text; parse.c reads it back. */
#include "ir.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_string(const char *s, FILE *out)
{
    fputc('"', out);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\x%02x", (unsigned char)*s);
        else
            fputc(*s, out);
    }
    fputc('"', out);
}

/* With as few digits as read back as the same number, 15 to 17. */
static void print_number(double f, FILE *out)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, f);
        if (strtod(text, NULL) == f)
            break;
    }
    fputs(text, out);
}

static void print_attrs(const Value *v, FILE *out)
{
    for (uint32_t i = 0; i < v->n_attrs; i++) {
        const Attr *a = &v->attrs[i];

        fprintf(out, "%s%s=", i ? " " : " {", a->name);
        if (a->kind == ATTR_INT)
            fprintf(out, "%lld", (long long)a->i);
        else if (a->kind == ATTR_FLOAT)
            print_number(a->f, out);
        else
            print_string(a->s, out);
    }
    if (v->n_attrs)
        fputc('}', out);
}

static void print_args(const Value *v, FILE *out)
{
    char name[16];
    bool optional;

    for (int i = 0; i < IR_MAX_ARGS && (v->args[i] || ir_op_arg(v->op, i, name, &optional)); i++) {
        if (v->args[i])
            fprintf(out, " %%%u", v->args[i]);
        else
            fputs(" -", out);
    }
}

void ir_print(const Graph *g, FILE *out)
{
    const Limits *l = &g->limits;

    fputs("graph ", out);
    print_string(g->name, out);
    fprintf(out,
            "\nlimits sequences=%lld context=%lld tokens=%lld kv_block=%lld kv_pages=%lld logit_bias=%lld"
            " end_ids=%lld",
            (long long)l->sequences, (long long)l->context, (long long)l->tokens, (long long)l->kv_block,
            (long long)l->kv_pages, (long long)l->logit_bias, (long long)l->end_ids);
    if (l->bad_words)
        fprintf(out, " bad_words=%lld", (long long)l->bad_words);
    if (l->source)
        fprintf(out, " source=%lld sources=%lld", (long long)l->source, (long long)l->sources);
    if (l->beams)
        fprintf(out, " beams=%lld", (long long)l->beams);
    if (l->snapshots)
        fprintf(out, " snapshots=%lld", (long long)l->snapshots);
    if (l->ranks > 1)
        fprintf(out, " ranks=%lld", (long long)l->ranks);
    fputc('\n', out);
    if (g->kind)
        fprintf(out, "kind %s\n", g->kind == FTX_MODEL_ENCODER ? "encoder" : "seq2seq");
    if (g->facts)
        fprintf(out, "facts%s%s\n", g->facts & IR_CLEAN ? " clean" : "", g->facts & IR_PRECISE ? " precise" : "");
    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);

        fprintf(out, "%%%u = %s", id, ir_op_name(v->op));
        print_args(v, out);
        print_attrs(v, out);
        fprintf(out, " : %s %s", ir_shape_text(g->scratch, v->shape), dtype_name(v->type));
        if (v->loc.file) {
            fputs("  ; ", out);
            print_string(v->loc.file, out);
            fprintf(out, ":%d", v->loc.line);
        }
        fputc('\n', out);
    }
    if (g->output)
        fprintf(out, "output %%%u\n", g->output);
    if (g->pooled)
        fprintf(out, "pooled %%%u\n", g->pooled);
    if (g->states)
        fprintf(out, "states %%%u\n", g->states);
    if (g->entry)
        fprintf(out, "entry %%%u\n", g->entry);
}
