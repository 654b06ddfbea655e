/* draw.c - the CPU's `sample` on the host: chooses a token, or says how large the sum of a row's probabilities is.
 *
 * Tokens are chosen for requests with a mask, or with more biases than the artifact was compiled for.
 * The row's logits come from the device, which has chosen a token, too; that one is ignored. Tokens that the mask does
 * not allow have a logit of -inf. The rest is done by the CPU's `sample`, also where the model runs on a GPU. */
#include <math.h>
#include <string.h>

#include "engine.h"
#include "../../kernels/cpu/consts.h"
#include "../../kernels/cpu/cpu.h"

/* One row for the CPU's `sample`. */
static void run_sample(FtxEngine *e, const Request *r, float *logits, FtxParams params, FtxOut *out)
{
    const int64_t k[] = {[SAMPLE_V] = e->facts->vocab,
                         [SAMPLE_CONTEXT] = e->facts->context,
                         [SAMPLE_SEQUENCES] = 1,
                         [SAMPLE_ENDS] = 0,
                         [SAMPLE_BIAS] = 0,
                         [SAMPLE_WORDS] = 0};
    FtxRow row = {.q_len = 1, .kv_len = r->length, .emit = 1, .prompt = r->prompt, .limit = r->limit};
    FtxToken token;
    FtxOut ring[FTX_OUT_RING];
    int32_t y;
    void *const arg[] = {logits, &row,   &params, r->ends, r->bias,   r->bad_words,
                         &token, r->ids, ring,    &y,      e->draw.z, e->draw.marks};

    e->draw.sample(&(CpuCall){.arg = arg, .k = k, .T = 1, .S = 1, .thread = 0, .threads = 1});
    *out = ring[r->length % FTX_OUT_RING];
}

double draw_log_sum(FtxEngine *e, const Request *r)
{
    const FtxParams greedy = {.top_p = 1.0f, .repetition = 1.0f, .simple = 1};
    FtxOut out;

    run_sample(e, r, e->draw.row, greedy, &out);
    return (double)e->draw.row[out.token] - (double)out.logprob;
}

static bool is_allowed(const uint32_t *bits, int32_t id)
{
    return bits[id / 32] >> (id % 32) & 1;
}

bool draw_token(FtxEngine *e, Request *r, FtxOut *out)
{
    const uint32_t vocab = e->facts->vocab;
    FtxParams params = r->params;
    bool some = false;

    if (r->mask) {
        memset(e->draw.bits, 0, (size_t)(vocab + 31) / 32 * sizeof *e->draw.bits);
        if (!r->mask(r->mask_user, r->params.sample, r->ids + r->prompt, (size_t)(r->length - r->prompt), e->draw.bits))
            return false;
        for (uint32_t v = 0; v < vocab; v++) {
            const bool allowed = is_allowed(e->draw.bits, (int32_t)v);

            some = some || allowed;
            e->draw.logits[v] = allowed ? e->draw.row[v] : -INFINITY;
        }
        if (!some)
            return false;
    } else {
        memcpy(e->draw.logits, e->draw.row, vocab * sizeof *e->draw.logits);
    }
    params.n_bias = r->n_bias;
    run_sample(e, r, e->draw.logits, params, out);
    return !r->mask || is_allowed(e->draw.bits, out->token); /* end ids may be banned, and nothing else allowed */
}
