/* explain.h - `ftxc show`: the content of an artifact as text, picture or JSON; `ftxc page`: a plan as a page of HTML. */
#ifndef FTXC_EXPLAIN_H
#define FTXC_EXPLAIN_H

#include <stdio.h>

#include "../spec/spec.h"
#include "../targets.h"
#include "../../runtime/base/error.h"

typedef struct ShowOptions {
    bool memory;  /* the memory map of every program, as a picture */
    bool kernels; /* every kernel: threads, registers, stack, spills, shared memory, instructions by kind */
    bool verify;  /* verify the checksum of the weights, too */
    bool json;    /* everything as one JSON object */
} ShowOptions;

/* Prints the content of an artifact. Nothing is printed to `out` if the file cannot be opened. */
FtxStatus explain_show(const char *path, const ShowOptions *options, FILE *out, FtxError *err);

typedef struct PageOptions {
    const char *path;     /* a spec or a checkout's folder; an artifact if `artifact` */
    bool artifact;        /* it holds neither graph nor candidates: the page says so */
    const char *measured; /* lines of `ftxc bench --json`; NULL: no measured times */
    Targets targets;      /* of a spec */
    const Override *overrides;
    size_t n_overrides;
} PageOptions;

/* One HTML file that needs nothing else: *text in `keep`. */
bool explain_page(const PageOptions *o, Arena *keep, const char **text, size_t *bytes, Diag *d);

#endif
