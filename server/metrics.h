/* metrics.h - counts and times of a served model, printed in the text format of Prometheus with vLLM's names. */
#ifndef FTX_SERVER_METRICS_H
#define FTX_SERVER_METRICS_H

#include <pthread.h>
#include <stdint.h>

#include "text.h"
#include "../runtime/ftx.h"

enum { MOST_BOUNDS = 24 };

typedef enum HistogramName {
#define HISTOGRAM(name, ...) HIST_##name,
#include "metrics.def"
#undef HISTOGRAM
    HISTOGRAMS
} HistogramName;

typedef struct Metrics {
    pthread_mutex_t lock;
    uint64_t prompt_tokens, new_tokens, refused;
    uint64_t finished[FTX_FINISH_NAN + 1]; /* jobs, by FtxFinish */
    struct {
        uint64_t counts[MOST_BOUNDS + 1];
        double sum;
    } histograms[HISTOGRAMS];
} Metrics;

void metrics_open(Metrics *m);
void metrics_close(Metrics *m);

/* Tokens of an event; `first` and `between`: seconds, negative if it was not the first token, or was. */
void metrics_tokens(Metrics *m, size_t tokens, double first, double between);
void metrics_step(Metrics *m, size_t rows);
/* A job has ended; times in seconds, 0 where it did not come so far. */
void metrics_job(Metrics *m, FtxFinish finish, double whole, double queue, double prefill, double decode,
                 size_t prompt_tokens, size_t new_tokens, int samples);
void metrics_refused(Metrics *m);

/* What the text says of one model beside its Metrics. */
typedef struct MetricsRow {
    const char *model;
    Metrics *metrics;
    size_t waiting; /* before the engine */
    FtxStats stats;
    int context;
    uint64_t kv_tokens;
} MetricsRow;

void metrics_print(Text *t, const MetricsRow *rows, size_t n, size_t connections);

#endif
