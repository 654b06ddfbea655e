/* commands/bench.c - ftxc bench: times single steps, also of two artifacts in turn, or, with --new, whole generations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "compare.h"
#include "generation.h"
#include "../../runner/device.h"
#include "../../runner/json.h"
#include "../../runner/options.h"
#include "../../runner/profile.h"
#include "../../runtime/base/arena.h"
#include "../../runtime/base/error.h"

typedef struct Options {
    bool help, json, profile, compare, has_repeat, has_new, has_temperature;
    bool of_steps, of_generations; /* an option for steps, or for generations, was given */
    const char *device, *sequences, *context, *prompt, *mixed, *trace;
    uint64_t random_weights, kv_memory;
    int threads, repeat, new, source, beams, top_k;
    double top_p, temperature;
    DeviceWeights weights;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--sequences", 0, OPT_TEXT, "1,8,64",
     "decode steps of 1, of 8 and of 64 sequences; with --new: requests at once (default 1)", AT(sequences), 0},
    {"--context", 0, OPT_TEXT, "128,2048",
     "with 128 and with 2048 tokens in the cache (default 128); encoders: mean length of the texts", AT(context),
     AT(of_steps)},
    {"--prompt", 0, OPT_TEXT, "512,2048",
     "prompt steps of 512 and of 2048 tokens, one sequence; encoders: longest text", AT(prompt), AT(of_steps)},
    {"--mixed", 0, OPT_TEXT, "63x2048+1985",
     "a step in which 63 sequences with 2048 tokens in the cache decode beside 1985 tokens of a prompt; a list, too",
     AT(mixed), AT(of_steps)},
    {"--compare", 0, OPT_FLAG, NULL,
     "two artifacts of one model in turn, A B B A: the difference of B, with an interval that holds it in 95 % of "
     "cases",
     AT(compare), AT(of_steps)},
    {"--new", 0, OPT_INT, "N", "whole generations of N tokens, end tokens ignored, by the host's clock", AT(new),
     AT(has_new)},
    {"--source", 0, OPT_INT, "N", "with --new: tokens of each source or prompt (default 32)", AT(source),
     AT(of_generations)},
    {"--beams", 0, OPT_INT, "N", "with --new: beams of each request", AT(beams), AT(of_generations)},
    {"--temperature", 0, OPT_NUMBER, "X",
     "with --new: temperature (default: 1 with --top-k or --top-p, else 0, which is greedy)", AT(temperature),
     AT(has_temperature)},
    {"--top-k", 0, OPT_INT, "K", "with --new: draw from the K most likely tokens", AT(top_k), AT(of_generations)},
    {"--top-p", 0, OPT_NUMBER, "P", "with --new: draw from the most likely tokens that together have probability P",
     AT(top_p), AT(of_generations)},
    {"--profile", 0, OPT_FLAG, NULL, "with --new: time of each kernel; kernels do not overlap then", AT(profile),
     AT(of_generations)},
    {"--trace", 0, OPT_TEXT, "FILE.json",
     "when each step, kernel and copy began and ended, for Perfetto (ui.perfetto.dev) or scripts/timeline", AT(trace),
     0},
    {"--repeat", 'r', OPT_INT, "N",
     "runs of each; the median is printed (default 30, with --new 20); with --compare: rounds A B B A (default 20)",
     AT(repeat), AT(has_repeat)},
    {"--device", 'd', OPT_TEXT, "NAME",
     "cpu, cuda, cuda:N or auto; cpu:0,1 or cuda:0,1: one for each rank (docs/parallel.md)", AT(device), 0},
    {"--threads", 0, OPT_INT, "N", "CPU threads (default: one for each CPU of this process)", AT(threads), 0},
#include "../../runner/weights_options.def"
    {"--kv-memory", 0, OPT_BYTES, "4G",
     "device memory for the KV cache: bytes, with K, M, G or T (default: what is free, less a reserve)", AT(kv_memory),
     0},
    {"--random-weights", 0, OPT_SEED, "SEED", "draw the weights from a seed, not 0 (artifacts without weights)",
     AT(random_weights), 0},
    {"--json", 0, OPT_FLAG, NULL, "one object for each measurement, in the form of docs/results", AT(json), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

typedef struct Bench {
    const Options *o;
    FtxModel *model[2]; /* the second: of --compare, else NULL */
    FtxEngine *engine[2];
    const char *path[2];
    FtxModelInfo info;  /* of the first */
    char command[1000]; /* as it was typed */
} Bench;

static int worse(int a, int b)
{
    return a > b ? a : b;
}

static void join_arguments(Bench *b, int argc, char **argv)
{
    size_t n = (size_t)snprintf(b->command, sizeof b->command, "ftxc bench");

    for (int i = 0; i < argc && n < sizeof b->command; i++)
        n += (size_t)snprintf(b->command + n, sizeof b->command - n, " %s", argv[i]);
}

/* The name of this machine's processor and the number of CPUs. */
static void name_host(char *text, size_t bytes)
{
    char line[300], name[200] = "unknown CPU";
    FILE *f = fopen("/proc/cpuinfo", "r");

    while (f && fgets(line, sizeof line, f) && sscanf(line, "model name : %199[^\n]", name) != 1)
        ;
    if (f)
        fclose(f);
    snprintf(text, bytes, "%s, %ld CPUs", name, sysconf(_SC_NPROCESSORS_ONLN));
}

/* Prints a line of --json: its figures, then what ran, where and when, so that docs/results can keep it as it is. */
static void print_line(const Bench *b, json_t *figures)
{
    const time_t now = time(NULL);
    char date[20], version[20], host[300];
    struct tm utc;

    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &utc));
    snprintf(version, sizeof version, "%d.%d", FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
    name_host(host, sizeof host);
    json_object_set_new(figures, "model", json_string(b->info.name));
    json_object_set_new(figures, "limits",
                        json_pack("{s:i, s:i, s:i}", "sequences", b->info.sequences, "context", b->info.context,
                                  "tokens", b->info.step_tokens));
    json_object_set_new(figures, "date", json_string(date));
    json_object_set_new(figures, "device", json_string(b->info.device));
    json_object_set_new(figures, "host", json_string(host));
    json_object_set_new(figures, "ftxc", json_string(version));
    json_object_set_new(figures, "command", json_string(b->command));
    runner_json_print(figures);
}

static json_t *step_fields(const Step *s)
{
    return json_pack("{s:i, s:i, s:i}", "sequences", s->sequences, "tokens", s->tokens, "context", s->context);
}

static FtxStatus measure_one(const Bench *b, const Step *s, FtxError *err)
{
    double median, least, most, rate;
    const FtxStatus status =
        step_time(b->engine[0], s, b->o->has_repeat ? b->o->repeat : 30, &median, &least, &most, err);

    if (status)
        return status;
    rate = step_tokens(s) / median * 1e6;
    if (b->o->json) {
        json_t *figures = json_pack("{s:s, s:f, s:f, s:f, s:f}", "step", s->what, "median_us", median, "least_us",
                                    least, "most_us", most, "tokens_per_second", rate);

        json_object_update_new(figures, step_fields(s));
        print_line(b, figures);
    } else {
        printf("%-8s %9d %8d %9d %11.4f ms [%.4f .. %.4f] %12.0f tokens/s\n", s->what, s->sequences, s->tokens,
               s->context, median * 1e-3, least * 1e-3, most * 1e-3, rate);
    }
    return FTX_OK;
}

static FtxStatus measure_both(const Bench *b, const Step *s, FtxError *err)
{
    const int rounds = b->o->has_repeat ? b->o->repeat : 20;
    Comparison c;
    const FtxStatus status = compare_time(b->engine, s, rounds, &c, err);
    const double percent = 100 / c.a_us;

    if (status)
        return status;
    if (b->o->json) {
        json_t *figures =
            json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "compare", s->what, "rounds", rounds, "a_us", c.a_us,
                      "b_us", c.b_us, "difference_us", c.difference_us, "low_us", c.low_us, "high_us", c.high_us);

        json_object_update_new(figures, step_fields(s));
        json_object_set_new(figures, "a", runner_json_text(b->path[0], strlen(b->path[0])));
        json_object_set_new(figures, "b", runner_json_text(b->path[1], strlen(b->path[1])));
        print_line(b, figures);
    } else {
        printf("%-8s %9d %8d %9d %11.4f %11.4f ms %+8.2f %% [%+.2f .. %+.2f] %s\n", s->what, s->sequences, s->tokens,
               s->context, c.a_us * 1e-3, c.b_us * 1e-3, c.difference_us * percent, c.low_us * percent,
               c.high_us * percent,
               c.high_us < 0  ? "B is faster"
               : c.low_us > 0 ? "A is faster"
                              : "no difference shown");
    }
    return FTX_OK;
}

static int measure(const Bench *b, const Step *s)
{
    FtxError err = {0};

    if (b->engine[1] ? measure_both(b, s, &err) : measure_one(b, s, &err)) {
        ftx_context(&err, err.status, "%d x %d tokens after %d", s->sequences, s->tokens, s->context);
        return command_failed(&err);
    }
    fflush(stdout);
    return EXIT_DONE;
}

static int generate(const Bench *b, int sequences)
{
    const Options *o = b->o;
    const bool draws = o->top_k || o->top_p < 1.0;
    const Generation g = {.requests = sequences,
                          .source = o->source,
                          .new = o->new,
                          .beams = o->beams,
                          .top_k = o->top_k,
                          .top_p = o->top_p,
                          .temperature = o->has_temperature ? o->temperature
                                         : draws            ? 1.0
                                                            : 0.0,
                          .repeat = o->has_repeat ? o->repeat : 20};
    GenerationTimes t;
    FtxError err = {0};

    if (sequences < 1)
        return command_mistake("bench", "--sequences: expected 1 or more, found %d", sequences);
    if (generation_time(b->engine[0], &b->info, &g, &t, &err)) {
        ftx_context(&err, err.status, "%d x %d tokens after %d", sequences, g.new, g.source);
        return command_failed(&err);
    }
    if (o->json)
        print_line(b,
                   json_pack("{s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:I}", "generation", g.new, "source",
                             g.source, "beams", g.beams > 1 ? g.beams : 1, "requests", sequences, "top_k", g.top_k,
                             "top_p", g.top_p, "temperature", g.temperature, "median_ms", t.median_ms, "least_ms",
                             t.least_ms, "most_ms", t.most_ms, "workspace_bytes", (json_int_t)b->info.workspace_bytes));
    else
        printf("%-8d %9d %8d %9d %11.4f ms [%.4f .. %.4f] %9.4f ms a step\n", g.new, sequences,
               g.beams > 1 ? g.beams : 1, g.source, t.median_ms, t.least_ms, t.most_ms, t.median_ms / g.new);
    fflush(stdout);
    return EXIT_DONE;
}

/* Ranges that the engine does not check itself. */
static bool check_generation(const Options *o, char *error, size_t bytes)
{
    const struct {
        const char *name;
        int value, most;
    } counts[] = {{"--new", o->new, 1 << 24},
                  {"--source", o->source, 1 << 24},
                  {"--repeat", o->has_repeat ? o->repeat : 20, 1000}};

    for (size_t i = 0; i < LEN(counts); i++)
        if (counts[i].value < 1 || counts[i].value > counts[i].most) {
            snprintf(error, bytes, "%s: expected 1 to %d, found %d", counts[i].name, counts[i].most, counts[i].value);
            return false;
        }
    return true;
}

static bool check_options(const Options *o, char *error, size_t bytes)
{
    if (o->has_new && o->of_steps)
        snprintf(error, bytes, "--context, --prompt, --mixed and --compare are for single steps, and --new is given");
    else if (!o->has_new && (o->of_generations || o->has_temperature))
        snprintf(error, bytes, "--source, --beams, --temperature, --top-k, --top-p and --profile need --new");
    else if (o->mixed && (o->sequences || o->context || o->prompt))
        snprintf(error, bytes,
                 "--mixed says itself how many sequences, context and prompt: leave --sequences, --context "
                 "and --prompt out");
    else if (o->compare && o->trace)
        snprintf(error, bytes, "--trace records one artifact: leave --compare out");
    else if (o->compare && o->has_repeat && (o->repeat < COMPARE_LEAST || o->repeat > 1000))
        snprintf(error, bytes, "--repeat: --compare takes %d to 1000 rounds, found %d", COMPARE_LEAST, o->repeat);
    else
        return !o->has_new || check_generation(o, error, bytes);
    return false;
}

/* The first line: the model and its memory. */
static void print_head(const Bench *b)
{
    printf("%s on %s, weights %.1f MB, workspace %.1f MB", b->info.name, b->info.device,
           (double)b->info.weight_bytes * 1e-6, (double)b->info.workspace_bytes * 1e-6);
    if (b->info.kv_token_bytes)
        printf(", KV cache %llu tokens, %.1f MB", (unsigned long long)b->info.kv_tokens,
               (double)(b->info.kv_tokens * b->info.kv_token_bytes) * 1e-6);
    putchar('\n');
}

/* The time of each kernel since profiling was switched on, a line each; `ftxc page` reads them. */
static void print_kernels(const Bench *b)
{
    const FtxProfile *rows;
    size_t n;

    if (ftx_engine_profile(b->engine[0], true, &rows, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++)
        if (rows[i].launches)
            print_line(b, json_pack("{s:s, s:I, s:f}", "kernel", rows[i].kernel, "launches",
                                    (json_int_t)rows[i].launches, "time_us", rows[i].time_us));
}

static int generate_all(const Bench *b, const int32_t *sequences, size_t n)
{
    FtxError err = {0};
    int code = EXIT_DONE;

    if (b->o->profile && profile_start(b->engine[0], &err))
        return command_failed(&err);
    if (!b->o->json) {
        print_head(b);
        printf("%-8s %9s %8s %9s\n", "new", "requests", "beams", "source");
    }
    for (size_t i = 0; i < n; i++)
        code = worse(code, generate(b, sequences[i]));
    if (b->o->profile && b->o->json)
        print_kernels(b);
    else if (b->o->profile)
        profile_print(b->engine[0]);
    return code;
}

/* "63x2048+1985" at *text, which then is behind it and a comma. */
static bool read_mixed(const char **text, Step *s)
{
    const char *end;

    *s = (Step){.what = "mixed"};
    if (!options_integer(*text, &s->sequences, &end) || *end != 'x' || !options_integer(end + 1, &s->context, &end) ||
        *end != '+' || !options_integer(end + 1, &s->tokens, &end) || (*end && *end != ','))
        return false;
    *text = *end && end[1] ? end + 1 : end; /* a comma at the end is no step */
    return true;
}

/* The steps that the options name. */
typedef struct Steps {
    Step *at;
    size_t n, cap;
} Steps;

/* False: the reason is in `error`. */
static bool list_steps(const Options *o, const int32_t *sequences, size_t n_sequences, bool encoder, Arena *keep,
                       Steps *list, char *error, size_t bytes)
{
    int32_t contexts[32], prompts[32];
    size_t n_contexts, n_prompts;

    if (!options_numbers(o->context ? o->context : "128", contexts, LEN(contexts), &n_contexts) ||
        !options_numbers(o->prompt ? o->prompt : "0", prompts, LEN(prompts), &n_prompts)) {
        snprintf(error, bytes, "--context, --prompt: expected at most 32 whole numbers of 32 bits with commas between");
        return false;
    }
    for (const char *text = o->mixed; text && (*text || text == o->mixed);)
        if (!read_mixed(&text, arena_push(keep, *list))) {
            snprintf(error, bytes, "--mixed: expected SEQUENCESxCONTEXT+PROMPT, as in 63x2048+1985, found \"%.60s\"",
                     text);
            return false;
        }
    for (size_t i = 0; i < n_prompts && encoder && !o->mixed; i++)
        for (size_t k = 0; k < n_sequences; k++)
            for (size_t m = 0; m < n_contexts; m++)
                *arena_push(keep, *list) =
                    (Step){"encode", sequences[k], prompts[i] ? prompts[i] : 128, o->context ? contexts[m] : 0};
    for (size_t i = 0; i < n_contexts && !encoder && !o->mixed; i++)
        for (size_t k = 0; k < n_sequences; k++)
            *arena_push(keep, *list) = (Step){"decode", sequences[k], 1, contexts[i]};
    for (size_t i = 0; i < n_prompts && !encoder; i++)
        if (prompts[i] != 0)
            *arena_push(keep, *list) = (Step){prompts[i] == 1 ? "decode" : "prompt", 1, prompts[i], 0};
    return true;
}

static int time_steps(const Bench *b, const Steps *list)
{
    int code = EXIT_DONE;

    if (!b->o->json) {
        print_head(b);
        if (b->engine[1])
            printf("A: %s\nB: %s\n", b->path[0], b->path[1]);
        printf("%-8s %9s %8s %9s%s\n", "step", "sequences", "tokens", "context",
               b->engine[1] ? "           A           B       B - A" : "");
    }
    for (size_t i = 0; i < list->n; i++)
        code = worse(code, measure(b, &list->at[i]));
    return code;
}

/* Memory for the KV caches of two engines on one device: what the steps need, and at most what the limits can use.
 * 16: a series of decode steps grows; 256: no block is larger. */
static uint64_t kv_for(const Steps *list, const FtxModelInfo *info)
{
    uint64_t most = 0;

    for (size_t i = 0; i < list->n; i++) {
        const Step *s = &list->at[i];
        const int64_t rows = s->sequences > 0 ? s->sequences : 0, row = (int64_t)s->context + s->tokens + 16 + 256;
        const uint64_t tokens = (uint64_t)rows * (uint64_t)(row > 0 ? row : 0) + (uint64_t)(row > 0 ? row : 0);

        most = tokens > most ? tokens : most;
    }
    return (most < info->kv_tokens ? most : info->kv_tokens) * info->kv_token_bytes;
}

static void close_all(Bench *b)
{
    for (int i = 0; i < 2; i++) {
        ftx_engine_close(b->engine[i]);
        ftx_model_close(b->model[i]);
    }
}

/* Opens the models, lists the steps, opens the engines and times. */
static int open_and_time(Bench *b, const TextList *files, FtxOptions *open, const int32_t *sequences,
                         size_t n_sequences, Arena *keep)
{
    const Options *o = b->o;
    FtxModelInfo info[2] = {0};
    Steps list = {0};
    FtxError err = {0};
    char error[300];
    int code;

    for (size_t i = 0; i < files->n; i++) {
        if (ftx_model_open(files->at[i], open, &b->model[i], &err))
            return command_failed(&err);
        b->path[i] = files->at[i];
        ftx_model_info(b->model[i], &info[i]);
    }
    if (!list_steps(o, sequences, n_sequences, info[0].kind == FTX_MODEL_ENCODER, keep, &list, error, sizeof error) ||
        (o->compare && !compare_shapes(&info[0], &info[1], error, sizeof error)))
        return command_mistake("bench", "%s", error);
    for (size_t i = 0; i < files->n; i++) {
        if (o->compare && !o->kv_memory)
            open->kv_bytes = kv_for(&list, &info[i]);
        if (ftx_engine_open(b->model[i], open, &b->engine[i], &err))
            return command_failed(&err);
    }
    if (o->trace && trace_start(b->engine[0], &err))
        return command_failed(&err);
    ftx_model_info(b->model[0], &b->info);
    code = o->new ? generate_all(b, sequences, n_sequences) : time_steps(b, &list);
    return o->trace ? trace_finish(b->engine[0], o->trace, code) : code;
}

int command_bench(int argc, char **argv)
{
    Options o = {.source = 32, .top_p = 1.0};
    TextList rest = {0};
    FtxOptions open;
    Bench b = {.o = &o};
    int32_t sequences[32];
    size_t n_sequences;
    char error[300];
    Arena *keep;
    int code;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("bench", "%s", error);
    if (o.help) {
        printf(
            "ftxc bench FILE.ftx [options]\nftxc bench --compare A.ftx B.ftx [options]\n\n"
            "Times single steps: on a GPU by CUDA events, on the CPU by the clock; with --new whole generations.\n\n");
        options_help(table, LEN(table));
        printf("\nExamples:\n  ftxc bench fable.ftx --sequences 1,16 --context 128,512\n"
               "  ftxc bench fable.ftx --mixed 7x128+64\n"
               "  ftxc bench --compare fable.ftx fable.ftx --sequences 1,16 --repeat 6\n"
               "  ftxc bench fable.ftx --sequences 4 --new 64 --source 32 --top-k 40 --profile\n");
        return EXIT_DONE;
    }
    if (rest.n != (o.compare ? 2 : 1))
        return command_mistake("bench", "expected %s, found %zu",
                               o.compare ? "two artifacts to compare" : "one artifact", rest.n);
    if (!options_numbers(o.sequences ? o.sequences : "1", sequences, LEN(sequences), &n_sequences))
        return command_mistake("bench",
                               "--sequences: expected at most 32 whole numbers of 32 bits with commas between");
    if (!check_options(&o, error, sizeof error))
        return command_mistake("bench", "%s", error);
    if (!device_parse(o.device, o.threads, o.random_weights, &o.weights, &open, error, sizeof error))
        return command_mistake("bench", "%s", error);
    open.kv_bytes = o.kv_memory;
    if (command_rank(rest.at[0], &open, &code))
        return code;
    join_arguments(&b, argc, argv);
    keep = arena_open();
    code = open_and_time(&b, &rest, &open, sequences, n_sequences, keep);
    close_all(&b);
    arena_close(keep);
    return code;
}
