/* profile.c - `--profile`, the time of each kernel and the share of matrix products; `--trace`, a timeline. */
#include "profile.h"

#include <stdio.h>

#include "command.h"

FtxStatus profile_start(FtxEngine *engine, FtxError *err)
{
    return ftx_engine_profile(engine, true, &(const FtxProfile *){NULL}, &(size_t){0}, err);
}

void profile_print(FtxEngine *engine)
{
    const FtxProfile *rows;
    size_t n;
    double all = 0.0, matmul = 0.0;

    if (ftx_engine_profile(engine, true, &rows, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++) {
        all += rows[i].time_us;
        matmul += rows[i].matmul ? rows[i].time_us : 0.0;
    }
    fprintf(stderr, "%-44s %10s %12s %10s %7s\n", "kernel", "launches", "time", "each", "share");
    for (size_t i = 0; i < n; i++)
        if (rows[i].launches)
            fprintf(stderr, "%-44.44s %10llu %9.2f ms %7.2f us %6.1f%%\n", rows[i].kernel,
                    (unsigned long long)rows[i].launches, rows[i].time_us * 1e-3,
                    rows[i].time_us / (double)rows[i].launches, all > 0.0 ? 100.0 * rows[i].time_us / all : 0.0);
    fprintf(stderr, "matmuls: %.1f%% of %.2f ms\n", all > 0.0 ? 100.0 * matmul / all : 0.0, all * 1e-3);
}

FtxStatus trace_start(FtxEngine *engine, FtxError *err)
{
    return ftx_engine_trace_begin(engine, 1 << 20, err);
}

int trace_finish(FtxEngine *engine, const char *path, int code)
{
    FtxError err;

    if (!ftx_engine_trace_end(engine, path, &err))
        return code;
    return code == EXIT_DONE || code == EXIT_INTERRUPTED ? command_failed(&err) : code;
}
