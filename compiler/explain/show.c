/* show.c - `ftxc show FILE.ftx`: the content of an artifact as text. */
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "../../runtime/base/dtype.h"

/* --- the model ------------------------------------------------------------------------------- */

/* The decoding settings that are not at the value which turns them off, from runtime/decode.def. */
static void show_decode(const FtxFacts *f, FILE *out)
{
    static const char *const early[] = {"false", "true", "never"}; /* FtxEarly */
    const FtxDecode *d = &f->decode;

    fprintf(out, "  decoding     %s", d->beams > 1 ? "beam search" : d->temperature > 0 ? "sampling" : "greedy");
#define SHOW_COUNT(name) fprintf(out, ", " #name " %d", d->name)
#define SHOW_NUMBER(name) fprintf(out, ", " #name " %g", (double)d->name)
#define SHOW_EARLY(name) fprintf(out, ", " #name " %s", early[d->name])
#define DECODE(name, type, low, high, missing, ...) \
    if ((double)d->name != (double)(missing)) \
        SHOW_##type(name);
#include "../../runtime/decode.def"
#undef DECODE
    fprintf(out, "\n               compiled for top_k up to %d, beams up to %u\n", d->max_top_k,
            f->beams > 1 ? f->beams : 1);
}

/* How a model that generates text does so. */
static void show_generation(const Artifact *a, FILE *out)
{
    const FtxFacts *f = a->facts;

    fprintf(out, "               %u logit biases, %u end ids and %u ids of bad words a request\n", f->logit_bias,
            f->end_ids, f->bad_words - a->n_bad_words);
    show_decode(f, out);
    fprintf(out, "  end ids      ");
    for (uint32_t i = 0; i < f->n_ends; i++)
        fprintf(out, "%s%d", i ? ", " : "", f->ends[i]);
    if (f->bos >= 0)
        fprintf(out, "%sbegins with %d\n", f->n_ends ? "; " : "", f->bos);
    else
        fprintf(out, "%s\n", f->n_ends ? "" : "none");
    for (uint32_t i = 0; i < a->n_bad_words; i++) { /* the last id of each is ~id */
        const int32_t id = a->bad_words[i];

        fprintf(out, "%s%d%s", i ? "" : "  bad words    ", id < 0 ? ~id : id,
                i + 1 == a->n_bad_words ? "\n"
                : id < 0                ? "; "
                                        : " ");
    }
}

/* Inputs and outputs of an encoder. */
static void show_vectors(const Artifact *a, FILE *out)
{
    const FtxFacts *f = a->facts;
    const char *label = artifact_string(a, f->labels);

    fprintf(out, "  vectors      %u numbers a token", f->hidden);
    if (f->pooled)
        fprintf(out, ", %u a text (pooled)", f->pooled);
    fprintf(out, f->input ? "; input: ids or hidden states of %u\n" : "; input: ids\n", f->input);
    for (uint32_t i = 0; i < f->n_labels && *label; i++) {
        const int n = (int)strcspn(label, "\n");

        fprintf(out, "%s%.*s%s", i ? ", " : "  labels       ", n, label, i + 1 < f->n_labels ? "" : "\n");
        label += n + (label[n] != '\0');
    }
}

static void show_states(const FtxFacts *f, FILE *out)
{
    if (f->states)
        fprintf(out, "  states       %u numbers a token, for requests that ask for them\n", f->states);
}

static void show_model(const Artifact *a, const char *path, FILE *out)
{
    const FtxFacts *f = a->facts;

    fprintf(out, "%s: %s, format %u, written by ftxc %u.%u\n\n", path, window_bytes(a->map.bytes), a->header->format,
            a->header->version_major, a->header->version_minor);
    fprintf(out, "  model        %s: %s parameters, %u layers, hidden %u, vocab %u\n", artifact_string(a, f->name),
            window_count(f->parameters), f->layers, f->hidden, f->vocab);
    if (f->heads)
        fprintf(out, "  attention    %u heads\n", f->heads);
    fprintf(out, "  limits       %u sequences, context %u, %u tokens a step", f->sequences, f->context, f->tokens);
    if (f->kv_pages)
        fprintf(out, "; at most %u KV pages of %u tokens", f->kv_pages, f->kv_block);
    fputc('\n', out);
    if (f->kind == FTX_MODEL_ENCODER)
        show_vectors(a, out);
    else
        show_generation(a, out);
    show_states(f, out);
    fprintf(out, "  tokenizer    %s\n", a->tokenizer ? window_bytes(a->tokenizer_bytes) : "none: prompts must be ids");
    fprintf(out, "  weights      %s%s%s\n", window_bytes(f->weight_bytes),
            f->sidecar       ? " in "
            : a->weight_data ? ""
                             : ", not stored (run and bench need --random-weights)",
            f->sidecar ? artifact_string(a, f->sidecar) : "");
    for (const char *line = a->build, *end; *line; line = *end ? end + 1 : end) {
        end = strchr(line, '\n');
        end = end ? end : line + strlen(line);
        fprintf(out, "  %-12s %.*s\n", line == a->build ? "build" : "", (int)(end - line), line);
    }
}

static void show_sections(const Artifact *a, FILE *out)
{
    fprintf(out, "\nsections\n       offset       bytes  kind\n");
    for (uint32_t i = 0; i < a->header->sections; i++) {
        const FtxSection *s = &a->sections[i];
        const char *plan = window_plan(a, s);

        fprintf(out, "   %10s  %10s  %s%s%s\n", window_bytes(s->offset), window_bytes(s->bytes),
                artifact_section_name(s->kind), *plan ? " of " : "", plan);
    }
}

static uint64_t weight_elements(const FtxWeight *w)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < w->rank; i++)
        n *= w->dim[i];
    return n ? n : 1;
}

static void show_weights(const Artifact *a, FILE *out)
{
    uint64_t bytes = 0, elements = 0;

    fprintf(out, "\nweights\n       offset       bytes  type   bits  shape            kind    name\n");
    for (uint32_t i = 0; i < a->n_weights; i++) {
        const FtxWeight *w = &a->weights[i];

        fprintf(out, "   %10s  %10s  %-4s %6.2f  %-16s %-7s %s\n", window_bytes(w->offset), window_bytes(w->bytes),
                dtype_name((DType)w->type), 8.0 * (double)w->bytes / (double)weight_elements(w), window_shape(w),
                window_weight_kind(w->kind), artifact_string(a, w->name));
        bytes += w->kind == FTX_WEIGHT_TABLE ? 0 : w->bytes;
        elements += w->kind == FTX_WEIGHT_TABLE ? 0 : weight_elements(w);
    }
    if (elements)
        fprintf(out, "   %.2f bits a weight, scales included, computed tables not\n",
                8.0 * (double)bytes / (double)elements);
}

/* --- plans ----------------------------------------------------------------------------------- */

/* How many launches from `at` on belong to the same layer; 0: `at` is not in a layer. */
static uint32_t layer_launches(const Artifact *a, const ArtifactPlan *p, const FtxProgram *g, uint32_t at)
{
    const FtxLaunch *l = p->launches + g->first_launch;
    const char *rest;
    const int layer = artifact_layer(artifact_string(a, l[at].label), &rest);
    uint32_t n = 0;

    while (layer >= 0 && at + n < g->n_launches && artifact_layer(artifact_string(a, l[at + n].label), &rest) == layer)
        n++;
    return n;
}

static bool same_layer(const Artifact *a, const ArtifactPlan *p, const FtxProgram *g, uint32_t x, uint32_t y,
                       uint32_t n)
{
    const FtxLaunch *l = p->launches + g->first_launch;

    for (uint32_t i = 0; i < n; i++) {
        const char *s, *t;

        artifact_layer(artifact_string(a, l[x + i].label), &s);
        artifact_layer(artifact_string(a, l[y + i].label), &t);
        if (l[x + i].kernel != l[y + i].kernel || strcmp(s, t) != 0)
            return false;
    }
    return true;
}

/* Prints the launches; layers that equal the one before are only counted. */
static void show_launches(const Artifact *a, const ArtifactPlan *p, const FtxProgram *g, FILE *out)
{
    for (uint32_t i = 0; i < g->n_launches;) {
        const uint32_t n = layer_launches(a, p, g, i);
        uint32_t next = i + (n ? n : 1), alike = 0;

        for (uint32_t k = i; k < next; k++) {
            const FtxLaunch *l = &p->launches[g->first_launch + k];

            fprintf(out, "      %4u  %-36s %s\n", k, artifact_string(a, l->label),
                    artifact_string(a, p->kernels[l->kernel].entry));
        }
        while (n && next < g->n_launches && layer_launches(a, p, g, next) == n && same_layer(a, p, g, i, next, n)) {
            next += n;
            alike++;
        }
        if (alike)
            fprintf(out, "            %u more layer%s like this\n", alike, alike == 1 ? "" : "s");
        i = next;
    }
}

/* Caches of neighbouring layers that are alike share a line. */
static void show_caches(const ArtifactPlan *p, FILE *out)
{
    for (uint32_t i = 0, n; i < p->n_caches; i += n) {
        const FtxCache *c = &p->caches[i];

        for (n = 1; i + n < p->n_caches && memcmp(c, c + n, sizeof *c) == 0;)
            n++;
        if (c->recurrent) {
            fprintf(out, "  %u recurrent state%s: %u head%s of %u x %u, %s, for each sequence\n", n, n == 1 ? "" : "s",
                    c->kv_heads, c->kv_heads == 1 ? "" : "s", c->k_dim, c->v_dim, dtype_name((DType)c->type));
            continue;
        }
        fprintf(out, "  %u %scache%s: %u heads of %u", n, c->source ? "source " : "", n == 1 ? "" : "s", c->kv_heads,
                c->k_dim);
        if (c->inside)
            fprintf(out, " (values are the first %u)", c->v_dim);
        else if (c->v_dim != c->k_dim)
            fprintf(out, " (values %u)", c->v_dim);
        fprintf(out, ", %s", dtype_name((DType)c->type));
        if (c->source)
            fprintf(out, ", sources of %u tokens", c->source);
        if (c->window)
            fprintf(out, ", window %u", c->window);
        fputc('\n', out);
    }
    if (p->head->named_bytes[FTX_NAMED_snapshots])
        fprintf(out, "  snapshots of recurrent states: %s\n", window_bytes(p->head->named_bytes[FTX_NAMED_snapshots]));
}

static void show_plan(const Artifact *a, const ArtifactPlan *p, bool all, FILE *out)
{
    const uint64_t *bytes = p->head->space_bytes, page = bytes[FTX_SPACE_PAGES];

    fprintf(out, "\nplan for %s: weights %s, compute %s%s\n", artifact_string(a, p->head->name),
            dtype_name((DType)p->head->weight_type), dtype_name((DType)p->head->compute_type),
            a->facts->fixed_sums ? ", one order of sums in all programs" : "");
    fprintf(out, "  engine %s: state %s, workspace %s (the lower bound %s), input %s, output %s\n",
            window_bytes(bytes[FTX_SPACE_STATE] + bytes[FTX_SPACE_WORK] + bytes[FTX_SPACE_IO] + bytes[FTX_SPACE_OUT]),
            window_bytes(bytes[FTX_SPACE_STATE]), window_bytes(bytes[FTX_SPACE_WORK]),
            window_bytes(p->head->lower_bound), window_bytes(bytes[FTX_SPACE_IO]), window_bytes(bytes[FTX_SPACE_OUT]));
    if (page)
        fprintf(out, "  KV cache: %s a token, %s a page; all %u pages %s\n", window_bytes(page / a->facts->kv_block),
                window_bytes(page), a->facts->kv_pages, window_bytes(page * a->facts->kv_pages));
    show_caches(p, out);
    for (uint32_t i = 0; i < p->n_programs; i++) {
        fprintf(out, "    %-32s %4u launches, workspace %s\n", window_program(&p->programs[i]),
                p->programs[i].n_launches, window_bytes(p->programs[i].work_bytes));
        if (all || i == 0)
            show_launches(a, p, &p->programs[i], out);
    }
}

/* --- kernels --------------------------------------------------------------------------------- */

/* Instructions by kind, as they stand in the code, not as they are executed. */
static void show_code(const Resources *r, FILE *out)
{
    fprintf(out, "         %u instructions:", r->instructions);
    for (int c = 0; c < CODE_COUNT; c++)
        if (r->code[c])
            fprintf(out, " %s %u", code_class_name((CodeClass)c), r->code[c]);
    fprintf(out, "\n");
}

static void show_classes(FILE *out)
{
    fprintf(out, "\nkinds of instructions\n");
#define C(id, name, what) fprintf(out, "  %-8s %s\n", name, what);
    CODE_CLASSES(C)
#undef C
}

static void show_kernels(const Artifact *a, const ArtifactPlan *p, FILE *out)
{
    static const char *const kinds[] = {"", "cpu", "cuda", "cublasLt"};

    fprintf(out,
            "\nkernels of %s\n  block   regs   stack  spills  barriers    smem (static + dynamic)  code        entry\n",
            artifact_string(a, p->head->name));
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const FtxKernel *k = &p->kernels[i];
        Resources r;

        if (k->kind == FTX_KERNEL_CUDA && window_resources(a, p, k, &r))
            fprintf(out, "  %5u  %5u  %6u  %6u  %8u  %6u + %-14u    %-10s  ", k->block, r.registers, r.stack_bytes,
                    r.spill_bytes, r.barriers, r.static_smem, k->smem, window_bytes(k->code_bytes));
        else if (k->kind == FTX_KERNEL_CUDA)
            fprintf(out, "  %5u      -       -       -         -       - + %-14u    %-10s  ", k->block, k->smem,
                    window_bytes(k->code_bytes));
        else
            fprintf(out, "  %-79s", kinds[k->kind]);
        fprintf(out, "%s%s\n", artifact_string(a, k->entry), k->flags & FTX_KERNEL_OVERLAP ? "  (overlaps)" : "");
        if (k->kind == FTX_KERNEL_CUDA && window_resources(a, p, k, &r))
            show_code(&r, out);
    }
}

FtxStatus explain_show(const char *path, const ShowOptions *o, FILE *out, FtxError *err)
{
    Artifact a;
    FtxStatus s = artifact_open(path, &a, err);
    bool coded = false;

    if (s)
        return s;
    if (o->verify && (s = artifact_verify(&a, err))) {
        artifact_close(&a);
        return ftx_context(err, s, "%s", path);
    }
    if (o->json) {
        s = show_json(&a, path, o->verify, out, err);
    } else {
        show_model(&a, path, out);
        if (!o->memory && !o->kernels) {
            show_sections(&a, out);
            show_weights(&a, out);
        }
        for (uint32_t i = 0; i < a.n_plans; i++) {
            if (!o->memory)
                show_plan(&a, &a.plans[i], o->kernels, out);
            if (o->kernels)
                show_kernels(&a, &a.plans[i], out);
            if (o->memory)
                show_memory(&a, &a.plans[i], out);
            coded |= a.plans[i].cubin != NULL;
        }
        if (o->kernels && coded)
            show_classes(out);
        if (o->verify)
            fprintf(out, "\nall checksums are right, that of the weights too\n");
    }
    artifact_close(&a);
    return s;
}
