/* explain.h - windows into what was made: `ftxc show`. */
#ifndef FTXC_EXPLAIN_H
#define FTXC_EXPLAIN_H

#include <stdio.h>

#include "../../runtime/base/error.h"

typedef struct ShowOptions {
    bool memory;  /* the memory map of every program, as a picture */
    bool kernels; /* every kernel: constants, launch, registers and shared memory */
    bool verify;  /* the checksum of the weights too */
    bool json;    /* one object with all of it, for programs */
} ShowOptions;

/* Prints what an artifact holds. The reason of a failure stands in err; nothing is printed to
 * `out` when the file cannot be opened. */
FtxStatus explain_show(const char *path, const ShowOptions *options, FILE *out, FtxError *err);

#endif
