/* jobs.h - requests to the engine on the fake device: what they must give, and running them. */
#ifndef FTX_TEST_JOBS_H
#define FTX_TEST_JOBS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"

enum { MAX_IDS = 256, MAX_TEXT = 1024 };

/* A request, what came back, and what must come back. */
typedef struct Job {
    FtxRequest request;
    uint64_t id;
    int32_t prompt[MAX_IDS], stop_ids[2];
    const char *stop[2];
    int32_t words[8]; /* what $bad_words must have */
    int n_words;
    int32_t got[MAX_IDS], expected[MAX_IDS];
    int n_got, n_expected;
    char text[MAX_TEXT], expected_text[MAX_TEXT];
    size_t text_bytes, expected_text_bytes;
    FtxFinish finish, expected_finish;
    bool submitted, cancelled, ended;
} Job;

typedef struct Bed { /* what a test runs on */
    FakeSizes sizes;
    FakeArtifact artifact;
    FtxModel *model;
    FtxEngine *engine;
} Bed;

static inline void open_bed(Bed *b, const FakeSizes *sizes)
{
    FtxError err;

    b->sizes = *sizes;
    fake_artifact(&b->artifact, sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b->model, NULL, &b->engine, &err), FTX_OK);
}

static inline void close_bed(Bed *b)
{
    assert_string_equal(fake.wrong, "");
    ftx_engine_close(b->engine);
    ftx_model_close(b->model);
    assert_int_equal(fake.sessions, 0);
    assert_int_equal(fake.opens, fake.closes);
}

static inline void reset_fake(bool asynchronous, unsigned delay_us)
{
    fake = (FakeDevice){.asynchronous = asynchronous, .delay_us = delay_us};
}

/* Everything has been given back. */
static inline void assert_idle(const FtxEngine *e)
{
    assert_false(ftx_engine_busy(e));
    assert_int_equal(e->pages.n, e->pages.all);
    assert_int_equal(e->free_slots, e->slots);
    assert_int_equal(e->unused.n, e->requests);
    for (uint32_t i = 0; i < e->pages.fresh; i++) { /* all that were taken */
        assert_true(e->pages.free[i] >= 0 && (uint32_t)e->pages.free[i] < e->pages.fresh);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(e->pages.free[i], e->pages.free[k]);
    }
}

/* So much memory has been touched: a request that comes alone takes the place of the one before it. */
static inline uint32_t requests_used(const FtxEngine *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->requests; i++)
        n += e->request[i].id != 0;
    return n;
}

/* --- what must come back ------------------------------------------------------------------------- */

/* Text byte by byte: the first place where a stop string is complete ends it. */
static inline bool cut_at_stop(const Job *j, char *text, size_t *bytes)
{
    for (size_t end = 1; end <= *bytes; end++) {
        size_t longest = 0;

        for (size_t i = 0; i < j->request.stop_count; i++) {
            const size_t n = strlen(j->stop[i]);

            if (n <= end && memcmp(text + end - n, j->stop[i], n) == 0 && n > longest)
                longest = n;
        }
        if (longest) {
            *bytes = end - longest;
            return true;
        }
    }
    return false;
}

static inline size_t decode(const int32_t *ids, int n, bool flush, char *text)
{
    TokenizerStream s = {0};
    size_t all = 0, part;

    for (int i = 0; i < n; i++, all += part)
        tokenizer_stream(NULL, &s, ids[i], false, text + all, MAX_TEXT - all, &part, NULL);
    if (flush) {
        tokenizer_stream(NULL, &s, -1, true, text + all, MAX_TEXT - all, &part, NULL);
        all += part;
    }
    return all;
}

static inline void expect(const Bed *b, Job *j)
{
    const FtxRequest *q = &j->request;
    const FakeSizes *s = &b->sizes;
    int32_t ids[MAX_IDS], ends[FTX_MAX_ENDS + 2];
    int n_ends = 0, n = (int)q->ids_count;
    const int room = (int)s->context - n;
    const int most = q->max_new && q->max_new < room ? q->max_new : room;

    for (uint32_t i = 0; i < s->n_ends && !q->ignore_eos; i++)
        ends[n_ends++] = s->ends[i];
    for (size_t i = 0; i < q->stop_ids_count; i++)
        ends[n_ends++] = q->stop_ids[i];
    memcpy(ids, j->prompt, (size_t)n * sizeof *ids);
    j->n_expected = 0;
    j->expected_finish = FTX_RUNNING;
    while (j->expected_finish == FTX_RUNNING) {
        const int32_t next = fake_next(ids, n, fake_words(q->seed, j->words, j->n_words), s->vocab, ends, n_ends,
                                       (int)q->ids_count + q->min_new);

        ids[n++] = j->expected[j->n_expected++] = next;
        j->expected_finish = j->n_expected == most ? FTX_FINISH_LENGTH : FTX_RUNNING;
        for (int i = 0; i < n_ends; i++)
            if (ends[i] == next)
                j->expected_finish = FTX_FINISH_END;
        if (!s->tokenizer)
            continue;
        j->expected_text_bytes = decode(j->expected, j->n_expected - (j->expected_finish == FTX_FINISH_END),
                                        j->expected_finish != FTX_RUNNING, j->expected_text);
        if (cut_at_stop(j, j->expected_text, &j->expected_text_bytes))
            j->expected_finish = FTX_FINISH_STOP;
    }
}

static inline void take_event(Job *j, const FtxEvent *e)
{
    assert_false(j->ended);
    assert_ptr_equal(e->user, j);
    if (e->token >= 0)
        j->got[j->n_got++] = e->token;
    memcpy(j->text + j->text_bytes, e->text, e->text_bytes);
    j->text_bytes += e->text_bytes;
    j->finish = e->finish;
    j->ended = e->finish != FTX_RUNNING;
    if (e->token >= 0)
        assert_true(e->logprob == (j->request.logprobs ? -(float)e->token : 0.0f));
}

static inline void compare(const Job *j)
{
    assert_true(j->ended);
    if (j->cancelled && j->finish == FTX_FINISH_CANCEL) {
        assert_true(j->n_got <= j->n_expected);
    } else {
        assert_int_equal(j->finish, j->expected_finish);
        assert_int_equal(j->n_got, j->n_expected);
        assert_int_equal(j->text_bytes, j->expected_text_bytes);
    }
    assert_memory_equal(j->got, j->expected, (size_t)j->n_got * sizeof *j->got);
    assert_memory_equal(j->text, j->expected_text, j->text_bytes);
}

/* --- running ---------------------------------------------------------------------------------------- */

static inline void make_job(Job *j, int prompt, uint64_t seed)
{
    memset(j, 0, sizeof *j);
    for (int i = 0; i < prompt; i++)
        j->prompt[i] = (int32_t)((seed * 13 + (uint64_t)i * 7) % 61);
    j->request = (FtxRequest){.size = sizeof(FtxRequest),
                              .forced_bos = -1,
                              .forced_eos = -1,
                              .ids = j->prompt,
                              .ids_count = (size_t)prompt,
                              .top_p = 1.0f,
                              .repetition_penalty = 1.0f,
                              .seed = seed,
                              .user = j};
}

static inline void submit(Bed *b, Job *j)
{
    FtxError err;

    if (ftx_engine_submit(b->engine, &j->request, &j->id, &err))
        fail_msg("submit: %s", err.text);
    j->submitted = true;
}

/* Who is preempted or has ended is in no flight: its results would be taken for those of what comes next. */
static inline void check_rows(const FtxEngine *e)
{
    for (int i = 0; i < e->flight.rows; i++)
        assert_true(!e->flight.row[i].request || e->flight.row[i].request->state == REQUEST_RUNNING);
}

static inline size_t step(Bed *b)
{
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    FtxError err = {FTX_OK, ""};
    size_t n;

    assert_string_equal(fake.wrong, "");
    if (ftx_engine_step(b->engine, ev, 64, &n, &err))
        fail_msg("step: %s; %s", err.text, fake.wrong);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(ev[i].request, ev[k].request);
        take_event(ev[i].user, &ev[i]);
    }
    check_rows(b->engine);
    return n;
}

static inline void run(Bed *b)
{
    for (int i = 0; ftx_engine_busy(b->engine); i++) {
        assert_true(i < 10000);
        step(b);
    }
}

#endif
