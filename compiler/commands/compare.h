/* compare.h - times single steps for ftxc bench: of one artifact, or of two in turn. */
#ifndef FTXC_COMPARE_H
#define FTXC_COMPARE_H

#include "../../runtime/ftx.h"

typedef struct Step {
    const char *what; /* "decode", "prompt", "mixed" or "encode" */
    /* tokens: of each sequence; of the prompt beside the sequences in a mixed step. context: before them; of encoders
     * the mean length, 0: all texts are as long. */
    int sequences, tokens, context;
} Step;

enum { COMPARE_LEAST = 6 /* rounds: fewer give no interval of 95 % */ };

typedef struct Comparison { /* medians over the rounds */
    double a_us, b_us;
    double difference_us;   /* of B - A in a round */
    double low_us, high_us; /* its confidence interval: at least 95 % */
} Comparison;

FtxStatus step_time(FtxEngine *e, const Step *s, int repeat, double *median_us, double *least_us, double *most_us,
                    FtxError *err);

/* The tokens of all sequences in a step, for rates. */
double step_tokens(const Step *s);

/* Whether two artifacts are of models with the same shape. False: how they differ, in `error`. */
bool compare_shapes(const FtxModelInfo *a, const FtxModelInfo *b, char *error, size_t bytes);

/* Times `rounds` rounds A B B A. */
FtxStatus compare_time(FtxEngine *const engine[2], const Step *s, int rounds, Comparison *out, FtxError *err);

#endif
