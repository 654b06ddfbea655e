/* test_metrics.c - what /metrics prints of counts and times: buckets, sums, and who counts in which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/metrics.h"

/* Each of the lines stands in the text, whole. */
static void expect_lines(const Text *t, const char *const *lines)
{
    for (size_t i = 0; lines[i]; i++) {
        const char *at = strstr(t->at, lines[i]);

        if (!at || at[strlen(lines[i])] != '\n' || (at > t->at && at[-1] != '\n'))
            fail_msg("no line %s in\n%s", lines[i], t->at);
    }
}

static void jobs_are_counted(void **state)
{
    static const char *const lines[] = {
        "vllm:num_requests_running{model_name=\"m\\\"\",engine=\"0\"} 3",
        "vllm:num_requests_waiting{model_name=\"m\\\"\",engine=\"0\"} 7",
        "vllm:kv_cache_usage_perc{model_name=\"m\\\"\",engine=\"0\"} 0.75",
        "vllm:prompt_tokens_total{model_name=\"m\\\"\",engine=\"0\"} 301",
        "vllm:generation_tokens_total{model_name=\"m\\\"\",engine=\"0\"} 12",
        "vllm:prefix_cache_queries_total{model_name=\"m\\\"\",engine=\"0\"} 500",
        "vllm:prefix_cache_hits_total{model_name=\"m\\\"\",engine=\"0\"} 60",
        "vllm:num_preemptions_total{model_name=\"m\\\"\",engine=\"0\"} 2",
        "vllm:request_success_total{model_name=\"m\\\"\",engine=\"0\",finished_reason=\"stop\"} 2",
        "vllm:request_success_total{model_name=\"m\\\"\",engine=\"0\",finished_reason=\"length\"} 1",
        "vllm:request_success_total{model_name=\"m\\\"\",engine=\"0\",finished_reason=\"abort\"} 0",
        "vllm:request_success_total{model_name=\"m\\\"\",engine=\"0\",finished_reason=\"error\"} 1",
        "vllm:request_prompt_tokens_count{model_name=\"m\\\"\",engine=\"0\"} 3", /* not of the job that failed */
        "vllm:request_prompt_tokens_sum{model_name=\"m\\\"\",engine=\"0\"} 301",
        "vllm:e2e_request_latency_seconds_sum{model_name=\"m\\\"\",engine=\"0\"} 15",
        "vllm:request_inference_time_seconds_sum{model_name=\"m\\\"\",engine=\"0\"} 11",
        "vllm:request_time_per_output_token_seconds_count{model_name=\"m\\\"\",engine=\"0\"} 1", /* 1 token has none */
        "vllm:request_time_per_output_token_seconds_sum{model_name=\"m\\\"\",engine=\"0\"} 0.5",
        "ftx:connections 4",
        "ftx:refused_total{model_name=\"m\\\"\"} 1",
        "ftx:recomputed_tokens_total{model_name=\"m\\\"\"} 77",
        "ftx:swaps_total{model_name=\"m\\\"\"} 3",
        "ftx:steps_total{model_name=\"m\\\"\",kind=\"decode\"} 90",
        "ftx:steps_total{model_name=\"m\\\"\",kind=\"prompt\"} 0",
        "ftx:step_rows_total{model_name=\"m\\\"\",kind=\"mixed\"} 8",
        "ftx:step_prompt_tokens_total{model_name=\"m\\\"\",kind=\"mixed\"} 700",
        "ftx:step_seconds_total{model_name=\"m\\\"\",kind=\"decode\"} 1.500000",
        "ftx:host_seconds_total{model_name=\"m\\\"\",part=\"compose\"} 0.250000",
        "ftx:host_seconds_total{model_name=\"m\\\"\",part=\"gap\"} 0.125000",
        "vllm:num_requests_swapped{model_name=\"m\\\"\",engine=\"0\"} 2",
        "vllm:cpu_cache_usage_perc{model_name=\"m\\\"\",engine=\"0\"} 0.75",
        NULL};
    Metrics m;
    Text t = {0};
    const MetricsRow row = {.model = "m\"",
                            .metrics = &m,
                            .waiting = 5,
                            .stats = {.waiting = 2,
                                      .running = 3,
                                      .pages = 8,
                                      .free_pages = 2,
                                      .prompt_tokens = 500,
                                      .cached_tokens = 60,
                                      .preemptions = 2,
                                      .recomputed_tokens = 77,
                                      .decode = {.steps = 90, .seconds = 1.5},
                                      .mixed = {.steps = 2, .rows = 8, .tokens = 700},
                                      .compose_seconds = 0.25,
                                      .gap_seconds = 0.125,
                                      .swaps = 3,
                                      .swapped = 2,
                                      .swap_pages = 8,
                                      .free_swap_pages = 2},
                            .context = 1024,
                            .kv_tokens = 99};

    (void)state;
    metrics_open(&m);
    metrics_job(&m, FTX_FINISH_END, 6.0, 1.0, 1.0, 4.0, 100, 9, 1);
    metrics_job(&m, FTX_FINISH_STOP, 5.0, 1.0, 1.0, 3.0, 200, 1, 1);
    metrics_job(&m, FTX_FINISH_LENGTH, 4.0, 1.0, 1.0, 1.0, 1, 0, 2);
    metrics_job(&m, FTX_FINISH_ERROR, 100.0, 0.0, 0.0, 0.0, 1000, 0, 1);
    metrics_tokens(&m, 12, -1.0, -1.0);
    metrics_refused(&m);
    metrics_print(&t, &row, 1, 4);
    expect_lines(&t, lines);
    text_free(&t);
    metrics_close(&m);
}

/* Each bucket holds all that are not above its bound; the last one holds all. */
static void buckets_are_cumulative(void **state)
{
    static const char *const lines[] = {
        "vllm:iteration_tokens_total_bucket{model_name=\"a\",engine=\"0\",le=\"1\"} 2",
        "vllm:iteration_tokens_total_bucket{model_name=\"a\",engine=\"0\",le=\"8\"} 3",
        "vllm:iteration_tokens_total_bucket{model_name=\"a\",engine=\"0\",le=\"16\"} 4",
        "vllm:iteration_tokens_total_bucket{model_name=\"a\",engine=\"0\",le=\"16384\"} 4",
        "vllm:iteration_tokens_total_bucket{model_name=\"a\",engine=\"0\",le=\"+Inf\"} 5",
        "vllm:iteration_tokens_total_count{model_name=\"a\",engine=\"0\"} 5",
        "vllm:iteration_tokens_total_sum{model_name=\"a\",engine=\"0\"} 20020",
        "vllm:time_to_first_token_seconds_count{model_name=\"a\",engine=\"0\"} 1",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"a\",engine=\"0\",le=\"0.001\"} 1",
        "vllm:inter_token_latency_seconds_bucket{model_name=\"a\",engine=\"0\",le=\"0.01\"} 0",
        "vllm:inter_token_latency_seconds_bucket{model_name=\"a\",engine=\"0\",le=\"0.025\"} 1",
        "vllm:inter_token_latency_seconds_count{model_name=\"a\",engine=\"0\"} 1",
        "vllm:time_per_output_token_seconds_count{model_name=\"a\",engine=\"0\"} 1",
        "vllm:generation_tokens_total{model_name=\"a\",engine=\"0\"} 2",
        "vllm:iteration_tokens_total_count{model_name=\"b\",engine=\"0\"} 1",
        "vllm:iteration_tokens_total_sum{model_name=\"b\",engine=\"0\"} 32",
        "vllm:cache_config_info{model_name=\"b\",engine=\"0\",context=\"64\",tokens=\"640\"} 1",
        "vllm:kv_cache_usage_perc{model_name=\"b\",engine=\"0\"} 0", /* an encoder has no pages */
        NULL};
    static const size_t steps[] = {1, 1, 8, 10, 20000};
    Metrics m[2];
    Text t = {0};
    const MetricsRow rows[] = {{.model = "a", .metrics = &m[0]},
                               {.model = "b", .metrics = &m[1], .context = 64, .kv_tokens = 640}};

    (void)state;
    metrics_open(&m[0]);
    metrics_open(&m[1]);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        metrics_step(&m[0], steps[i]);
    metrics_step(&m[1], 32);
    metrics_tokens(&m[0], 1, 0.0, -1.0);
    metrics_tokens(&m[0], 1, -1.0, 0.02);
    metrics_print(&t, rows, 2, 0);
    expect_lines(&t, lines);
    text_free(&t);
    metrics_close(&m[0]);
    metrics_close(&m[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_are_counted), cmocka_unit_test(buckets_are_cumulative)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
