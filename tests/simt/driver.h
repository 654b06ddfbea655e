/* driver.h - a CUDA driver whose launches run on the host: the C runtime drives it as it drives the
 * real one. A code image is the name of an entry, its NUL included. */
#ifndef FTX_SIMT_DRIVER_H
#define FTX_SIMT_DRIVER_H

#include "build.h"

/* Puts the table in place of the machine's driver. SMS: multiprocessors of the GPU it shows. */
void driver_install(const Build *b, int sms);
void driver_remove(void);

typedef struct DriverCounts {
    size_t launches, overlapping, graphs, failed;
    int open; /* allocations, streams, events, modules, graphs that were not closed */
} DriverCounts;
extern DriverCounts driver_counts;

#endif
