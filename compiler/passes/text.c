/* text.c - the results of a target's stages as text, for --dump and the golden tests. */
#include <inttypes.h>

#include "lower.h"

static void print_number(FILE *out, const Const *c)
{
    if (c->kind == CONST_FLOAT)
        fprintf(out, " %s=%.9g", c->name, c->f);
    else if (c->kind == CONST_TYPE)
        fprintf(out, " %s=%s", c->name, c->i ? dtype_name((DType)c->i) : "0");
    else
        fprintf(out, " %s=%" PRId64, c->name, c->i);
}

static void print_program(FILE *out, const Lower *l, const Program *p)
{
    fprintf(out, "program %s on %s: T at most %" PRId64 ", S at most %" PRId64 "\n", lower_program_name(p, l->scratch),
            l->target.name, p->facts.t_max, p->facts.s_max);
}

void print_select(const Lower *l, FILE *out)
{
    for (size_t i = 0; i < l->programs.n; i++) {
        const Program *p = &l->programs.at[i];

        print_program(out, l, p);
        for (size_t k = 0; k < p->groups.n; k++) {
            const Binding *b = &p->groups.at[k].b;
            const Instance *in = p->groups.at[k].fit.instance;
            bool outs = false;

            fprintf(out, "  group %s (", b->contract->family);
            for (size_t a = 0; a < b->contract->operands; a++) {
                const ContractArg *arg = &b->contract->args.at[a];

                if (arg->out && !outs) {
                    fputs(") -> (", out);
                    outs = true;
                } else if (a) {
                    fputc(' ', out);
                }
                if (arg->named >= 0)
                    fprintf(out, "$%s", arg->name);
                else if (b->arg[a] && arg->of >= 0)
                    fprintf(out, "%s(%%%u)", l->catalog->forms[arg->form].companions.at[arg->companion].name,
                            b->arg[a]);
                else if (b->arg[a])
                    fprintf(out, b->form[a] ? "%%%u:%s" : "%%%u", b->arg[a], l->catalog->forms[b->form[a]].name);
                else
                    fputc('-', out);
            }
            fputs(outs ? ")" : ") -> ()", out);
            for (size_t a = b->contract->operands; a < b->contract->args.n; a++)
                if (b->arg[a])
                    fprintf(out, "%s%%%u", a == b->contract->operands ? " folded " : " ", b->arg[a]);
            fputs(" |", out);
            for (size_t c = 0; c < in->n_consts; c++)
                print_number(out, &in->consts[c]);
            fputc('\n', out);
        }
    }
}

void print_edges(const Lower *l, FILE *out)
{
    for (size_t i = 0; i < l->programs.n; i++) {
        const Program *p = &l->programs.at[i];

        print_program(out, l, p);
        for (size_t k = 0; k < p->groups.n; k++)
            if (p->groups.at[k].b.contract->holds.text)
                fprintf(out, "  group %zu %s: %s\n", k, p->groups.at[k].b.contract->family,
                        p->groups.at[k].fit.holds ? "holds later launches back until the previous step is done"
                                                  : "lets the next launch start at once");
    }
}

void print_layout(const Lower *l, FILE *out)
{
    static const char *const kinds[] = {"matrix", "gain", "bias", "table", "centred"};
    static const char *const scales[] = {"", " with zeros", " with fp32 scales", " with fp32 scales and minima"};
    const Packing *p = l->packing;

    for (size_t i = 0; i < p->weights.n; i++) {
        const PackedWeight *w = &p->weights.at[i];

        fprintf(out, "%12" PRIu64 " %12" PRIu64 "  %-6s %-5s %%%u %s %s", w->offset, w->bytes, kinds[w->kind],
                dtype_name(w->type), w->value, ir_op_name(ir_value(l->g, w->value)->op),
                ir_shape_text(l->scratch, ir_value(l->g, w->value)->shape));
        if (w->fold.gain || w->fold.shift)
            fprintf(out, " folded %%%u", w->fold.gain ? w->fold.gain : w->fold.shift);
        if (w->form_name)
            fprintf(out, " as %s, groups of %lld%s", w->form_name, (long long)w->group, scales[w->scales]);
        fputc('\n', out);
    }
    fprintf(out, "%12" PRIu64 " bytes\n", p->bytes);
}

void print_schedule(const Lower *l, FILE *out)
{
    for (size_t i = 0; i < l->programs.n; i++) {
        const Program *p = &l->programs.at[i];

        print_program(out, l, p);
        for (size_t k = 0; k < p->launches.n; k++) {
            const Launch *launch = &p->launches.at[k];

            fprintf(out, "  %3zu %-48s %s\n", k, launch->label, l->plan->instances.at[launch->instance]->entry);
        }
    }
}

void print_memory(const Lower *l, FILE *out)
{
    static const char *const spaces[FTX_SPACE_COUNT] = {"", "weights", "state", "io", "work", "out", "pages"};
    static const struct {
        const char *name;
        FtxSpace space;
    } named[] = {
#define NAMED(name, space, bytes, what) {#name, FTX_SPACE_##space},
#include "../../runtime/artifact/named.def"
#undef NAMED
    };
    const FtxPlan *h = &l->plan->head;

    for (size_t i = 0; i < LEN(named); i++)
        fprintf(out, "%-5s %12" PRIu64 " %12" PRIu64 "  $%s\n", spaces[named[i].space], h->named[i], h->named_bytes[i],
                named[i].name);
    for (size_t i = 0; i < l->plan->buffers.n; i++) {
        const FtxBuffer *b = &l->plan->buffers.at[i];

        if (b->space != FTX_SPACE_WORK)
            fprintf(out, "%-5s %12" PRIu64 " %12" PRIu64 "  %s\n", spaces[b->space], b->offset, b->bytes,
                    l->plan->strings.at[b->name]);
    }
    for (size_t i = 0; i < l->programs.n; i++) {
        const Program *p = &l->programs.at[i];

        print_program(out, l, p);
        for (size_t k = 0; k < p->buffers.n; k++) {
            const Buffer *b = &p->buffers.at[k];

            fprintf(out, "  %12" PRIu64 " %12" PRIu64 "  launch %u..%u  %s\n", b->offset, b->bytes, b->first, b->last,
                    b->name);
        }
        fprintf(out, "  work %" PRIu64 " bytes, lower bound %" PRIu64 "\n", p->work_bytes, p->lower_bound);
    }
    for (int i = FTX_SPACE_WEIGHTS; i < FTX_SPACE_COUNT; i++)
        fprintf(out, "space %-7s %12" PRIu64 " bytes\n", spaces[i], h->space_bytes[i]);
}
