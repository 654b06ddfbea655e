/* offload.c - chooses the weights that stay in host memory, and the copies that a step makes of them. */
#include "offload.h"

#include <string.h>

enum {
    PLACE_ALIGN = 256,  /* as in the artifact */
    MOST_LAYERS = 4096, /* a higher number in a label is none */
    UNREAD = -2,        /* OffloadWeight.layer, until a launch reads it */
};

static uint64_t padded_bytes(const FtxWeight *w)
{
    return (w->bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

uint32_t offload_find(const Artifact *a, uint64_t offset, uint64_t *inside)
{
    uint32_t i = 0;

    while (i < a->n_weights && (offset < a->weights[i].offset || offset - a->weights[i].offset >= a->weights[i].bytes))
        i++;
    *inside = i < a->n_weights ? offset - a->weights[i].offset : 0;
    return i;
}

static int label_layer(const Artifact *a, const FtxLaunch *l)
{
    const int layer = artifact_layer(artifact_string(a, l->label), NULL);

    return layer < MOST_LAYERS ? layer : -1;
}

static bool looks_rows_up(const Artifact *a, const FtxKernel *k, const FtxOperand *o, const FtxWeight *w)
{
    const char *family = artifact_string(a, k->family);

    return (strcmp(family, "embed") == 0 || strcmp(family, "embed_norm") == 0) && artifact_is_matrix(w) &&
           w->rank == 2 && !o->tile_rows;
}

/* --- who reads a weight --------------------------------------------------------------------------- */

static FtxStatus read_launch(Offload *o, const ArtifactPlan *p, const FtxLaunch *l, FtxError *err)
{
    const Artifact *a = o->artifact;
    const FtxKernel *k = &p->kernels[l->kernel];
    const int layer = label_layer(a, l);

    for (uint32_t i = l->first_operand; i < l->first_operand + k->n_operands; i++) {
        const FtxOperand *operand = &p->operands[i];
        uint64_t inside;

        if (operand->space != FTX_SPACE_WEIGHTS)
            continue;
        const uint32_t n = offload_find(a, operand->offset, &inside);
        if (n == a->n_weights)
            return ftx_fail(err, FTX_EFORMAT, "%s: operand %u is no weight, so it cannot stay in host memory",
                            artifact_string(a, l->label), i - l->first_operand);
        OffloadWeight *w = &o->weights[n];
        const bool lookup = looks_rows_up(a, k, operand, &a->weights[n]), first = w->layer == UNREAD;

        w->layer = first || w->layer == layer ? layer : -1;
        w->lookups = lookup && (first || w->lookups);
    }
    return FTX_OK;
}

/* Which layer a weight belongs to, and how many bytes each layer has. */
static FtxStatus read_plan(Offload *o, const ArtifactPlan *p, FtxError *err)
{
    const Artifact *a = o->artifact;
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < a->n_weights; i++)
        o->weights[i].layer = UNREAD;
    for (uint32_t i = 0; i < p->n_launches && !s; i++)
        s = read_launch(o, p, &p->launches[i], err);
    for (uint32_t i = 0; i < a->n_weights && !s; i++)
        if (o->weights[i].layer >= 0)
            o->layer_bytes[o->weights[i].layer] += padded_bytes(&a->weights[i]);
    return s;
}

static uint32_t count_layers(const Artifact *a, const ArtifactPlan *p)
{
    int n = 0;

    for (uint32_t i = 0; i < p->n_launches; i++)
        n = label_layer(a, &p->launches[i]) >= n ? label_layer(a, &p->launches[i]) + 1 : n;
    return (uint32_t)n;
}

/* --- how many layers stay ------------------------------------------------------------------------- */

/* The weights' bytes on the GPU where the first `stay` layers stay there. rows: embeddings are in host memory. */
static uint64_t bytes_on_gpu(const Offload *o, uint32_t stay, bool rows)
{
    uint64_t bytes = 0, staging = 0;

    for (uint32_t i = 0; i < o->artifact->n_weights; i++)
        if (o->weights[i].layer == -1 && !(rows && o->weights[i].lookups))
            bytes += padded_bytes(&o->artifact->weights[i]);
    for (uint32_t i = 0; i < o->layers; i++)
        if (i < stay)
            bytes += o->layer_bytes[i];
        else
            staging = o->layer_bytes[i] > staging ? o->layer_bytes[i] : staging;
    return bytes + staging;
}

static double offload_gb(uint64_t bytes)
{
    return (double)bytes * 1e-9;
}

/* *stay: how many layers stay; *rows: embeddings do not. */
static FtxStatus choose_layers(const Offload *o, int64_t gpu_layers, uint64_t gpu_memory, uint32_t *stay, bool *rows,
                               FtxError *err)
{
    *stay = o->layers;
    *rows = false;
    if (gpu_layers) {
        *stay = gpu_layers < 0 ? 0 : gpu_layers < (int64_t)o->layers ? (uint32_t)gpu_layers : o->layers;
        *rows = *stay < o->layers;
    } else if (bytes_on_gpu(o, o->layers, false) > gpu_memory) {
        *rows = true;
        while (*stay && bytes_on_gpu(o, *stay, true) > gpu_memory)
            --*stay;
        if (bytes_on_gpu(o, *stay, true) > gpu_memory)
            return ftx_fail(
                err, FTX_EINVAL,
                "gpu_memory (--gpu-memory) is %.3f GB, and with all %u layers in host memory the GPU still holds "
                "%.3f GB of weights, of them one layer as it is copied: raise it",
                offload_gb(gpu_memory), o->layers, offload_gb(bytes_on_gpu(o, 0, true)));
    }
    if (o->layers - *stay == 1) /* it would take as much staging as it saves */
        *stay = o->layers;
    return FTX_OK;
}

/* --- where they lie ------------------------------------------------------------------------------- */

static void place_weights(Offload *o, uint32_t stay, bool rows)
{
    const Artifact *a = o->artifact;

    o->gpu_layers = stay;
    for (uint32_t i = 0; i < a->n_weights; i++) {
        OffloadWeight *w = &o->weights[i];

        if (w->layer == UNREAD || w->layer >= (int)stay || (rows && w->lookups && w->layer == -1))
            continue;
        w->place = OFFLOAD_GPU;
        w->at = o->gpu_bytes;
        o->gpu_bytes += padded_bytes(&a->weights[i]);
    }
    for (uint32_t layer = stay; layer < o->layers; layer++) {
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < a->n_weights; i++) {
            OffloadWeight *w = &o->weights[i];

            if (w->layer != (int)layer)
                continue;
            w->place = OFFLOAD_COPIED;
            w->at = bytes;
            w->from = o->host_bytes + bytes;
            bytes += padded_bytes(&a->weights[i]);
        }
        o->staging_bytes = bytes > o->staging_bytes ? bytes : o->staging_bytes;
        o->host_bytes += bytes;
    }
    for (uint32_t i = 0; i < a->n_weights && rows; i++) {
        OffloadWeight *w = &o->weights[i];

        if (w->layer != -1 || !w->lookups)
            continue;
        w->place = OFFLOAD_ROWS;
        w->from = o->host_bytes;
        o->host_bytes += padded_bytes(&a->weights[i]);
        o->row_bytes += padded_bytes(&a->weights[i]);
    }
}

/* --- the copies of a step ------------------------------------------------------------------------- */

/* The layer in host memory whose weights a launch reads, which are marked as used; -1: it reads none. */
static int copied_layer(const Offload *o, const ArtifactPlan *p, const FtxLaunch *l, bool *used)
{
    int layer = -1;

    for (uint32_t i = l->first_operand; i < l->first_operand + p->kernels[l->kernel].n_operands; i++) {
        uint64_t inside;

        if (p->operands[i].space != FTX_SPACE_WEIGHTS)
            continue;
        const uint32_t n = offload_find(o->artifact, p->operands[i].offset, &inside);
        if (o->weights[n].place != OFFLOAD_COPIED)
            continue;
        layer = o->weights[n].layer;
        if (used)
            used[n] = true;
    }
    return layer;
}

static void add_copy(Offload *o, OffloadCopy c, uint64_t *bytes)
{
    if (o->copies)
        o->copies[o->n_copies] = c;
    o->n_copies++;
    *bytes += c.bytes;
}

/* Adds the copies before launch `from` of a program: what it and the launches up to the next layer of the host read. */
static void copy_layer(Offload *o, const ArtifactPlan *p, const FtxProgram *g, uint32_t from, int layer,
                       uint64_t *bytes)
{
    const Artifact *a = o->artifact;
    OffloadCopy c = {.launch = g->first_launch + from};

    memset(o->used, 0, a->n_weights * sizeof *o->used);
    for (uint32_t i = from; i < g->n_launches; i++) {
        const FtxLaunch *l = &p->launches[g->first_launch + i];
        const int next = copied_layer(o, p, l, NULL);

        if (next >= 0 && next != layer)
            break;
        copied_layer(o, p, l, o->used);
    }
    for (uint32_t i = 0; i < a->n_weights; i++) {
        const OffloadWeight *w = &o->weights[i];

        if (!o->used[i])
            continue;
        if (c.bytes && (c.bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN == w->at - c.at) {
            c.bytes = w->at - c.at + a->weights[i].bytes; /* it follows the one before */
            continue;
        }
        if (c.bytes)
            add_copy(o, c, bytes);
        c = (OffloadCopy){.launch = c.launch, .from = w->from, .at = w->at, .bytes = a->weights[i].bytes};
    }
    if (c.bytes)
        add_copy(o, c, bytes);
}

/* Counts the copies, or writes them if there is room. */
static void list_copies(Offload *o, const ArtifactPlan *p)
{
    o->n_copies = 0;
    for (uint32_t i = 0; i < p->n_programs; i++) {
        const FtxProgram *g = &p->programs[i];
        uint64_t bytes = 0;
        int now = -1; /* the layer in the staging area */

        for (uint32_t k = 0; k < g->n_launches; k++) {
            const int layer = copied_layer(o, p, &p->launches[g->first_launch + k], NULL);

            if (layer < 0 || layer == now)
                continue;
            copy_layer(o, p, g, k, layer, &bytes);
            now = layer;
        }
        o->step_bytes = bytes > o->step_bytes ? bytes : o->step_bytes;
    }
}

/* --- open and close ------------------------------------------------------------------------------- */

static size_t lay_out_offload(Offload *o, Carve *c, const Artifact *a, uint32_t layers)
{
    carve(c, 1, sizeof *o);
    OffloadWeight *weights = carve(c, a->n_weights, sizeof *weights);
    uint64_t *layer_bytes = carve(c, layers, sizeof *layer_bytes);
    bool *used = carve(c, a->n_weights, sizeof *used);

    if (o) {
        o->weights = weights;
        o->layer_bytes = layer_bytes;
        o->used = used;
    }
    return c->at;
}

static FtxStatus place_all(Offload *o, const ArtifactPlan *p, int64_t gpu_layers, uint64_t gpu_memory, FtxError *err)
{
    uint32_t stay;
    bool rows;
    FtxStatus s = read_plan(o, p, err);

    if (!s)
        s = choose_layers(o, gpu_layers, gpu_memory, &stay, &rows, err);
    if (s)
        return s;
    place_weights(o, stay, rows);
    list_copies(o, p);
    if (o->n_copies && !(o->copies = memory_alloc(&o->memory, o->n_copies * sizeof *o->copies, 64)))
        return memory_fail(err, "the copies of weights", o->n_copies * sizeof *o->copies);
    list_copies(o, p);
    return FTX_OK;
}

FtxStatus offload_open(const Memory *m, const Artifact *a, const ArtifactPlan *p, int64_t gpu_layers,
                       uint64_t gpu_memory, Offload **out, FtxError *err)
{
    const uint32_t layers = count_layers(a, p);
    const size_t bytes = lay_out_offload(NULL, &(Carve){NULL, 0}, a, layers);
    Offload *o = memory_alloc(m, bytes, 64);

    *out = NULL;
    if (!o)
        return memory_fail(err, "the places of weights", bytes);
    lay_out_offload(o, &(Carve){(char *)o, 0}, a, layers);
    o->memory = *m;
    o->bytes = bytes;
    o->artifact = a;
    o->layers = layers;
    const FtxStatus s = place_all(o, p, gpu_layers, gpu_memory, err);
    if (s) {
        offload_close(o);
        return s;
    }
    *out = o;
    return FTX_OK;
}

void offload_close(Offload *o)
{
    if (!o)
        return;

    const Memory m = o->memory;

    if (o->copies)
        memory_free(&m, o->copies, o->n_copies * sizeof *o->copies);
    memory_free(&m, o, o->bytes);
}

/* --- asking --------------------------------------------------------------------------------------- */

static uint64_t place_of(const OffloadWeight *w)
{
    return w->place == OFFLOAD_GPU ? w->at : w->from;
}

bool offload_span(const Offload *o, uint32_t *i, OffloadSpan *span)
{
    const FtxWeight *weight = o->artifact->weights;
    const uint32_t n = o->artifact->n_weights;

    while (*i < n && (o->weights[*i].place == OFFLOAD_UNUSED || !weight[*i].bytes))
        ++*i;
    if (*i == n)
        return false;
    *span = (OffloadSpan){.place = o->weights[*i].place, .stored = weight[*i].offset, .to = place_of(&o->weights[*i])};
    do {
        span->bytes = weight[*i].offset - span->stored + weight[*i].bytes;
        ++*i;
    } while (*i < n && o->weights[*i].place == span->place && weight[*i].offset >= span->stored &&
             weight[*i].offset - span->stored == place_of(&o->weights[*i]) - span->to &&
             weight[*i].offset - span->stored <= (span->bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN);
    return true;
}

const OffloadCopy *offload_copies(const Offload *o, uint32_t launch, size_t *n)
{
    size_t low = 0, high = o->n_copies;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (o->copies[middle].launch < launch)
            low = middle + 1;
        else
            high = middle;
    }
    for (*n = 0; low + *n < o->n_copies && o->copies[low + *n].launch == launch; ++*n)
        ;
    return o->copies + low;
}
