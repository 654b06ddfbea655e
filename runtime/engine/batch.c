/* batch.c - shares a step's tokens: decoding requests first, then prompts, of which two at most are read in part. */
#include "batch.h"

typedef struct BatchShare {
    const BatchItem *item;
    int *tokens;
    int left;                        /* of the budget */
    int partial[BATCH_MOST_PARTIAL]; /* items that get a part of their prompt */
    int partials;
} BatchShare;

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* Gives a prompt what it needs or, if that is too much, half of what is left. */
static void share_prompt(BatchShare *s, int i)
{
    const int need = s->item[i].need;

    if (need <= s->left) {
        s->tokens[i] = need;
    } else if (s->item[i].whole) {
        s->tokens[i] = s->item[i].whole <= s->left ? s->item[i].whole : 0;
    } else if (s->partials < BATCH_MOST_PARTIAL && s->left) {
        s->partial[s->partials++] = i;
        s->tokens[i] = (s->left + 1) / 2;
    }
    s->left -= s->tokens[i];
}

static void share_more(BatchShare *s, int i)
{
    const int more = least_of(s->item[i].need - s->tokens[i], s->left);

    s->tokens[i] += more;
    s->left -= more;
}

void batch_share(const BatchItem *item, int n, int budget, int *tokens)
{
    BatchShare s = {.item = item, .tokens = tokens, .left = budget};

    for (int i = 0; i < n; i++) {
        tokens[i] = item[i].lanes;
        s.left -= item[i].lanes;
    }
    for (int started = 1; started >= 0; started--)
        for (int i = 0; i < n; i++)
            if (!item[i].lanes && item[i].started == started)
                share_prompt(&s, i);
    for (int k = 0; k < s.partials; k++)
        share_more(&s, s.partial[k]);
    for (int i = 0; i < n; i++) /* if all of these are whole now: the first of the others */
        if (!item[i].lanes && !item[i].whole)
            share_more(&s, i);
}

/* The largest size of at most `tokens`, or 0; *next: the one behind it, 0: there is none. */
static int size_below(const BatchSizes *s, int tokens, int *next)
{
    const int last = s->n ? (int)s->bucket[s->n - 1] : 0;
    int below = 0;

    *next = s->tile ? last + s->tile - last % s->tile : 0;
    for (uint32_t i = s->n; i-- > 0 && below == 0;)
        if ((int)s->bucket[i] > tokens)
            *next = (int)s->bucket[i];
        else
            below = (int)s->bucket[i];
    if (s->tile && tokens >= *next && tokens >= last) {
        below = tokens - tokens % s->tile;
        *next = below + s->tile;
    }
    return below;
}

int batch_fit(int budget, int most, int decode, int need, const BatchSizes *sizes)
{
    const int tokens = need < budget - decode ? decode + need : budget;
    int next;
    const int below = size_below(sizes, tokens, &next);

    if (!decode || below == tokens || !next)
        return budget;
    if (2 * (tokens - below) < next - below)
        return 2 * (below - decode) < tokens - decode ? budget : below;
    return decode + need > budget && next <= most ? next : budget;
}
