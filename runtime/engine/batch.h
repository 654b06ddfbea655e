/* batch.h - how the tokens of a step are shared among the running requests: a pure function. */
#ifndef FTX_BATCH_H
#define FTX_BATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { BATCH_MOST_PARTIAL = 2 }; /* prompts that are read in part at any time */

typedef struct BatchItem {
    int lanes;    /* not 0: it decodes and brings so many tokens, one for each beam */
    int need;     /* else: tokens of its prompt that are not in the cache */
    int whole;    /* 0; or the first so many of them are read in one step, all or none */
    bool started; /* a part of them was read in an earlier step. At most BATCH_MOST_PARTIAL items have */
} BatchItem;

/* tokens[i]: of item i in this step, `budget` in all, of which lanes take no more than all. Prompts whose rest fits are read
 * whole. One that does not fit gets half of what is left at its turn, those that have started first, so that shorter
 * ones behind it are read, too; then it gets what nobody else needs. Of one with `whole`, so many are read if they fit. */
void batch_share(const BatchItem *item, int n, int budget, int *tokens);

/* Numbers of tokens that fill a step: with one token more it takes as long as with many more. */
typedef struct BatchSizes {
    const uint32_t *bucket; /* [n]: of programs for so many tokens, ascending */
    uint32_t n;
    int tile; /* beyond these the multiples of so many rows; 0: none */
} BatchSizes;

/* The budget of a step in which `decode` rows decode and prompts need `need` tokens: `budget`, or the largest size in it if
 * the tokens beyond that would fill less than half of the next size. Such tokens come with the next step, which the rows that
 * decode need in any case. At least half of the prompts' tokens stay. Where `budget` cuts prompts and fills half of a size or
 * more: that whole size, up to `most`. */
int batch_fit(int budget, int most, int decode, int need, const BatchSizes *sizes);

#endif
