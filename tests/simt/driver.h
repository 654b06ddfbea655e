/* driver.h - a CUDA driver whose launches run on the host, for the C runtime to use in place of the real one.
 *
 * A module's image is the name of a kernel's entry, with its final NUL. */
#ifndef FTX_SIMT_DRIVER_H
#define FTX_SIMT_DRIVER_H

#include "build.h"

/* Replaces the CUDA driver. sms: number of multiprocessors that the simulated GPU reports. */
void driver_install(const Build *b, int sms);
void driver_remove(void);

typedef struct DriverCounts {
    size_t launches, overlapping, graphs, failed;
    int open; /* allocations, streams, events, modules and graphs not closed yet */
} DriverCounts;
extern DriverCounts driver_counts;

#endif
