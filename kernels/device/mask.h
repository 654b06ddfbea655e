/* mask.h - rows of logits that are masked on a GPU (limits.masks). Read by C and by CUDA: plain types only, no includes.
 *
 * $mask [S][FTX_MASK_WORDS(V)]: of each row of the step the ids that may follow, a bit each. Only rows with
 * FtxParams.logits = FTX_LOGITS_MASKED have one: of these all raw logits are written, and `mask` sets those of the other ids to
 * -infinity. */
#ifndef FTX_MASK_H
#define FTX_MASK_H

enum { FTX_LOGITS_MASKED = 2 };
#define FTX_MASK_WORDS(vocab) (((vocab) + 31) / 32)

#endif
