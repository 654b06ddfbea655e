/* planner.h - offsets for pieces of memory that live for a while: the arithmetic of `memory`. */
#ifndef FTXC_PLANNER_H
#define FTXC_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../runtime/base/arena.h"

typedef struct Life {
    uint32_t first, last; /* both inclusive */
    uint64_t bytes;
    uint64_t offset; /* the answer */
} Life;

/* The largest sum of bytes alive at one time: no plan can need less. */
uint64_t planner_lower_bound(const Life *lives, size_t n);

/* Fills the offsets; gives the bytes needed. Same lives, same offsets. Offsets are sums of sizes,
 * so sizes that are multiples of 256 make aligned offsets. */
uint64_t planner_run(Life *lives, size_t n, Arena *scratch);

#endif
