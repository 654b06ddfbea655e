/* explain.h - `ftxc show`: the content of an artifact as text, picture or JSON. */
#ifndef FTXC_EXPLAIN_H
#define FTXC_EXPLAIN_H

#include <stdio.h>

#include "../../runtime/base/error.h"

typedef struct ShowOptions {
    bool memory;  /* the memory map of every program, as a picture */
    bool kernels; /* every kernel: threads, registers, stack, spills, shared memory, instructions by kind */
    bool verify;  /* verify the checksum of the weights, too */
    bool json;    /* everything as one JSON object */
} ShowOptions;

/* Prints the content of an artifact. Nothing is printed to `out` if the file cannot be opened. */
FtxStatus explain_show(const char *path, const ShowOptions *options, FILE *out, FtxError *err);

#endif
