/* generation.h - times whole generations for ftxc bench. */
#ifndef FTXC_GENERATION_H
#define FTXC_GENERATION_H

#include "../../runtime/ftx.h"

typedef struct Generation {
    int requests;    /* at once */
    int source, new; /* tokens that are read (a source or a prompt), and that are written */
    int beams;       /* 0, 1: none */
    int top_k;
    double top_p, temperature;
    int repeat;
} Generation;

typedef struct GenerationTimes {
    double median_ms, least_ms, most_ms; /* from the first submit to the last event */
} GenerationTimes;

FtxStatus generation_time(FtxEngine *engine, const FtxModelInfo *info, const Generation *g, GenerationTimes *times,
                          FtxError *err);

#endif
