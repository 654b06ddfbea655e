/* meeting.h - how the processes of several ranks find each other.
 *
 *   rank 0  listens at FTX_MASTER; each other rank connects to it and says what it runs; rank 0 tells all where all are
 *   r and 0     a connection for calls
 *   r and s     a connection for what kernels exchange */
#ifndef FTX_GROUP_MEETING_H
#define FTX_GROUP_MEETING_H

#include <stdint.h>

#include "../../base/error.h"
#include "../device.h"

enum { MEETING_TIMES = 6 }; /* so many times FTX_PEER_TIMEOUT each part of the meeting may take */

typedef struct RankSockets { /* to another rank */
    int calls, exchange;     /* -1: none */
} RankSockets;

/* Meets the other ranks, which must have the same artifact. timeout: FTX_PEER_TIMEOUT. link[ranks]: none before; the caller closes
 * what is there afterwards, also when there was no meeting. o: log; NULL: none. */
FtxStatus ranks_meet(const FtxOptions *o, int rank, int ranks, int timeout, uint64_t artifact, RankSockets *link,
                     FtxError *err);

#endif
