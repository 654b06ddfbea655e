/* planner.h - offsets for buffers with lifetime intervals: how `memory` packs the workspace. */
#ifndef FTXC_PLANNER_H
#define FTXC_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../runtime/base/arena.h"

typedef struct Interval {
    uint32_t first, last; /* both inclusive */
    uint64_t bytes;
    uint64_t offset; /* set by planner_run */
} Interval;

/* The largest sum of bytes that are live at the same time: no plan can need less. */
uint64_t planner_lower_bound(const Interval *intervals, size_t n);

/* Sets the offsets; returns the bytes needed. Deterministic. Offsets are sums of sizes: sizes that are multiples of 256
 * give offsets that are. */
uint64_t planner_run(Interval *intervals, size_t n, Arena *scratch);

#endif
