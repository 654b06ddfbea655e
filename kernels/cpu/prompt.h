/* prompt.h - the prefix of a sequence: its prompt without the last `tail` tokens. All tokens see it, and positions may be
 * counted within it and behind it. */
#ifndef FTX_CPU_PROMPT_H
#define FTX_CPU_PROMPT_H

#include "../device/io.h"

/* Tokens of the prefix, at least one. */
static inline int64_t prompt_prefix(const FtxRow *row, int64_t tail)
{
    return row->prompt > tail ? row->prompt - tail : 1;
}

/* A position that goes on within the prefix and stays at its last token behind it. */
static inline int64_t prompt_prefix_position(const FtxRow *row, int64_t pos, int64_t tail)
{
    const int64_t last = prompt_prefix(row, tail) - 1;

    return pos < last ? pos : last;
}

/* A position that is 0 within the prefix and goes on behind it, from 1. */
static inline int64_t prompt_rest_position(const FtxRow *row, int64_t pos, int64_t tail)
{
    const int64_t rest = pos - prompt_prefix(row, tail) + 1;

    return rest > 0 ? rest : 0;
}

#endif
