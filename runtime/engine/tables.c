/* tables.c - tables by slot that the host writes and kernels read: $pages, $group, $bad_words, $history.
 *
 * A copy to a GPU takes microseconds, however short. So a small table has a copy on the host, and the rows between
 * the first and the last that changed are sent at once. Rows of a large table are sent as they are written. */
#include <string.h>

#include "engine.h"

enum { WRITE_BYTES = 65536 /* of DeviceApi.write */ };

bool table_is_small(uint32_t slots, uint32_t width)
{
    return (uint64_t)slots * width * sizeof(int32_t) <= WRITE_BYTES;
}

FtxStatus table_put(FtxEngine *e, SlotTable *t, int slot, uint32_t at, const int32_t *values, uint32_t n, FtxError *err)
{
    const size_t row = (size_t)slot * t->width + at, bytes = n * sizeof *values;
    FtxStatus s = FTX_OK;

    if (t->rows) {
        memcpy(t->rows + row, values, bytes);
        t->first = t->first == t->last || (uint32_t)slot < t->first ? (uint32_t)slot : t->first;
        t->last = (uint32_t)slot + 1 > t->last ? (uint32_t)slot + 1 : t->last;
        return FTX_OK;
    }
    for (size_t from = 0; from < bytes && !s; from += WRITE_BYTES)
        s = e->api->write(e->session, t->named, row * sizeof *values + from, (const char *)values + from,
                          bytes - from < WRITE_BYTES ? bytes - from : WRITE_BYTES, err);
    return s;
}

FtxStatus table_send(FtxEngine *e, SlotTable *t, FtxError *err)
{
    const size_t row = t->width * sizeof *t->rows;
    const uint32_t first = t->first, n = t->last - t->first;

    t->first = t->last = 0;
    return n ? e->api->write(e->session, t->named, first * row, t->rows + (size_t)first * t->width, n * row, err)
             : FTX_OK;
}
