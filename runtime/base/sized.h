/* sized.h - structs of ftx.h that begin with their size: the caller may have been built with another version of
 * them. */
#ifndef FTX_SIZED_H
#define FTX_SIZED_H

#include "error.h"

/* name: the struct's, for messages. known: its sizeof in this library. The first member, a size_t, is the caller's
 * size. */

/* Copies the caller's fields to *to; fields that the caller's struct lacks keep their values. */
FtxStatus sized_read(const char *name, const void *from, void *to, size_t known, FtxError *err);

/* Whether a struct of `size` bytes may be written. */
FtxStatus sized_check(const char *name, size_t size, FtxError *err);
/* Writes the first `size` bytes, which sized_check has accepted; fields that this library does not know become zero. */
void sized_write(void *to, size_t size, const void *from, size_t known);

#endif
