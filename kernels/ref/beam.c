/* beam.c - beam search as Hugging Face's generate means it, by full sorts. What `beam` means on every
 * device stands here.
 *
 * All continuations of all running sequences are ordered by their sum of log-probabilities. A
 * continuation ends at an end id or at the limit. Of the first `width` those that end become
 * hypotheses with score = sum / generated ^ length_penalty, where the end id counts; the `width` best
 * hypotheses are kept. The first `width` that do not end run on, whatever their place: Hugging Face
 * looks at (1 + ends) * width continuations, among which there are always so many.
 *
 * The search is over at the limit; when `width` hypotheses are there and early is TRUE; or when the
 * best running sequence could not pass the worst of `width` hypotheses: judged at the length it has
 * (FALSE), or, with a positive penalty, at the longest it may get (NEVER). */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_beams_begin(RefBeams *b, const int32_t *prompt, int n)
{
    b->prompt = b->length = n;
    b->found = 0;
    b->done = 0;
    for (int lane = 0; lane < b->width; lane++) {
        memcpy(b->ids + (int64_t)lane * b->limit, prompt, (size_t)n * sizeof *prompt);
        b->score[lane] = lane ? -INFINITY : 0.0; /* the first step has one sequence, not `width` equal ones */
    }
}

static const double *sort_totals;

/* Larger first; of equal ones the earlier lane, then the lower id. */
static int before(const void *a, const void *b)
{
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;

    if (sort_totals[i] != sort_totals[j])
        return sort_totals[i] > sort_totals[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static int ends_at(const RefBeams *b, int id)
{
    for (int i = 0; i < b->n_ends; i++)
        if (b->ends[i] == id)
            return 1;
    return 0;
}

/* A hypothesis among the best so far; of equal ones the earlier stays before. */
static void keep(RefBeams *b, int lane, int id, double sum, int end)
{
    const double score = sum / pow(b->length + 1 - b->prompt, b->length_penalty);
    RefFound new = {score, sum, b->length + 1, end, -1};
    int place = b->found;

    while (place > 0 && b->hypothesis[place - 1].score < score)
        place--;
    if (place == b->width || sum == -INFINITY)
        return;
    new.row = b->found < b->width ? b->found : b->hypothesis[b->width - 1].row;
    if (b->found < b->width)
        b->found++;
    memmove(&b->hypothesis[place + 1], &b->hypothesis[place], (size_t)(b->found - 1 - place) * sizeof new);
    b->hypothesis[place] = new;
    memcpy(b->found_ids + (int64_t) new.row * b->limit, b->ids + (int64_t)lane * b->limit,
           (size_t)b->length * sizeof *b->ids);
    b->found_ids[(int64_t) new.row * b->limit + b->length] = id;
}

static int can_improve(const RefBeams *b)
{
    const int longest = b->early == FTX_EARLY_NEVER && b->length_penalty > 0.0;
    const double best = b->score[0] / pow((longest ? b->limit : b->length) - b->prompt, b->length_penalty);

    return best > (b->found == b->width ? b->hypothesis[b->width - 1].score : -1e9);
}

void ref_beams_step(RefBeams *b, const double *logprobs)
{
    const int all = b->width * b->V, last = b->length + 1 >= b->limit;
    int running = 0;

    for (int i = 0; i < all; i++) {
        b->total[i] = b->score[i / b->V] + logprobs[i];
        b->order[i] = i;
    }
    sort_totals = b->total;
    qsort(b->order, (size_t)all, sizeof *b->order, before);
    for (int rank = 0; rank < all && (running < b->width || rank < b->width); rank++) {
        const int lane = b->order[rank] / b->V, id = b->order[rank] % b->V;
        const double sum = b->total[b->order[rank]];

        if (last || ends_at(b, id)) {
            if (rank < b->width)
                keep(b, lane, id, sum, ends_at(b, id));
        } else if (running < b->width) {
            b->parent[running] = lane;
            b->next[running] = id;
            b->next_score[running++] = sum;
        }
    }
    for (; running < b->width; running++) { /* a tiny vocabulary: lanes that have nothing */
        b->parent[running] = b->next[running] = 0;
        b->next_score[running] = -INFINITY;
    }
    for (int i = 0; i < b->width; i++)
        memcpy(b->next_ids + (int64_t)i * b->limit, b->ids + (int64_t)b->parent[i] * b->limit,
               (size_t)b->length * sizeof *b->ids);
    for (int i = 0; i < b->width; i++)
        b->next_ids[(int64_t)i * b->limit + b->length] = b->next[i];
    memcpy(b->ids, b->next_ids, (size_t)b->width * (size_t)b->limit * sizeof *b->ids);
    memcpy(b->score, b->next_score, (size_t)b->width * sizeof *b->score);
    b->length++;
    b->done = last || !can_improve(b) || (b->early == FTX_EARLY_TRUE && b->found == b->width);
}
