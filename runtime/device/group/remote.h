/* remote.h - ranks in other processes: rank 0 has a device for each (device_remote), whose calls the process of that rank makes
 * on its own device (remote_run of device.h). link.h connects them. */
#ifndef FTX_GROUP_REMOTE_H
#define FTX_GROUP_REMOTE_H

#include "../device.h"
#include "link.h"

typedef enum RemoteOp {
    REMOTE_OPEN,   /* a session, with kv_bytes */
    REMOTE_JOIN,   /* it exchanges with the others from now on; links_word follows */
    REMOTE_CLOSE,  /* the session */
    REMOTE_UPLOAD, /* `bytes` of IO follow */
    REMOTE_WRITE,  /* `bytes` for a named buffer follow */
    REMOTE_RUN,
    REMOTE_TIME,
    REMOTE_WAIT,     /* until all that it runs is done */
    REMOTE_END,      /* the model is closed; no answer */
    REMOTE_WIPE,     /* page `program` */
    REMOTE_SNAPSHOT, /* `program`, of slot S; times 1: back */
} RemoteOp;

typedef struct RemoteCall {
    int32_t op; /* RemoteOp */
    uint32_t program;
    int32_t T, S, times, named;
    uint64_t offset, bytes, kv_bytes;
} RemoteCall;

typedef struct RemoteAnswer {
    int32_t status;
    uint32_t pages; /* REMOTE_OPEN */
    double us;      /* REMOTE_TIME */
    char text[sizeof((FtxError *)0)->text];
} RemoteAnswer;

extern const DeviceApi device_remote;

/* In rank 0: the device of another rank. The links must outlive it. */
FtxStatus remote_open(const Memory *m, const ArtifactPlan *plan, Links *l, int rank, Device **out, FtxError *err);

#endif
