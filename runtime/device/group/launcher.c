/* launcher.c - what the program that started this process says of it: which of how many ranks it is, and the number of its GPU. */
#include <errno.h>
#include <stdlib.h>

#include "../../base/env.h"
#include "link.h"

/* The first of the variables that is set. *found: there is one. */
static FtxStatus read_first(const char *const *names, int n_names, int *value, bool *found, FtxError *err)
{
    *found = false;
    for (int i = 0; i < n_names; i++) {
        const char *text = getenv(names[i]);
        char *end;
        long n;

        if (!text || !*text)
            continue;
        errno = 0;
        n = strtol(text, &end, 10);
        if (errno || *end || n < 0 || n > FTX_MAX_RANKS)
            return ftx_fail(err, FTX_EINVAL, "%s is \"%s\": expected a number up to %d", names[i], text, FTX_MAX_RANKS);
        *value = (int)n;
        *found = true;
        return FTX_OK;
    }
    return FTX_OK;
}

static FtxStatus read_number(const char *const names[4], int *value, FtxError *err)
{
    bool found;
    const FtxStatus s = read_first(names, 4, value, &found, err);

    if (s || found)
        return s;
    return ftx_fail(err, FTX_EINVAL, "FTX_MASTER is set, but none of %s, %s, %s and %s", names[0], names[1], names[2],
                    names[3]);
}

FtxStatus link_read(int *rank, int *ranks, FtxError *err)
{
    static const char *const rank_names[] = {"FTX_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    static const char *const size_names[] = {"FTX_RANKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    FtxStatus s;

    *rank = *ranks = 0;
    if (!env_text(ENV_FTX_MASTER))
        return FTX_OK;
    s = read_number(rank_names, rank, err);
    if (!s)
        s = read_number(size_names, ranks, err);
    if (!s && *rank >= *ranks)
        return ftx_fail(err, FTX_EINVAL, "this process is rank %d of %d: ranks count from 0", *rank, *ranks);
    return s;
}

FtxStatus link_local(int *number, FtxError *err)
{
    static const char *const names[] = {"SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"};
    bool found;

    *number = 0;
    return read_first(names, 3, number, &found, err);
}
