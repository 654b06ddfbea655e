/* embed.h - the texts inside ftxc: specs, templates, kernels, a page. Made by cmake/embed.cmake. */
#ifndef FTXC_EMBED_H
#define FTXC_EMBED_H

#include <stddef.h>

typedef struct EmbeddedFile {
    const char *name, *text; /* NUL-terminated */
} EmbeddedFile;

extern const EmbeddedFile embedded_files[]; /* sorted by path in the tree */
extern const size_t embedded_count;

/* ftx-run, the program that `ftxc compile --exe` puts before an artifact. */
extern const char embedded_runner[], embedded_runner_end[];

#endif
