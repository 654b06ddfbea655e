/* turn.h - sweeps of which each commit runs another share.
 *
 * scripts/test sets FTX_TURN to the number of commits. By hand, without it, everything is run. */
#ifndef FTX_TEST_TURN_H
#define FTX_TEST_TURN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define TURN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TURN_SANITIZED 1
#endif
#endif
#ifndef TURN_SANITIZED
#define TURN_SANITIZED 0
#endif

/* Whether case i is run, if each turn runs one case of n. */
static inline bool in_turn(uint64_t i, uint64_t n)
{
    const char *turn = getenv("FTX_TURN");

    return !turn || i % n == strtoull(turn, NULL, 10) % n;
}

/* The same under AddressSanitizer, which takes several times as long; else every case is run. */
static inline bool in_turn_sanitized(uint64_t i, uint64_t n)
{
    return !TURN_SANITIZED || in_turn(i, n);
}

#endif
