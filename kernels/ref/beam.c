/* beam.c - beam search as in Hugging Face's generate, by full sorts: the definition of the `beam` kernels of all devices.
 *
 * All continuations of all running sequences are sorted by their sum of log-probabilities. A continuation ends at an end
 * id or at the limit. Of the first `width` continuations those that end become hypotheses with
 * score = sum / generated ^ length_penalty, where the end id counts as generated; the `width` best hypotheses are kept.
 * The first `width` continuations that do not end run on, however deep they are in the order: Hugging Face looks at
 * (1 + ends) * width continuations, among which there are always that many.
 *
 * The search is over at the limit; when there are `width` hypotheses and early is TRUE; or when the best running
 * sequence could not pass the worst of `width` hypotheses: by its score at its present length (FALSE), or, with a
 * positive penalty, at the longest length it may reach (NEVER).
 *
 * Diverse groups (Vijayakumar et al. 2016, Hamming distance): lanes in groups of equal size, each with its own search,
 * hypotheses and end. In every step the groups choose one after another. A continuation by an id is lowered by
 * `diversity` for each lane of an earlier group that takes this id in the same step (also if that group ends with this
 * step); the penalty stays in the sum. The search is over when all groups are. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int group_size(const RefBeams *b)
{
    return b->groups > 1 ? b->width / b->groups : b->width;
}

void ref_beams_begin(RefBeams *b, const int32_t *prompt, int n)
{
    b->prompt = b->length = n;
    b->found = 0;
    b->done = 0;
    for (int lane = 0; lane < b->width; lane++) {
        memcpy(b->ids + (int64_t)lane * b->limit, prompt, (size_t)n * sizeof *prompt);
        /* a group's first step has one sequence, not several equal ones */
        b->score[lane] = lane % group_size(b) ? -INFINITY : 0.0;
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

/* Inserts a hypothesis among the best of its group, sorted; of equal scores the earlier one comes first. */
static void keep(RefBeams *b, int group, int lane, int id, double sum, int end)
{
    const double score = sum / pow(b->length + 1 - b->prompt, b->length_penalty);
    RefFound new = {score, sum, b->length + 1, end, b->found, group};
    int in_group = 0, worst = 0, place = 0;

    if (sum == -INFINITY)
        return;
    for (int i = 0; i < b->found; i++)
        if (b->hypothesis[i].group == group) {
            in_group++;
            worst = i;
        }
    if (in_group == group_size(b)) {
        if (b->hypothesis[worst].score >= score)
            return;
        new.row = b->hypothesis[worst].row;
        b->found--;
        memmove(&b->hypothesis[worst], &b->hypothesis[worst + 1], (size_t)(b->found - worst) * sizeof new);
    }
    while (place < b->found && b->hypothesis[place].score >= score)
        place++;
    memmove(&b->hypothesis[place + 1], &b->hypothesis[place], (size_t)(b->found - place) * sizeof new);
    b->hypothesis[place] = new;
    b->found++;
    memcpy(b->found_ids + (int64_t) new.row * b->limit, b->ids + (int64_t)lane * b->limit,
           (size_t)b->length * sizeof *b->ids);
    b->found_ids[(int64_t) new.row * b->limit + b->length] = id;
}

/* Whether a group, whose running sequences have been chosen, is over. */
static int is_over(const RefBeams *b, int group)
{
    const int longest = b->early == FTX_EARLY_NEVER && b->length_penalty > 0.0;
    const int n = (longest ? b->limit : b->length + 1) - b->prompt;
    const double best = b->next_score[group * group_size(b)] / pow(n, b->length_penalty);
    double worst = -1e9;
    int in_group = 0;

    for (int i = 0; i < b->found; i++)
        if (b->hypothesis[i].group == group && ++in_group == group_size(b))
            worst = b->hypothesis[i].score;
    return !(best > worst) || (b->early == FTX_EARLY_TRUE && in_group == group_size(b));
}

/* How many lanes before `lane` take an id in this step. */
static int taken(const RefBeams *b, int lane, int id)
{
    int n = 0;

    for (int i = 0; i < lane; i++)
        n += b->next_score[i] > -INFINITY && b->next[i] == id;
    return n;
}

static void choose(RefBeams *b, int group, const double *logprobs)
{
    const int size = group_size(b), first = group * size, all = size * b->V, last = b->length + 1 >= b->limit;
    int running = 0;

    for (int i = first * b->V; i < first * b->V + all; i++) {
        b->total[i] = b->score[i / b->V] + logprobs[i];
        if (group && b->diversity != 0.0)
            b->total[i] -= b->diversity * taken(b, first, i % b->V);
        b->order[i] = i;
    }
    sort_totals = b->total;
    qsort(b->order + first * b->V, (size_t)all, sizeof *b->order, before);
    for (int rank = 0; rank < all && (running < size || rank < size); rank++) {
        const int at = b->order[first * b->V + rank], lane = at / b->V, id = at % b->V;

        if ((last || ends_at(b, id)) && rank < size)
            keep(b, group, lane, id, b->total[at], ends_at(b, id));
        if (!ends_at(b, id) && running < size) {
            b->parent[first + running] = lane;
            b->next[first + running] = id;
            b->next_score[first + running++] = b->total[at];
        }
    }
    for (; running < size; running++) { /* a tiny vocabulary: fewer continuations than lanes */
        b->parent[first + running] = b->next[first + running] = 0;
        b->next_score[first + running] = -INFINITY;
    }
}

void ref_beams_step(RefBeams *b, const double *logprobs)
{
    const int size = group_size(b), last = b->length + 1 >= b->limit;

    for (int i = 0; i < b->width; i++) { /* stays so for groups that are over */
        b->parent[i] = b->next[i] = 0;
        b->next_score[i] = -INFINITY;
    }
    for (int first = 0; first < b->width; first += size)
        if (b->score[first] > -INFINITY)
            choose(b, first / size, logprobs);
    b->done = 1;
    for (int first = 0; first < b->width; first += size)
        if (!last && !is_over(b, first / size))
            b->done = 0;
        else
            for (int i = first; i < first + size; i++)
                b->next_score[i] = -INFINITY;
    for (int i = 0; i < b->width; i++)
        memcpy(b->next_ids + (int64_t)i * b->limit, b->ids + (int64_t)b->parent[i] * b->limit,
               (size_t)b->length * sizeof *b->ids);
    for (int i = 0; i < b->width; i++)
        b->next_ids[(int64_t)i * b->limit + b->length] = b->next[i];
    memcpy(b->ids, b->next_ids, (size_t)b->width * (size_t)b->limit * sizeof *b->ids);
    memcpy(b->score, b->next_score, (size_t)b->width * sizeof *b->score);
    b->length++;
}
