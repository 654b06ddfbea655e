/* memory.c - `ftxc show --memory`: the memory map as a picture. A row is a range of bytes, a column a launch.
 *
 *        offset       bytes  launch 0 ------------------------------> 31
 *             0    24.0 KiB  ########........####................####  x, h2 and 4 more
 *     24.0 KiB    80.0 KiB  ..======##............................    qkv
 *
 * Buffers that have the same bytes at different times share a row; # and = take turns, so that neighbours can be told
 * apart. '.': the bytes are free during this launch. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "../../runtime/base/arena.h"
#include "../../runtime/device/offload.h"

enum { COLUMNS = 64 };

static int by_offset(const void *a, const void *b)
{
    const FtxBuffer *x = *(const FtxBuffer *const *)a, *y = *(const FtxBuffer *const *)b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void print_row(const Artifact *a, const FtxBuffer **b, size_t n, uint32_t launches, FILE *out)
{
    const uint32_t columns = launches < COLUMNS ? launches : COLUMNS;
    char bar[COLUMNS + 1];

    assert(n == 0 || launches > 0); /* checked when the artifact was opened */
    memset(bar, '.', columns);
    bar[columns] = '\0';
    for (size_t i = 0; i < n; i++) {
        const uint32_t from = (uint32_t)((uint64_t)b[i]->first * columns / launches);
        const uint32_t to = (uint32_t)((uint64_t)b[i]->last * columns / launches);

        memset(bar + from, i % 2 ? '=' : '#', to - from + 1);
    }
    fprintf(out, "    %10s  %10s  %s  %s", window_bytes(b[0]->offset), window_bytes(b[0]->bytes), bar,
            artifact_string(a, b[0]->name));
    if (n > 1)
        fprintf(out, "%s%s", n == 2 ? " and " : ", ", artifact_string(a, b[1]->name));
    if (n > 2)
        fprintf(out, " and %zu more", n - 2);
    fputc('\n', out);
}

static void show_program(const Artifact *a, const ArtifactPlan *p, uint32_t program, FILE *out)
{
    const FtxProgram *g = &p->programs[program];
    const uint32_t columns = g->n_launches < COLUMNS ? g->n_launches : COLUMNS;
    Arena *keep = arena_open();
    const FtxBuffer **list = arena_array(keep, const FtxBuffer *, p->n_buffers + 1);
    uint64_t end = 0, live;
    uint32_t at;
    size_t n = 0;

    for (uint32_t i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].space == FTX_SPACE_WORK && p->buffers[i].program == program) {
            list[n++] = &p->buffers[i];
            if (end < p->buffers[i].offset + p->buffers[i].bytes)
                end = p->buffers[i].offset + p->buffers[i].bytes;
        }
    if (n)
        qsort(list, n, sizeof *list, by_offset);
    live = window_live_peak(p, program, &at);
    fprintf(out, "\n  %s: workspace %s, the lower bound %s (bytes live during launch %u)\n", window_program(g),
            window_bytes(end), window_bytes(live), at);
    fprintf(out, "    %10s  %10s  launch 0%*s%u\n", "offset", "bytes",
            columns > 11 ? (int)columns - 8 -
                               (g->n_launches > 99  ? 3
                                : g->n_launches > 9 ? 2
                                                    : 1)
                         : 1,
            "", g->n_launches ? g->n_launches - 1 : 0);
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && list[k]->offset == list[i]->offset && list[k]->bytes == list[i]->bytes;)
            k++;
        print_row(a, list + i, k - i, g->n_launches, out);
    }
    arena_close(keep);
}

/* Whether b is a buffer of named.def, which is printed from there. */
static bool is_named(const ArtifactPlan *p, const FtxBuffer *b)
{
    static const FtxSpace space[] = {
#define NAMED(name, space, bytes, what) FTX_SPACE_##space,
#include "../../runtime/artifact/named.def"
#undef NAMED
    };

    for (size_t i = 0; i < FTX_NAMED_COUNT; i++)
        if (b->space == (uint32_t)space[i] && b->offset == p->head->named[i] && b->bytes == p->head->named_bytes[i])
            return true;
    return false;
}

/* Bytes of the weights of a rank that another rank has, too. */
static uint64_t shared_bytes(const Artifact *a, uint32_t rank)
{
    const Artifact mine = artifact_rank(a, rank);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < a->n_weights; i++) {
        bool shared = false;

        for (uint32_t r = 0; r < a->facts->ranks && !shared; r++) {
            const Artifact other = artifact_rank(a, r);
            const void *w = artifact_weight(&mine, i);

            shared = r != rank && w && memcmp(w, artifact_weight(&other, i), a->weights[i].bytes) == 0;
        }
        bytes += shared ? a->weights[i].bytes : 0;
    }
    return bytes;
}

static void show_ranks(const Artifact *a, FILE *out)
{
    if (a->facts->ranks == 1)
        return;
    fprintf(out, "  %u ranks, each with the memory below; of the weights\n", a->facts->ranks);
    for (uint32_t r = 0; r < a->facts->ranks; r++) {
        const uint64_t shared = shared_bytes(a, r);

        fprintf(out, "    rank %u has %s alone", r, window_bytes(a->facts->weight_bytes - shared));
        fprintf(out, ", and %s that another rank has, too\n", window_bytes(shared));
    }
}

/* What a GPU that holds no layer's weights holds (--gpu-layers 0), and what each layer adds. */
static void show_layers(const Artifact *a, const ArtifactPlan *p, FILE *out)
{
    const Memory memory = {{0}};
    uint64_t least = UINT64_MAX, most = 0;
    Offload *o;

    if (p->head->target == FTX_TARGET_CPU || a->facts->ranks > 1 ||
        offload_open(&memory, a, p, FTX_NO_GPU_LAYERS, 0, &o, NULL))
        return;
    for (uint32_t i = 0; i < o->layers; i++) {
        least = o->layer_bytes[i] < least ? o->layer_bytes[i] : least;
        most = o->layer_bytes[i] > most ? o->layer_bytes[i] : most;
    }
    if (o->layers)
        fprintf(
            out,
            "    %u layers of %s to %s; a GPU that holds none of them (--gpu-layers 0) holds %s of other weights and "
            "%s of the layer that is copied\n",
            o->layers, window_bytes(least), window_bytes(most), window_bytes(o->gpu_bytes),
            window_bytes(o->staging_bytes));
    offload_close(o);
}

void show_memory(const Artifact *a, const ArtifactPlan *p, FILE *out)
{
    static const struct {
        const char *name, *what;
        FtxSpace space;
    } named[] = {
#define NAMED(name, space, bytes, what) {#name, what, FTX_SPACE_##space},
#include "../../runtime/artifact/named.def"
#undef NAMED
    };

    fprintf(out, "\nmemory of %s: weights once for each model; state, input, workspace and output for each engine\n",
            artifact_string(a, p->head->name));
    show_ranks(a, out);
    for (int s = FTX_SPACE_WEIGHTS; s < FTX_SPACE_COUNT; s++) {
        fprintf(out, "  %-10s %10s%s\n", window_space((uint32_t)s), window_bytes(p->head->space_bytes[s]),
                s == FTX_SPACE_PAGES ? "  one KV page; an engine has as many as fit (--kv-memory)" : "");
        if (s == FTX_SPACE_WEIGHTS)
            show_layers(a, p, out);
        for (size_t i = 0; i < FTX_NAMED_COUNT; i++)
            if (named[i].space == (FtxSpace)s && p->head->named_bytes[i])
                fprintf(out, "    %10s  %10s  $%-8s %s\n", window_bytes(p->head->named[i]),
                        window_bytes(p->head->named_bytes[i]), named[i].name, named[i].what);
        for (uint32_t i = 0; i < p->n_buffers; i++)
            if (p->buffers[i].space == (uint32_t)s && s != FTX_SPACE_WORK && s != FTX_SPACE_WEIGHTS &&
                !is_named(p, &p->buffers[i]))
                fprintf(out, "    %10s  %10s  %s\n", window_bytes(p->buffers[i].offset),
                        window_bytes(p->buffers[i].bytes), artifact_string(a, p->buffers[i].name));
    }
    fprintf(out, "  workspace %s, the lower bound %s\n", window_bytes(p->head->space_bytes[FTX_SPACE_WORK]),
            window_bytes(p->head->lower_bound));
    for (uint32_t i = 0; i < p->n_programs; i++)
        show_program(a, p, i, out);
}
