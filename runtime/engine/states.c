/* states.c - FtxRequest.states: the states of a decoder's last layer, from $hidden to events.
 *
 *   step ─▶ $hidden [T,D] ─▶ e->states, rows of requests that want them ─▶ events, or a request's sum over its prompt
 *
 * A preempted request reads its tokens again; states_done says of how many the states are returned already. Pages of the
 * prefix cache save the computation of tokens, so they are not used behind states_done. */
#include "engine.h"

bool states_wait(const Request *r, int from)
{
    return r->states == FTX_STATES_TOKENS || (r->states != FTX_STATES_NONE && from < r->prompt);
}

int states_reusable(const Request *r, int tokens)
{
    const bool needed = r->states == FTX_STATES_TOKENS || (r->states == FTX_STATES_MEAN && r->states_done < r->prompt);

    return needed && r->states_done < tokens ? r->states_done : tokens;
}

/* The part of row w whose states are still to be returned: its first token in the step, and how many; 0: none. */
static int wanted_states(const Row *w, int *first)
{
    const Request *r = w->request;
    const int end = w->from + w->count;
    const int most = r->states == FTX_STATES_TOKENS || end < r->prompt ? end : r->prompt;
    int from = r->states == FTX_STATES_LAST ? r->prompt - 1 : r->states_done;

    if (r->states == FTX_STATES_NONE || r->states_done >= most)
        return 0;
    from = from > w->from ? from : w->from;
    *first = w->first + from - w->from;
    return most > from ? most - from : 0;
}

static float *states_of(const FtxEngine *e, int token)
{
    return e->states + (size_t)token * e->facts->states;
}

static void add_states(const FtxEngine *e, Request *r, int first, int n)
{
    const uint32_t width = e->facts->states;

    for (uint32_t c = 0; c < width && r->states_done == 0; c++)
        r->states_sum[c] = 0.0f;
    for (int t = 0; t < n; t++)
        for (uint32_t c = 0; c < width; c++)
            r->states_sum[c] += states_of(e, first + t)[c];
}

FtxStatus states_land(FtxEngine *e, const Flight *f, FtxError *err)
{
    const size_t row = (size_t)e->facts->states * sizeof *e->states;
    FtxStatus s = FTX_OK;
    int first;

    for (int i = 0; i < f->rows && !s; i++) {
        const Row *w = &f->row[i];
        const int n = w->request ? wanted_states(w, &first) : 0;

        if (!n)
            continue;
        s = e->api->read(e->session, FTX_NAMED_hidden, (size_t)first * row, states_of(e, first), (size_t)n * row, err);
        if (!s && w->request->states == FTX_STATES_MEAN) {
            add_states(e, w->request, first, n);
            w->request->states_done += n;
        }
    }
    return s;
}

/* The prompt has ended: its mean. */
static void tell_mean(const FtxEngine *e, Request *r, FtxEvent *event)
{
    for (uint32_t c = 0; c < e->facts->states; c++)
        r->states_sum[c] = r->states_sum[c] / (float)r->prompt;
    event->states = r->states_sum;
    event->states_count = 1;
}

void states_tell(FtxEngine *e, const Flight *f, int i, FtxEvent *event, Events *v)
{
    const Row *w = &f->row[i];
    Request *r = w->request;
    int first = 0, n;

    if (r->states == FTX_STATES_MEAN && event && w->from < r->prompt && w->from + w->count == r->prompt)
        tell_mean(e, r, event);
    n = r->states == FTX_STATES_MEAN ? 0 : wanted_states(w, &first);
    if (!n)
        return;
    event = event ? event : submit_add_event(v, r);
    event->states = states_of(e, first);
    event->states_first = (size_t)(w->from + first - w->first);
    event->states_count = (size_t)n;
    r->states_done = w->from + w->count;
}
