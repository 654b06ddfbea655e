/* views.c - which value a block sees in global memory, and the async proxy in shared memory: its own writes
 * at once, the writes of others only after release and acquire, or after a proxy fence.
 *
 * A plain write waits in the store buffer of its block until a thread of the block releases or fences
 * at a scope that reaches other blocks, or the launch ends. If another block's buffer was drained since this
 * block's last acquire, a plain read gives the old value. So a fence that is missing, too early or of too
 * narrow a scope gives a stale value, under every schedule.
 *
 *   word of two bytes:   BEFORE ◂── left its buffer ── GLOBAL ◂── drains ── OWN of one block
 *
 * Memory holds the value for the last block that accessed the word; View holds the other two. Before an access,
 * the value that the block sees is swapped into memory; no other thread runs until the access is done.
 *
 * In shared memory, bulk copies and wgmma do not see plain writes and cp.async until async_proxy_fence: wgmma
 * reads the old value, and if a bulk copy overwrites an unfenced plain write, the plain write wins. */
#include "parts.h"

enum { GLOBAL, OWN, BEFORE };

typedef struct View {
    uint16_t value[3];
    uint8_t shown;                    /* which of them memory holds; its entry in value is stale */
    uint32_t owner, drainer, drained; /* block of OWN, block that drained last (0: none); value of `drains` then */
} View;

static View *views;        /* of the heap, one for each grain */
static uint16_t *unfenced; /* shared memory as the async proxy sees it; under a bulk copy: the plain write that wins */
static uint32_t drains;    /* in this launch */

static Grains touched; /* grains with a view in this launch */

static void note(Grains *list, size_t first, size_t end)
{
    if (list->n && list->at[list->n - 1].end == first) {
        list->at[list->n - 1].end = end;
        return;
    }
    if (list->n == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 256;
        list->at = realloc(list->at, list->cap * sizeof *list->at);
        if (!list->at)
            abort();
    }
    list->at[list->n++] = (GrainRange){first, end};
}

void views_open(size_t heap_grains, size_t shared_grains)
{
    views = memory_reserve(heap_grains * sizeof *views);
    unfenced = memory_reserve(shared_grains * sizeof *unfenced);
}

void views_release(size_t heap_grains)
{
    if (views)
        memory_release(views, heap_grains * sizeof *views);
}

/* --- global memory -------------------------------------------------------------------------------- */

static void show(View *v, uint16_t *memory, int which)
{
    if (v->shown == which)
        return;
    v->value[v->shown] = *memory;
    *memory = v->value[which];
    v->shown = (uint8_t)which;
}

static int seen_by(const View *v, const Block *b)
{
    if (v->owner == b->stamp)
        return OWN;
    return v->drained > b->acquired && v->drainer != b->stamp ? BEFORE : GLOBAL;
}

/* Moves a word from its block's store buffer to global memory. */
static void drain(View *v, uint16_t *memory)
{
    show(v, memory, BEFORE);
    v->value[BEFORE] = *memory = v->value[GLOBAL];
    v->value[GLOBAL] = v->value[OWN];
    v->drainer = v->owner;
    v->drained = drains;
    v->owner = 0;
}

void view_read(const Block *b, uint16_t *memory, const uint8_t *state, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (state[i] & S_VIEW)
            show(&views[i], &memory[i], seen_by(&views[i], b));
}

void view_write(Block *b, uint16_t *memory, uint8_t *state, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        View *v = &views[i];

        if (!(state[i] & S_VIEW)) {
            *v = (View){.value[BEFORE] = memory[i], .value[GLOBAL] = memory[i]};
            state[i] |= S_VIEW;
            note(&touched, i, i + 1);
        }
        if (v->owner && v->owner != b->stamp) { /* two blocks write: the other's write is drained first */
            drains++;
            drain(v, &memory[i]);
        }
        if (v->owner == b->stamp) {
            show(v, &memory[i], OWN);
            continue;
        }
        show(v, &memory[i], seen_by(v, b)); /* a write of one byte keeps the grain's other byte */
        v->value[v->shown] = memory[i];
        v->shown = OWN;
        v->owner = b->stamp;
        note(&b->buffer, i, i + 1);
    }
}

/* Atomics act on global memory, after the block's own plain writes to the word. */
void view_atomic(const Block *b, uint16_t *memory, const uint8_t *state, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (state[i] & S_VIEW) {
            if (views[i].owner == b->stamp) {
                drains++;
                drain(&views[i], &memory[i]);
            }
            show(&views[i], &memory[i], GLOBAL);
        }
}

void view_release(Block *b)
{
    uint16_t *memory = memory_heap();

    drains++;
    for (size_t k = 0; k < b->buffer.n; k++)
        for (size_t i = b->buffer.at[k].first; i < b->buffer.at[k].end; i++)
            if (views[i].owner == b->stamp)
                drain(&views[i], &memory[i]);
    b->buffer.n = 0;
}

void view_acquire(Block *b)
{
    b->acquired = drains;
}

void views_end_launch(uint8_t *state)
{
    uint16_t *memory = memory_heap();

    for (size_t k = 0; k < touched.n; k++)
        for (size_t i = touched.at[k].first; i < touched.at[k].end; i++) {
            show(&views[i], &memory[i], views[i].owner ? OWN : GLOBAL);
            state[i] &= (uint8_t)~S_VIEW;
        }
    touched.n = 0;
    drains = 0;
}

/* --- shared memory, as TMA and wgmma see it ------------------------------------------ */

void view_plain_shared(Block *b, const uint16_t *memory, uint8_t *state, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (!(state[i] & S_VIEW)) {
            state[i] |= S_VIEW;
            unfenced[i] = memory[i];
            note(&b->unfenced, i, i + 1);
        }
}

void view_fence_shared(Block *b, uint8_t *state)
{
    Grains later = {0};

    for (size_t k = 0; k < b->unfenced.n; k++)
        for (size_t i = b->unfenced.at[k].first; i < b->unfenced.at[k].end; i++)
            if (state[i] & S_COPY) /* a bulk copy into it is in flight: this fence does not order them */
                note(&later, i, i + 1);
            else
                state[i] &= (uint8_t)~S_VIEW;
    free(b->unfenced.at);
    b->unfenced = later;
}

/* A bulk copy begins: keeps unfenced plain writes, which overwrite it when it lands. */
void view_bulk_begins(const uint16_t *memory, const uint8_t *state, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (state[i] & S_VIEW)
            unfenced[i] = memory[i];
}

void view_bulk_lands(uint16_t *memory, uint8_t *state, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (state[i] & S_VIEW) {
            memory[i] = unfenced[i];
            state[i] &= (uint8_t)~S_VIEW;
        }
}

void view_of_products(const uint16_t *memory, const uint8_t *state, size_t first, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = state[first + i] & S_VIEW ? unfenced[first + i] : memory[first + i];
}
