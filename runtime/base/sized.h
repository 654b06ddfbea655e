/* sized.h - the structs of ftx.h that begin with their size: a program may have been built with another version of it. */
#ifndef FTX_SIZED_H
#define FTX_SIZED_H

#include "error.h"

/* name is the struct's, for messages; known: its sizeof in this library. The size that the caller says is the first
 * member, a size_t. */

/* Overwrites *to with what the caller's struct has; the fields that it lacks stay as they are. */
FtxStatus sized_read(const char *name, const void *from, void *to, size_t known, FtxError *err);

/* Whether a struct of `size` bytes may be written. */
FtxStatus sized_check(const char *name, size_t size, FtxError *err);
/* Writes the first `size` bytes, which sized_check has allowed; what this library does not know becomes zero. */
void sized_write(void *to, size_t size, const void *from, size_t known);

#endif
