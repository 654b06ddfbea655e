/* nccl_table.h - what nccl.c calls of NCCL. Beside it only the tests include this: they put their own table in.
 *
 * Declared by hand, because the CUDA toolkit has no nccl.h: as NCCL 2.18 to 2.32 have it. */
#ifndef FTX_NCCL_TABLE_H
#define FTX_NCCL_TABLE_H

#include <limits.h>
#include <stddef.h>

enum { NCCL_OLDEST = 21800 }; /* 2.18: the version of NcclConfig */

enum { NCCL_SUCCESS = 0, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7 }; /* of ncclResult_t */
enum { NCCL_BYTE = 0 };                                                 /* ncclInt8 of ncclDataType_t */

typedef struct NcclUniqueId {
    char bytes[128];
} NcclUniqueId;

/* ncclConfig_t of 2.18. NCCL reads `size` bytes, and has its defaults for what later versions have added. */
typedef struct NcclConfig {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} NcclConfig;

#define NCCL_CONFIG \
    (NcclConfig) \
    { \
        .size = sizeof(NcclConfig), .magic = 0xcafebeef, .version = NCCL_OLDEST, .blocking = INT_MIN, \
        .cga_cluster_size = INT_MIN, .min_ctas = INT_MIN, .max_ctas = INT_MIN, .split_share = INT_MIN \
    }

typedef struct NcclComm *NcclHandle; /* ncclComm_t */

/* F(name, result, arguments) */
// clang-format off
#define NCCL_FUNCTIONS(F) \
    F(ncclGetVersion, int, (int *version)) \
    F(ncclGetUniqueId, int, (NcclUniqueId *id)) \
    F(ncclCommInitRankConfig, int, (NcclHandle *comm, int ranks, NcclUniqueId id, int rank, NcclConfig *config)) \
    F(ncclCommGetAsyncError, int, (NcclHandle comm, int *result)) \
    F(ncclCommAbort, int, (NcclHandle comm)) \
    F(ncclGetErrorString, const char *, (int result)) \
    F(ncclGetLastError, const char *, (NcclHandle comm)) \
    F(ncclGroupStart, int, (void)) \
    F(ncclGroupEnd, int, (void)) \
    F(ncclSend, int, (const void *from, size_t count, int type, int peer, NcclHandle comm, void *stream)) \
    F(ncclRecv, int, (void *to, size_t count, int type, int peer, NcclHandle comm, void *stream))
// clang-format on

typedef struct NcclTable {
#define F(name, result, arguments) result(*name) arguments;
    NCCL_FUNCTIONS(F)
#undef F
} NcclTable;

#endif
