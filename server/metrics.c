/* metrics.c - counts and times of a served model, printed in the text format of Prometheus with vLLM's names. */
#include "metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../runtime/base/arena.h"

#define FIRST_BOUNDS \
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560
#define TOKEN_BOUNDS 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80
#define REQUEST_BOUNDS 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680
#define COUNT_BOUNDS \
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000
#define SAMPLE_BOUNDS 1, 2, 5, 10, 20
#define STEP_BOUNDS 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384

static const struct {
    const char *name, *what;
    double bounds[MOST_BOUNDS]; /* 0: there are no more */
} table[] = {
#define EXPAND(...) __VA_ARGS__
#define HISTOGRAM(name, published, limits, what) {published, what, {EXPAND(limits)}},
#include "metrics.def"
#undef HISTOGRAM
};

void metrics_open(Metrics *m)
{
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_close(Metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

/* The lock is held. */
static void observe(Metrics *m, HistogramName name, double x)
{
    size_t i = 0;

    while (i < MOST_BOUNDS && table[name].bounds[i] > 0.0 && x > table[name].bounds[i])
        i++;
    m->histograms[name].counts[i]++;
    m->histograms[name].sum += x;
}

void metrics_tokens(Metrics *m, size_t tokens, double first, double between)
{
    pthread_mutex_lock(&m->lock);
    m->new_tokens += tokens;
    if (tokens && first >= 0.0)
        observe(m, HIST_FIRST, first);
    if (between >= 0.0) {
        observe(m, HIST_BETWEEN, between);
        observe(m, HIST_BETWEEN_OLD, between);
    }
    pthread_mutex_unlock(&m->lock);
}

void metrics_step(Metrics *m, size_t rows)
{
    pthread_mutex_lock(&m->lock);
    observe(m, HIST_STEP, (double)rows);
    pthread_mutex_unlock(&m->lock);
}

void metrics_job(Metrics *m, FtxFinish finish, double whole, double queue, double prefill, double decode,
                 size_t prompt_tokens, size_t new_tokens, int samples)
{
    pthread_mutex_lock(&m->lock);
    m->finished[finish]++;
    if (finish != FTX_FINISH_ERROR) {
        m->prompt_tokens += prompt_tokens;
        observe(m, HIST_WHOLE, whole);
        observe(m, HIST_QUEUE, queue);
        observe(m, HIST_PREFILL, prefill);
        observe(m, HIST_DECODE, decode);
        observe(m, HIST_INFERENCE, prefill + decode);
        observe(m, HIST_PROMPT, (double)prompt_tokens);
        observe(m, HIST_GENERATED, (double)new_tokens);
        observe(m, HIST_SAMPLES, (double)samples);
        if (new_tokens > 1)
            observe(m, HIST_MEAN_TOKEN, decode / (double)(new_tokens - 1));
    }
    pthread_mutex_unlock(&m->lock);
}

void metrics_refused(Metrics *m)
{
    pthread_mutex_lock(&m->lock);
    m->refused++;
    pthread_mutex_unlock(&m->lock);
}

/* --- the text ---------------------------------------------------------------------------------------------- */

static void head(Text *t, const char *name, const char *kind, const char *what)
{
    text_printf(t, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, what, name, kind);
}

static void labels(Text *t, const char *name, const char *model, const char *more)
{
    text_printf(t, "vllm:%s{model_name=", name);
    text_json(t, model, strlen(model));
    text_printf(t, ",engine=\"0\"%s} ", more);
}

static void print_histogram(Text *t, size_t i, const MetricsRow *row)
{
    const Metrics *m = row->metrics;
    uint64_t sum = 0;
    char name[80], more[40];

    snprintf(name, sizeof name, "%s_bucket", table[i].name);
    for (size_t k = 0; k < MOST_BOUNDS && table[i].bounds[k] > 0.0; k++) {
        sum += m->histograms[i].counts[k];
        snprintf(more, sizeof more, ",le=\"%g\"", table[i].bounds[k]);
        labels(t, name, row->model, more);
        text_printf(t, "%" PRIu64 "\n", sum);
    }
    for (size_t k = 0; k <= MOST_BOUNDS; k++)
        if (k == MOST_BOUNDS || table[i].bounds[k] <= 0.0) {
            sum += m->histograms[i].counts[k];
            break;
        }
    labels(t, name, row->model, ",le=\"+Inf\"");
    text_printf(t, "%" PRIu64 "\n", sum);
    snprintf(name, sizeof name, "%s_sum", table[i].name);
    labels(t, name, row->model, "");
    text_printf(t, "%.9g\n", m->histograms[i].sum);
    snprintf(name, sizeof name, "%s_count", table[i].name);
    labels(t, name, row->model, "");
    text_printf(t, "%" PRIu64 "\n", sum);
}

static void print_number(Text *t, const char *name, const char *kind, const char *what, const MetricsRow *rows,
                         size_t n, double (*value)(const MetricsRow *row))
{
    head(t, name, kind, what);
    for (size_t i = 0; i < n; i++) {
        labels(t, name, rows[i].model, "");
        text_printf(t, "%.17g\n", value(&rows[i]));
    }
}

static double running(const MetricsRow *r)
{
    return (double)r->stats.running;
}

static double waiting(const MetricsRow *r)
{
    return (double)(r->waiting + r->stats.waiting);
}

static double cache(const MetricsRow *r)
{
    return r->stats.pages ? (double)(r->stats.pages - r->stats.free_pages) / (double)r->stats.pages : 0.0;
}

static double prompt_tokens(const MetricsRow *r)
{
    return (double)r->metrics->prompt_tokens;
}

static double queries(const MetricsRow *r)
{
    return (double)r->stats.prompt_tokens;
}

static double hits(const MetricsRow *r)
{
    return (double)r->stats.cached_tokens;
}

static double preemptions(const MetricsRow *r)
{
    return (double)r->stats.preemptions;
}

static double swapped(const MetricsRow *r)
{
    return (double)r->stats.swapped;
}

static double swap_usage(const MetricsRow *r)
{
    const size_t all = r->stats.swap_pages;

    return all ? (double)(all - r->stats.free_swap_pages) / (double)all : 0.0;
}

static double new_tokens(const MetricsRow *r)
{
    return (double)r->metrics->new_tokens;
}

static void print_success(Text *t, const MetricsRow *row)
{
    static const struct {
        const char *reason;
        FtxFinish a, b;
    } reasons[] = {{"stop", FTX_FINISH_END, FTX_FINISH_STOP},
                   {"length", FTX_FINISH_LENGTH, FTX_FINISH_LENGTH},
                   {"abort", FTX_FINISH_CANCEL, FTX_FINISH_DEADLINE},
                   {"error", FTX_FINISH_ERROR, FTX_FINISH_NAN}};
    char more[60];

    for (size_t i = 0; i < LEN(reasons); i++) {
        const uint64_t *n = row->metrics->finished;

        snprintf(more, sizeof more, ",finished_reason=\"%s\"", reasons[i].reason);
        labels(t, "request_success_total", row->model, more);
        text_printf(t, "%" PRIu64 "\n", n[reasons[i].a] + (reasons[i].a != reasons[i].b ? n[reasons[i].b] : 0));
    }
}

static uint64_t refused(const MetricsRow *r)
{
    return r->metrics->refused;
}

static uint64_t swaps(const MetricsRow *r)
{
    return r->stats.swaps;
}

static uint64_t recomputed(const MetricsRow *r)
{
    return r->stats.recomputed_tokens;
}

/* A counter that vLLM does not have. */
static void print_own(Text *t, const char *name, const char *what, const MetricsRow *rows, size_t n,
                      uint64_t (*value)(const MetricsRow *row))
{
    text_printf(t, "# HELP ftx:%s %s\n# TYPE ftx:%s counter\n", name, what, name);
    for (size_t i = 0; i < n; i++) {
        text_printf(t, "ftx:%s{model_name=", name);
        text_json(t, rows[i].model, strlen(rows[i].model));
        text_printf(t, "} %" PRIu64 "\n", value(&rows[i]));
    }
}

/* Counters of steps by kind: vLLM has none. */
static void print_steps(Text *t, const MetricsRow *rows, size_t n)
{
    static const char *const kinds[] = {"decode", "mixed", "prompt"};
    static const struct {
        const char *name, *what;
    } values[] = {{"steps_total", "steps of the engine"},
                  {"step_rows_total", "tokens that texts got in them"},
                  {"step_prompt_tokens_total", "tokens of prompts in them"},
                  {"step_seconds_total", "time that they took"}};

    for (size_t v = 0; v < LEN(values); v++) {
        text_printf(t, "# HELP ftx:%s %s\n# TYPE ftx:%s counter\n", values[v].name, values[v].what, values[v].name);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < LEN(kinds); k++) {
                const FtxStats *s = &rows[i].stats;
                const FtxSteps *of = k == 0 ? &s->decode : k == 1 ? &s->mixed : &s->prompt;

                text_printf(t, "ftx:%s{model_name=", values[v].name);
                text_json(t, rows[i].model, strlen(rows[i].model));
                text_printf(t, ",kind=\"%s\"} ", kinds[k]);
                if (v == 3)
                    text_printf(t, "%.6f\n", of->seconds);
                else
                    text_printf(t, "%" PRIu64 "\n", v == 0 ? of->steps : v == 1 ? of->rows : of->tokens);
            }
    }
    text_put(t, "# HELP ftx:host_seconds_total of the engine's thread: to compose steps; gap: between two steps\n"
                "# TYPE ftx:host_seconds_total counter\n");
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            text_put(t, "ftx:host_seconds_total{model_name=");
            text_json(t, rows[i].model, strlen(rows[i].model));
            text_printf(t, ",part=\"%s\"} %.6f\n", k ? "gap" : "compose",
                        k ? rows[i].stats.gap_seconds : rows[i].stats.compose_seconds);
        }
}

void metrics_print(Text *t, const MetricsRow *rows, size_t n, size_t connections)
{
    for (size_t i = 0; i < n; i++)
        pthread_mutex_lock(&rows[i].metrics->lock);
    print_number(t, "num_requests_running", "gauge", "samples that run", rows, n, running);
    print_number(t, "num_requests_waiting", "gauge", "requests that wait", rows, n, waiting);
    print_number(t, "kv_cache_usage_perc", "gauge", "share of the KV cache that running requests use, 0 to 1", rows, n,
                 cache);
    print_number(t, "prompt_tokens_total", "counter", "tokens of prompts", rows, n, prompt_tokens);
    print_number(t, "generation_tokens_total", "counter", "tokens written", rows, n, new_tokens);
    print_number(t, "prefix_cache_queries_total", "counter", "tokens of prompts that have begun to run", rows, n,
                 queries);
    print_number(t, "prefix_cache_hits_total", "counter", "of these, tokens that were in the KV cache", rows, n, hits);
    print_number(t, "num_preemptions_total", "counter", "requests preempted for want of KV pages", rows, n,
                 preemptions);
    print_number(t, "num_requests_swapped", "gauge", "requests whose KV pages are on the host", rows, n, swapped);
    print_number(t, "cpu_cache_usage_perc", "gauge", "share of the host's KV pages that requests use, 0 to 1", rows, n,
                 swap_usage);
    head(t, "request_success_total", "counter", "requests that have ended");
    for (size_t i = 0; i < n; i++)
        print_success(t, &rows[i]);
    for (size_t k = 0; k < LEN(table); k++) {
        head(t, table[k].name, "histogram", table[k].what);
        for (size_t i = 0; i < n; i++)
            print_histogram(t, k, &rows[i]);
    }
    head(t, "cache_config_info", "gauge", "the KV cache");
    for (size_t i = 0; i < n; i++) {
        char more[100];

        snprintf(more, sizeof more, ",context=\"%d\",tokens=\"%" PRIu64 "\"", rows[i].context, rows[i].kv_tokens);
        labels(t, "cache_config_info", rows[i].model, more);
        text_put(t, "1\n");
    }
    text_printf(t, "# HELP ftx:connections open connections\n# TYPE ftx:connections gauge\nftx:connections %zu\n",
                connections);
    print_own(t, "refused_total", "requests refused because the queue was full", rows, n, refused);
    print_own(t, "swaps_total", "preempted requests whose KV pages were copied to the host", rows, n, swaps);
    print_own(t, "recomputed_tokens_total", "tokens that preempted requests had in the KV cache", rows, n, recomputed);
    print_steps(t, rows, n);
    for (size_t i = 0; i < n; i++)
        pthread_mutex_unlock(&rows[i].metrics->lock);
}
