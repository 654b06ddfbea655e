/* table.h - kernels.txt: what NVRTC made of every kernel text that it has been given, so that a text that is known
 * need not be compiled again.
 *
 *   # NVRTC 13.0
 *   TARGET ENTRY KEY registers stack spill static_smem barriers instructions operand_moves, then each class of code
 *
 * KEY is a hash of everything the code follows from (compiler/instantiate/key.c). Lines are sorted. */
#ifndef FTX_TEST_GATES_TABLE_H
#define FTX_TEST_GATES_TABLE_H

#include "compiler/instantiate/parts.h"

typedef struct Row {
    const char *target, *entry;
    uint64_t key;
    Resources r;
    bool used; /* a kernel of this run has this line */
} Row;

typedef struct Table {
    Arena *keep;
    struct {
        Row *at;
        size_t n, cap;
    } rows;
    bool other; /* it is of another version of NVRTC, and says nothing here */
} Table;

/* A file that is not there is an empty table. A line that is no line ends the program, named. */
void table_read(Table *t, const char *path, Arena *keep);

/* NULL: no line of this name. */
Row *table_find(Table *t, const char *target, const char *entry);

/* Puts a line in, or in place of the one of its name. */
void table_put(Table *t, const Row *row);

/* Writes the lines that are used, and those of targets that `ran` says nothing of. */
void table_write(Table *t, const char *path, bool (*ran)(const char *target));

#endif
