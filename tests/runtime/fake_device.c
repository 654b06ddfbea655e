/* fake_device.c - a device for tests: fake.h says what it computes. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"
#include "kernels/device/mask.h"
#include "runtime/device/cache.h"

FakeDevice fake;

void fake_called(char call)
{
    const size_t n = strlen(fake.order);

    if (n + 1 < sizeof fake.order)
        fake.order[n] = call;
}

typedef enum CommandKind {
    COMMAND_UPLOAD,
    COMMAND_WRITE,
    COMMAND_RUN,
    COMMAND_BEGIN,
    COMMAND_FINISH,
    COMMAND_KEEP,
    COMMAND_WIPE,
    COMMAND_SNAPSHOT,
    COMMAND_END
} CommandKind;

typedef struct Command {
    CommandKind kind;
    size_t offset, bytes;
    uint32_t program;
    int named; /* of a write */
    int T, S;
    bool fails, back;
    uint32_t snapshot, slot;
    uint32_t kept, page; /* of a copy of a KV page; `page`: of one that is wiped, too */
    int first, n;        /* rows whose masks are copied */
    const char *data;    /* of a write: in the queue's buffers once it is enqueued */
} Command;

enum {
    QUEUE = 64,
    MOST_CONTEXT = 65536,
    WRITE_BYTES = 65536,
    DECODED = 1 << 30,   /* in a key: a decode row wrote it */
    NOT_FINITE = 1 << 29 /* in a key: it is NaN */
};

struct Device {
    Memory memory;
    const Artifact *artifact;
    const ArtifactPlan *plan;
};

struct Session {
    Device *device;
    Memory memory;
    char *block;
    size_t bytes;
    char *host_io, *io, *state, *out;
    uint32_t *masks; /* the host's; the thread works with those of the state */
    int32_t *kv;     /* [pages][kv_block]: keys */
    uint32_t pages;
    int32_t *kept; /* [n_kept][kv_block] */
    uint32_t n_kept;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Command queue[QUEUE];
    char written[QUEUE][WRITE_BYTES]; /* what a write of the queue brings */
    unsigned put, got;                /* commands enqueued and done */
    int issued, done;                 /* runs; the second is counted by the thread */
    bool failed;
    uint32_t begun; /* program of a run whose second part is still to come, + 1; the thread's */
    /* Pages that are wiped between the two parts: behind the first, which works here with the second. */
    uint32_t wiped[64];
    uint32_t n_wiped;
    unsigned random;
};

static void wrong(const char *format, ...)
{
    va_list ap;

    if (fake.wrong[0])
        return;
    va_start(ap, format);
    vsnprintf(fake.wrong, sizeof fake.wrong, format, ap);
    va_end(ap);
}

#define EXPECT(what, ...) \
    do { \
        if (!(what)) \
            wrong(#what ": " __VA_ARGS__); \
    } while (0)

static void *named_io(Session *s, int name)
{
    return s->io + s->device->plan->head->named[name];
}

static void *named_state(Session *s, int name)
{
    return s->state + s->device->plan->head->named[name];
}

static int32_t *cache(Session *s, int slot, int pos)
{
    const FtxFacts *f = s->device->artifact->facts;
    const int32_t *table =
        (int32_t *)named_state(s, FTX_NAMED_pages) + (size_t)slot * ((f->context + f->kv_block - 1) / f->kv_block);
    const int32_t page = table[pos / (int)f->kv_block];

    if (page < 0 || page >= (int32_t)s->pages) {
        wrong("page %d of slot %d at %d", page, slot, pos);
        return s->kv;
    }
    return s->kv + (size_t)page * f->kv_block + (size_t)pos % f->kv_block;
}

static bool by_role(const Session *s)
{
    return s->device->artifact->facts->fixed_sums && fake.asynchronous;
}

/* Whether a row of one token may be a decode row, and whether it may be another: a prompt's by its role, or one of a text that
 * is scored. */
static bool may_decode(Session *s, int i)
{
    const FtxRow *r = (FtxRow *)named_io(s, FTX_NAMED_rows) + i;

    return r->q_len == 1 && (!by_role(s) || r->kv_len > r->prompt);
}

static bool must_decode(Session *s, int i)
{
    const FtxRow *r = (FtxRow *)named_io(s, FTX_NAMED_rows) + i;
    const FtxParams *p = (FtxParams *)named_io(s, FTX_NAMED_params) + i;

    return may_decode(s, i) && !(p->logits == 1 && !r->emit && r->kv_len <= r->prompt);
}

static bool is_decode(Session *s, int i)
{
    return i < ((FtxStep *)named_io(s, FTX_NAMED_step))->decode_rows;
}

/* What io.h promises of a step. */
static void check_step(Session *s, const Command *c)
{
    const FtxFacts *f = s->device->artifact->facts;
    const FtxProgram *p = &s->device->plan->programs[c->program];
    const FtxStep *step = named_io(s, FTX_NAMED_step);
    const FtxRow *row = named_io(s, FTX_NAMED_rows);
    const FtxToken *token = named_io(s, FTX_NAMED_token);
    const FtxParams *params = named_io(s, FTX_NAMED_params);
    const FtxBias *bias = named_io(s, FTX_NAMED_bias);
    int at = 0;

    EXPECT(step->tokens == c->T && step->rows == c->S, "%d %d, run with %d %d", step->tokens, step->rows, c->T, c->S);
    EXPECT(c->T >= 1 && c->T <= (int)f->tokens && c->S >= 1 && c->S <= (int)f->sequences, "%d %d", c->T, c->S);
    EXPECT(p->bucket == 0 || (int)p->bucket >= c->T, "bucket %u", p->bucket);
    EXPECT(p->kind == FTX_PROG_STEP || c->T == c->S, "decode with %d tokens, %d rows", c->T, c->S);
    for (int i = 0; i < c->S; i++) {
        const FtxRow *r = &row[i];

        EXPECT(r->q_start == at && r->q_len >= 1, "row %d: %d %d", i, r->q_start, r->q_len);
        EXPECT(r->slot >= 0 && r->slot < (int)f->sequences, "row %d: slot %d", i, r->slot);
        EXPECT(p->kind == FTX_PROG_STEP || r->emit, "row %d of a decode program emits nothing", i);
        EXPECT(is_decode(s, i) ? may_decode(s, i) : !must_decode(s, i), "row %d is%s a decode row", i,
               is_decode(s, i) ? "" : " not");
        EXPECT(r->kv_len <= r->limit && r->limit <= (int)f->context, "row %d: %d %d", i, r->kv_len, r->limit);
        EXPECT(p->kind == FTX_PROG_STEP || is_decode(s, i), "row %d of a decode program is a prompt's", i);
        EXPECT(!f->whole_prompts || r->kv_len >= r->prompt, "row %d has %d tokens of a prompt of %d", i, r->kv_len,
               r->prompt);
        for (int k = 0; k < i; k++)
            EXPECT(params[i].logits == 1 || row[k].slot != r->slot, "slot %d twice", r->slot);
        EXPECT(params[i].logits != FTX_LOGITS_MASKED || !r->emit || c->kind == COMMAND_FINISH,
               "row %d has a mask, and the run is not in two parts", i);
        EXPECT(params[i].logits != FTX_LOGITS_MASKED || (!params[i].simple && !params[i].top_needed),
               "row %d is drawn from segments", i);
        for (int k = 0; k < params[i].n_bias; k++) {
            const FtxBias *b = &bias[i * (int)f->logit_bias + k];

            EXPECT(b->value == (float)b->id, "row %d: a bias of %g for %d", i, (double)b->value, b->id);
        }
        for (int k = 0; k < r->q_len; k++)
            EXPECT(token[at + k].row == i && token[at + k].slot == r->slot &&
                       token[at + k].pos == r->kv_len - r->q_len + k && token[at + k].id >= 0 &&
                       token[at + k].id < (int)f->vocab,
                   "token %d of row %d", k, i);
        at += r->q_len;
    }
    EXPECT(step->decode_rows >= 0 && step->decode_rows <= c->S, "%d", step->decode_rows);
    EXPECT(at == c->T, "%d", at);
    fake.most_tokens = c->T > fake.most_tokens ? c->T : fake.most_tokens;
    fake.most_rows = c->S > fake.most_rows ? c->S : fake.most_rows;
}

/* Attention of decode rows may read what stood in the cache before the step while the step still adds to it: of what the step
 * writes, such a row sees its own token alone. Chunks of prompts read later, but each is in one row only; scored texts are
 * rows of one token behind the decode rows. */
static void check_early_reads(Session *s, const Command *c)
{
    const FtxStep *step = named_io(s, FTX_NAMED_step);
    const FtxRow *row = named_io(s, FTX_NAMED_rows);
    const FtxToken *token = named_io(s, FTX_NAMED_token);
    const FtxParams *params = named_io(s, FTX_NAMED_params);

    for (int i = 0; i < c->S; i++)
        for (int p = 0; p < row[i].kv_len - row[i].q_len; p++)
            for (int t = 0; t < c->T; t++)
                EXPECT(cache(s, row[i].slot, p) != cache(s, token[t].slot, token[t].pos) ||
                           (params[i].logits == 1 && i >= step->decode_rows),
                       "row %d reads position %d, which token %d of the same step writes", i, p, t);
}

/* The mark of a key at `pos` of a row with these parameters. */
static int32_t not_finite(const FtxParams *p, int pos)
{
    return (fake.nan_any || (fake.nan_seed && p->seed_low == fake.nan_seed)) && pos >= fake.nan_at ? NOT_FINITE : 0;
}

/* Of the ids that row i's mask allows the one with the largest logit; ends are banned below min_length. As on a GPU, any id
 * where all are banned. *finite: the mask allows one at all. */
static int32_t next_masked(Session *s, int i, const float *logits, const int32_t *ends, const FtxParams *p, int n,
                           bool *finite)
{
    const uint32_t V = s->device->artifact->facts->vocab;
    const uint32_t *bits = (uint32_t *)named_state(s, FTX_NAMED_mask) + (size_t)i * FTX_MASK_WORDS(V);
    int32_t best = 0;
    float high = -INFINITY;
    bool any = false;

    for (uint32_t v = 0; v < V; v++) {
        bool banned = !(bits[v / 32] >> v % 32 & 1);

        any = any || !banned;
        for (int k = 0; k < p->n_ends && n < p->min_length; k++)
            banned = banned || ends[k] == (int32_t)v;
        if (!banned && logits[v] > high) {
            high = logits[v];
            best = (int32_t)v;
        }
    }
    *finite = any;
    return best;
}

/* What a recurrent state has seen. */
typedef struct Seen {
    uint64_t tokens, hash;
} Seen;

/* The tokens of a row go into its slot's state, which is that of the tokens before them. */
static void recur(Session *s, const FtxRow *r, const FtxToken *token)
{
    Seen *seen = (Seen *)named_state(s, FTX_NAMED_recurrent) + r->slot;
    uint64_t hash = 0;

    for (int k = 0; k < r->q_len; k++) {
        if (token[k].pos == 0)
            *seen = (Seen){0};
        EXPECT(seen->tokens == (uint64_t)token[k].pos || fake.made_up, "slot %d: token %d, the state has seen %d",
               r->slot, token[k].pos, (int)seen->tokens);
        seen->hash = seen->hash * 31 + (uint64_t)token[k].id + 1;
        seen->tokens++;
    }
    for (int k = 0; k < r->kv_len; k++)
        hash = hash * 31 + (uint64_t)(*cache(s, r->slot, k) & ~(DECODED | NOT_FINITE)) + 1;
    EXPECT(hash == seen->hash || fake.made_up, "slot %d: its state has seen other tokens than the %d of its pages",
           r->slot, r->kv_len);
}

static void run_row(Session *s, int i)
{
    const FtxFacts *f = s->device->artifact->facts;
    FtxRow *r = (FtxRow *)named_io(s, FTX_NAMED_rows) + i;
    FtxToken *token = (FtxToken *)named_io(s, FTX_NAMED_token) + r->q_start;
    const FtxParams *p = (FtxParams *)named_io(s, FTX_NAMED_params) + i;
    const int32_t *ends = (int32_t *)named_io(s, FTX_NAMED_ends) + (size_t)i * f->end_ids;
    const int32_t *words = (int32_t *)named_state(s, FTX_NAMED_bad_words) + (size_t)r->slot * f->bad_words;
    float *logits = (float *)named_state(s, FTX_NAMED_logits) + (size_t)i * f->vocab;
    const int n = r->kv_len;
    volatile FtxOut *out = (FtxOut *)(s->out + s->device->plan->head->named[FTX_NAMED_out]) +
                           (size_t)(n % FTX_OUT_RING) * f->sequences + i;
    int32_t *history = (int32_t *)named_state(s, FTX_NAMED_history) + (size_t)r->slot * f->context;
    const int32_t decoded = by_role(s) && is_decode(s, i) ? DECODED : 0;
    int32_t ids[MOST_CONTEXT], next;
    bool finite = true;
    int finish = 0, nan = 0;

    fake.params = *p;
    for (int k = 0; k < r->q_len; k++)
        *cache(s, r->slot, token[k].pos) =
            (history[token[k].pos] = token[k].id) | decoded | not_finite(p, token[k].pos);
    if (s->device->plan->n_caches && !r->done)
        recur(s, r, token);
    if (!(r->emit || p->logits || f->states) || r->done)
        return;
    for (int k = 0; k < n; k++) {
        ids[k] = *cache(s, r->slot, k);
        EXPECT(!by_role(s) || fake.made_up || (ids[k] & DECODED) == (k < r->prompt ? 0 : DECODED),
               "row %d: the key at %d of %d was written by a %s row", i, k, r->prompt,
               ids[k] & DECODED ? "decode" : "prompt");
        nan |= ids[k] & NOT_FINITE;
        ids[k] &= ~(DECODED | NOT_FINITE);
        EXPECT(fake.made_up || history[k] == ids[k], "row %d: the history of slot %d has %d at %d, its pages %d", i,
               r->slot, history[k], k, ids[k]);
    }
    for (int k = 0; k < r->q_len; k++)
        for (uint32_t c = 0; c < f->states; c++)
            ((float *)named_state(s, FTX_NAMED_hidden))[(size_t)(r->q_start + k) * f->states + c] =
                fake_state(ids, token[k].pos + 1, c);
    for (uint32_t v = 0; v < f->vocab; v++)
        logits[v] = nan ? NAN : fake_logit(ids, n, v);
    if (!r->emit)
        return;
    for (int k = n; k % (int)f->kv_block; k++) /* kernels multiply these by zero */
        nan |= *cache(s, r->slot, k) & NOT_FINITE;
    next = fake_next(ids, n,
                     fake_words(fake_seed((uint64_t)p->seed_high << 32 | p->seed_low, p->sample), words, p->n_words),
                     f->vocab, ends, p->n_ends, p->min_length);
    if (p->logits == FTX_LOGITS_MASKED)
        next = next_masked(s, i, logits, ends, p, n, &finite);
    if (n + 1 >= r->limit)
        finish = 2;
    for (int k = 0; k < p->n_ends; k++)
        if (ends[k] == next)
            finish = 1;
    if (!fake.lose_results) {
        out->token = fake.token ? fake.token : next;
        out->logprob = finite && !nan ? -(float)next : NAN;
        out->finish = finish;
        __atomic_store_n(&out->length, n, __ATOMIC_RELEASE);
    }
    r->done = finish != 0;
    if (r->done)
        return;
    r->kv_len++;
    ((FtxToken *)named_io(s, FTX_NAMED_token))[i] = (FtxToken){next, n, i, r->slot};
}

static void do_run(Session *s, const Command *c)
{
    if (fake.delay_us) {
        s->random = s->random * 1664525u + 1013904223u;
        usleep((s->random >> 8) % fake.delay_us);
    }
    while (__atomic_load_n(&fake.hold, __ATOMIC_RELAXED))
        usleep(50);
    __atomic_fetch_add(&s->done, 1, __ATOMIC_RELAXED); /* before the results: who reads them may issue the next run */
    if (c->fails) {
        s->failed = true;
        return;
    }
    check_step(s, c);
    check_early_reads(s, c);
    for (int i = 0; i < c->S && !fake.wrong[0]; i++)
        run_row(s, i);
}

/* As late as a copy may be. */
static void copy_masks(Session *s, const Command *c)
{
    const size_t row = FTX_MASK_WORDS(s->device->artifact->facts->vocab) * sizeof *s->masks;

    memcpy((char *)named_state(s, FTX_NAMED_mask) + (size_t)c->first * row, (char *)s->masks + (size_t)c->first * row,
           (size_t)c->n * row);
}

static void wipe(Session *s, uint32_t page)
{
    const uint32_t block = s->device->artifact->facts->kv_block;

    memset(s->kv + (size_t)page * block, 0, block * sizeof *s->kv);
}

static void do_command(Session *s, const Command *c)
{
    if (c->kind == COMMAND_FINISH && !s->failed) {
        EXPECT(s->begun == c->program + 1, "program %u is finished, begun was %u", c->program, s->begun - 1);
        s->begun = 0;
        copy_masks(s, c);
        do_run(s, c);
        while (s->n_wiped)
            wipe(s, s->wiped[--s->n_wiped]);
    } else if (c->kind == COMMAND_BEGIN) {
        EXPECT(!s->begun, "%u", s->begun);
        s->begun = c->program + 1;
    } else if (c->kind == COMMAND_WIPE && s->begun) {
        EXPECT(s->n_wiped < 64, "%u", s->n_wiped);
        s->wiped[s->n_wiped++ % 64] = c->page;
    } else if (s->begun && c->kind != COMMAND_END && !s->failed) {
        wrong("command %d between the two parts of a run", c->kind);
    } else if (c->kind == COMMAND_UPLOAD) {
        memset(s->io, 0xee, s->device->plan->head->space_bytes[FTX_SPACE_IO]);
        memcpy(s->io, s->host_io, c->bytes);
    } else if (c->kind == COMMAND_WRITE) {
        memcpy((char *)named_state(s, c->named) + c->offset, c->data, c->bytes);
    } else if (c->kind == COMMAND_KEEP) {
        const uint32_t block = s->device->artifact->facts->kv_block;
        int32_t *in = s->kv + (size_t)c->page * block, *out = s->kept + (size_t)c->kept * block;

        memcpy(c->back ? in : out, c->back ? out : in, block * sizeof *in);
        if (c->back) /* nobody may read it again; a page of the cache may still be found */
            memset(out, 0x55, block * sizeof *out);
    } else if (c->kind == COMMAND_WIPE) {
        wipe(s, c->page);
    } else if (c->kind == COMMAND_SNAPSHOT) {
        Seen *in = (Seen *)named_state(s, FTX_NAMED_recurrent) + c->slot;
        Seen *out = (Seen *)named_state(s, FTX_NAMED_snapshots) + c->snapshot;

        *(c->back ? in : out) = *(c->back ? out : in);
    } else if (c->kind == COMMAND_RUN && !s->failed) {
        do_run(s, c);
    }
}

static void *work(void *p)
{
    Session *s = p;

    for (bool end = false; !end;) {
        Command *c;

        pthread_mutex_lock(&s->lock);
        while (s->put == s->got)
            pthread_cond_wait(&s->changed, &s->lock);
        c = &s->queue[s->got % QUEUE];
        pthread_mutex_unlock(&s->lock);
        do_command(s, c);
        end = c->kind == COMMAND_END;
        pthread_mutex_lock(&s->lock);
        s->got++;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void put(Session *s, const Command *c)
{
    if (!fake.asynchronous) {
        do_command(s, c);
        return;
    }
    pthread_mutex_lock(&s->lock);
    while (s->put - s->got == QUEUE)
        pthread_cond_wait(&s->changed, &s->lock);
    Command *slot = &s->queue[s->put % QUEUE];

    *slot = *c;
    if (c->kind == COMMAND_WRITE)
        slot->data = memcpy(s->written[s->put % QUEUE], c->data, c->bytes);
    s->put++;
    s->issued += c->kind == COMMAND_RUN || c->kind == COMMAND_FINISH;

    const int ahead = s->issued - __atomic_load_n(&s->done, __ATOMIC_RELAXED);

    if (ahead > fake.most_ahead)
        fake.most_ahead = ahead;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static FtxStatus fake_open(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out,
                           FtxError *err)
{
    const Memory m = memory_of(o);
    Device *d = fake.open ? NULL : memory_alloc(&m, sizeof *d, 16);

    *out = NULL;
    if (fake.open)
        return ftx_fail(err, fake.open, "the fake device does not open");
    if (!d)
        return memory_fail(err, "the fake device", sizeof *d);
    *d = (Device){m, a, plan};
    fake.opens++;
    *out = d;
    return FTX_OK;
}

static void fake_close(Device *d)
{
    const Memory m = d->memory;

    fake.closes++;
    memory_free(&m, d, sizeof *d);
}

static const char *fake_describe(const Device *d)
{
    (void)d;
    return "fake";
}

static void fake_tell(const Device *d, FtxModelInfo *info)
{
    (void)d;
    if (!fake.told.host_weight_bytes)
        return;
    info->weight_bytes = fake.told.weight_bytes;
    info->host_weight_bytes = fake.told.host_weight_bytes;
    info->host_layers = fake.told.host_layers;
    info->copy_bytes = fake.told.copy_bytes;
    info->copy_us = fake.told.copy_us;
}

static void fake_session_close(Session *s)
{
    const Memory m = s->memory;

    if (s->has_thread) {
        put(s, &(Command){.kind = COMMAND_END});
        pthread_join(s->thread, NULL);
    }
    fake.sessions -= s->block != NULL;
    if (s->kept)
        memory_free(&m, s->kept, (size_t)s->n_kept * s->device->artifact->facts->kv_block * sizeof *s->kept);
    memory_free(&m, s->block, s->bytes);
    memory_free(&m, s, sizeof *s);
}

static FtxStatus fake_session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err)
{
    const CacheMemory memory = {.all = (uint64_t)1 << 37, .free = (uint64_t)1 << 36, .full = FTX_EDEVICE};
    const uint64_t *space = d->plan->head->space_bytes;
    FtxStatus chosen = cache_pages(d->artifact, d->plan, kv_bytes, memory, pages, err);
    Session *s = chosen ? NULL : memory_alloc(&d->memory, sizeof *s, 64);

    *out = NULL;
    if (!s)
        return chosen ? chosen : memory_fail(err, "a fake session", sizeof *s);
    s->memory = d->memory;
    s->device = d;
    s->pages = *pages;
    s->bytes = 2 * space[FTX_SPACE_IO] + space[FTX_SPACE_STATE] + (space[FTX_SPACE_OUT] + 63) / 64 * 64 +
               cache_bytes(d->plan, s->pages) + d->plan->head->named_bytes[FTX_NAMED_mask];
    s->block = memory_alloc(&d->memory, s->bytes, 64);
    if (!s->block) {
        const FtxStatus status = memory_fail(err, "a fake session's state", s->bytes);

        fake_session_close(s);
        return status;
    }
    s->host_io = s->block;
    s->io = fake.asynchronous ? s->host_io + space[FTX_SPACE_IO] : s->host_io;
    s->state = s->host_io + 2 * space[FTX_SPACE_IO];
    s->out = s->state + space[FTX_SPACE_STATE];
    memset(s->out, 0, space[FTX_SPACE_OUT]);
    s->kv = (int32_t *)(void *)(s->out + (space[FTX_SPACE_OUT] + 63) / 64 * 64);
    if (d->plan->head->named_bytes[FTX_NAMED_mask])
        s->masks = (uint32_t *)(void *)((char *)s->kv + cache_bytes(d->plan, s->pages));
    fake.sessions++;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->has_thread = fake.asynchronous && pthread_create(&s->thread, NULL, work, s) == 0;
    *out = s;
    return FTX_OK;
}

static void *fake_io(Session *s)
{
    return s->host_io;
}

static const void *fake_out(Session *s)
{
    return s->out;
}

static FtxStatus fake_upload(Session *s, size_t bytes, FtxError *err)
{
    (void)err;
    fake_called('u');
    fake.uploads++;
    fake.uploaded = bytes;
    EXPECT(bytes <= s->device->plan->head->space_bytes[FTX_SPACE_IO], "%zu", bytes);
    if (fake.asynchronous)
        put(s, &(Command){.kind = COMMAND_UPLOAD, .bytes = bytes});
    return FTX_OK;
}

static FtxStatus fake_write(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    const Command c = {.kind = COMMAND_WRITE, .named = named, .offset = offset, .bytes = bytes, .data = p};

    (void)err;
    fake_called('p');
    EXPECT((named == FTX_NAMED_pages || named == FTX_NAMED_history || named == FTX_NAMED_bad_words) &&
               bytes <= WRITE_BYTES && offset + bytes <= s->device->plan->head->named_bytes[named],
           "%d %zu %zu", named, offset, bytes);
    put(s, &c);
    return FTX_OK;
}

static FtxStatus fake_wait(Session *s, FtxError *err)
{
    bool failed;

    fake_called('w');
    if (!fake.asynchronous)
        return FTX_OK;
    pthread_mutex_lock(&s->lock);
    while (s->put != s->got)
        pthread_cond_wait(&s->changed, &s->lock);
    failed = s->failed;
    pthread_mutex_unlock(&s->lock);
    return failed ? ftx_fail(err, FTX_EDEVICE, "the fake device has failed") : FTX_OK;
}

static FtxStatus fake_read(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err)
{
    const FtxStatus status = fake_wait(s, err);

    EXPECT((named == FTX_NAMED_logits || named == FTX_NAMED_hidden) &&
               offset + bytes <= s->device->plan->head->named_bytes[named],
           "%d %zu %zu", named, offset, bytes);
    fake.reads += named == FTX_NAMED_logits;
    memcpy(p, (char *)named_state(s, named) + offset, bytes);
    return status;
}

/* The host may write IO again: no upload is left among the commands. */
static FtxStatus fake_settle(Session *s, FtxError *err)
{
    (void)err;
    fake_called('s');
    if (!fake.asynchronous)
        return FTX_OK;
    pthread_mutex_lock(&s->lock);
    for (unsigned i = s->got; i != s->put;)
        if (s->queue[i % QUEUE].kind == COMMAND_UPLOAD) {
            pthread_cond_wait(&s->changed, &s->lock);
            i = s->got;
        } else {
            i++;
        }
    pthread_mutex_unlock(&s->lock);
    return FTX_OK;
}

/* kind: a run, or the second part of one with masks of rows [first, first + n). */
static FtxStatus run_once(Session *s, CommandKind kind, uint32_t program, int T, int S, int first, int n, FtxError *err)
{
    const bool fails = ++fake.runs == fake.fail_at;

    fake_called(kind == COMMAND_RUN ? 'r' : 'f');
    if (fake.runs <= (int)(sizeof fake.rows / sizeof *fake.rows))
        fake.rows[fake.runs - 1] = S;
    fake.decode_runs += s->device->plan->programs[program].kind == FTX_PROG_DECODE;
    if (fails && !fake.fail_late)
        return ftx_fail(err, FTX_EDEVICE, "the fake device has failed");
    put(s, &(Command){.kind = kind, .program = program, .T = T, .S = S, .first = first, .n = n, .fails = fails});
    return FTX_OK;
}

static FtxStatus fake_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    FtxStatus status = FTX_OK;

    for (int i = 0; i < times && !status; i++)
        status = run_once(s, COMMAND_RUN, program, T, S, 0, 0, err);
    return status;
}

static uint32_t *fake_masks(Session *s)
{
    return s->masks;
}

static FtxStatus fake_begin(Session *s, uint32_t program, int T, int S, FtxError *err)
{
    (void)err;
    fake_called('b');
    put(s, &(Command){.kind = COMMAND_BEGIN, .program = program, .T = T, .S = S});
    return FTX_OK;
}

static FtxStatus fake_finish(Session *s, uint32_t program, int T, int S, int first, int n, FtxError *err)
{
    EXPECT(first >= 0 && n >= 0 && first + n <= S, "%d %d of %d", first, n, S);
    return run_once(s, COMMAND_FINISH, program, T, S, first, n, err);
}

static FtxStatus fake_keep_open(Session *s, uint32_t n, FtxError *err)
{
    const size_t bytes = (size_t)n * s->device->artifact->facts->kv_block * sizeof *s->kept;

    EXPECT(!s->kept, "%u", n);
    s->kept = memory_alloc(&s->memory, bytes, 64);
    s->n_kept = n;
    return s->kept ? FTX_OK : memory_fail(err, "fake pages on the host", bytes);
}

static FtxStatus fake_keep(Session *s, uint32_t kept, uint32_t page, bool back, FtxError *err)
{
    EXPECT(kept < s->n_kept && page < s->pages, "%u %u", kept, page);
    if (fake.keeps_until_failure && --fake.keeps_until_failure == 0)
        return ftx_fail(err, FTX_EDEVICE, "the fake copy has failed");
    fake.keeps[back]++;
    put(s, &(Command){.kind = COMMAND_KEEP, .kept = kept, .page = page, .back = back});
    return FTX_OK;
}

static FtxStatus fake_wipe(Session *s, uint32_t page, FtxError *err)
{
    EXPECT(page < s->pages, "%u", page);
    if (fake.wipes_until_failure && --fake.wipes_until_failure == 0)
        return ftx_fail(err, FTX_EDEVICE, "the fake wipe has failed");
    fake.wipes++;
    put(s, &(Command){.kind = COMMAND_WIPE, .page = page});
    return FTX_OK;
}

static FtxStatus fake_snapshot(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err)
{
    EXPECT(snapshot < cache_snapshots(s->device->artifact, s->device->plan) &&
               slot < s->device->artifact->facts->sequences,
           "%u %u", snapshot, slot);
    if (fake.snapshots_until_failure && --fake.snapshots_until_failure == 0)
        return ftx_fail(err, FTX_EDEVICE, "the fake snapshot has failed");
    fake.snapshots[back]++;
    put(s, &(Command){.kind = COMMAND_SNAPSHOT, .snapshot = snapshot, .slot = slot, .back = back});
    return FTX_OK;
}

static FtxStatus fake_profile(Session *s, bool on, const FtxProfile **rows, size_t *n, FtxError *err)
{
    (void)s, (void)on, (void)err;
    *rows = NULL;
    *n = 0;
    return FTX_OK;
}

static FtxStatus fake_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    FtxStatus status = FTX_OK;

    for (int i = 0; i < repeat && !status; i++) {
        status = run_once(s, COMMAND_RUN, program, T, S, 0, 0, err);
        times[i] = (fake.time_us > 0.0 ? fake.time_us : 100.0) + (i * 7) % repeat +
                   (T > S ? fake.prompt_us + T * fake.token_us : 0.0);
    }
    return status;
}

/* A session whose calls are recorded is asked by its own name. */
static FtxStatus fake_check(Session *s, FtxError *err)
{
    (void)err;
    EXPECT((void *)s != (void *)fake.traced, "%p", (void *)s);
    return FTX_OK;
}

static FtxStatus fake_trace(Session *s, Trace *t, FtxError *err)
{
    (void)s;
    fake.traced = t;
    return fake.trace ? ftx_fail(err, fake.trace, "the fake device does not trace") : FTX_OK;
}

#define TABLE(is_asynchronous) \
    { \
        .name = "fake", .open = fake_open, .close = fake_close, .describe = fake_describe, .tell = fake_tell, \
        .session_open = fake_session_open, .session_close = fake_session_close, .io = fake_io, .out = fake_out, \
        .upload = fake_upload, .settle = fake_settle, .write = fake_write, .read = fake_read, .run = fake_run, \
        .keep_open = fake_keep_open, .keep = fake_keep, .wipe = fake_wipe, .snapshot = fake_snapshot, \
        .wait = fake_wait, .check = fake_check, .asynchronous = is_asynchronous, \
        .masks = is_asynchronous ? fake_masks : NULL, .begin = fake_begin, .finish = fake_finish, \
        .profile = fake_profile, .time = fake_time, .trace = fake_trace, \
    }

const DeviceApi fake_device = TABLE(false);
const DeviceApi device_cuda = TABLE(true);

FtxStatus device_cuda_probe(int ordinal, uint32_t *target, FtxError *err)
{
    (void)ordinal;
    *target = 900;
    return fake.probe ? ftx_fail(err, fake.probe, "no fake GPU") : FTX_OK;
}

FtxStatus device_cuda_name(int ordinal, char *name, size_t bytes, FtxError *err)
{
    (void)ordinal, (void)err;
    snprintf(name, bytes, "NVIDIA Fake");
    return FTX_OK;
}
