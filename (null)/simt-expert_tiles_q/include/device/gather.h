/* gather.h - what a rank sends of a row of logits to the other ranks: the few that can decide the token, or all. Read by C
 * and by CUDA: plain types only, no includes.
 *
 * The row begins at row * GATHER_WORDS(columns of the rank) words of the rank's share of $exchange, with an FtxGather;
 * `count` FtxGathered or all columns follow.
 *
 * Which logits can decide is a rule over FtxParams. All that a processor may change are sent, and of the others those at or
 * above a bound:
 *
 *   greedy                                  the largest
 *   top_k of 1 to FTX_GATHER_MOST           the top_k-th largest
 *   min_p, top_p off                        the largest + temperature * log(min_p)
 *   else, or the host reads the logits      there is no bound: all are sent
 *
 * In place of the logits that were not sent stands `rest`, the logarithm of the mean of their exponentials. It is below the
 * bound, and the sum of all exponentials stays as it was. */
#ifndef FTX_GATHER_H
#define FTX_GATHER_H

enum { FTX_GATHER_MOST = 64 };

typedef struct FtxGather { /* 16 bytes */
    int count;             /* -1: all columns follow */
    float rest;
    int reserved[2];
} FtxGather;

typedef struct FtxGathered {
    int column; /* of the rank */
    float value;
} FtxGathered;

#define GATHER_WORDS(columns) (((columns) + 3) / 4 * 4 + 4)

#endif
