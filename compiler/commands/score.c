/* commands/score.c - ftxc score: the loss of a text under a model, by overlapping windows if it is long, and how far the
 * model is from another one.
 *
 *     tokens    0 1 2 3 4 5 6 7 8 9 10 11      context 8, stride 4
 *     window 1  b s s s s s s s                scores tokens 1 to 7
 *     window 2          b - - - s s s  s       scores tokens 8 to 11, which no earlier window has scored
 *
 * So each token but the first is scored once, behind at least context - stride tokens as soon as there are as many.
 * b: if the text begins with the tokenizer's begin token, every window does, in place of its own first token.
 *
 * --against: the mean, over the scored tokens, of the Kullback-Leibler divergence sum(p log(p / q)) of the next token, p by
 * the other model, q by this one. */
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
    const char *device, *ids, *against;
    uint64_t kv_memory;
    int threads, stride;
    DeviceWeights weights;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--ids", 0, OPT_TEXT, "5,17,9", "token ids in place of a text", AT(ids), 0},
    {"--stride", 0, OPT_INT, "N", "tokens from one window to the next (default: half the context)", AT(stride),
     AT(has_stride)},
    {"--against", 0, OPT_TEXT, "BIG.ftx",
     "another model with the same tokenizer, as the one that this one was quantised from: its loss, the mean "
     "Kullback-Leibler divergence of the next token from it, and how often both have the same likeliest token",
     AT(against), 0},
    {"--literal", 0, OPT_FLAG, NULL, "the text of a special token is text and does not become that token", AT(literal),
     0},
    {"--json", 0, OPT_FLAG, NULL,
     "one object: ids, logprobs, loss, perplexity, windows; with --against: divergence, "
     "same_top, and of the other model against_loss and against_perplexity",
     AT(json), 0},
    {"--device", 'd', OPT_TEXT, "NAME",
     "cpu, cuda, cuda:N or auto; cpu:0,1 or cuda:0,1: one for each rank (docs/parallel.md)", AT(device), 0},
    {"--threads", 0, OPT_INT, "N", "CPU threads (default: one for each CPU of this process)", AT(threads), 0},
#include "../../runner/weights_options.def"
    {"--kv-memory", 0, OPT_BYTES, "4G",
     "device memory for the KV cache: bytes, with K, M, G or T (default: what is free, less a reserve)", AT(kv_memory),
     0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

/* A model and what it says of the text. */
typedef struct Side {
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    float *logprobs; /* [n]: logprobs[i] is that of ids[i + 1] */
    float *window;   /* those of one window */
    float *logits;   /* [context - 1][vocab], of one window; NULL without --against */
} Side;

typedef struct Score {
    const Options *o;
    Side own, other; /* other: --against */
    int32_t *ids;    /* [n] */
    size_t n, stride, windows;
    int context;       /* the least of both */
    double divergence; /* summed over the tokens that are scored */
    size_t same_top;
} Score;

static void help(void)
{
    printf("ftxc score FILE.ftx [TEXTFILE] [options]\n\n"
           "Mean loss and perplexity of a text under a model. Without TEXTFILE, or with -, the text is read from\n"
           "standard input.\n\n"
           "A text longer than the context is read in windows of the context's size, each --stride tokens after\n"
           "the one before. A window scores the tokens that no earlier one has scored, so each token but the first\n"
           "is scored once; from the second window on, each has at least context - stride tokens before it. If the\n"
           "text begins with the begin token (BOS), every window does, in place of its first token.\n\n"
           "--against needs memory for the logits of a window under both models: 8 bytes for each token of the\n"
           "window and of the vocabulary. Windows have the smaller context of both.\n\n");
    options_help(table, LEN(table));
    printf("\nExamples:\n  ftxc score fable.ftx chapter.txt --stride 256\n"
           "  ftxc score fable.ftx --ids 0,5,17,9 --json\n"
           "  ftxc score fable8.ftx chapter.txt --against fable.ftx\n");
}

/* Whether the other model's tokenizer makes the same ids of the text. */
static bool same_ids(const Score *s, const char *text, size_t bytes, unsigned flags)
{
    int32_t *ids = command_must(calloc(s->n + 1, sizeof *ids));
    size_t n = 0;
    const bool same = !ftx_tokenize(s->other.model, text, bytes, flags, ids, s->n, &n, NULL) && n == s->n &&
                      memcmp(ids, s->ids, n * sizeof *ids) == 0;

    free(ids);
    return same;
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
    if (ftx_tokenize(s->own.model, text, bytes, flags, NULL, 0, &s->n, &err)) {
        code = command_failed(&err);
    } else {
        s->ids = command_must(calloc(s->n + 1, sizeof *s->ids));
        if (ftx_tokenize(s->own.model, text, bytes, flags, s->ids, s->n, &s->n, &err))
            code = command_failed(&err);
        else if (s->other.model && !same_ids(s, text, bytes, flags))
            code = command_mistake("score", "--against: %s has another tokenizer", s->o->against);
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

    if (s->n && !ftx_tokenize(s->own.model, "", 0, FTX_TOKENIZE_SPECIAL, around, LEN(around), &n, NULL) && n &&
        around[0] == s->ids[0])
        return around[0];
    return -1;
}

static FtxStatus score_window(Side *d, const int32_t *ids, size_t n, FtxError *err)
{
    return d->logits ? ftx_engine_score_logits(d->engine, ids, n, d->window, d->logits, err)
                     : ftx_engine_score(d->engine, ids, n, d->window, err);
}

/* Adds the divergence of two rows of logits, p by the other model. */
static void compare_rows(Score *s, const float *own, const float *other)
{
    const size_t vocab = (size_t)s->own.info.vocab;
    size_t best_own = 0, best_other = 0;
    double all_own = 1, all_other = 1, sum = 0; /* the largest logit counts 1 */

    for (size_t v = 1; v < vocab; v++) {
        best_own = own[v] > own[best_own] ? v : best_own;
        best_other = other[v] > other[best_other] ? v : best_other;
    }
    for (size_t v = 0; v < vocab; v++) {
        all_own += v == best_own ? 0 : exp((double)own[v] - (double)own[best_own]);
        all_other += v == best_other ? 0 : exp((double)other[v] - (double)other[best_other]);
    }
    const double shift_own = (double)own[best_own] + log(all_own);
    const double shift_other = (double)other[best_other] + log(all_other);

    for (size_t v = 0; v < vocab; v++) {
        const double log_p = (double)other[v] - shift_other;

        sum += exp(log_p) * (log_p - (double)own[v] + shift_own);
    }
    s->divergence += sum > 0 ? sum : 0; /* equal rows: but for rounding */
    s->same_top += best_own == best_other;
}

static FtxStatus score_windows(Score *s, FtxError *err)
{
    const size_t context = (size_t)s->context, vocab = (size_t)s->own.info.vocab;
    const int32_t begin = begin_token(s);
    FtxStatus status = FTX_OK;

    for (size_t start = 0, done = 0; !status && (done < s->n || !start); start += s->stride) {
        const size_t end = s->n - start < context ? s->n : start + context;
        const int32_t own = s->n ? s->ids[start] : 0;

        if (start && begin >= 0)
            s->ids[start] = begin;
        status = score_window(&s->own, s->ids + start, end - start, err);
        if (!status && s->other.model)
            status = score_window(&s->other, s->ids + start, end - start, err);
        if (status && start)
            ftx_context(err, status, "tokens %zu to %zu", start, end - 1);
        if (s->n)
            s->ids[start] = own;
        for (size_t i = done ? done : 1; !status && i < end; i++) {
            const size_t at = i - 1 - start;

            s->own.logprobs[i - 1] = s->own.window[at];
            if (!s->other.model)
                continue;
            s->other.logprobs[i - 1] = s->other.window[at];
            compare_rows(s, s->own.logits + at * vocab, s->other.logits + at * vocab);
        }
        done = end;
        s->windows++;
    }
    return status;
}

static double mean_loss(const Score *s, const Side *d)
{
    double loss = 0.0;

    for (size_t i = 0; i + 1 < s->n; i++)
        loss -= (double)d->logprobs[i];
    return loss / (double)(s->n - 1);
}

static void print_text(const Score *s)
{
    const double loss = mean_loss(s, &s->own), scored = (double)(s->n - 1);

    printf("%zu tokens", s->n);
    if (s->windows > 1)
        printf(" in %zu windows of %d, stride %zu", s->windows, s->context, s->stride);
    printf(", mean loss %.5f nats, perplexity %.3f\n", loss, exp(loss));
    if (!s->other.model)
        return;
    const double other = mean_loss(s, &s->other);

    printf("against %s: its mean loss %.5f nats, perplexity %.3f (%+.2f %% here)\n", s->o->against, other, exp(other),
           100 * (exp(loss - other) - 1));
    printf("mean divergence %.6f nats, the same likeliest token %.2f %%\n", s->divergence / scored,
           100 * (double)s->same_top / scored);
}

static void print(const Score *s)
{
    const double loss = mean_loss(s, &s->own), scored = (double)(s->n - 1);
    json_t *ids, *logprobs, *all;

    if (!s->o->json) {
        print_text(s);
        return;
    }
    ids = json_array();
    logprobs = json_array();
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(ids, json_integer(s->ids[i]));
    for (size_t i = 0; i + 1 < s->n; i++)
        json_array_append_new(logprobs, runner_json_number((double)s->own.logprobs[i]));
    all = json_pack("{so,so,so,so,sI}", "ids", ids, "logprobs", logprobs, "loss", runner_json_number(loss),
                    "perplexity", runner_json_number(exp(loss)), "windows", (json_int_t)s->windows);
    if (s->other.model) {
        const double other = mean_loss(s, &s->other);

        json_object_set_new(all, "against_loss", runner_json_number(other));
        json_object_set_new(all, "against_perplexity", runner_json_number(exp(other)));
        json_object_set_new(all, "divergence", runner_json_number(s->divergence / scored));
        json_object_set_new(all, "same_top", runner_json_number((double)s->same_top / scored));
    }
    runner_json_print(all);
}

/* --- the command -------------------------------------------------------------------------------------- */

static int score(Score *s, const char *file)
{
    const bool two = s->other.model != NULL;
    FtxError err = {0};
    int code;

    s->context = two && s->other.info.context < s->own.info.context ? s->other.info.context : s->own.info.context;
    if (two && s->other.info.vocab != s->own.info.vocab)
        return command_mistake("score", "--against: %s has a vocabulary of %d tokens, this model one of %d",
                               s->o->against, s->other.info.vocab, s->own.info.vocab);
    if (s->o->has_stride && (s->o->stride < 1 || s->o->stride >= s->context))
        return command_mistake("score", "--stride: expected 1 to %d (the context is %d), found %d", s->context - 1,
                               s->context, s->o->stride);
    s->stride = (size_t)(s->o->has_stride ? s->o->stride : s->context / 2);
    if (s->o->ids && !options_list(s->o->ids, &s->ids, &s->n))
        return command_mistake(
            "score", "--ids: expected whole numbers of 32 bits with commas between, found \"%.100s\"", s->o->ids);
    code = s->o->ids ? EXIT_DONE : read_text(s, file);
    if (code != EXIT_DONE)
        return code;
    for (int i = 0; i < (two ? 2 : 1); i++) {
        Side *d = i ? &s->other : &s->own;

        d->logprobs = command_must(calloc(s->n + 1, sizeof *d->logprobs));
        d->window = command_must(calloc((size_t)s->context, sizeof *d->window));
        if (two)
            d->logits = command_must(calloc((size_t)s->context, (size_t)d->info.vocab * sizeof *d->logits));
    }
    if (score_windows(s, &err))
        return command_failed(&err);
    print(s);
    return EXIT_DONE;
}

static FtxStatus open_side(Side *d, const char *path, const FtxOptions *open, FtxError *err)
{
    const FtxStatus status = ftx_model_open(path, open, &d->model, err);

    if (status)
        return status;
    ftx_model_info(d->model, &d->info);
    return ftx_engine_open(d->model, open, &d->engine, err);
}

static void close_side(Side *d)
{
    free(d->logprobs);
    free(d->window);
    free(d->logits);
    ftx_engine_close(d->engine);
    ftx_model_close(d->model);
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
    if (!device_parse(o.device, o.threads, 0, &o.weights, &open, error, sizeof error))
        return command_mistake("score", "%s", error);
    open.kv_bytes = o.kv_memory;
    if (open_side(&s.own, rest.at[0], &open, &err) || (o.against && open_side(&s.other, o.against, &open, &err)))
        code = command_failed(&err);
    else
        code = score(&s, rest.n > 1 ? rest.at[1] : NULL);
    free(s.ids);
    close_side(&s.own);
    close_side(&s.other);
    return code;
}
