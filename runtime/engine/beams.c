/* beams.c - beam search in the engine: a request with several lanes (one a beam), each with a row and a slot.
 *
 * Lane 0 feeds the prompt, in one row. From then on every lane brings one token a step. Lane 0 has pages for the
 * whole sequence, the others only for new tokens; which lane reads whose pages is kept on the device
 * (kernels/device/io.h). The host learns of a search only at its end, and copies the hypotheses then. */
#include <string.h>

#include "engine.h"

uint32_t beams_lane_pages(const FtxEngine *e, const Request *r)
{
    return r->own_pages - (uint32_t)r->prompt / e->facts->kv_block;
}

/* --- slots and pages ------------------------------------------------------------------------------- */

FtxStatus beams_place(FtxEngine *e, Request *r, FtxError *err)
{
    const uint32_t lane_pages = beams_lane_pages(e, r), skip = (uint32_t)r->prompt / e->facts->kv_block;
    const int32_t *pages = r->pages + r->own_pages;
    FtxStatus s = FTX_OK;

    r->lane[0] = r->slot;
    for (int i = 1; i < r->beam.width && !s; i++, pages += lane_pages) {
        r->lane[i] = e->free_slot[--e->free_slots];
        s = table_put(e, &e->page_table, r->lane[i], skip, pages, lane_pages, err);
    }
    return s ? s : table_put(e, &e->group_table, r->slot, 0, r->lane, (uint32_t)r->beam.width, err);
}

void beams_release(FtxEngine *e, const Request *r)
{
    for (int i = 1; i < r->beam.width; i++)
        e->free_slot[e->free_slots++] = r->lane[i];
}

/* --- what comes out ---------------------------------------------------------------------------------- */

static FtxStatus write_text(FtxEngine *e, FtxHypothesis *h, char *to, FtxError *err)
{
    TokenizerStream stream = {0};
    size_t n, at = 0;
    FtxStatus s = FTX_OK;

    h->text = "";
    if (!e->model->tokenizer)
        return FTX_OK;
    for (size_t i = 0; i <= h->count && !s; i++) {
        const bool end = i == h->count || (h->finish == FTX_FINISH_END && i + 1 == h->count);

        s = tokenizer_stream(e->model->tokenizer, &stream, end ? -1 : h->ids[i], end, to + at, e->hyp_text_bytes - at,
                             &n, err);
        at += s ? 0 : n;
        if (end)
            break;
    }
    h->text = to;
    h->text_bytes = at;
    return s;
}

/* If the hypotheses of all slots are small, one copy fetches them all. */
static bool together(const FtxEngine *e)
{
    return (uint64_t)e->slots * e->facts->context * sizeof *e->hyp_ids <= 1 << 20;
}

/* Copies the lanes of all slots, because several searches may end in one step. */
static FtxStatus fetch_lanes(FtxEngine *e, FtxError *err)
{
    FtxStatus s = FTX_OK;

    if (!e->has_lanes)
        s = e->api->read(e->session, FTX_NAMED_lanes, 0, e->lanes, e->facts->sequences * sizeof *e->lanes, err);
    if (!s && !e->has_lanes && together(e))
        s = e->api->read(e->session, FTX_NAMED_hyps, 0, e->hyp_ids,
                         (size_t)e->slots * e->facts->context * sizeof *e->hyp_ids, err);
    e->has_lanes = !s;
    return s;
}

static FtxStatus fetch(FtxEngine *e, Request *r, int slot, FtxError *err)
{
    const size_t context = e->facts->context;
    int32_t *ids = e->hyp_ids + (size_t)slot * context;
    float *logps = e->hyp_logps + (size_t)slot * context;
    const FtxLane lane = e->lanes[slot];
    FtxHypothesis h;
    uint32_t at = r->n_found;
    FtxStatus s = FTX_OK;

    if (lane.hyp_length == 0)
        return FTX_OK;
    if (lane.hyp_length < 0 || lane.hyp_length > r->limit - r->prompt)
        return ftx_fail(err, FTX_EDEVICE, "a hypothesis of %d tokens, at most %d were asked for", lane.hyp_length,
                        r->limit - r->prompt);
    if (!together(e))
        s = e->api->read(e->session, FTX_NAMED_hyps, (size_t)slot * context * sizeof *ids, ids,
                         (size_t)lane.hyp_length * sizeof *ids, err);
    if (!s && r->wants_logprob)
        s = e->api->read(e->session, FTX_NAMED_logps, (e->facts->sequences + (size_t)slot) * context * sizeof *logps,
                         logps, (size_t)lane.hyp_length * sizeof *logps, err);
    h = (FtxHypothesis){.ids = ids,
                        .logprobs = r->wants_logprob ? logps : NULL,
                        .count = (size_t)lane.hyp_length,
                        .score = lane.hyp_score,
                        .logprob = lane.hyp_sum,
                        .finish = lane.hyp_end ? FTX_FINISH_END : FTX_FINISH_LENGTH};
    if (!s)
        s = write_text(e, &h, e->hyp_text + (size_t)slot * e->hyp_text_bytes, err);
    for (; at > 0 && r->found[at - 1].score < h.score; at--)
        r->found[at] = r->found[at - 1];
    r->found[at] = h;
    r->n_found++;
    return s;
}

FtxStatus beams_finish(FtxEngine *e, Request *r, FtxEvent *event, FtxError *err)
{
    FtxStatus s = fetch_lanes(e, err);

    r->n_found = 0;
    for (int i = 0; i < r->beam.width && !s; i++)
        s = fetch(e, r, r->lane[i], err);
    if (s)
        return s;
    if (r->n_found > (uint32_t)r->n_best)
        r->n_found = (uint32_t)r->n_best;
    event->hypotheses = r->n_found;
    event->finish = FTX_FINISH_LENGTH;
    if (r->n_found) {
        event->finish = r->found[0].finish;
        event->text = r->found[0].text;
        event->text_bytes = r->found[0].text_bytes;
    }
    return FTX_OK;
}

const FtxHypothesis *ftx_engine_hypotheses(const FtxEngine *e, uint64_t id, size_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < e->requests; i++)
        if (id && e->request[i].id == id && e->request[i].n_found) {
            *n = e->request[i].n_found;
            return e->request[i].found;
        }
    return NULL;
}
