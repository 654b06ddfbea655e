/* storm_requests.c - random requests of a storm: every setting, now and then an invalid one. */
#include <string.h>

#include "storm.h"

/* --- random numbers -------------------------------------------------------------------------------- */

unsigned storm_roll(uint64_t *state, unsigned sides)
{
    *state += 0x9e3779b97f4a7c15u; /* splitmix64, Steele et al. 2014 */

    uint64_t z = *state;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ z >> 31) % sides);
}

static unsigned dice(Storm *s, unsigned sides)
{
    return storm_roll(&s->dice, sides);
}

static bool rarely(Storm *s, unsigned sides)
{
    return dice(s, sides) == 0;
}

static int32_t any_id(Storm *s)
{
    return (int32_t)dice(s, (unsigned)s->info.vocab);
}

/* --- requests --------------------------------------------------------------------------------------- */

static void set_sampling(Storm *s, FtxRequest *q)
{
    static const int top_k[] = {0, 0, 1, 3, 8, 20, 50};
    static const float top_p[] = {1.0f, 1.0f, 0.95f, 0.5f, 0.1f};

    q->temperature = rarely(s, 3) ? 0.0f : 0.3f + 0.1f * (float)dice(s, 20);
    q->top_k = top_k[dice(s, 7)] < s->info.max_top_k ? top_k[dice(s, 7)] : s->info.max_top_k;
    if (q->top_k > s->info.max_top_k)
        q->top_k = s->info.max_top_k;
    q->top_p = top_p[dice(s, 5)];
    q->min_p = rarely(s, 4) ? 0.05f : 0.0f;
    q->typical_p = rarely(s, 6) ? 0.7f : 1.0f;
    if (rarely(s, 3))
        q->samples =
            1 + (int)dice(s, (unsigned)(s->info.sequences < STORM_SAMPLES ? s->info.sequences : STORM_SAMPLES));
    q->sample = rarely(s, 5) ? 3 : 0;
}

static void set_beams(Storm *s, FtxRequest *q)
{
    q->beams = 2 + (int)dice(s, (unsigned)s->info.max_beams - 1);
    q->n_best = (int)dice(s, (unsigned)q->beams + 1);
    q->length_penalty = 0.5f * (float)((int)dice(s, 5) - 1);
    q->early_stopping = (FtxEarly)dice(s, 3);
    if (rarely(s, 3)) {
        q->beam_groups = q->beams;
        q->diversity_rate = 0.5f;
    }
}

static void set_processors(Storm *s, StormJob *j)
{
    FtxRequest *q = &j->request;

    q->repetition_penalty = rarely(s, 3) ? 1.3f : 1.0f;
    q->repetition_window = rarely(s, 2) ? 1 + (int)dice(s, 6) : 0;
    q->presence_penalty = rarely(s, 4) ? 0.4f : 0.0f;
    q->frequency_penalty = rarely(s, 4) ? -0.2f : 0.0f;
    q->no_repeat_ngram = rarely(s, 4) ? 1 + (int)dice(s, 3) : 0;
    for (int i = 0; i < 2; i++) {
        j->bias_ids[i] = any_id(s);
        j->bias[i] = rarely(s, 2) ? 4.0f : -3.0f;
    }
    q->bias_ids = j->bias_ids;
    q->bias_values = j->bias;
    q->bias_count = rarely(s, 3) ? 1 + dice(s, 2) : 0;
    for (int i = 0; i < 4; i++)
        j->bad_ids[i] = any_id(s);
    j->bad_lengths[0] = 1 + dice(s, 2);
    j->bad_lengths[1] = 1;
    q->bad_ids = j->bad_ids;
    q->bad_lengths = j->bad_lengths;
    q->bad_count = rarely(s, 4) ? 1 + dice(s, 2) : 0;
}

/* Most prompts begin with a part of one of three texts, some with a whole one. */
static void share_beginning(Storm *s, StormJob *j)
{
    const unsigned text = dice(s, 3);
    const size_t n = dice(s, (unsigned)(s->info.context < STORM_IDS ? s->info.context : STORM_IDS) - 6);

    if (j->request.ids_count < n)
        j->request.ids_count = n + dice(s, 6);
    for (size_t i = 0; i < n; i++)
        j->ids[i] = (int32_t)((i * 7 + text * 31) % (unsigned)s->info.vocab);
    j->request.cache_salt = rarely(s, 6);
}

/* A grammar: the token before and the number of tokens decide which may follow; after some texts none may. */
static bool allow(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    const int vocab = *(const int *)user;
    const unsigned last = count ? (unsigned)ids[count - 1] : (unsigned)sample;

    for (int id = 0; id < vocab; id++)
        if (((unsigned)id * 7 + last * 13 + (unsigned)count) % 5 < 2)
            bits[id / 32] |= 1u << id % 32;
    return count < 5 || last % 8;
}

static void set_wishes(Storm *s, FtxRequest *q)
{
    q->priority = (int)dice(s, 3) - 1;
    q->fair_key = dice(s, 3);
    if (q->beams > 1)
        return;
    q->top_logprobs = rarely(s, 3) ? (int)dice(s, 21) : 0;
    q->prompt_logprobs = s->info.kind == FTX_MODEL_DECODER && rarely(s, 5);
    q->mask = rarely(s, 5) ? allow : NULL;
    q->mask_user = &s->info.vocab;
}

/* Makes a random request, which now and then is invalid. */
void storm_make_job(Storm *s, StormJob *j)
{
    const bool reads = s->info.kind == FTX_MODEL_SEQ2SEQ;
    const unsigned most = (unsigned)(reads ? s->info.source_context : s->info.context - 1);
    const unsigned room = most < STORM_IDS ? most : STORM_IDS;
    FtxRequest *q = &j->request;

    memset(j, 0, sizeof *j);
    *q = ftx_request_default(s->model);
    q->ids = j->ids;
    q->ids_count = 1 + dice(s, rarely(s, 3) ? room : 9);
    for (size_t i = 0; i < q->ids_count; i++)
        j->ids[i] = any_id(s);
    if (s->prefix)
        share_beginning(s, j);
    q->max_new = (int)dice(s, s->info.context < 72 ? 12 : s->info.context < 384 ? (unsigned)s->info.context / 6 : 64);
    if (q->max_new == 0 && !rarely(s, 4))
        q->max_new = 1;
    q->min_new = q->max_new > 2 && rarely(s, 3) ? 2 : 0;
    q->seed = dice(s, 1000);
    q->beams = 1;
    q->n_best = 0;
    q->ignore_eos = rarely(s, 4);
    for (int i = 0; i < 2; i++)
        j->stop_ids[i] = any_id(s);
    q->stop_ids = j->stop_ids;
    q->stop_ids_count = dice(s, 3);
    if (reads && rarely(s, 3)) {
        for (int i = 0; i < 4; i++)
            j->prefix[i] = any_id(s);
        q->prefix = j->prefix;
        q->prefix_count = 1 + dice(s, 4);
    }
    set_processors(s, j);
    if (s->info.max_beams > 1 && rarely(s, 3))
        set_beams(s, q);
    else
        set_sampling(s, q);
    q->logprobs = rarely(s, 2);
    q->logits = j->with_logits = rarely(s, 4);
    set_wishes(s, q);
    if (rarely(s, 15)) { /* invalid: it is refused and must not affect others */
        const int mistake = (int)dice(s, 4);

        q->top_k = mistake == 0 ? s->info.max_top_k + 1 : q->top_k;
        q->max_new = mistake == 1 ? -1 : q->max_new;
        j->ids[0] = mistake == 2 ? s->info.vocab : j->ids[0];
        q->beams = mistake == 3 ? s->info.max_beams + 1 : q->beams;
    }
    j->samples = q->samples > 1 ? q->samples : 1;
    q->user = j;
}
