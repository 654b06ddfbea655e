/* sized.c - structs of ftx.h that begin with their size, read and written by the caller's size. */
#include "sized.h"

#include <string.h>

enum { MOST = 65536 /* a larger size is garbage */ };

FtxStatus sized_check(const char *name, size_t size, FtxError *err)
{
    if (size >= sizeof size && size % sizeof(void *) == 0 && size <= MOST)
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL, "%s.size is %zu: set it to sizeof(%s) (see Versions in ftx.h)", name, size, name);
}

FtxStatus sized_read(const char *name, const void *from, void *to, size_t known, FtxError *err)
{
    size_t size;
    FtxStatus s;

    memcpy(&size, from, sizeof size);
    s = sized_check(name, size, err);
    if (s)
        return s;
    for (size_t i = known; i < size; i++)
        if (((const char *)from)[i])
            return ftx_fail(err, FTX_EINVAL,
                            "%s.size is %zu, this libftx (%d.%d) knows %zu bytes, and a field after them is set: "
                            "update libftx",
                            name, size, FTX_VERSION_MAJOR, FTX_VERSION_MINOR, known);
    memcpy(to, from, size < known ? size : known);
    memcpy(to, &known, sizeof known);
    return FTX_OK;
}

void sized_write(void *to, size_t size, const void *from, size_t known)
{
    memcpy(to, from, size < known ? size : known);
    if (size > known)
        memset((char *)to + known, 0, size - known);
    memcpy(to, &size, sizeof size);
}
