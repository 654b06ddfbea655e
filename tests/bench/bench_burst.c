/* bench_burst.c - how long `ftxc load`'s requests would take by the engine's composition of steps (batch.h) and a table of step times, with
 * neither a GPU nor a model. What a server takes longer than this is not the composition's fault. No test; it asserts nothing.
 *
 *     bench_burst REQUESTS SEQUENCES STEP_MS [RATE]
 *
 * The table is Llama 3.1 8B in bf16 on an H200 (docs/results/sweeps, benches of some milliseconds on a GPU that has rested):
 * a step takes a time for its tokens, and 28.5 ns for each token that a row that decodes looks back at. Lengths and arrivals are those of
 * `ftxc load` with seed 1. The last line is what no composition of separate steps can be faster than: full steps of prompts, then all
 * texts together from their first token on, however many there are. A step with both saves at most one reading of the weights. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/batch.h"
#include "runtime/engine/pace.h"

enum { STEP_TOKENS = 2048, TILE = 128 };

typedef struct Point {
    double tokens, ms;
} Point;

typedef struct Asked {
    double at, first, end; /* seconds */
    int input, output, fed, made;
} Asked;

static const Point decode_ms[] = {{1, 3.55},  {2, 3.9},    {8, 4.05},   {16, 3.97},  {32, 4.05},   {64, 4.38},
                                  {65, 4.45}, {128, 4.65}, {129, 5.6},  {192, 5.85}, {193, 6.9},   {256, 7.1},
                                  {257, 9.9}, {384, 11.5}, {512, 13.1}, {513, 14.5}, {1024, 24.0}, {2048, 45.8}};
static const Point prompt_ms[] = {
    {2, 3.92},    {16, 3.99},   {17, 4.1},    {64, 4.3},    {65, 4.52},   {128, 4.63},  {129, 5.61},   {192, 5.88},
    {193, 7.03},  {256, 7.09},  {257, 10.2},  {320, 10.48}, {384, 10.92}, {448, 11.66}, {512, 12.23},  {513, 14.22},
    {640, 15.69}, {641, 18.0},  {768, 18.33}, {769, 21.0},  {896, 21.85}, {897, 22.9},  {1024, 23.6},  {1025, 25.5},
    {1152, 26.3}, {1153, 28.0}, {1280, 28.6}, {1281, 31.0}, {1408, 31.7}, {1409, 33.7}, {1536, 34.41}, {1537, 38.0},
    {1664, 38.5}, {1665, 40.0}, {1792, 41.0}, {1793, 42.5}, {1920, 43.5}, {1921, 44.8}, {2048, 45.8},
};
static const uint32_t buckets[] = {128, 192, 256, 512};

#define LEN(a) (sizeof(a) / sizeof *(a))

static double between(const Point *p, size_t n, double tokens)
{
    size_t i = 0;

    while (i + 1 < n && p[i + 1].tokens < tokens)
        i++;
    if (tokens <= p[0].tokens || i + 1 == n)
        return tokens <= p[0].tokens ? p[0].ms : p[n - 1].ms * tokens / p[n - 1].tokens;
    return p[i].ms + (p[i + 1].ms - p[i].ms) * (tokens - p[i].tokens) / (p[i + 1].tokens - p[i].tokens);
}

/* seen: tokens that all rows look back at. */
static double step_ms(int rows, double seen, int tokens)
{
    const double looks = 28.5e-6 * seen;

    return looks + (tokens ? between(prompt_ms, LEN(prompt_ms), rows + tokens) + 0.3
                           : between(decode_ms, LEN(decode_ms), rows));
}

/* As ftxc load (server/load.c). */
static uint64_t dice = 0x9e3779b97f4a7c15u | 1;

static double draw(void)
{
    dice ^= dice >> 12;
    dice ^= dice << 25;
    dice ^= dice >> 27;
    return (double)((dice * 2685821657736338717u) >> 11) * 0x1p-53;
}

static int draw_length(int mean)
{
    const double normal = sqrt(-2.0 * log(1.0 - draw())) * cos(6.283185307179586 * draw());
    const double x = exp(log((double)mean) - 0.32 + 0.8 * normal);

    return x < 1.0 ? 1 : x > 1024.0 ? 1024 : (int)(x + 0.5);
}

static void ask_all(Asked *a, int n, double rate)
{
    double at = 0.0;

    for (int i = 0; i < n; i++) {
        at -= rate > 0.0 ? log(1.0 - draw()) / rate : 0.0;
        a[i] = (Asked){.at = at, .input = draw_length(230), .output = draw_length(200)};
        draw(), draw(); /* a group, and whether it leaves */
    }
}

/* As pace_measure finds it. */
static Pace pace_of(double target_ms)
{
    Pace p = {.target_us = target_ms * 1e3, .prompt_us = 400.0, .token_us = (45.9 - 4.0) * 1e3 / (2048 - 16)};

    for (int rows = 1; rows <= 512; rows *= 2) {
        p.rows[p.n] = rows;
        p.decode_us[p.n++] = step_ms(rows, 256.0 * rows, 0) * 1e3;
    }
    return p;
}

/* Seconds of full steps of prompts, and then of decode steps with all texts that have not ended. */
static double least_seconds(const Asked *a, int n)
{
    double tokens = 0.0, ms = 0.0;

    for (int i = 0; i < n; i++)
        tokens += a[i].input;
    ms = tokens / STEP_TOKENS * between(prompt_ms, LEN(prompt_ms), STEP_TOKENS);
    for (int made = 1, rows = 1; rows; made++) {
        double seen = 0.0;

        rows = 0;
        for (int i = 0; i < n; i++)
            if (a[i].output > made) {
                rows++;
                seen += a[i].input + made;
            }
        ms += rows ? step_ms(rows, seen, 0) : 0.0;
    }
    return ms * 1e-3;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_row(const char *name, double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    printf("%-5s p50 %.2f, p99 %.2f ms\n", name, x[n / 2], x[(int)((n - 1) * 0.99)]);
}

int main(int argc, char **argv)
{
    const int n = argc > 3 ? atoi(argv[1]) : 0, slots = argc > 3 ? atoi(argv[2]) : 0;
    const Pace pace = pace_of(argc > 3 ? atof(argv[3]) : 25.0);
    const BatchSizes sizes = {.bucket = buckets, .n = LEN(buckets), .tile = TILE};
    double now = 0.0, written = 0.0, kind_ms[2] = {0.0, 0.0};
    int waits = 0, running = 0, left = n, steps[2] = {0, 0};

    if (n < 1 || slots < 1) {
        fprintf(stderr, "usage: bench_burst REQUESTS SEQUENCES STEP_MS [RATE]\n");
        return 2;
    }
    Asked *asked = calloc((size_t)n, sizeof *asked), **run = calloc((size_t)slots, sizeof *run);
    BatchItem *item = calloc((size_t)slots, sizeof *item);
    int *tokens = calloc((size_t)slots, sizeof *tokens);
    double *ttft = calloc((size_t)n, sizeof *ttft), *tpot = calloc((size_t)n, sizeof *tpot);

    ask_all(asked, n, argc > 4 ? atof(argv[4]) : 0.0);
    while (left) {
        int decode = 0, need = 0, read = 0, stay = 0;
        double seen = 0.0, ms;

        while (waits < n && running < slots && asked[waits].at <= now)
            run[running++] = &asked[waits++];
        if (!running) {
            now = asked[waits].at;
            continue;
        }
        for (int i = 0; i < running; i++) {
            const Asked *a = run[i];
            const bool writes = a->fed == a->input;

            item[i] = (BatchItem){.lanes = writes, .need = a->input - a->fed, .started = a->fed > 0 && !writes};
            decode += writes;
            need += item[i].need;
            seen += writes ? a->input + a->made : 0;
        }
        batch_share(item, running,
                    batch_fit(pace_tokens(&pace, decode, STEP_TOKENS), STEP_TOKENS, decode, need, &sizes), tokens);
        for (int i = 0; i < running; i++)
            read += item[i].lanes ? 0 : tokens[i];
        ms = step_ms(decode, seen, read);
        now += ms * 1e-3;
        steps[read > 0]++;
        kind_ms[read > 0] += ms;
        for (int i = 0; i < running; i++) {
            Asked *a = run[i];

            a->fed += item[i].lanes ? 0 : tokens[i];
            a->made += a->fed == a->input;
            a->first = a->made == 1 && a->first == 0.0 ? now : a->first;
            a->end = now;
            if (a->made < a->output)
                run[stay++] = a;
            else
                left--;
        }
        running = stay;
    }
    for (int i = 0; i < n; i++) {
        written += asked[i].output;
        ttft[i] = (asked[i].first - asked[i].at) * 1e3;
        tpot[i] = (asked[i].end - asked[i].first) * 1e3 / (asked[i].output > 1 ? asked[i].output - 1 : 1);
    }
    printf("%.0f tokens/s written in %.2f s; %d steps with prompts, %.1f ms each, %d others, %.1f ms each\n",
           written / now, now, steps[1], steps[1] ? kind_ms[1] / steps[1] : 0.0, steps[0],
           steps[0] ? kind_ms[0] / steps[0] : 0.0);
    print_row("TTFT", ttft, n);
    print_row("TPOT", tpot, n);
    printf("full steps of prompts, then all texts together: %.2f s, %.0f tokens/s\n", least_seconds(asked, n),
           written / least_seconds(asked, n));
    free(asked);
    free(run);
    free(item);
    free(tokens);
    free(ttft);
    free(tpot);
    return 0;
}
