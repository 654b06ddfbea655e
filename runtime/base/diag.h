/* diag.h - the compiler's diagnostics: a user's mistake, where it is and what was expected.
 *
 * A function that can meet one returns bool and takes a Diag; `return diag_error(d, loc, ...)`
 * says it. Only the first is kept: what follows from a mistake is noise. */
#ifndef FTX_BASE_DIAG_H
#define FTX_BASE_DIAG_H

#include <stdbool.h>

typedef struct Loc {
    const char *file; /* NULL: nowhere in particular */
    int line;         /* 0: the file as a whole */
} Loc;

typedef struct Diag {
    bool failed;
    bool machine;    /* not the user's mistake: the machine lacks something */
    char text[2000]; /* "llama.lua:48: matmul: x is [T,4096], w is [1024,5120]" */
} Diag;

/* Always false. */
bool diag_error(Diag *d, Loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* An error of the machine (a file, a device), not of the user. Always false. */
bool diag_machine(Diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__ /* it sees no other file */
#define diag_error(...) (diag_error(__VA_ARGS__), false)
#define diag_machine(...) (diag_machine(__VA_ARGS__), false)
#endif

/* Our mistake or no memory: says so and ends the compiler with exit code 3. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
