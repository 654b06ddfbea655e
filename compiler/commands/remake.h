/* remake.h - what an artifact was compiled from, by the command that it keeps. */
#ifndef FTXC_REMAKE_H
#define FTXC_REMAKE_H

#include "../spec/spec.h"

enum { REMAKE_MOST = 64 };

typedef struct Remake {
    const char *spec; /* its path: beside the artifact, or in the current folder */
    Override overrides[REMAKE_MOST];
    size_t n;
} Remake;

/* Whether the name of a file is that of an artifact. */
bool remake_is_artifact(const char *path);

bool remake_read(const char *path, Arena *keep, Remake *out, Diag *d);

#endif
