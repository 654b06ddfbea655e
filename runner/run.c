/* run.c - `ftxc run`: options to a request; prompts through the engine until the last is answered. */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answers.h"
#include "command.h"
#include "device.h"
#include "help.h"
#include "lines.h"
#include "messages.h"
#include "options.h"
#include "profile.h"
#include "settings.h"
#include "texts.h"
#include "../runtime/base/arena.h"
#include "../runtime/base/error.h"

typedef struct Options {
    bool help, batch, requests, stream, keep_newline, literal, json, logits, no_bos, profile, quiet, prefix_cache,
        overcommit;
    bool has_max_prompt;
    const char *messages, *tools, *variables, *template_name;
    const char *device, *file, *ids, *types, *prefix, *language, *pair, *truncate, *trace, *states;
    int threads, max_prompt;
    uint64_t random_weights, kv_memory, swap_memory;
    DeviceWeights weights;
    Settings settings;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--prompt-file", 'f', OPT_TEXT, "FILE", "read the prompt from FILE, without its last newline (-: standard input)",
     AT(file), 0},
    {"--keep-newline", 0, OPT_FLAG, NULL, "keep the last newline of a prompt from a file or standard input",
     AT(keep_newline), 0},
    {"--batch", 'b', OPT_FLAG, NULL, "one prompt a line; they run side by side, answers come in order", AT(batch), 0},
    {"--requests", 0, OPT_FLAG, NULL,
     "each line is a request of OpenAI's batches, {\"custom_id\": ..., \"body\": {\"prompt\" or \"messages\": ..., "
     "\"max_tokens\": 9}}, and so is each answer; settings of a body go before the options'",
     AT(requests), 0},
    {"--stream", 0, OPT_FLAG, NULL,
     "with --batch or --requests: a JSON object for each piece of a text as it comes, with the line's number or "
     "custom_id; the last of a line has its finish",
     AT(stream), 0},
    {"--literal", 0, OPT_FLAG, NULL,
     "prompts are text only: <|end_of_text|> or [SEP] in them does not become that special token", AT(literal), 0},
    {"--ids", 0, OPT_TEXT, "5,17,9", "token ids in place of a text; nothing is added to them", AT(ids), 0},
    {"--messages", 0, OPT_TEXT, "FILE",
     "a conversation in place of a text: a JSON array of objects with role and content, which the model's chat "
     "template "
     "makes a prompt (-: standard input)",
     AT(messages), 0},
    {"--tools", 0, OPT_TEXT, "FILE", "with --messages: a JSON array of the functions that the model may call",
     AT(tools), 0},
    {"--variables", 0, OPT_TEXT, "JSON",
     "with --messages: further variables of the template, {\"enable_thinking\": false}", AT(variables), 0},
    {"--template", 0, OPT_TEXT, "NAME", "with --messages: which of several chat templates", AT(template_name), 0},
    {"--types", 0, OPT_TEXT, "0,0,1", "encoders: the token types of --ids", AT(types), 0},
    {"--pair", 0, OPT_TEXT, "TEXT", "encoders: the second sentence of the text (with --batch: after a tab)", AT(pair),
     0},
    {"--truncate", 0, OPT_TEXT, "HOW",
     "cut texts that are too long: prompts (to leave room for --max-new) and sources at their start or end; an "
     "encoder's texts longest_first, only_first or only_second",
     AT(truncate), 0},
    {"--max-prompt", 0, OPT_INT, "N", "most tokens of a prompt or source; 0: as many as fit", AT(max_prompt),
     AT(has_max_prompt)},
    {"--prefix-ids", 0, OPT_TEXT, "5,17", "translators: token ids that the translation begins with", AT(prefix), 0},
    {"--language", 0, OPT_TEXT, "TOKEN",
     "translators: the language to translate into, as its token is written: fra_Latn, fr_XX, __fr__", AT(language), 0},
#include "settings_options.def"
    {"--no-bos", 0, OPT_FLAG, NULL, "do not add the tokens that the tokenizer puts around a prompt", AT(no_bos), 0},
    {"--json", 0, OPT_FLAG, NULL, "one object for each prompt, see below", AT(json), 0},
    {"--logits", 0, OPT_FLAG, NULL, "with --json: the raw logits at the last token of the prompt", AT(logits), 0},
    {"--states", 0, OPT_TEXT, "WHICH",
     "with --json: states of the last layer: last (of the prompt's last token), mean (over the prompt) or tokens (of "
     "each); "
     "for artifacts compiled with -D states=true",
     AT(states), 0},
    {"--device", 'd', OPT_TEXT, "NAME",
     "cpu, cuda, cuda:N or auto; cpu:0,1 or cuda:0,1: one for each rank (docs/parallel.md)", AT(device), 0},
    {"--threads", 0, OPT_INT, "N", "CPU threads (default: one for each CPU of this process)", AT(threads), 0},
#include "weights_options.def"
    {"--kv-memory", 0, OPT_BYTES, "4G",
     "device memory for the KV cache: bytes, with K, M, G or T (default: what is free, less a reserve)", AT(kv_memory),
     0},
    {"--prefix-cache", 0, OPT_FLAG, NULL,
     "keep the keys and values of prompts and answers, and read what a later prompt begins with only once",
     AT(prefix_cache), 0},
    {"--overcommit", 0, OPT_FLAG, NULL,
     "prompts take KV memory as their answers grow: more run at once; where memory ends, one waits and is read again",
     AT(overcommit), 0},
    {"--swap-memory", 0, OPT_BYTES, "4G",
     "with --overcommit: host memory for keys and values of those that wait, where a copy is faster than to read them "
     "again",
     AT(swap_memory), 0},
    {"--random-weights", 0, OPT_SEED, "SEED", "draw the weights from a seed (artifacts without weights)",
     AT(random_weights), 0},
    {"--profile", 0, OPT_FLAG, NULL, "time of each kernel and the share of matrix products", AT(profile), 0},
    {"--trace", 0, OPT_TEXT, "FILE.json",
     "when each step, kernel and copy began and ended, for Perfetto (ui.perfetto.dev) or scripts/timeline", AT(trace),
     0},
    {"--quiet", 'q', OPT_FLAG, NULL, "no last line with statistics", AT(quiet), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

typedef struct Run {
    const Options *o;
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    FtxRequest request;            /* the spec's defaults and the options */
    SettingsLists lists;           /* to which the request points */
    int32_t *ids, *types, *prefix; /* [n_ids], [n_ids], [request.prefix_count] */
    size_t n_ids;
    Lines lines; /* standard input or a file */
    FtxTruncate truncate;
    Answers answers;
} Run;

/* The prompt is ids: given, or made of messages. */
static bool has_ids(const Options *o)
{
    return o->ids || o->messages;
}

/* --- the request ------------------------------------------------------------------------------ */

/* Opens the file or standard input that prompts are read from. */
static int open_input(const Options *o, Lines *lines)
{
    if (!o->file && !o->batch && isatty(0))
        return command_mistake("run", "no prompt: give it as an argument, with --prompt-file, or on standard input");
    return lines_open(lines, o->file) ? EXIT_DONE : EXIT_FAILED;
}

/* The prompt of a run without --batch; NULL: it could not be read. */
static char *read_prompt(Run *r, const TextList *rest, size_t *bytes)
{
    char *text;

    if (rest->n >= 2) {
        *bytes = strlen(rest->at[1]);
        return command_must(strdup(rest->at[1]));
    }
    text = lines_rest(&r->lines, bytes);
    if (text && *bytes && text[*bytes - 1] == '\n' && !r->o->keep_newline)
        text[--*bytes] = '\0';
    return text;
}

/* Forces the first token to be that of --language. It is a special token: read literally, its text has other ids. */
static bool take_language(Run *r)
{
    const char *name = r->o->language;
    int32_t id, literal;
    size_t n = 0, n_literal = 0;

    if (r->info.kind != FTX_MODEL_SEQ2SEQ || ftx_tokenize(r->model, name, strlen(name), 0, &id, 1, &n, NULL) ||
        n != 1 || ftx_tokenize(r->model, name, strlen(name), FTX_TOKENIZE_LITERAL, &literal, 1, &n_literal, NULL))
        return false;
    r->request.forced_bos = id;
    return n_literal != 1 || literal != id;
}

static bool take_states(const char *word, size_t *states)
{
    static const char *const words[] = {
        [FTX_STATES_LAST] = "last", [FTX_STATES_MEAN] = "mean", [FTX_STATES_TOKENS] = "tokens"};

    for (*states = FTX_STATES_LAST; *states < LEN(words); (*states)++)
        if (strcmp(word, words[*states]) == 0)
            return true;
    return false;
}

/* The spec's defaults, replaced by the options; submit refuses what exceeds a compiled maximum. */
static int make_request(Run *r)
{
    const Options *o = r->o;
    FtxRequest *q = &r->request;
    int code;

    *q = ftx_request_default(r->model);
    code = settings_apply("run", &o->settings, &r->lists, q);
    if (code != EXIT_DONE)
        return code;
    if (o->has_max_prompt)
        q->max_prompt = o->max_prompt;
    if (!o->json && (o->logits || o->states || o->settings.has_n_best))
        return command_mistake("run", "%s: only with --json",
                               o->logits   ? "--logits"
                               : o->states ? "--states"
                                           : "--n-best");
    if (o->states && !take_states(o->states, &q->states))
        return command_mistake("run", "--states: expected last, mean or tokens, found \"%.100s\"", o->states);
    if (o->prefix && !options_list(o->prefix, &r->prefix, &q->prefix_count))
        return command_mistake(
            "run", "--prefix-ids: expected whole numbers of 32 bits with commas between, found \"%.100s\"", o->prefix);
    q->prefix = q->prefix_count ? r->prefix : NULL;
    if (o->language && !take_language(r))
        return command_mistake("run", "--language: %s \"%.100s\"",
                               r->info.kind == FTX_MODEL_SEQ2SEQ ? "the tokenizer has no special token"
                                                                 : "the model reads no source, so it cannot write",
                               o->language);
    q->samples = o->requests ? 1 : q->samples; /* a line has one answer, whatever the spec says */
    r->answers.samples =
        q->samples > 1 && q->samples <= r->info.sequences ? q->samples : 1; /* other numbers: submit refuses them */
    q->truncate = r->truncate;
    q->no_bos = o->no_bos;
    q->literal = o->literal;
    q->logprobs = o->json;
    q->logits = o->logits;
    return EXIT_DONE;
}

/* --- the loop ------------------------------------------------------------------------------------- */

/* Reads the lines that have arrived, while there is room; waits for one only if no prompt is unanswered. */
static void read_jobs(Run *r)
{
    while (r->o->batch && r->answers.read - r->answers.printed < r->answers.window) {
        size_t bytes;
        char *line = lines_next(&r->lines, r->answers.read == r->answers.printed, &bytes);

        if (!line)
            return;
        answers_add(&r->answers, line, bytes);
    }
}

/* The next prompt to submit: the first that has not been, or, of sources, the longest: then the last ones to run
 * are short. */
static Job *next_job(const Run *r, size_t *number)
{
    Job *best = NULL;

    for (size_t i = r->answers.printed; i < r->answers.read; i++) {
        Job *j = answers_job(&r->answers, i);

        if (j->submitted || (best && j->bytes <= best->bytes))
            continue;
        best = j;
        *number = i;
        if (r->info.kind != FTX_MODEL_SEQ2SEQ)
            break;
    }
    return best;
}

/* A refusal ends only this job; a device that fails ends the run. */
static FtxStatus submit(Run *r, Job *j, size_t number, FtxError *err)
{
    FtxRequest q = r->request;
    char why[300];
    FtxStatus s;

    q.user = j;
    q.seed += number; /* each prompt of a batch has its own seed */
    if (r->o->requests) {
        j->line = requests_read(r->model, j->text, j->bytes, &q, why, sizeof why);
        if (*why) {
            j->submitted = true;
            answers_refuse(&r->answers, j, why);
            return FTX_OK;
        }
    } else if (r->n_ids) {
        q.ids = r->ids;
        q.ids_count = r->n_ids;
    } else {
        q.text = j->text;
        q.text_bytes = j->bytes;
    }
    j->submitted = true;
    j->start = command_seconds();
    j->seed = q.seed;
    if (r->info.kind == FTX_MODEL_SEQ2SEQ && j->text && strspn(j->text, " \t\r") == j->bytes) {
        answers_empty(&r->answers, j); /* an empty line of a document stays empty */
        return FTX_OK;
    }
    s = ftx_engine_submit(r->engine, &q, &j->id, err);
    if (s == FTX_EINVAL || s == FTX_EFULL) {
        answers_refuse(&r->answers, j, err->text);
        return FTX_OK;
    }
    r->answers.in_flight += s ? 0 : (size_t)r->answers.samples;
    return s;
}

/* Never more at once than the engine's queue holds, so that a refusal is always the prompt's fault. */
static FtxStatus submit_jobs(Run *r, FtxError *err)
{
    const size_t room = (size_t)r->info.sequences * 4;
    FtxStatus s = FTX_OK;
    size_t number;

    for (Job *j; !s && r->answers.in_flight + (size_t)r->answers.samples <= room && (j = next_job(r, &number));)
        s = submit(r, j, number, err);
    return s;
}

static FtxStatus loop(Run *r, FtxError *err)
{
    FtxEvent *events = command_must(calloc((size_t)r->info.sequences, sizeof *events));
    FtxStatus s = FTX_OK;

    events->size = sizeof *events;
    while (!s && !command_stopped && !ferror(stdout)) { /* main reports an error of stdout */
        size_t n = 0;

        read_jobs(r);
        s = submit_jobs(r, err);
        answers_print(&r->answers);
        if (s || r->answers.read == r->answers.printed) {
            if (s || !r->o->batch || r->lines.end)
                break;
            continue;
        }
        if (!ftx_engine_busy(r->engine))
            continue;
        s = ftx_engine_step(r->engine, events, (size_t)r->info.sequences, &n, err);
        for (size_t i = 0; i < n && !s; i++)
            answers_take(&r->answers, &events[i]);
        answers_print(&r->answers);
        if (r->o->stream)
            fflush(stdout);
    }
    free(events);
    return s;
}

/* The name of a given option about writing text, which an encoder does not do; NULL: none is given. */
static const char *option_of_writing(const Options *o)
{
    for (size_t i = 0; i < LEN(table); i++) {
        const char *at = (const char *)o;

        if ((table[i].given && *(const bool *)(at + table[i].given)) ||
            (table[i].kind == OPT_LIST && ((const TextList *)(at + table[i].at))->n))
            return table[i].name;
    }
    return o->settings.greedy       ? "--greedy"
           : o->prefix              ? "--prefix-ids"
           : o->language            ? "--language"
           : o->settings.ignore_eos ? "--ignore-eos"
           : o->no_bos              ? "--no-bos"
           : o->logits              ? "--logits"
           : o->states              ? "--states"
                                    : NULL;
}

static int check_encoder_options(Run *r, const TextList *rest)
{
    const Options *o = r->o;
    size_t n;

    if (r->info.kind != FTX_MODEL_ENCODER && (o->pair || o->types))
        return command_mistake("run", "%s: only an encoder has that", o->pair ? "--pair" : "--types");
    if (r->info.kind == FTX_MODEL_ENCODER && option_of_writing(o))
        return command_mistake("run", "%s: an encoder has no prompt and writes no text", option_of_writing(o));
    if (o->pair && (has_ids(o) || o->batch || rest->n > 2))
        return command_mistake("run", "--pair goes with one text; with --batch second sentences stand behind a tab");
    if (o->types && (!options_list(o->types, &r->types, &n) || n != r->n_ids))
        return command_mistake("run", "--types: expected as many numbers as --ids has, with commas between");
    return EXIT_DONE;
}

static int read_truncate(Run *r)
{
    static const char *const ways[] = {"", "longest_first", "only_first", "only_second", "start", "end"};
    const bool encoder = r->info.kind == FTX_MODEL_ENCODER;
    const char *word = r->o->truncate;

    for (size_t i = encoder ? FTX_TRUNCATE_LONGEST : FTX_TRUNCATE_START;
         word && i <= (encoder ? FTX_TRUNCATE_SECOND : FTX_TRUNCATE_END); i++)
        if (strcmp(word, ways[i]) == 0) {
            r->truncate = (FtxTruncate)i;
            return EXIT_DONE;
        }
    return word ? command_mistake("run", "--truncate: expected %s, found \"%s\"",
                                  encoder ? "longest_first, only_first or only_second" : "start or end", word)
                : EXIT_DONE;
}

/* Checks that the options fit together; opens the input if prompts come from one. */
static int check_prompts(Run *r, Options *o, const TextList *rest)
{
    int code;

    o->batch = o->batch || o->requests;
    if (rest->n > 2 && r->info.kind != FTX_MODEL_ENCODER)
        return command_mistake("run", "expected at most one prompt, found %zu", rest->n - 1);
    if (o->file && rest->n > 1)
        return command_mistake("run", "--prompt-file takes the place of the prompt, and a text is given too");
    if (o->ids && o->messages)
        return command_mistake("run", "--messages takes the place of the prompt, and --ids are given too");
    if (!o->messages && (o->tools || o->variables || o->template_name))
        return command_mistake("run", "%s: only with --messages",
                               o->tools       ? "--tools"
                               : o->variables ? "--variables"
                                              : "--template");
    if (has_ids(o) && o->literal)
        return command_mistake("run", "--literal is about text, and %s are given", o->ids ? "--ids" : "--messages");
    if (has_ids(o) && (rest->n > 1 || o->file || o->batch))
        return command_mistake("run", "%s takes the place of the prompt, and %s is given too",
                               o->ids ? "--ids" : "--messages",
                               rest->n > 1 ? "a text"
                               : o->file   ? "--prompt-file"
                                           : "--batch");
    if (o->requests && (r->info.kind == FTX_MODEL_ENCODER || o->json || o->settings.has_samples))
        return command_mistake("run", "--requests: %s",
                               o->json                   ? "its answers are JSON already; not with --json"
                               : o->settings.has_samples ? "a line has one answer; not with --samples"
                                                         : "an encoder answers none");
    if (r->info.kind == FTX_MODEL_SEQ2SEQ && rest->n < 2 && !has_ids(o) && !o->file)
        o->batch = true; /* each line of standard input is a source */
    if (o->stream && (!o->batch || o->json || r->info.kind == FTX_MODEL_ENCODER))
        return command_mistake("run", "--stream: %s",
                               !o->batch ? "only with --batch or --requests; one text comes piece by piece without it"
                               : o->json ? "it prints JSON of its own; not with --json"
                                         : "an encoder writes no text");
    if (o->keep_newline && o->batch)
        return command_mistake("run", "--keep-newline: each line is a prompt, so no prompt has a newline");
    code = check_encoder_options(r, rest);
    if (code == EXIT_DONE)
        code = read_truncate(r);
    return code == EXIT_DONE && !has_ids(o) && rest->n < 2 ? open_input(o, &r->lines) : code;
}

static int run_encoder(Run *r, const TextList *rest, char *text, size_t bytes)
{
    const Options *o = r->o;
    const VectorsJob how = {.truncate = r->truncate,
                            .literal = o->literal,
                            .ids = has_ids(o) ? r->ids : NULL,
                            .types = o->types ? r->types : NULL,
                            .n_ids = r->n_ids,
                            .json = o->json,
                            .quiet = o->quiet};

    return texts_run(r->model, r->engine, &how, rest, text, bytes, o->pair, &r->lines);
}

/* Answers what has not ended. Lines that were not submitted are read for their ids. */
static void end_unfinished(Run *r, FtxFinish finish)
{
    char why[300];

    for (size_t i = r->answers.printed; r->o->requests && i < r->answers.read; i++) {
        Job *j = answers_job(&r->answers, i);

        if (!j->line)
            j->line = requests_read(r->model, j->text, j->bytes, &(FtxRequest){0}, why, sizeof why);
    }
    answers_end(&r->answers, finish);
    answers_print(&r->answers);
}

/* text: the only prompt, which the run takes over; NULL: the prompt is ids, or each line is one. */
static int run_decoder(Run *r, char *text, size_t bytes, double open_seconds)
{
    const Options *o = r->o;
    const double start = command_seconds();
    Answers *all = &r->answers;
    FtxError err = {0};
    FtxStatus s;

    all->engine = r->engine;
    all->info = r->info;
    all->json = o->json;
    all->batch = o->batch;
    all->stream = o->stream;
    all->logits = o->logits;
    all->shows_cached = o->prefix_cache;
    all->draws = r->request.temperature > 0.0f && r->request.beams <= 1;
    all->window = (size_t)r->info.sequences * 16;
    all->jobs = command_must(calloc(all->window, sizeof *all->jobs));
    if (has_ids(o) || text)
        answers_add(all, text, bytes);
    s = loop(r, &err);
    if ((s || command_stopped) && (o->json || o->requests || o->stream))
        end_unfinished(r, s ? FTX_FINISH_ERROR : FTX_FINISH_CANCEL);
    if (!o->json && !o->batch && !all->failed && (!s || all->tokens)) {
        putchar('\n');
        fflush(stdout);
    }
    if (s)
        command_say(err.text);
    if (!o->quiet && (all->tokens || (!s && !all->failed))) {
        const double t = command_seconds() - start;
        char seed[32] = "";

        if (all->draws)
            snprintf(seed, sizeof seed, "seed %" PRId64 "; ", (int64_t)r->request.seed);
        command_print("[%s: %llu tokens in %.3f s, throughput %.0f tokens/s; %sKV cache %llu tokens; opened in %.0f "
                      "ms; %s%s%s]\n",
                      r->info.name, (unsigned long long)all->tokens, t, t > 0.0 ? (double)all->tokens / t : 0.0, seed,
                      (unsigned long long)r->info.kv_tokens, open_seconds * 1e3, r->info.device,
                      strcmp(r->info.plan, "cpu") == 0 ? "" : ", code for ",
                      strcmp(r->info.plan, "cpu") == 0 ? "" : r->info.plan);
    }
    return s                 ? (int)command_exit(s)
           : all->not_finite ? EXIT_FAILED
           : r->lines.failed ? EXIT_FAILED
           : command_stopped ? EXIT_INTERRUPTED
           : all->failed     ? EXIT_MISTAKE
                             : EXIT_DONE;
}

/* Everything after the engine has been opened. */
static int run_open(Run *r, Options *o, const TextList *rest, double open_seconds)
{
    char *text = NULL;
    size_t bytes = 0;
    FtxError err = {0};
    int code = check_prompts(r, o, rest);

    if (code == EXIT_DONE && o->messages) {
        const MessagesJob job = {o->messages, o->tools, o->variables, o->template_name};

        code = messages_read(r->model, &job, &r->ids, &r->n_ids);
    }
    if (code == EXIT_DONE)
        code = make_request(r);
    if (code != EXIT_DONE)
        return code;
    if (o->batch && rest->n > 1)
        lines_of(&r->lines, rest->at[1]);
    else if (!has_ids(o) && !o->batch && !(text = read_prompt(r, rest, &bytes)))
        return EXIT_FAILED;
    command_catch_signals();
    if ((o->profile && profile_start(r->engine, &err)) || (o->trace && trace_start(r->engine, &err))) {
        free(text);
        return command_failed(&err);
    }
    if (r->info.kind == FTX_MODEL_ENCODER) {
        code = run_encoder(r, rest, text, bytes);
        free(text);
    } else {
        code = run_decoder(r, text, bytes, open_seconds);
    }
    if (o->profile)
        profile_print(r->engine);
    return o->trace ? trace_finish(r->engine, o->trace, code) : code;
}

int run(const char *artifact, int argc, char **argv)
{
    Options o = {0};
    TextList rest = {.at = {artifact}, .n = artifact != NULL};
    FtxOptions open;
    FtxError err = {0};
    Run *r;
    char error[300];
    double start;
    int code;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("run", "%s", error);
    if (o.help) {
        help_head(artifact);
        options_help(table, LEN(table));
        help_tail(artifact);
        return EXIT_DONE;
    }
    if (rest.n < 1)
        return command_mistake("run", "expected an artifact, and perhaps a prompt");
    if (!device_parse(o.device, o.threads, o.random_weights, &o.weights, &open, error, sizeof error))
        return command_mistake("run", "%s", error);
    open.kv_bytes = o.kv_memory;
    open.prefix_cache = o.prefix_cache;
    open.overcommit = o.overcommit;
    open.swap_bytes = o.swap_memory;
    if (command_rank(rest.at[0], &open, &code))
        return code;
    r = command_must(calloc(1, sizeof *r));
    r->o = &o;
    start = command_seconds();
    if (o.ids && !options_list(o.ids, &r->ids, &r->n_ids)) {
        code = command_mistake("run", "--ids: expected whole numbers of 32 bits with commas between, found \"%.100s\"",
                               o.ids);
    } else if (ftx_model_open(rest.at[0], &open, &r->model, &err) ||
               ftx_engine_open(r->model, &open, &r->engine, &err)) {
        code = command_failed(&err);
    } else {
        ftx_model_info(r->model, &r->info);
        code = run_open(r, &o, &rest, command_seconds() - start);
    }
    ftx_engine_close(r->engine);
    ftx_model_close(r->model);
    answers_close(&r->answers);
    lines_close(&r->lines);
    free(r->ids);
    free(r->types);
    free(r->prefix);
    free(r);
    return code;
}
