/* commands/tune.c - ftxc tune: finds the constants with which a model is fastest on this machine's GPU.
 *
 * Each variant is compiled as a model without weights into a folder of its own, opened with random weights, and timed by
 * ftx_engine_bench. tune/search.c decides what is tried. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "progress.h"
#include "remake.h"
#include "../compile.h"
#include "../instantiate/instantiate.h"
#include "../tune/tune.h"
#include "../../runner/options.h"
#include "../../runtime/base/file.h"
#include "../../runtime/device/device.h"

typedef struct Options {
    bool help, any_order, quiet;
    const char *out, *buckets;
    double minutes;
    int context;
    uint64_t kv_memory;
    TextList defines;
} Options;

enum { MINUTES = 10, CONTEXT = 128, MOST_CONTEXT = 2048 };
enum { REPEAT = 5, REPEAT_LONG = 2, LONG = 1024 /* tokens of a step */ };
/* cuBLASLt's algorithms are timed for each 64 rows up to FINE, then for each COARSE. */
enum { ALGORITHMS = 8, ROWS_STEP = 64, FINE = 2048, COARSE = 512 };

static const double FOR_BORDERS = 0.15; /* of the time, with --any-order */
static const double WELL = 0.96;        /* of the rate of its kind a GPU has at least */
static const size_t RATE_BYTES = (size_t)512 << 20;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--output", 'o', OPT_TEXT, "FILE",
     "the tuning file; what it holds of other kernels stays (default: tune/GPU.lua beside the spec)", AT(out), 0},
    {"--minutes", 0, OPT_NUMBER, "N", "stop after about so many minutes (default 10)", AT(minutes), 0},
    {"--any-order", 0, OPT_FLAG, NULL, "also try what changes the order of sums, and other kernels: texts may differ",
     AT(any_order), 0},
    {"--buckets", 0, OPT_TEXT, "LIST", "only programs of these sizes: 1,8,64; 0: those of any size (default: all)",
     AT(buckets), 0},
    {"--context", 0, OPT_INT, "N",
     "tokens before those of a decode step (default 128); 2048 are timed, too, if the limits allow", AT(context), 0},
    {"--kv-memory", 0, OPT_BYTES, "4G", "device memory for the KV cache of each of two engines (default 4G)",
     AT(kv_memory), 0},
    {"--define", 'D', OPT_LIST, "FIELD=VALUE", "set a field of the spec: -D limits.context=256", AT(defines), 0},
    {"--quiet", 'q', OPT_FLAG, NULL, "no progress", AT(quiet), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

typedef struct Program { /* of the target, as ftx_engine_bench runs it; no points: it is not tuned */
    struct {
        int sequences, tokens, context;
    } at[TUNE_POINTS];
    size_t points;
} Program;

typedef struct Tuner {
    const Options *o;
    Arena *keep;
    CompileOptions compile;
    const char *folder, *target;
    const char *out;
    TuningFile file;
    Tuning before; /* the entries of the file that is there */
    TuneEntries decided;
    Spec spec;
    struct {
        Program *at;
        size_t n, cap;
    } programs;
    FtxProgramKind last_kind; /* of the program before: its kind and size */
    int64_t last_bucket;
    double begin, end; /* of the time, in seconds */
    ProgressLine progress;
    char line[100];  /* what it says */
    uint64_t spills; /* bytes that the untuned model's kernels spill, and what no candidate may exceed */
    bool unwritten;  /* the file could not be written */
    bool broken;     /* a kernel has failed, and the GPU runs nothing of this process any more */
    char why[2000];  /* the last thing could not be built or measured; what broke it */
} Tuner;

typedef struct Variant {
    FtxModel *model;
    FtxEngine *engine;
    size_t profiled; /* the program whose kernels were timed alone, + 1; 0: none */
    const FtxProfile *rows;
    double *alone_us; /* of each row */
    size_t n_rows;
} Variant;

static void drop(void *user, void *variant)
{
    Variant *v = variant;

    (void)user;
    ftx_engine_close(v->engine);
    ftx_model_close(v->model);
    free(v->alone_us);
    free(v);
}

static bool fail(Tuner *t, const char *why)
{
    if (!t->broken)
        snprintf(t->why, sizeof t->why, "%s", why);
    return false;
}

static bool open_variant(Tuner *t, const char *path, void **variant)
{
    Variant *v = command_must(calloc(1, sizeof *v));
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err;

    o.device = FTX_DEVICE_CUDA;
    o.random_weights = 1;
    o.kv_bytes = t->o->kv_memory;
    if (ftx_model_open(path, &o, &v->model, &err) || ftx_engine_open(v->model, &o, &v->engine, &err)) {
        drop(t, v);
        return fail(t, err.text);
    }
    *variant = v;
    return true;
}

static bool build(void *user, const TuningEntry *entries, size_t n, void **variant)
{
    Tuner *t = user;
    Arena *keep = arena_open();
    Tuning trial = {0};
    CompileOptions o = t->compile;
    CompileResult r;
    Diag d = {0};
    bool ok;

    for (size_t i = 0; i < n; i++) {
        *(TuningEntry *)arena_push(keep, trial.entries) = entries[i];
        trial.entries.at[i].state = TUNING_UNUSED;
    }
    o.trial = &trial;
    ok = compile(&o, keep, &r, &d) || fail(t, d.text);
    if (ok && !n)
        t->spills = r.spill_bytes;
    ok = ok && (r.spill_bytes <= t->spills || fail(t, "a kernel's registers spill")) && open_variant(t, o.out, variant);
    arena_close(keep);
    return ok;
}

static bool bench(Tuner *t, const Variant *v, size_t at, size_t point, int repeat, double *us)
{
    const Program *p = &t->programs.at[at];
    double least, most;
    FtxError err;

    if (point >= p->points)
        return false;
    const FtxStatus status = ftx_engine_bench(v->engine, p->at[point].sequences, p->at[point].tokens,
                                              p->at[point].context, repeat, us, &least, &most, &err);

    if (!status)
        return true;
    fail(t, err.text);
    t->broken |= status == FTX_EDEVICE;
    return false;
}

static size_t points(void *user, size_t at)
{
    return ((Tuner *)user)->programs.at[at].points;
}

static bool time_program(void *user, void *variant, size_t at, size_t point, double *us)
{
    const Program *p = &((Tuner *)user)->programs.at[at];

    return bench(user, variant, at, point,
                 (int64_t)p->at[point].sequences * p->at[point].tokens < LONG ? REPEAT : REPEAT_LONG, us);
}

/* Profiles the program: the mean of each kernel's launches in three runs, each launched by itself. */
static bool profile(Tuner *t, Variant *v, size_t at)
{
    double program, *before;
    FtxError err;
    size_t n = 0;
    bool ok = ftx_engine_profile(v->engine, true, &v->rows, &n, &err) == FTX_OK && bench(t, v, at, 0, 1, &program);

    free(v->alone_us);
    v->alone_us = command_must(calloc(n + 1, sizeof *v->alone_us));
    v->n_rows = n;
    before = command_must(calloc(2 * n + 1, sizeof *before));
    for (size_t i = 0; i < n; i++) {
        before[2 * i] = v->rows[i].time_us;
        before[2 * i + 1] = (double)v->rows[i].launches;
    }
    ok = ok && bench(t, v, at, 0, 3, &program);
    for (size_t i = 0; ok && i < n; i++)
        if ((double)v->rows[i].launches > before[2 * i + 1])
            v->alone_us[i] = (v->rows[i].time_us - before[2 * i]) / ((double)v->rows[i].launches - before[2 * i + 1]);
    free(before);
    ftx_engine_profile(v->engine, false, &v->rows, &n, &err);
    v->profiled = ok ? at + 1 : 0;
    return ok;
}

static bool time_alone(void *user, void *variant, size_t at, const char *entry, double *us)
{
    Variant *v = variant;

    if (v->profiled != at + 1 && !profile(user, v, at))
        return false;
    for (size_t i = 0; i < v->n_rows; i++)
        if (strcmp(v->rows[i].kernel, entry) == 0)
            *us = v->alone_us[i];
    return *us > 0 || fail(user, "a kernel is not launched by its program");
}

static int least_of(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

static bool time_rows_of(void *user, void *variant, const TuneBorder *b, int64_t rows, double *us)
{
    Tuner *t = user;
    const Variant *v = variant;
    const Limits *l = &t->spec.graph->limits;
    const int context = least_of(t->o->context, l->context > 64 ? l->context - 64 : 0);
    double least, most;
    FtxError err;
    const FtxStatus status = ftx_engine_bench(v->engine, b->decode ? (int)rows : 1, b->decode ? 1 : (int)rows,
                                              b->decode ? context : 0, REPEAT, us, &least, &most, &err);

    t->broken |= status == FTX_EDEVICE;
    return !status || fail(t, err.text);
}

static bool stop(void *user, double share)
{
    const Tuner *t = user;

    return command_stopped || t->broken || command_seconds() > t->begin + share * (t->end - t->begin);
}

static void say(void *user, const char *what, size_t done, size_t all)
{
    Tuner *t = user;

    const double left = t->end - command_seconds();

    if (t->o->quiet || !isatty(STDERR_FILENO))
        return;
    snprintf(t->line, sizeof t->line, "%s, at most %.0f s left,", what, left > 0 ? left : 0);
    progress_line(&t->progress, t->line, done, all);
}

/* --- the file ---------------------------------------------------------------------------------------- */

static bool write_file(Tuner *t, const char *text, FtxError *err)
{
    FileOut *out;

    if (file_create(t->out, &out, err))
        return false;
    if (file_write_at(out, 0, text, strlen(text), err)) {
        file_abort(out);
        return false;
    }
    return file_commit(out, err) == FTX_OK;
}

/* What was found, and what the file held of kernels, programs and shapes that were not decided. */
static void keep_entries(void *user, const TuningEntry *entries, size_t n)
{
    Tuner *t = user;
    Arena *keep = arena_open();
    TuneEntries all = {0};
    FtxError err;

    tune_merge(entries, n, &t->before, &t->decided, keep, &all);
    if (!write_file(t, tuning_text(&t->file, all.at, all.n, keep), &err)) {
        command_say(err.text);
        t->unwritten = true;
    }
    arena_close(keep);
}

/* --- what is tuned ------------------------------------------------------------------------------------- */

static bool in_list(const char *list, int64_t bucket)
{
    for (const char *p = list; p && *p;) {
        char *end;
        const long long value = strtoll(p, &end, 10);

        if (end == p)
            return false;
        if (value == bucket)
            return true;
        p = end + (*end == ',');
    }
    return !list;
}

/* The longest context of a decode step, at most 2048: what the limits allow and the KV cache of --kv-memory is sure to hold. */
static int most_context(const Tuner *t, int sequences)
{
    const Limits *l = &t->spec.graph->limits;
    const int64_t pages = l->kv_pages / (sequences ? sequences : 1), tokens = pages * l->kv_block - 64;
    const int context = least_of(tokens, l->context - 64);

    return context > MOST_CONTEXT ? MOST_CONTEXT : context > 0 ? context : 0;
}

static void add_point(Program *p, int sequences, int tokens, int context)
{
    p->at[p->points].sequences = sequences;
    p->at[p->points].tokens = tokens;
    p->at[p->points].context = context;
    p->points++;
}

/* The steps that run a program: a decode program with little and with much context; one of any size with as many tokens as
 * there may be, and with one more than a half, a quarter and an eighth. One of more than 64 rows with the fewest, too, which are
 * one more than the program before it has. Called for each program in the order of the target's. */
static bool wanted(void *user, FtxProgramKind kind, int64_t bucket)
{
    Tuner *t = user;
    const Limits *l = &t->spec.graph->limits;
    const bool encoder = t->spec.graph->kind == FTX_MODEL_ENCODER, in = in_list(t->o->buckets, bucket);
    const int64_t fewest = bucket > ROWS_STEP && t->programs.n && t->last_kind == kind ? t->last_bucket + 1 : bucket;
    int64_t tokens = bucket ? bucket : l->tokens;
    Program p = {0};

    t->last_kind = kind;
    t->last_bucket = bucket;

    if (kind == FTX_PROG_DECODE && in) {
        const int sequences = least_of(bucket ? bucket : l->sequences, l->sequences);
        const int context = least_of(t->o->context, l->context > 64 ? l->context - 64 : 0);

        add_point(&p, sequences, 1, context);
        if (most_context(t, sequences) > context)
            add_point(&p, sequences, 1, most_context(t, sequences));
        if (bucket && fewest < sequences)
            add_point(&p, (int)fewest, 1, context);
    }
    if (!encoder && tokens > l->context)
        tokens = l->context;
    while (kind == (encoder ? FTX_PROG_ENCODE : FTX_PROG_STEP) && in && p.points < TUNE_POINTS) {
        const int sequences = encoder ? least_of((tokens + l->context - 1) / l->context, l->sequences) : 1;

        add_point(&p, sequences, least_of(tokens / sequences, l->context), 0);
        if (fewest < bucket && sequences == 1)
            add_point(&p, 1, least_of(fewest, l->context), 0);
        if (bucket || tokens <= 2 * ROWS_STEP)
            break;
        tokens = tokens / 2 + 1;
    }
    *(Program *)arena_push(t->keep, t->programs) = p;
    return p.points > 0;
}

/* --- algorithms of cuBLASLt ------------------------------------------------------------------------------ */

/* The untuned model as a device runs it: its plan names kernels, and one launch of a kernel is timed without its program. */
typedef struct Bare {
    Artifact artifact;
    Device *device;
    Session *session;
} Bare;

static void bare_close(Bare *b)
{
    if (b->session)
        device_cuda.session_close(b->session);
    if (b->device)
        device_cuda.close(b->device);
    artifact_close(&b->artifact);
}

static bool bare_open(Tuner *t, Bare *b, FtxError *err)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    uint32_t pages;

    *b = (Bare){0};
    o.random_weights = 1;
    if (artifact_open(t->compile.out, &b->artifact, err))
        return false;
    if (device_cuda.open(&b->artifact, &b->artifact.plans[0], &o, &b->device, err) ||
        device_cuda.session_open(b->device, t->o->kv_memory, &b->session, &pages, err)) {
        bare_close(b);
        return false;
    }
    return true;
}

/* Rows of the matrix product in its program, at most. */
static int64_t most_rows(const Bare *b, const FtxProgram *p, const FtxKernel *k)
{
    const FtxFacts *f = b->artifact.facts;
    const int64_t tokens = p->bucket ? p->bucket : p->kind == FTX_PROG_DECODE ? f->sequences : f->tokens;
    const bool of_sequences = b->artifact.plans[0].consts[k->first_const + FTX_MM_ROWS_S] != 0;

    return of_sequences && tokens > f->sequences ? f->sequences : tokens;
}

static bool time_rows(Tuner *t, const Bare *b, const TuneCase *c, uint32_t kernel, TuneWords *words, FtxError *err)
{
    const ArtifactPlan *plan = &b->artifact.plans[0];
    const FtxProgram *p = &plan->programs[c->at];
    const int64_t most = most_rows(b, p, &plan->kernels[kernel]);
    int64_t step = p->bucket ? most : ROWS_STEP;

    for (int64_t rows = step; rows - step < most && !stop(t, 0.25); rows += step) {
        const int64_t to = (rows + ROWS_STEP - 1) / ROWS_STEP * ROWS_STEP;
        DeviceAlgorithm of[ALGORITHMS];
        size_t n;

        if (device_cuda_algorithms(b->session, (uint32_t)c->at, kernel, rows < most ? rows : most, of, ALGORITHMS, &n,
                                   err))
            return false;
        tune_algorithm(of, n, p->bucket ? to : to - step + ROWS_STEP, to, ROWS_STEP, t->keep, words);
        if (rows >= FINE)
            step = COARSE;
    }
    return true;
}

/* Adds to each matrix product of cuBLASLt a candidate: the algorithms that are fastest alone. */
static bool find_algorithms(Tuner *t, TuneCases *cases, Diag *d)
{
    Arena *scratch = arena_open();
    CompileResult r;
    size_t version = 0;
    FtxError err;
    Bare b = {0};
    bool any = false, ok = true;

    for (size_t i = 0; i < cases->n; i++)
        any |= cases->at[i].library;
    if (any)
        ok = compile(&t->compile, scratch, &r, d) &&
             ((!device_cuda_blas(&version, &err) && bare_open(t, &b, &err)) || diag_machine(d, "%s", err.text));
    for (size_t i = 0; i < cases->n && any && ok; i++) {
        TuneCase *c = &cases->at[i];
        const ArtifactPlan *plan = &b.artifact.plans[0];
        TuneWords words = {0};

        *arena_push(t->keep, words) = (int64_t)version;
        for (uint32_t k = 0; k < plan->n_kernels && c->library && ok; k++)
            if (strcmp(artifact_string(&b.artifact, plan->kernels[k].entry), c->entry) == 0)
                ok = time_rows(t, &b, c, k, &words, &err) || diag_machine(d, "%s", err.text);
        if (words.n > 1)
            *(TuneCandidate *)arena_push(t->keep, c->candidates) =
                (TuneCandidate){.algorithms = words.at, .n_algorithms = words.n};
        say(t, "algorithms of cuBLASLt", i + 1, cases->n);
    }
    if (b.session)
        bare_close(&b);
    arena_close(scratch);
    return ok;
}

/* Moves borders between programs, which may have other orders of sums, in the time that is left. */
static bool find_borders(Tuner *t, const Catalog *c, Target target, const TuneMachine *m, TuneResult *r, Diag *d)
{
    const Limits *l = &t->spec.graph->limits;
    TuneBorders all = {0}, borders = {0};
    Tuning tuning = {0};

    for (size_t i = 0; i < r->n; i++)
        *(TuningEntry *)arena_push(t->keep, tuning.entries) = r->entries[i];
    target.tuning = &tuning;
    if (!passes_borders(t->spec.graph, c, target, &t->spec.precision, &all, t->keep, d))
        return false;
    for (size_t i = 0; i < all.n; i++)
        if (in_list(t->o->buckets, all.at[i].most) && all.at[i].most <= (all.at[i].decode ? l->sequences : l->context))
            *(TuneBorder *)arena_push(t->keep, borders) = all.at[i];
    if (!tune_borders(&borders, r->entries, r->n, &t->file, m, t->keep, r))
        return diag_machine(d, "%s", t->why);
    tune_decided_borders(&borders, r, t->keep, &t->decided);
    return true;
}

static void report_borders(const TuneResult *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->entries[i].most)
            printf("%-12s up to %lld rows: with more, %s %10.2f us and the next program %10.2f us\n",
                   r->entries[i].program, (long long)r->entries[i].most, r->entries[i].program,
                   r->entries[i].untuned_us, r->entries[i].us);
}

static void report(const TuneCases *cases, const TuneResult *r, const Tuner *t)
{
    for (size_t p = 0; p < cases->programs; p++) {
        const char *name = NULL;

        for (size_t i = 0; i < cases->n && !name; i++)
            name = cases->at[i].at == p ? cases->at[i].program : NULL;
        if (name && r->untuned_us && r->untuned_us[p] > 0)
            printf("%-12s %10.2f us untuned %10.2f us tuned  %+6.2f %%\n", name, r->untuned_us[p], r->tuned_us[p],
                   100 * (r->tuned_us[p] / r->untuned_us[p] - 1));
        else if (name && r->untuned_us && !r->stopped)
            printf("%-12s not measured%s%s\n", name, *t->why ? ": " : "", t->why);
    }
    if (r->failed)
        printf("%zu candidates could not be built or measured; the last failure: %s\n", r->failed, t->why);
    printf("%s: %zu entries for %s%s\n", t->out, r->n, t->file.device,
           r->stopped ? "; stopped before the last comparison with the untuned model" : "");
}

/* --- the command --------------------------------------------------------------------------------------- */

/* What later times can differ by: versions, and what a part of a GPU has less of. */
static const char *made_with(const CudaFacts *f, Arena *keep)
{
    const char *nvrtc = nvrtc_version();
    const char *text = arena_printf(
        keep, "ftxc %d.%d, driver for CUDA %d.%d, NVRTC %s, %d multiprocessors, memory at %d MHz", FTX_VERSION_MAJOR,
        FTX_VERSION_MINOR, f->driver / 1000, f->driver / 10 % 100, nvrtc ? nvrtc : "missing", f->sms, f->memory_mhz);
    size_t version = 0;

    return device_cuda_blas(&version, NULL) ? text
                                            : arena_printf(keep, "%s, cuBLASLt %zu.%zu.%zu", text, version / 10000,
                                                           version / 100 % 100, version % 100);
}

/* The rate of the GPU's memory, which goes into the file: the best that is known of this kind. A GPU that is slower now does not
 * have the times of its kind. */
static bool measure_rate(Tuner *t, Diag *d)
{
    const TuningFile *before = t->before.files.n ? t->before.files.at[0] : NULL;
    CudaFacts facts;
    FtxError err;
    double rate;

    if (device_cuda_facts(0, &facts, &err) ||
        device_cuda_rate(0, facts.memory_free / 8 < RATE_BYTES ? facts.memory_free / 8 : RATE_BYTES, &rate, &err))
        return diag_machine(d, "%s", err.text);
    if (before && rate < WELL * before->rate)
        command_print(
            "ftxc: copies in this GPU's memory reach %.0f GB/s, and reached %.0f when %s was made: others use the "
            "GPU, or it is unwell, and what is measured now may not hold\n",
            rate, before->rate, t->out);
    t->file.rate = before && before->rate > rate ? before->rate : rate;
    return true;
}

static bool find_gpu(Tuner *t, Targets *targets, Diag *d)
{
    CudaFacts facts;
    FtxError err;

    if (device_cuda_facts(0, &facts, &err))
        return diag_machine(d, "tune measures on a GPU: %s", err.text);
    t->target = arena_printf(t->keep, "sm_%u%s", facts.target / 10, facts.target % 10 ? "a" : "");
    t->file.device = arena_strdup(t->keep, facts.name);
    t->file.made = made_with(&facts, t->keep);
    return targets_parse(t->target, targets, d);
}

/* The file that is there already. */
static bool read_before(Tuner *t, Diag *d)
{
    if (!file_exists(t->out))
        return true;
    if (!tunings_read(t->out, t->keep, &t->before, d))
        return false;
    if (strcmp(t->before.files.at[0]->device, t->file.device) != 0)
        return diag_error(d, (Loc){t->out, 0}, "the file is for %s, and this GPU is %s", t->before.files.at[0]->device,
                          t->file.device);
    return t->before.files.at[0]->any_order == t->file.any_order || !t->before.entries.n ||
           diag_error(d, (Loc){t->out, 0}, "the file was made %s --any-order; name another by -o",
                      t->file.any_order ? "without" : "with");
}

static bool make_folder(Tuner *t, Diag *d)
{
    const char *tmp = getenv("TMPDIR");
    char *path = (char *)(uintptr_t)arena_printf(t->keep, "%s/ftxc-tune-XXXXXX", tmp && *tmp ? tmp : "/tmp");

    t->folder = mkdtemp(path);
    return t->folder || diag_machine(d, "%s: %s", path, strerror(errno));
}

static bool tune(Tuner *t, Diag *d)
{
    const TuneMachine machine = {t,          build,        drop, points, time_program,
                                 time_alone, time_rows_of, stop, say,    keep_entries};
    Precision *precision = &t->spec.precision;
    const double end = t->end;
    Targets targets = {0};
    TuneCases cases = {0};
    Catalog catalog;
    TuneResult r;
    FtxError err;

    if (!find_gpu(t, &targets, d) ||
        !spec_read(t->compile.spec, t->compile.overrides, t->compile.n_overrides, t->keep, &t->spec, d) ||
        !passes_run_graph(t->spec.graph, precision, &(Dump){0}, d) || !catalog_open(t->keep, &catalog, d))
        return false;
    t->out = t->o->out ? t->o->out : tunings_default(&t->spec, t->file.device, t->keep);
    if (!read_before(t, d) || !measure_rate(t, d) ||
        !passes_tunable(t->spec.graph, &catalog, targets.at[0], precision, t->file.any_order, wanted, t, &cases,
                        t->keep, d))
        return false;
    if (!cases.n)
        return diag_error(d, (Loc){t->compile.spec, 0}, "no kernel with tuned constants in these programs on %s",
                          t->target);
    if (!t->o->out && file_make_dirs(tunings_folder(t->out, t->keep), &err))
        return diag_machine(d, "%s", err.text);
    if (!make_folder(t, d))
        return false;
    t->compile.out = arena_printf(t->keep, "%s/model.ftx", t->folder);
    t->compile.targets = t->target;
    t->compile.tune = "none";
    if (!find_algorithms(t, &cases, d))
        return false;
    if (t->file.any_order)
        t->end -= FOR_BORDERS * (end - t->begin);
    if (!tune_search(&cases, &t->file, &machine, t->keep, &r) || t->broken)
        return diag_machine(d, "%s", t->why);
    t->end = end;
    tune_decided(&cases, &r, t->keep, &t->decided);
    if (t->file.any_order && !r.stopped && (!find_borders(t, &catalog, targets.at[0], &machine, &r, d) || t->broken))
        return t->broken ? diag_machine(d, "%s", t->why) : false;
    keep_entries(t, r.entries, r.n);
    report(&cases, &r, t);
    report_borders(&r);
    return !t->unwritten || diag_machine(d, "%s was not written", t->out);
}

int command_tune(int argc, char **argv)
{
    Options o = {.minutes = MINUTES, .context = CONTEXT, .kv_memory = UINT64_C(4) << 30};
    TextList rest = {0};
    Override overrides[LEN(o.defines.at) + REMAKE_MOST];
    Remake made = {0};
    size_t n = 0;
    Tuner t = {.o = &o};
    Diag d = {0};
    char error[300];
    bool ok;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("tune", "%s", error);
    if (o.help) {
        printf("ftxc tune SPEC|DIR|FILE.ftx [options]\n\nTimes the kernels of a model with other constants on this "
               "machine's "
               "GPU, and writes "
               "those that make it\nfaster into a file, which ftxc compile follows.\n\n");
        options_help(table, LEN(table));
        printf("\nExamples:\n  ftxc tune specs/llama-3.2-1b.lua --minutes 5\n"
               "  ftxc tune ~/models/Llama-3.2-1B --buckets 1,8 --any-order -o fast.lua\n");
        return EXIT_DONE;
    }
    if (rest.n != 1)
        return command_mistake("tune", "expected one spec, folder or artifact, found %zu arguments", rest.n);
    if (!(o.minutes > 0 && o.minutes <= 1000))
        return command_mistake("tune", "--minutes: expected more than 0, at most 1000, found %g", o.minutes);
    if (o.context < 0)
        return command_mistake("tune", "--context: expected 0 or more, found %d", o.context);
    if (o.buckets && (!*o.buckets || o.buckets[strspn(o.buckets, "0123456789,")]))
        return command_mistake("tune", "--buckets: expected numbers with commas between, found \"%s\"", o.buckets);
    t.keep = arena_open();
    ok = !remake_is_artifact(rest.at[0]) || remake_read(rest.at[0], t.keep, &made, &d);
    for (size_t i = 0; i < made.n; i++)
        overrides[n++] = made.overrides[i];
    for (size_t i = 0; i < o.defines.n; i++) /* what is given here comes later, and counts */
        overrides[n++].text = o.defines.at[i];
    t.file.any_order = o.any_order;
    t.begin = command_seconds();
    t.end = t.begin + 60.0 * o.minutes;
    t.compile = (CompileOptions){
        .spec = made.spec ? made.spec : rest.at[0], .overrides = overrides, .n_overrides = n, .no_weights = true};
    command_catch_signals();
    ok = ok && tune(&t, &d);
    if (!ok)
        command_print("ftxc: %s\n", d.text);
    if (t.folder) {
        unlink(t.compile.out);
        rmdir(t.folder);
    }
    if (t.spec.graph)
        ir_graph_close(t.spec.graph);
    arena_close(t.keep);
    return !ok ? d.machine ? EXIT_FAILED : EXIT_MISTAKE : command_stopped ? EXIT_INTERRUPTED : EXIT_DONE;
}
