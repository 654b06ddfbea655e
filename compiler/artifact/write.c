/* write.c - writes the .ftx file that ftx_format.h describes.
 *
 *   header | facts strings spec build tokenizer | plan sections, a target after another
 *          | weight index | weights (4096-aligned) or tables | section table
 *
 * With --exe a program comes first; the artifact begins at the next page, and a trailer says where that is.
 *
 * Everything but the weights is small and built in memory first; weights are streamed into their place. Nothing of the
 * machine or the time is stored, so the same parts give the same bytes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "artifact.h"
#include "../../runtime/base/hash.h"
#include "../../runtime/artifact/trailer.h"

enum { SECTION_ALIGN = 64, WEIGHTS_ALIGN = 4096 };

typedef struct Bytes {
    char *at;
    size_t n, cap;
} Bytes;

typedef struct Piece { /* a section, with its bytes unless they are streamed */
    FtxSection head;
    const void *data;
} Piece;

typedef struct Writer {
    const ArtifactParts *parts;
    Arena *keep;
    struct {
        Piece *at;
        size_t n, cap;
    } pieces;
    Bytes strings;
    uint32_t *slots; /* of the strings: open addressing over hashes, offset + 1; 0 is free */
    size_t n_slots, n_strings;
    uint64_t base; /* of the artifact in its file */
} Writer;

/* --- strings: each once ---------------------------------------------------------------------- */

static void append(Writer *w, Bytes *b, const void *p, size_t bytes)
{
    if (b->n + bytes > b->cap) {
        const size_t cap = (b->n + bytes) * 2 + 256;

        b->at = arena_grow(w->keep, b->at, b->n, cap);
        b->cap = cap;
    }
    if (bytes)
        memcpy(b->at + b->n, p, bytes);
    b->n += bytes;
}

static uint32_t *slot_of(const Writer *w, const char *s)
{
    size_t i = hash64(s, strlen(s)) & (w->n_slots - 1);

    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): a slot is taken by a string that is there */
    while (w->slots[i] && strcmp(w->strings.at + w->slots[i] - 1, s) != 0)
        i = (i + 1) & (w->n_slots - 1);
    return &w->slots[i];
}

static void grow_slots(Writer *w)
{
    w->n_slots = w->n_slots ? w->n_slots * 2 : 1024;
    w->slots = arena_array(w->keep, uint32_t, w->n_slots);
    for (size_t at = 0; at < w->strings.n; at += strlen(w->strings.at + at) + 1)
        *slot_of(w, w->strings.at + at) = (uint32_t)at + 1;
}

static uint32_t string(Writer *w, const char *s)
{
    uint32_t *slot;

    if (w->n_strings * 2 >= w->n_slots)
        grow_slots(w);
    slot = slot_of(w, s ? s : "");
    if (!*slot) {
        *slot = (uint32_t)w->strings.n + 1;
        append(w, &w->strings, s ? s : "", strlen(s ? s : "") + 1);
        w->n_strings++;
    }
    return *slot - 1;
}

/* --- sections -------------------------------------------------------------------------------- */

/* of: the target and variant of a plan; NULL: the section belongs to none. */
static Piece *section(Writer *w, uint32_t kind, const FtxSection *of, const void *data, size_t bytes)
{
    Piece *p = arena_push(w->keep, w->pieces);

    if (of)
        p->head = *of;
    p->head.kind = kind;
    p->head.bytes = bytes;
    p->data = data;
    return p;
}

static void text_section(Writer *w, uint32_t kind, const FtxSection *of, const char *text)
{
    section(w, kind, of, text ? text : "", strlen(text ? text : "") + 1);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Whether some attention sees a prefix whole. */
static bool has_prefix(const Graph *g)
{
    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);

        if (v->op == OP_ATTEND && strcmp(ir_word(v, "scope"), "prefix") == 0)
            return true;
    }
    return false;
}

static FtxFacts *facts_of(Writer *w, const char *sidecar)
{
    const Spec *s = w->parts->spec;
    const Limits *l = &s->graph->limits;
    FtxFacts *f = arena_new(w->keep, FtxFacts);

    f->name = string(w, s->name);
    f->vocab = s->vocab;
    f->hidden = s->hidden;
    f->layers = s->layers;
    f->heads = s->heads;
    f->context = (uint32_t)l->context;
    f->fixed_sums = s->precision.fixed_sums;
    f->whole_prompts = has_prefix(s->graph);
    f->sequences = (uint32_t)l->sequences;
    f->tokens = (uint32_t)l->tokens;
    f->kv_block = (uint32_t)l->kv_block;
    f->kv_pages = (uint32_t)l->kv_pages;
    f->logit_bias = (uint32_t)l->logit_bias;
    f->end_ids = (uint32_t)l->end_ids;
    f->n_ends = s->n_ends;
    memcpy(f->ends, s->ends, sizeof f->ends);
    f->bos = s->bos;
    f->weight_bytes = w->parts->packing->bytes;
    f->sidecar = sidecar ? string(w, base_name(sidecar)) : 0;
    f->positions = s->positions;
    f->parameters = weights_parameters(s->graph, w->keep);
    f->decode = s->decode;
    f->kind = s->graph->kind;
    f->source_context = (uint32_t)l->source;
    f->sources = (uint32_t)l->sources;
    f->beams = (uint32_t)l->beams;
    f->start = s->start;
    f->pad = s->pad;
    f->pooled = s->pooled;
    f->states = s->states;
    f->types = s->types;
    f->source_vocab = s->source_vocab;
    f->input = s->input;
    f->n_labels = s->n_labels;
    f->labels = string(w, s->labels);
    f->scoring = s->scoring;
    f->bad_words = (uint32_t)l->bad_words;
    f->ranks = (uint32_t)ir_ranks(s->graph);
    return f;
}

static void weight_index(Writer *w)
{
    const Packing *p = w->parts->packing;
    const Graph *g = w->parts->spec->graph;
    FtxWeight *index = arena_array(w->keep, FtxWeight, p->weights.n);

    for (size_t i = 0; i < p->weights.n; i++) {
        const PackedWeight *from = &p->weights.at[i];
        const Shape *shape = &ir_value(g, from->value)->shape;
        FtxWeight *to = &index[i];

        to->name = string(w, weights_packed_name(g, from, w->keep));
        to->type = from->type;
        to->rank = shape->rank;
        to->kind = from->kind;
        to->like = from->like;
        for (uint32_t k = 0; k < shape->rank; k++)
            to->dim[k] = (uint64_t)shape->dim[k].n;
        to->offset = from->offset;
        to->bytes = from->bytes;
        if (!from->form_name)
            continue;
        to->form = string(w, from->form_name);
        to->group = (uint32_t)from->group;
        to->scales = from->scales;
    }
    section(w, FTX_SEC_WEIGHT_INDEX, NULL, index, p->weights.n * sizeof *index);
}

/* --- a plan ---------------------------------------------------------------------------------- */

typedef struct Words {
    int64_t *at;
    size_t n, cap;
} Words;

static void put_expr(Writer *w, Words *exprs, const Expr *e, uint32_t where[2])
{
    where[0] = (uint32_t)exprs->n;
    where[1] = e->n;
    for (uint32_t i = 0; i < e->n; i++)
        *arena_push(w->keep, *exprs) = e->words[i];
}

static int64_t const_word(const Const *c)
{
    int64_t bits;

    if (c->kind != CONST_FLOAT)
        return c->i;
    memcpy(&bits, &c->f, sizeof bits);
    return bits;
}

static FtxKernel kernel_of(Writer *w, const Instance *i, Words *consts, Words *exprs)
{
    static const uint32_t kinds[] = {
        [KD_CPU] = FTX_KERNEL_CPU, [KD_CUDA] = FTX_KERNEL_CUDA, [KD_MATMUL] = FTX_KERNEL_MATMUL};
    FtxKernel k = {.kind = kinds[i->device], .family = string(w, i->family), .entry = string(w, i->entry)};

    k.flags = i->overlap ? FTX_KERNEL_OVERLAP : 0;
    k.first_const = (uint32_t)consts->n;
    k.n_consts = (uint32_t)i->n_consts;
    for (size_t c = 0; c < i->n_consts; c++)
        *arena_push(w->keep, *consts) = const_word(&i->consts[c]);
    for (size_t a = 0; a < i->n_algorithms; a++)
        *arena_push(w->keep, *consts) = i->algorithms[a];
    k.n_consts += (uint32_t)i->n_algorithms;
    k.n_operands = i->n_operands;
    k.block = i->block;
    k.smem = i->smem;
    for (int axis = 0; axis < 3; axis++)
        put_expr(w, exprs, &i->grid[axis], k.grid[axis]);
    put_expr(w, exprs, &i->moves, k.moves);
    k.matmul = i->matmul;
    return k;
}

/* The operands of all launches are one array; a launch has those up to the next launch's first. */
static void check_operands(const Plan *p, const FtxKernel *kernels)
{
    for (size_t i = 0; i < p->launches.n; i++) {
        const FtxLaunch *l = &p->launches.at[i];
        const size_t end = i + 1 < p->launches.n ? p->launches.at[i + 1].first_operand : p->operands.n;

        if (end - l->first_operand != kernels[l->kernel].n_operands)
            die("launch %zu of %s has %zu operands, its kernel %u", i, p->target.name, end - l->first_operand,
                kernels[l->kernel].n_operands);
    }
}

/* variant: how many earlier plans are of this target. */
static void plan_sections(Writer *w, const Plan *p, const Code *code, uint32_t variant)
{
    const FtxSection of = {.target = p->target.id, .variant = variant};
    FtxPlan *head = arena_new(w->keep, FtxPlan);
    FtxKernel *kernels = arena_array(w->keep, FtxKernel, p->instances.n);
    FtxLaunch *launches = arena_array(w->keep, FtxLaunch, p->launches.n);
    FtxBuffer *buffers = arena_array(w->keep, FtxBuffer, p->buffers.n);
    Words consts = {0}, exprs = {0};

    for (size_t i = 0; i < p->instances.n; i++) {
        kernels[i] = kernel_of(w, p->instances.at[i], &consts, &exprs);
        if (code->images) {
            kernels[i].code_at = code->images[i].at;
            kernels[i].code_bytes = code->images[i].bytes;
        }
    }
    check_operands(p, kernels);
    *head = p->head;
    head->name = string(w, p->strings.at[head->name]);
    head->device = string(w, p->strings.at[head->device]);
    for (size_t i = 0; i < p->launches.n; i++) {
        launches[i] = p->launches.at[i];
        launches[i].label = string(w, p->strings.at[launches[i].label]);
    }
    for (size_t i = 0; i < p->buffers.n; i++) {
        buffers[i] = p->buffers.at[i];
        buffers[i].name = string(w, p->strings.at[buffers[i].name]);
    }
    section(w, FTX_SEC_PLAN, &of, head, sizeof *head);
    section(w, FTX_SEC_KERNELS, &of, kernels, p->instances.n * sizeof *kernels);
    section(w, FTX_SEC_CONSTS, &of, consts.at, consts.n * sizeof *consts.at);
    section(w, FTX_SEC_PROGRAMS, &of, p->programs.at, p->programs.n * sizeof *p->programs.at);
    section(w, FTX_SEC_LAUNCHES, &of, launches, p->launches.n * sizeof *launches);
    section(w, FTX_SEC_OPERANDS, &of, p->operands.at, p->operands.n * sizeof *p->operands.at);
    section(w, FTX_SEC_EXPRS, &of, exprs.at, exprs.n * sizeof *exprs.at);
    section(w, FTX_SEC_BUFFERS, &of, buffers, p->buffers.n * sizeof *buffers);
    if (p->caches.n)
        section(w, FTX_SEC_CACHES, &of, p->caches.at, p->caches.n * sizeof *p->caches.at);
    if (code->cubin)
        section(w, FTX_SEC_CUBIN, &of, code->cubin, code->cubin_bytes);
    if (code->source)
        text_section(w, FTX_SEC_SOURCE, &of, code->source);
}

/* --- the file -------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Offsets of all sections; the weights, which come last, start on a page. */
static uint64_t place(Writer *w)
{
    uint64_t at = sizeof(FtxHeader);

    for (size_t i = 0; i < w->pieces.n; i++) {
        FtxSection *s = &w->pieces.at[i].head;

        at = round_up(at, s->kind == FTX_SEC_WEIGHTS ? WEIGHTS_ALIGN : SECTION_ALIGN);
        s->offset = at;
        at += s->bytes;
    }
    return round_up(at, SECTION_ALIGN);
}

static bool put(FileOut *out, uint64_t at, const void *p, size_t bytes, Diag *d)
{
    FtxError err;

    return !bytes || !file_write_at(out, at, p, bytes, &err) || diag_machine(d, "%s", err.text);
}

static bool put_program(const Writer *w, FileOut *out, uint64_t bytes, Diag *d)
{
    const FtxTrailer trailer = trailer_make(w->base, bytes);
    FtxError err;

    if (!w->parts->program)
        return true;
    if (file_executable(out, &err))
        return diag_machine(d, "%s", err.text);
    return put(out, 0, w->parts->program, w->parts->program_bytes, d) &&
           put(out, w->base + bytes, &trailer, sizeof trailer, d);
}

static bool put_sections(Writer *w, FileOut *out, uint64_t table_at, Diag *d)
{
    FtxHeader h = {.magic = {0}, .format = FTX_FORMAT, .sections = (uint32_t)w->pieces.n, .sections_at = table_at};
    FtxSection *table = arena_array(w->keep, FtxSection, w->pieces.n);

    for (size_t i = 0; i < w->pieces.n; i++) {
        Piece *p = &w->pieces.at[i];

        if (p->data) {
            p->head.checksum = hash64(p->data, (size_t)p->head.bytes);
            if (!put(out, w->base + p->head.offset, p->data, (size_t)p->head.bytes, d))
                return false;
        }
        table[i] = p->head;
    }
    memcpy(h.magic, FTX_MAGIC, sizeof h.magic);
    h.file_bytes = table_at + w->pieces.n * sizeof *table;
    h.sections_checksum = hash64(table, w->pieces.n * sizeof *table);
    h.version_major = FTX_VERSION_MAJOR;
    h.version_minor = FTX_VERSION_MINOR;
    return put(out, w->base + table_at, table, w->pieces.n * sizeof *table, d) && put(out, w->base, &h, sizeof h, d) &&
           put_program(w, out, h.file_bytes, d);
}

static bool commit(FileOut **out, Diag *d)
{
    FtxError err;
    FileOut *f = *out;

    *out = NULL;
    return !file_commit(f, &err) || diag_machine(d, "%s", err.text);
}

/* Gives both files their names, or neither: everything that can fail for lack of space is done before the first is
 * renamed. */
static bool commit_both(FileOut **beside, const char *sidecar, FileOut **out, Diag *d)
{
    FtxError err;

    if (*beside && (file_sync(*beside, &err) || file_sync(*out, &err)))
        return diag_machine(d, "%s", err.text);
    if (*beside && !commit(beside, d))
        return false;
    if (commit(out, d))
        return true;
    if (sidecar)
        unlink(sidecar);
    return false;
}

/* The weights or tables of all ranks: each rank's in its section, or in the sidecar, whose checksum is for all of them. */
static bool pack_ranks(const ArtifactParts *parts, uint64_t base, Piece *sections, FileOut *out, FileOut *beside,
                       FtxFacts *facts, void (*progress)(void *user, uint64_t done, uint64_t all), void *user, Diag *d)
{
    const uint64_t each = round_up(parts->packing->bytes, WEIGHTS_ALIGN);
    bool ok = true;

    for (uint32_t r = 0; ok && r < facts->ranks; r++) {
        uint64_t checksum;

        ok = weights_pack(parts->checkpoint, parts->spec, parts->packing, r, beside ? beside : out,
                          beside ? r * each : base + sections[r].head.offset, &checksum, progress, user, d);
        if (!beside)
            sections[r].head.checksum = checksum;
        else
            facts->sidecar_checksum = r ? hash64((uint64_t[]){facts->sidecar_checksum, checksum}, 16) : checksum;
    }
    return ok;
}

static const char *sidecar_path(const char *path, Arena *keep)
{
    const size_t n = strlen(path);
    const bool ftx = n > 4 && strcmp(path + n - 4, ".ftx") == 0;

    return arena_printf(keep, "%s%s", path, ftx ? "w" : ".ftxw");
}

bool artifact_write(const char *path, const ArtifactParts *parts,
                    void (*progress)(void *user, uint64_t done, uint64_t all), void *user, Diag *d)
{
    Writer w = {.parts = parts, .keep = arena_open()};
    const char *sidecar = parts->checkpoint && parts->sidecar ? sidecar_path(path, w.keep) : NULL;
    const uint64_t stored = weights_stored_bytes(parts->packing, !parts->checkpoint);
    FileOut *out = NULL, *beside = NULL;
    uint64_t table_at;
    Piece *strings;
    FtxFacts *facts;
    FtxError err;
    bool ok = false;

    string(&w, "");
    facts = facts_of(&w, sidecar);
    section(&w, FTX_SEC_FACTS, NULL, facts, sizeof *facts);
    section(&w, FTX_SEC_STRINGS, NULL, NULL, 0);
    text_section(&w, FTX_SEC_SPEC, NULL, parts->spec->text);
    if (parts->spec->n_bad_words)
        section(&w, FTX_SEC_BAD_WORDS, NULL, parts->spec->bad_words,
                parts->spec->n_bad_words * sizeof *parts->spec->bad_words);
    text_section(&w, FTX_SEC_BUILD, NULL, parts->build);
    if (parts->tokenizer)
        section(&w, FTX_SEC_TOKENIZER, NULL, parts->tokenizer, parts->tokenizer_bytes);
    if (parts->chat)
        section(&w, FTX_SEC_CHAT, NULL, parts->chat, parts->chat_bytes);
    for (size_t i = 0; i < parts->n_plans; i++) {
        uint32_t variant = 0;

        for (size_t k = 0; k < i; k++)
            variant += parts->plans[k].target.id == parts->plans[i].target.id;
        plan_sections(&w, &parts->plans[i], &parts->codes[i], variant);
    }
    weight_index(&w);
    for (uint32_t r = 0; !sidecar && r < facts->ranks; r++)
        section(&w, parts->checkpoint ? FTX_SEC_WEIGHTS : FTX_SEC_TABLES, NULL, NULL, (size_t)stored)->head.rank = r;
    strings = &w.pieces.at[1];
    strings->data = w.strings.at;
    strings->head.bytes = w.strings.n;
    table_at = place(&w);
    w.base = round_up(parts->program_bytes, FTX_TRAILER_ALIGN);

    if (file_create(path, &out, &err) || (sidecar && file_create(sidecar, &beside, &err))) {
        diag_machine(d, "%s", err.text);
        goto end;
    }
    if (!pack_ranks(parts, w.base, w.pieces.at + w.pieces.n - facts->ranks, out, beside, facts, progress, user, d))
        goto end;
    ok = put_sections(&w, out, table_at, d) && commit_both(&beside, sidecar, &out, d);
end:
    file_abort(beside);
    file_abort(out);
    arena_close(w.keep);
    return ok;
}
