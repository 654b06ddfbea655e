/* chat.c - `ftxc chat`: reads a message, answers with the whole conversation as the prompt, and so on. The prefix cache
 * keeps what the model has read, so that only the new message is computed. */
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "device.h"
#include "lines.h"
#include "options.h"
#include "settings.h"
#include "turns.h"
#include "../runtime/base/arena.h"

typedef struct Options {
    bool help, stats;
    const char *system, *variables, *template_name, *device;
    int threads;
    uint64_t kv_memory;
    DeviceWeights weights;
    Settings settings;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--system", 0, OPT_TEXT, "TEXT", "the system message: what the model shall be or do", AT(system), 0},
    {"--variables", 0, OPT_TEXT, "JSON", "further variables of the chat template, {\"enable_thinking\": false}",
     AT(variables), 0},
    {"--template", 0, OPT_TEXT, "NAME", "which of several chat templates", AT(template_name), 0},
#include "settings_options.def"
    {"--device", 'd', OPT_TEXT, "NAME",
     "cpu, cuda, cuda:N or auto; cpu:0,1 or cuda:0,1: one for each rank (docs/parallel.md)", AT(device), 0},
    {"--threads", 0, OPT_INT, "N", "CPU threads (default: one for each CPU of this process)", AT(threads), 0},
#include "weights_options.def"
    {"--kv-memory", 0, OPT_BYTES, "4G",
     "device memory for the KV cache: bytes, with K, M, G or T (default: what is free, less a reserve)", AT(kv_memory),
     0},
    {"--stats", 0, OPT_FLAG, NULL, "after each answer: tokens, time, and tokens of the prompt that were in the cache",
     AT(stats), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

typedef struct Chat {
    const Options *o;
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    FtxRequest request; /* the spec's defaults and the options */
    SettingsLists lists;
    FtxEvent *events; /* [info.sequences] */
    Turns turns;
    int32_t *ids; /* [n] of [room]: the prompt */
    size_t n, room;
    Lines lines;
    bool terminal; /* standard input is one: show where to write, and what Ctrl-C has done */
    bool refused;  /* a message was refused */
    char *answer;  /* [bytes] of [cap] */
    size_t bytes, cap;
} Chat;

typedef enum Next { NEXT_LINE, NEXT_END, NEXT_FAILED } Next;

/* --- the prompt ------------------------------------------------------------------------------------------ */

static FtxStatus render(Chat *c, FtxError *err)
{
    FtxChat chat = FTX_CHAT_INIT;
    FtxStatus s;

    chat.messages = c->turns.at;
    chat.count = c->turns.n;
    chat.variables = c->o->variables;
    chat.template_name = c->o->template_name;
    chat.add_generation_prompt = true;
    while (!(s = ftx_chat(c->model, &chat, c->ids, c->room, &c->n, err)) && c->n > c->room) {
        c->room = c->n + 1024;
        c->ids = command_must(realloc(c->ids, c->room * sizeof *c->ids));
    }
    return s;
}

/* Tokens that a prompt leaves to its answer: --max-new, or a quarter of the context. */
static size_t answer_room(const Chat *c)
{
    const size_t context = (size_t)c->info.context, wanted = (size_t)c->request.max_new;

    return wanted && wanted < context / 2 ? wanted : context / 4;
}

/* The ids of the conversation. The oldest messages are left out of it for good if the answer has no room. */
static FtxStatus make_prompt(Chat *c, FtxError *err)
{
    size_t gone = 0;
    FtxStatus s;

    while (!(s = render(c, err)) && c->n + answer_room(c) > (size_t)c->info.context && turns_forget(&c->turns))
        gone++;
    if (gone)
        command_print("[the context of %d tokens is full: the oldest %zu of your messages left out]\n", c->info.context,
                      gone);
    return s;
}

/* --- the answer ------------------------------------------------------------------------------------------ */

static void take_text(Chat *c, const FtxEvent *e)
{
    if (!e->text_bytes)
        return;
    if (c->bytes + e->text_bytes + 1 > c->cap) {
        c->cap = (c->bytes + e->text_bytes + 1) * 2;
        c->answer = command_must(realloc(c->answer, c->cap));
    }
    memcpy(c->answer + c->bytes, e->text, e->text_bytes);
    c->bytes += e->text_bytes;
    command_write(stdout, e->text, e->text_bytes);
    fflush(stdout);
}

static void print_stats(const FtxEvent *last, size_t tokens, double seconds)
{
    command_print("[%zu tokens in %.2f s; prompt %zu tokens, %zu of them from the cache]\n", tokens, seconds,
                  last->prompt_tokens, last->cached_tokens);
}

/* Steps until the request has ended. Ctrl-C cancels it. */
static FtxStatus follow(Chat *c, uint64_t id, FtxError *err)
{
    const double start = command_seconds();
    size_t tokens = 0, n;
    bool cancelled = false;
    FtxStatus s = FTX_OK;

    while (!s && ftx_engine_busy(c->engine) && !ferror(stdout)) {
        if (command_stopped && !cancelled) {
            s = ftx_engine_cancel(c->engine, id, err);
            cancelled = true;
            continue;
        }
        s = ftx_engine_step(c->engine, c->events, (size_t)c->info.sequences, &n, err);
        for (size_t i = 0; i < n && !s; i++) {
            const FtxEvent *e = &c->events[i];

            tokens += e->token >= 0;
            take_text(c, e);
            if (e->finish != FTX_RUNNING && c->o->stats)
                print_stats(e, tokens, command_seconds() - start);
        }
    }
    return s;
}

/* Answers the last message. What has been written so far stays in the conversation if Ctrl-C ends the answer. */
static FtxStatus answer(Chat *c, FtxError *err)
{
    FtxRequest q = c->request;
    uint64_t id;
    FtxStatus s = make_prompt(c, err);

    if (s)
        return s;
    q.ids = c->ids;
    q.ids_count = c->n;
    c->request.seed++; /* the next answer has its own */
    if ((s = ftx_engine_submit(c->engine, &q, &id, err)))
        return s;
    c->bytes = 0;
    s = follow(c, id, err);
    putchar('\n');
    fflush(stdout);
    if (!s) {
        char *text = command_must(malloc(c->bytes + 1));

        if (c->bytes)
            memcpy(text, c->answer, c->bytes);
        text[c->bytes] = '\0';
        turns_add(&c->turns, "assistant", text, c->bytes);
    }
    return s;
}

/* --- what is typed --------------------------------------------------------------------------------------- */

static void show_prompt(const Chat *c, const char *text)
{
    if (!c->terminal)
        return;
    printf("%s", text);
    fflush(stdout);
}

/* A message: a line, or several if each but the last ends with a backslash. NULL: the end, or a signal. */
static char *read_message(Chat *c, size_t *bytes)
{
    char *text = NULL;

    *bytes = 0;
    for (;;) {
        size_t n;
        char *line;

        show_prompt(c, text ? "... " : "> ");
        line = lines_next(&c->lines, true, &n);
        if (!line && (command_stopped || !text)) {
            free(text);
            return NULL;
        }
        if (!line) /* the file ends behind a backslash */
            return text;
        text = command_must(realloc(text, *bytes + n + 2));
        memcpy(text + *bytes, line, n);
        *bytes += n;
        text[*bytes] = '\0';
        free(line);
        if (!n || text[*bytes - 1] != '\\')
            return text;
        text[*bytes - 1] = '\n';
    }
}

static void print_commands(void)
{
    command_print("/reset         forget the conversation; the system message stays\n"
                  "/system TEXT   a new system message; without TEXT none\n"
                  "/help          this text\n"
                  "/quit          end, as Ctrl-D does\n"
                  "//TEXT         a message that begins with /\n"
                  "A line that ends with a backslash goes on in the next one. Ctrl-C ends an answer.\n");
}

/* line: "/word rest". */
static Next run_command(Chat *c, const char *line)
{
    const size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");

    if (strcmp(line, "/quit") == 0)
        return NEXT_END;
    if (strcmp(line, "/help") == 0)
        print_commands();
    else if (strcmp(line, "/reset") == 0)
        turns_reset(&c->turns);
    else if (n == 7 && memcmp(line, "/system", n) == 0)
        turns_system(&c->turns, *rest ? command_must(strdup(rest)) : NULL);
    else
        command_print("no command %.*s; /help lists them, and a message may begin with //\n", (int)n, line);
    return NEXT_LINE;
}

/* Takes over text. */
static Next run_message(Chat *c, char *text, size_t bytes)
{
    FtxError err = {0};
    FtxStatus s;

    turns_add(&c->turns, "user", text, bytes);
    s = answer(c, &err);
    if (command_stopped == SIGINT)
        command_stopped = 0;
    if (!s)
        return NEXT_LINE;
    command_say(err.text);
    turns_remove_last(&c->turns);
    c->refused = true;
    return s == FTX_EINVAL || s == FTX_EFULL ? NEXT_LINE : NEXT_FAILED;
}

static Next run_line(Chat *c, char *line, size_t bytes)
{
    Next next = NEXT_LINE;

    if (bytes && line[0] == '/' && line[1] != '/')
        next = run_command(c, line);
    else if (strspn(line, " \t\r") < bytes) {
        const bool slash = line[0] == '/';

        memmove(line, line + slash, bytes + 1 - slash);
        return run_message(c, line, bytes - slash);
    }
    free(line);
    return next;
}

static int converse(Chat *c)
{
    Next next = NEXT_LINE;

    while (next == NEXT_LINE && !ferror(stdout) && (!command_stopped || (c->terminal && command_stopped == SIGINT))) {
        size_t bytes;
        char *line = read_message(c, &bytes);

        if (line) {
            next = run_line(c, line, bytes);
        } else if (command_stopped == SIGINT && c->terminal) {
            command_stopped = 0;
            command_print("\n[Ctrl-D or /quit ends the conversation]\n");
        } else {
            break;
        }
    }
    show_prompt(c, next == NEXT_LINE ? "\n" : "");
    return next == NEXT_FAILED || c->lines.failed ? EXIT_FAILED
           : command_stopped                      ? EXIT_INTERRUPTED
           : c->refused && !c->terminal           ? EXIT_MISTAKE
                                                  : EXIT_DONE;
}

/* --- the command ----------------------------------------------------------------------------------------- */

/* Everything after the engine has been opened. */
static int chat_open(Chat *c, const char *file)
{
    const Settings *s = &c->o->settings;
    int code;

    if (c->info.kind != FTX_MODEL_DECODER || !c->info.has_chat)
        return command_mistake("chat", "%s has no chat template; ftxc run takes any text", file);
    if (s->has_samples || s->has_n_best)
        return command_mistake("chat", "%s: a message has one answer", s->has_samples ? "--samples" : "--n-best");
    c->request = ftx_request_default(c->model);
    code = settings_apply("chat", s, &c->lists, &c->request);
    if (code != EXIT_DONE)
        return code;
    c->request.samples = c->request.n_best = 1;
    c->events = command_must(calloc((size_t)c->info.sequences, sizeof *c->events));
    c->events->size = sizeof *c->events;
    c->terminal = isatty(STDIN_FILENO);
    if (c->o->system)
        turns_system(&c->turns, command_must(strdup(c->o->system)));
    if (c->terminal)
        command_print("%s on %s. /help lists commands.\n", c->info.name, c->info.device);
    command_catch_signals();
    return converse(c);
}

static void print_help(void)
{
    printf(
        "ftxc chat FILE.ftx [options]\n\n"
        "A conversation with a model that has a chat template: a line is a message, and the answer appears as it is\n"
        "written. Ctrl-C ends an answer; what was written of it stays in the conversation. /help lists commands.\n"
        "Without a terminal each line of standard input is a message, and standard output has the answers alone.\n"
        "When the context is full, the oldest messages are left out.\n\n");
    options_help(table, LEN(table));
    printf("\nExamples:\n"
           "  ftxc chat qwen.ftx --system \"Answer in one sentence.\" --temperature 0.7\n"
           "  ftxc chat qwen.ftx --greedy --max-new 40 --stats < prompts.txt\n");
    command_help_exit();
}

int chat(int argc, char **argv)
{
    Options o = {0};
    TextList rest = {0};
    FtxOptions open;
    FtxError err = {0};
    Chat *c;
    char error[300];
    int code;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("chat", "%s", error);
    if (o.help) {
        print_help();
        return EXIT_DONE;
    }
    if (rest.n != 1)
        return command_mistake("chat", "expected one artifact, found %zu", rest.n);
    if (!device_parse(o.device, o.threads, 0, &o.weights, &open, error, sizeof error))
        return command_mistake("chat", "%s", error);
    open.kv_bytes = o.kv_memory;
    open.prefix_cache = true;
    c = command_must(calloc(1, sizeof *c));
    c->o = &o;
    if (ftx_model_open(rest.at[0], &open, &c->model, &err) || ftx_engine_open(c->model, &open, &c->engine, &err)) {
        code = command_failed(&err);
    } else {
        ftx_model_info(c->model, &c->info);
        code = chat_open(c, rest.at[0]);
    }
    ftx_engine_close(c->engine);
    ftx_model_close(c->model);
    lines_close(&c->lines);
    turns_free(&c->turns);
    free(c->events);
    free(c->answer);
    free(c->ids);
    free(c);
    return code;
}
