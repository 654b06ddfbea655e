/* compare.c - two artifacts in turn: paired differences with a confidence interval.
 *
 * A round is A B B A. Its difference is the mean of both B less the mean of both A, so a clock that drifts evenly during
 * the round cancels out. Each turn is the median of a short series. The interval is that of the median of the
 * differences by order statistics (Conover 1999, 3.2): it assumes nothing about how times are distributed. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/base/error.h"

enum { SERIES = 5 /* runs of a turn */, MAX_ROUNDS = 1000 };

FtxStatus step_time(FtxEngine *e, const Step *s, int repeat, double *median_us, double *least_us, double *most_us,
                    FtxError *err)
{
    if (strcmp(s->what, "mixed") == 0)
        return ftx_engine_bench_mixed(e, s->sequences, s->context, s->tokens, repeat, median_us, least_us, most_us,
                                      err);
    return ftx_engine_bench(e, s->sequences, s->tokens, s->context, repeat, median_us, least_us, most_us, err);
}

double step_tokens(const Step *s)
{
    const bool encode = strcmp(s->what, "encode") == 0;

    if (strcmp(s->what, "mixed") == 0)
        return (double)s->sequences + s->tokens;
    return (double)s->sequences * (encode && s->context ? s->context : s->tokens);
}

bool compare_shapes(const FtxModelInfo *a, const FtxModelInfo *b, char *error, size_t bytes)
{
    static const char *const kinds[] = {"a decoder", "an encoder", "an encoder-decoder"};
    const struct {
        const char *name;
        int a, b;
    } sizes[] = {
        {"layers", a->layers, b->layers},
        {"hidden size", a->hidden, b->hidden},
        {"vocabulary", a->vocab, b->vocab},
    };

    if (a->kind != b->kind) {
        snprintf(error, bytes, "--compare: the two are not of one model: %s is %s, %s is %s", a->name, kinds[a->kind],
                 b->name, kinds[b->kind]);
        return false;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].a != sizes[i].b) {
            snprintf(error, bytes, "--compare: the two are not of one model: %s has %s %d, %s has %d", a->name,
                     sizes[i].name, sizes[i].a, b->name, sizes[i].b);
            return false;
        }
    return true;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *sorted, int n)
{
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

/* The most values that may be cut from each end of n sorted ones: the median of all lies outside of the rest with a
 * probability of at most 5 %. sum over i < k of C(n, i) / 2^n <= 0.025 */
static int cut(int n)
{
    double p = ldexp(1.0, -n), sum = p; /* 2^-1000 is a normal number */
    int k = 0;

    while (k < n / 2 && sum <= 0.025) {
        k++;
        p *= (double)(n - k + 1) / k;
        sum += p;
    }
    return k;
}

FtxStatus compare_time(FtxEngine *const engine[2], const Step *s, int rounds, Comparison *out, FtxError *err)
{
    static const int order[] = {0, 1, 1, 0};
    double *us = malloc((size_t)rounds * 3 * sizeof *us), least, most;
    double *side[2] = {us, us + rounds}, *difference = us + 2 * rounds;
    FtxStatus status = us ? FTX_OK : ftx_fail(err, FTX_ENOMEM, "%d rounds", rounds);
    const int outside = cut(rounds);

    for (int i = 0; i < rounds && !status; i++) {
        side[0][i] = side[1][i] = 0;
        for (int turn = 0; turn < 4 && !status; turn++) {
            double time = 0;

            status = step_time(engine[order[turn]], s, SERIES, &time, &least, &most, err);
            side[order[turn]][i] += 0.5 * time;
        }
        difference[i] = side[1][i] - side[0][i];
    }
    if (!status) {
        for (int i = 0; i < 3; i++)
            qsort(us + i * rounds, (size_t)rounds, sizeof *us, by_size);
        *out = (Comparison){.a_us = median(side[0], rounds),
                            .b_us = median(side[1], rounds),
                            .difference_us = median(difference, rounds),
                            .low_us = difference[outside - 1],
                            .high_us = difference[rounds - outside]};
    }
    free(us);
    return status;
}
