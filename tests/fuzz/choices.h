/* choices.h - bytes as a list of choices, for fuzzers that build a valid input and then change it.
 *
 * Such an input begins with the byte CHOICES, with which no file of these formats begins. When the bytes are spent every
 * choice is 0; fuzzers let 0 mean "as it is". */
#ifndef TESTS_FUZZ_CHOICES_H
#define TESTS_FUZZ_CHOICES_H

#include "fuzz.h"

#include <stdbool.h>

#define CHOICES 1

enum { CHOICES_BORDERS_32 = 6, CHOICES_BORDERS = 11 }; /* borders of choose_value: the first are those of 32 bits */

typedef struct Choices {
    const uint8_t *at;
    size_t left;
} Choices;

/* False: the input is a file of the format. */
static inline bool choices_begin(Choices *c, const uint8_t *data, size_t size)
{
    if (!size || data[0] != CHOICES)
        return false;
    *c = (Choices){data + 1, size - 1};
    return true;
}

/* A number of `bytes` bytes; the first is the lowest. */
static inline uint64_t choose_bytes(Choices *c, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes && c->left; i++, c->left--)
        v |= (uint64_t)*c->at++ << 8 * i;
    return v;
}

/* A number below n: of one byte up to 256, of two above. */
static inline uint32_t choose(Choices *c, uint32_t n)
{
    return n ? (uint32_t)choose_bytes(c, n > 256 ? 2 : 1) % n : 0;
}

/* A value near `was`, at a border of integer types, or any. */
static inline uint64_t choose_value(Choices *c, uint64_t was)
{
    static const uint64_t borders[CHOICES_BORDERS] = {0,
                                                      1,
                                                      63,
                                                      INT32_MAX,
                                                      (uint64_t)1 << 31,
                                                      UINT32_MAX,
                                                      INT64_MAX,
                                                      UINT64_MAX,
                                                      (uint64_t)1 << 63,
                                                      UINT64_MAX - 63,
                                                      (uint64_t)1 << 32};

    switch (choose(c, 9)) {
    case 0: return was;
    case 1: return was + 1;
    case 2: return was - 1;
    case 3: return was * 2;
    case 4: return was / 2;
    case 5: return was + choose_bytes(c, 1);
    case 6: return was - choose_bytes(c, 1);
    case 7: return borders[choose(c, CHOICES_BORDERS)];
    default: return choose_bytes(c, 8);
    }
}

#endif
