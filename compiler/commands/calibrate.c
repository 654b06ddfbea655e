/* commands/calibrate.c - runs the unquantised model on texts and sums up what its matrices multiply.
 *
 * A decoder reads the text in pieces of PIECE tokens. Each piece begins with the begin-of-text token if the tokenizer adds one.
 * Other models take each line as a text: an encoder reads it, a translator translates it greedily. It ends after TOKENS tokens
 * of the text. Requests are submitted and run in one order, so that the sums are the same each time. */
#include "calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "../../runtime/artifact/artifact.h"
#include "../../runtime/base/error.h"
#include "../../runtime/base/team.h"
#include "../../runtime/engine/watch.h"

enum { PIECE = 512, TOKENS = 128 * PIECE };

static const float DAMPING = 0.01f; /* of the mean square of a block's inputs: Frantar et al. 2022 (GPTQ) */

typedef struct Calibrator {
    const CompileOptions *o;
    Arena *keep;
    Artifact artifact; /* the unquantised model's */
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    FtxEvent *events; /* [info.sequences] */
    size_t *of;       /* [artifact.n_weights]: 1 + the index in out; 0: not seen */
    Team *team;
    Calibration *out;
    size_t tokens; /* of the text, read so far */
    int submitted; /* requests */
} Calibrator;

/* --- sums --------------------------------------------------------------------------------------------- */

typedef struct Rows {
    const float *x;
    int64_t n;
    Moments *to;
} Rows;

/* TeamJob: some blocks of columns. */
static void add_blocks(void *user, int piece, int share, int shares)
{
    const Rows *r = user;
    const int64_t B = r->to->block, blocks = r->to->columns / B;

    (void)piece;
    for (int64_t b = blocks * share / shares; b < blocks * (share + 1) / shares; b++)
        for (int64_t i = 0; i < r->n; i++) {
            const float *x = r->x + i * r->to->columns + b * B;
            float *restrict sums = r->to->at + b * B * B;

            for (int64_t k = 0; k < B; k++)
                for (int64_t j = 0; j < B; j++)
                    sums[k * B + j] += x[k] * x[j];
        }
}

static Moments *moments_of(Calibrator *c, uint64_t at, int64_t columns)
{
    uint32_t i = 0;
    int64_t block = MOMENTS_BLOCK;

    while (i < c->artifact.n_weights && c->artifact.weights[i].offset != at)
        i++;
    while (columns % block)
        block /= 2;
    if (i == c->artifact.n_weights)
        die("a launch multiplies with no weight");
    if (!c->of[i]) {
        *(Moments *)arena_push(c->keep, *c->out) =
            (Moments){.weight = arena_strdup(c->keep, artifact_string(&c->artifact, c->artifact.weights[i].name)),
                      .columns = columns,
                      .block = block,
                      .at = arena_array(c->keep, float, (size_t)(columns * block))};
        c->of[i] = c->out->n;
    }
    return &c->out->at[c->of[i] - 1];
}

/* Watch.inputs */
static void add_rows(void *user, uint64_t at, const float *x, int64_t rows, int64_t columns)
{
    Calibrator *c = user;
    Rows r = {x, rows, moments_of(c, at, columns)};

    team_run(c->team, add_blocks, &r, 1);
}

/* Adds a little to the squares, so that no direction of inputs counts nothing because these texts do not have it. Columns of a block
 * whose inputs were all 0 count alike. False: the sums are not finite. */
static bool finish(Moments *m)
{
    const int64_t B = m->block;

    for (float *h = m->at; h < m->at + m->columns * B; h += B * B) {
        float mean = 0;

        for (int64_t k = 0; k < B; k++)
            mean += h[k * B + k] / (float)B;
        for (int64_t k = 0; k < B; k++)
            h[k * B + k] += mean > 0 ? DAMPING * mean : 1.0f;
        for (int64_t k = 0; k < B * B; k++)
            if (!isfinite(h[k]))
                return false;
    }
    return true;
}

/* --- texts -------------------------------------------------------------------------------------------- */

static void report(const Calibrator *c, uint64_t done, uint64_t all)
{
    if (c->o->progress)
        c->o->progress(c->o->user, "calibration", done, all);
}

static FtxStatus run(Calibrator *c, FtxError *err)
{
    size_t n;

    while (ftx_engine_busy(c->engine))
        if (ftx_engine_step(c->engine, c->events, (size_t)c->info.sequences, &n, err))
            return err->status;
    return FTX_OK;
}

static FtxRequest request(const Calibrator *c, int max_new)
{
    FtxRequest r = ftx_request_default(c->model);

    r.temperature = 0.0f;
    r.beams = 1;
    r.samples = 1;
    r.max_new = max_new;
    return r;
}

/* Runs requests when as many are submitted as can run side by side. */
static FtxStatus submit(Calibrator *c, const FtxRequest *r, FtxError *err)
{
    const FtxStatus s = ftx_engine_submit(c->engine, r, NULL, err);

    return s || ++c->submitted % c->info.sequences ? s : run(c, err);
}

/* Tokens of a piece, with the begin token. */
static int piece_room(const Calibrator *c)
{
    const bool whole = c->artifact.facts->whole_prompts; /* a step must take it */
    const int most = whole && c->info.step_tokens < PIECE ? c->info.step_tokens : PIECE;

    return c->info.context > most ? most : c->info.context - 1;
}

/* Pieces of a text for a decoder. first: the first token of a piece if the tokenizer begins texts with one. */
static FtxStatus read_pieces(Calibrator *c, const char *text, size_t bytes, FtxError *err)
{
    const int room = piece_room(c);
    int32_t piece[PIECE], first = 0, *ids;
    size_t n, with;
    FtxStatus s = ftx_tokenize(c->model, text, bytes, 0, NULL, 0, &n, err);

    if (!s)
        s = ftx_tokenize(c->model, text, bytes, FTX_TOKENIZE_SPECIAL, &first, 1, &with, err);
    if (!s && room < 2)
        s = ftx_fail(err, FTX_EINVAL, "limits.context is %d, which has no room for texts", c->info.context);
    if (s || !n)
        return s;
    ids = command_must(calloc(n, sizeof *ids));
    s = ftx_tokenize(c->model, text, bytes, 0, ids, n, &n, err);
    const size_t begin = with > n && first != ids[0], all = n < TOKENS ? n : TOKENS;

    piece[0] = first;
    while (!s && c->tokens < all) {
        const size_t left = all - c->tokens, most = (size_t)room - begin, take = left < most ? left : most;
        FtxRequest r = request(c, 1);

        memcpy(piece + begin, ids + c->tokens, take * sizeof *piece);
        r.ids = piece;
        r.ids_count = begin + take;
        c->tokens += take;
        s = submit(c, &r, err);
        report(c, c->tokens, all);
    }
    free(ids);
    return s ? s : run(c, err);
}

/* A line: a text for an encoder, a source for a translator. */
static FtxStatus read_line(Calibrator *c, const char *text, size_t bytes, FtxError *err)
{
    FtxEncode job = FTX_ENCODE_INIT;
    FtxRequest r;
    FtxStatus s;
    size_t n;

    s = ftx_tokenize(c->model, text, bytes, 0, NULL, 0, &n, err);
    if (s || !n)
        return s;
    c->tokens += n;
    if (c->info.kind == FTX_MODEL_ENCODER) {
        job.count = 1;
        job.text = &text;
        job.text_bytes = &bytes;
        job.truncate = FTX_TRUNCATE_LONGEST;
        return ftx_engine_encode(c->engine, &job, err);
    }
    r = request(c, n < PIECE ? 2 * (int)n + 16 : 2 * PIECE); /* a model that does not find an end goes on and on */
    r.text = text;
    r.text_bytes = bytes;
    r.truncate = FTX_TRUNCATE_END;
    return submit(c, &r, err);
}

static FtxStatus read_texts(Calibrator *c, const char *text, size_t bytes, FtxError *err)
{
    FtxStatus s = FTX_OK;

    if (c->info.kind == FTX_MODEL_DECODER)
        return read_pieces(c, text, bytes, err);
    for (const char *line = text, *end = text + bytes; !s && line < end && c->tokens < TOKENS;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));

        stop = stop ? stop : end;
        s = read_line(c, line, (size_t)(stop - line), err);
        line = stop + 1;
        report(c, (uint64_t)(stop - text), bytes);
    }
    report(c, bytes, bytes);
    return s ? s : run(c, err);
}

/* --- the model ---------------------------------------------------------------------------------------- */

static FtxStatus open_model(Calibrator *c, const char *path, FtxError *err)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    const Memory memory = memory_of(NULL);
    FtxStatus s;

    o.device = FTX_DEVICE_CPU;
    s = artifact_open(path, &c->artifact, err);
    if (!s && !c->artifact.tokenizer)
        s = ftx_fail(err, FTX_EINVAL, "the model has no tokenizer that reads texts");
    if (!s)
        s = ftx_model_open(path, &o, &c->model, err);
    if (!s)
        s = ftx_engine_open(c->model, &o, &c->engine, err);
    if (!s)
        s = team_open(&memory, 0, &c->team, err);
    if (s)
        return s;
    ftx_model_info(c->model, &c->info);
    c->of = arena_array(c->keep, size_t, c->artifact.n_weights);
    c->events = arena_array(c->keep, FtxEvent, (size_t)c->info.sequences);
    for (int i = 0; i < c->info.sequences; i++)
        c->events[i].size = sizeof *c->events;
    return FTX_OK;
}

static void close_model(Calibrator *c)
{
    ftx_engine_close(c->engine);
    ftx_model_close(c->model);
    artifact_close(&c->artifact);
    team_close(c->team);
}

static bool run_model(Calibrator *c, const char *path, const char *text, size_t bytes, Diag *d)
{
    const Watch watch = {add_rows, c};
    FtxError err;

    const FtxStatus opened = open_model(c, path, &err);

    unlink(path); /* what is mapped stays readable */
    if (opened || engine_watch(c->engine, &watch, &err) || read_texts(c, text, bytes, &err))
        return err.status == FTX_EINVAL ? diag_error(d, (Loc){0}, "--calibrate: %s", err.text)
                                        : diag_machine(d, "--calibrate: %s", err.text);
    if (!c->tokens)
        return diag_error(d, (Loc){0}, "--calibrate: %s has no text", c->o->calibrated_with);
    for (size_t i = 0; i < c->out->n; i++)
        if (!finish(&c->out->at[i]))
            return diag_error(d, (Loc){0}, "--calibrate: inputs of \"%s\" are not finite numbers on these texts",
                              c->out->at[i].weight);
    return true;
}

bool calibrate(const CompileOptions *o, const char *text, size_t bytes, Arena *keep, Calibration *out, Diag *d)
{
    Calibrator c = {.o = o, .keep = keep, .out = out};
    CompileOptions plain = *o;
    CompileResult r;
    bool ok;

    plain.out = arena_printf(keep, "%s.plain-%ld", o->out, (long)getpid());
    plain.targets = "cpu";
    plain.tune = "none";
    plain.plain = true;
    plain.calibration = NULL;
    plain.program = NULL;
    plain.program_bytes = 0;
    plain.sidecar = false;
    plain.emit = NULL;
    plain.dump = (Dump){0};
    ok = compile(&plain, keep, &r, d) && run_model(&c, plain.out, text, bytes, d);
    close_model(&c);
    return ok;
}
