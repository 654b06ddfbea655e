/* logprobs.h - log-probabilities of tokens under raw logits. */
#ifndef FTX_LOGPROBS_H
#define FTX_LOGPROBS_H

#include <stdint.h>

#include "../ftx.h"

/* The log-softmax of logits[vocab] at id. log_sum: log(sum(exp(logits))). *top, if top is not NULL: the n likeliest tokens, best first, of equal ones
 * the lowest id; n is at most MOST_TOP and vocab. */
float logprobs_at(const float *logits, uint32_t vocab, double log_sum, int32_t id, FtxTop *top, int n);

#endif
