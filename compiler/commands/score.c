/* commands/score.c - ftxc score: the loss of a text under a model, by overlapping windows if it is long.
 *
 *     tokens    0 1 2 3 4 5 6 7 8 9 10 11      context 8, stride 4
 *     window 1  b s s s s s s s                scores tokens 1 to 7
 *     window 2          b - - - s s s  s       scores tokens 8 to 11, which no earlier window has scored
 *
 * So each token but the first is scored once, behind at least context - stride tokens as soon as there are as many.
 * b: if the text begins with the tokenizer's begin token, every window does, in place of its own first token. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "../../runner/device.h"
#include "../../runner/json.h"
#include "../../runner/lines.h"
#include "../../runner/options.h"
#include "../../runtime/base/arena.h"
#include "../../runtime/base/error.h"

typedef struct Options {
    bool help, literal, json, has_stride;
    const char *device, *ids;
    uint64_t kv_memory;
    int threads, stride;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--ids", 0, OPT_TEXT, "5,17,9", "token ids in place of a text", AT(ids), 0},
    {"--stride", 0, OPT_INT, "N", "tokens from one window to the next (default: half the context)", AT(stride),
     AT(has_stride)},
    {"--literal", 0, OPT_FLAG, NULL, "the text of a special token is text and does not become that token", AT(literal),
     0},
    {"--json", 0, OPT_FLAG, NULL, "one object: ids, logprobs, loss, perplexity, windows", AT(json), 0},
    {"--device", 'd', OPT_TEXT, "NAME", "cpu, cuda, cuda:N or auto", AT(device), 0},
    {"--threads", 0, OPT_INT, "N", "CPU threads (default: one for each CPU of this process)", AT(threads), 0},
    {"--kv-memory", 0, OPT_BYTES, "4G",
     "device memory for the KV cache: bytes, with K, M, G or T (default: what is free, less a reserve)", AT(kv_memory),
     0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

typedef struct Score {
    const Options *o;
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    int32_t *ids;    /* [n] */
    float *logprobs; /* [n]: logprobs[i] is that of ids[i + 1] */
    size_t n, stride, windows;
} Score;

static void help(void)
{
    printf("ftxc score FILE.ftx [TEXTFILE] [options]\n\n"
           "Mean loss and perplexity of a text under a model. Without TEXTFILE, or with -, the text is read from\n"
           "standard input.\n\n"
           "A text longer than the context is read in windows of the context's size, each --stride tokens after\n"
           "the one before. A window scores the tokens that no earlier one has scored, so each token but the first\n"
           "is scored once; from the second window on, each has at least context - stride tokens before it. If the\n"
           "text begins with the begin token (BOS), every window does, in place of its first token.\n\n");
    options_help(table, LEN(table));
    printf("\nExamples:\n  ftxc score fable.ftx chapter.txt --stride 256\n"
           "  ftxc score fable.ftx --ids 0,5,17,9 --json\n");
}

static int read_text(Score *s, const char *file)
{
    const unsigned flags = FTX_TOKENIZE_SPECIAL | (s->o->literal ? FTX_TOKENIZE_LITERAL : 0);
    Lines lines;
    FtxError err = {0};
    size_t bytes;
    char *text;
    int code = EXIT_DONE;

    if (!file && isatty(0))
        return command_mistake("score", "no text: give a file, --ids, or standard input");
    if (!lines_open(&lines, file))
        return EXIT_FAILED;
    text = lines_rest(&lines, &bytes);
    lines_close(&lines);
    if (!text)
        return EXIT_FAILED;
    if (ftx_tokenize(s->model, text, bytes, flags, NULL, 0, &s->n, &err)) {
        code = command_failed(&err);
    } else {
        s->ids = command_must(calloc(s->n + 1, sizeof *s->ids));
        if (ftx_tokenize(s->model, text, bytes, flags, s->ids, s->n, &s->n, &err))
            code = command_failed(&err);
    }
    free(text);
    return code;
}

/* --- windows ------------------------------------------------------------------------------------------ */

/* The tokenizer's begin token if the text begins with it; -1: it does not. */
static int32_t begin_token(const Score *s)
{
    int32_t around[16]; /* what the tokenizer adds to a text */
    size_t n = 0;

    if (s->n && !ftx_tokenize(s->model, "", 0, FTX_TOKENIZE_SPECIAL, around, LEN(around), &n, NULL) && n &&
        around[0] == s->ids[0])
        return around[0];
    return -1;
}

static FtxStatus score_windows(Score *s, FtxError *err)
{
    const size_t context = (size_t)s->info.context;
    const int32_t begin = begin_token(s);
    float *window = command_must(calloc(context, sizeof *window)); /* logprobs of one */
    FtxStatus status = FTX_OK;

    for (size_t start = 0, done = 0; !status && (done < s->n || !start); start += s->stride) {
        const size_t end = s->n - start < context ? s->n : start + context;
        const int32_t own = s->n ? s->ids[start] : 0;

        if (start && begin >= 0)
            s->ids[start] = begin;
        status = ftx_engine_score(s->engine, s->ids + start, end - start, window, err);
        if (status && start)
            ftx_context(err, status, "tokens %zu to %zu", start, end - 1);
        if (s->n)
            s->ids[start] = own;
        for (size_t i = done ? done : 1; !status && i < end; i++)
            s->logprobs[i - 1] = window[i - 1 - start];
        done = end;
        s->windows++;
    }
    free(window);
    return status;
}

static void print(const Score *s)
{
    double loss = 0.0;
    json_t *ids, *logprobs;

    for (size_t i = 0; i + 1 < s->n; i++)
        loss -= (double)s->logprobs[i];
    loss /= (double)(s->n - 1);
    if (!s->o->json) {
        printf("%zu tokens", s->n);
        if (s->windows > 1)
            printf(" in %zu windows of %d, stride %zu", s->windows, s->info.context, s->stride);
        printf(", mean loss %.5f nats, perplexity %.3f\n", loss, exp(loss));
        return;
    }
    ids = json_array();
    logprobs = json_array();
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(ids, json_integer(s->ids[i]));
    for (size_t i = 0; i + 1 < s->n; i++)
        json_array_append_new(logprobs, runner_json_number((double)s->logprobs[i]));
    runner_json_print(json_pack("{so,so,so,so,sI}", "ids", ids, "logprobs", logprobs, "loss", runner_json_number(loss),
                                "perplexity", runner_json_number(exp(loss)), "windows", (json_int_t)s->windows));
}

/* --- the command -------------------------------------------------------------------------------------- */

static int score(Score *s, const char *file)
{
    const int context = s->info.context;
    FtxError err = {0};
    int code;

    if (s->o->has_stride && (s->o->stride < 1 || s->o->stride >= context))
        return command_mistake("score", "--stride: expected 1 to %d (the context is %d), found %d", context - 1,
                               context, s->o->stride);
    s->stride = (size_t)(s->o->has_stride ? s->o->stride : context / 2);
    if (s->o->ids && !options_list(s->o->ids, &s->ids, &s->n))
        return command_mistake(
            "score", "--ids: expected whole numbers of 32 bits with commas between, found \"%.100s\"", s->o->ids);
    code = s->o->ids ? EXIT_DONE : read_text(s, file);
    if (code != EXIT_DONE)
        return code;
    s->logprobs = command_must(calloc(s->n + 1, sizeof *s->logprobs));
    if (score_windows(s, &err))
        return command_failed(&err);
    print(s);
    return EXIT_DONE;
}

int command_score(int argc, char **argv)
{
    Options o = {0};
    Score s = {.o = &o};
    TextList rest = {0};
    FtxOptions open;
    FtxError err = {0};
    char error[300];
    int code;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("score", "%s", error);
    if (o.help) {
        help();
        return EXIT_DONE;
    }
    if (rest.n < 1 || rest.n > (o.ids ? 1u : 2u))
        return command_mistake("score", "expected an artifact and a text file, or --ids; found %zu arguments", rest.n);
    if (o.ids && o.literal)
        return command_mistake("score", "--literal is about text, and --ids are given");
    if (!device_parse(o.device, o.threads, 0, &open, error, sizeof error))
        return command_mistake("score", "%s", error);
    open.kv_bytes = o.kv_memory;
    if (ftx_model_open(rest.at[0], &open, &s.model, &err) || ftx_engine_open(s.model, &open, &s.engine, &err)) {
        code = command_failed(&err);
    } else {
        ftx_model_info(s.model, &s.info);
        code = score(&s, rest.n > 1 ? rest.at[1] : NULL);
    }
    free(s.ids);
    free(s.logprobs);
    ftx_engine_close(s.engine);
    ftx_model_close(s.model);
    return code;
}
