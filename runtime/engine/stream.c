/* stream.c - tokens to text, up to the first stop string.
 *
 * Text is returned as soon as it cannot belong to a stop string: the longest suffix that begins one is held back.
 * The stop string that is complete first ends the text, so the text does not depend on where tokens end; of two
 * complete at once, the longer. */
#include <string.h>

#include "engine.h"

/* The most bytes of one call of tokenizer_stream. */
static size_t token_bytes(const Tokenizer *t)
{
    return tokenizer_token_bytes(t) + 16;
}

size_t stream_bytes(const Tokenizer *t)
{
    return t ? STOP_BYTES + 2 * token_bytes(t) : 0;
}

/* A stop string ends at `end`; *start: where the longest of those begins. */
static bool stop_ends(const Stream *s, uint32_t end, uint32_t *start)
{
    bool found = false;

    for (uint32_t i = 0; i < s->n_stops; i++) {
        const uint32_t n = s->stop_bytes[i];

        if (n <= end && memcmp(s->text + end - n, s->stop[i], n) == 0 && (!found || end - n < *start)) {
            *start = end - n;
            found = true;
        }
    }
    return found;
}

/* How many bytes at the end of the text may be the start of a stop string. */
static uint32_t held_bytes(const Stream *s)
{
    uint32_t held = 0;

    for (uint32_t i = 0; i < s->n_stops; i++)
        for (uint32_t n = s->stop_bytes[i] - 1u; n > held; n--)
            if (n <= s->bytes && memcmp(s->text + s->bytes - n, s->stop[i], n) == 0)
                held = n;
    return held;
}

static void drop_given(Stream *s)
{
    memmove(s->text, s->text + s->out, s->bytes - s->out);
    s->bytes -= s->out;
    s->searched -= s->out < s->searched ? s->out : s->searched;
    s->out = 0;
}

FtxStatus stream_token(Stream *s, const Tokenizer *t, int32_t id, bool last, const char **text, size_t *bytes,
                       bool *stopped, FtxError *err)
{
    size_t n = 0;

    *text = "";
    *bytes = 0;
    *stopped = false;
    if (!t)
        return FTX_OK;
    drop_given(s);

    const FtxStatus status = tokenizer_stream(t, &s->decoder, id, last, s->text + s->bytes, s->cap - s->bytes, &n, err);

    if (status)
        return status;
    s->bytes += (uint32_t)n;
    for (uint32_t start; s->searched < s->bytes && !*stopped;) {
        s->searched++;
        if (stop_ends(s, s->searched, &start)) {
            s->bytes = start;
            *stopped = true;
        }
    }
    s->out = *stopped || last ? s->bytes : s->bytes - held_bytes(s);
    *text = s->text;
    *bytes = s->out;
    return FTX_OK;
}
