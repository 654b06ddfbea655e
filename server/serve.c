/* serve.c - `ftxc serve`: opens models, listens, and answers until a signal arrives. */
#include "serve.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "grammar.h"
#include "message.h"
#include "seccomp.h"
#include "server.h"
#include "../runner/command.h"
#include "../runner/device.h"
#include "../runner/lines.h"
#include "../runner/options.h"
#include "../runtime/base/arena.h"

enum { MOST_KEYS = 1024, DRAIN_SECONDS = 30, FIRST_FILE = 3 /* of systemd's sockets */ };

typedef struct Options {
    bool help, quiet, keep_reasoning, client_priority, no_prefix_cache, no_overcommit, no_seccomp;
    const char *host, *key_file, *device, *cors, *tools, *grammar_lib;
    int port, threads, workers, connections, per_address, queue, queue_seconds, step_ms, ping, drain;
    uint64_t max_body, queue_tokens, kv_memory, swap_memory, random_weights;
    TextList names;
    DeviceWeights weights;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--host", 0, OPT_TEXT, "ADDRESS", "listen there (default 127.0.0.1: this machine alone)", AT(host), 0},
    {"--port", 'p', OPT_INT, "N", "TCP port (default 8000; 0: any free one, which is printed)", AT(port), 0},
    {"--name", 0, OPT_LIST, "NAME",
     "the name of a model in requests, in the order of the files (default: the model's own name)", AT(names), 0},
    {"--api-key-file", 0, OPT_TEXT, "FILE", "a key on each line; a request needs one of them as its Bearer token",
     AT(key_file), 0},
    {"--queue", 0, OPT_INT, "N",
     "requests that may wait for each model; more are refused with 429 (default: 4 times its sequences)", AT(queue), 0},
    {"--queue-tokens", 0, OPT_BYTES, "N", "tokens of the prompts that may wait (default 1M)", AT(queue_tokens), 0},
    {"--queue-seconds", 0, OPT_INT, "N", "refuse requests that would probably wait longer (default 60)",
     AT(queue_seconds), 0},
    {"--client-priority", 0, OPT_FLAG, NULL, "requests may have a priority: clients decide who comes first",
     AT(client_priority), 0},
    {"--step-ms", 0, OPT_INT, "MS",
     "read so many tokens of prompts in a step that it takes about this long (default 25; 0: as many as fit)",
     AT(step_ms), 0},
    {"--connections", 0, OPT_INT, "N", "open at once (default 1024)", AT(connections), 0},
    {"--per-address", 0, OPT_INT, "N", "of them from one address (default 1024)", AT(per_address), 0},
    {"--max-body", 0, OPT_BYTES, "8M", "most bytes of a request's body (default 8M)", AT(max_body), 0},
    {"--ping", 0, OPT_INT, "SECONDS", "a comment in streams that are quiet for so long (default 10)", AT(ping), 0},
    {"--drain", 0, OPT_INT, "SECONDS", "after SIGTERM: time for running requests to finish (default 30)", AT(drain), 0},
    {"--cors", 0, OPT_TEXT, "ORIGIN", "pages of this origin (or *) may ask from a browser", AT(cors), 0},
    {"--tools", 0, OPT_TEXT, "STYLE",
     "how chat models write calls of tools: hermes (Qwen, too), llama, mistral (default: as the vocabulary suggests)",
     AT(tools), 0},
    {"--grammar-lib", 0, OPT_TEXT, "FILE",
     "llguidance's C library, for response_format json_object and json_schema, regular expressions and grammars",
     AT(grammar_lib), 0},
    {"--reasoning-in-content", 0, OPT_FLAG, NULL, "what stands between <think> and </think> stays in the content",
     AT(keep_reasoning), 0},
    {"--workers", 0, OPT_INT, "N", "threads that read JSON and make prompts (default 2)", AT(workers), 0},
    {"--device", 'd', OPT_TEXT, "NAME",
     "cpu, cuda, cuda:N or auto; cpu:0,1 or cuda:0,1: one for each rank (docs/parallel.md)", AT(device), 0},
    {"--threads", 0, OPT_INT, "N", "CPU threads of each model (default: one for each CPU of this process)", AT(threads),
     0},
#include "../runner/weights_options.def"
    {"--kv-memory", 0, OPT_BYTES, "4G",
     "device memory for the KV cache of each model (default: what is free, less a reserve)", AT(kv_memory), 0},
    {"--no-prefix-cache", 0, OPT_FLAG, NULL, "read every prompt whole, also where an earlier one began alike",
     AT(no_prefix_cache), 0},
    {"--swap-memory", 0, OPT_BYTES, "4G",
     "host memory of each model for KV pages of preempted requests, where a copy is faster than to recompute them "
     "(default: "
     "none)",
     AT(swap_memory), 0},
    {"--no-overcommit", 0, OPT_FLAG, NULL,
     "a request gets KV memory for all of its max_tokens when it begins (default: as it writes)", AT(no_overcommit), 0},
    {"--random-weights", 0, OPT_SEED, "SEED", "draw the weights from a seed (artifacts without weights)",
     AT(random_weights), 0},
    {"--no-seccomp", 0, OPT_FLAG, NULL,
     "allow every system call. By default those that serving does not need fail once the server has started",
     AT(no_seccomp), 0},
    {"--quiet", 'q', OPT_FLAG, NULL, "no line for each request", AT(quiet), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

static void help(void)
{
    printf("ftxc serve FILE.ftx [FILE.ftx...] [options]\n\n"
           "Answers HTTP requests as OpenAI's interface describes them, so that its clients work unchanged: set their\n"
           "base URL to http://127.0.0.1:8000/v1. A decoder with a chat template has /v1/chat/completions, every\n"
           "decoder and translator /v1/completions. docs/serving.md lists routes and fields.\n\n"
           "SIGTERM lets running requests finish and refuses new ones; a second one ends the program.\n\n");
    options_help(table, LEN(table));
    printf("\nExamples:\n  ftxc serve fable.ftx --port 8000\n"
           "  ftxc serve fable.ftx verse.ftx --name tales --name translator --queue 100\n"
           "  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 40, \"stream\": true}'\n");
    command_help_exit();
}

/* --- requests ---------------------------------------------------------------------------------------------- */

/* All keys are compared, whole, in a time that does not depend on where they differ. *which: the number of the key. */
static bool has_key(const Server *s, Slice given, uint64_t *which)
{
    static const char bearer[] = "Bearer ";
    bool found = !s->n_keys;

    if (given.n < sizeof bearer - 1 || strncasecmp(given.at, bearer, sizeof bearer - 1) != 0)
        return found;
    given.at += sizeof bearer - 1;
    given.n -= sizeof bearer - 1;
    for (size_t i = 0; i < s->n_keys; i++) {
        const size_t n = strlen(s->keys[i]);
        volatile unsigned different = n != given.n;

        for (size_t k = 0; k < given.n; k++)
            different |= (unsigned char)given.at[k] ^ (unsigned char)s->keys[i][k % n];
        found |= !different;
        *which = different ? *which : i + 1;
    }
    return found;
}

static void refuse(void *user, Exchange *x, int status, const char *why)
{
    Fault f = {0};

    (void)user;
    fault(&f, "", "%s", why);
    f.status = status;
    answer_fault(x, &f);
}

static bool is_json(Slice type)
{
    static const char json[] = "application/json";

    return !type.n || (type.n >= sizeof json - 1 && strncasecmp(type.at, json, sizeof json - 1) == 0 &&
                       (type.n == sizeof json - 1 || strchr("; \t", type.at[sizeof json - 1])));
}

static bool admit(void *user, Exchange *x, const Head *head)
{
    Server *s = user;
    const char *other;
    const Route *r = route_find(head->method, head->path, &other);
    Text none = {0};

    if (s->cors && slice_is(head->method, "OPTIONS")) {
        exchange_header(x, "Access-Control-Allow-Methods: GET, POST");
        exchange_header(x, "Access-Control-Allow-Headers: authorization, content-type, x-request-id");
        exchange_answer(x, 204, "text/plain", &none);
        return false;
    }
    x->route = r;
    if (!(r && r->open) && !has_key(s, head->authorization, &x->client)) {
        refuse(s, x, 401, "This server needs an API key: Authorization: Bearer KEY");
    } else if (!r && other) {
        exchange_header(x, "Allow: %s", other);
        refuse(s, x, 405, "This path has another method");
    } else if (!r || head->path.n >= sizeof x->path) {
        refuse(s, x, 404, "There is no such path; docs/serving.md lists them");
    } else if (strcmp(r->method, "POST") == 0 && !is_json(head->content_type)) {
        refuse(s, x, 415, "Content-Type must be application/json");
    } else if (!r->quick && atomic_load(&s->draining)) {
        exchange_header(x, "Retry-After: %d", 5);
        refuse(s, x, 503, "The server is ending and takes no more requests");
    } else {
        return true;
    }
    return false;
}

static void run_route(void *server, void *exchange)
{
    Exchange *x = exchange;

    if (!exchange_gone(x))
        ((const Route *)x->route)->run(server, x);
    exchange_release(x);
}

static void handle(void *user, Exchange *x)
{
    Server *s = user;
    const Route *r = x->route;

    exchange_hold(x);
    if (r->quick)
        run_route(s, x);
    else
        workers_add(s->workers, run_route, s, x);
}

static void tell(void *user, const Exchange *x, int status, const char *note)
{
    const Server *s = user;

    if (!s->quiet && !(x->route && ((const Route *)x->route)->quick && status < 400))
        command_print("%s %s %s %d %.1f ms %s\n", x->id, x->method, x->path, status,
                      (command_seconds() - x->start) * 1e3, note);
}

/* To systemd, if it has started the server (sd_notify(3)). The socket stays open: seccomp allows no new one. */
static void notify(Server *s, const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const size_t n = path ? strlen(path) : 0;

    if (!n || n >= sizeof a.sun_path)
        return;
    memcpy(a.sun_path, path, n);
    if (a.sun_path[0] == '@')
        a.sun_path[0] = '\0';
    if (s->notify < 0)
        s->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s->notify < 0 || sendto(s->notify, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&a,
                                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        command_print("%s: systemd could not be told: %s\n", command_program, strerror(errno));
}

static void stop(void *user)
{
    Server *s = user;

    atomic_store(&s->draining, true);
    notify(s, "STOPPING=1");
    http_finish(s->http, s->drain_seconds);
}

/* --- start ------------------------------------------------------------------------------------------------- */

/* Keys are lines; blank ones and those behind # do not count. */
static bool read_keys(Server *s, const char *file)
{
    Lines lines = {0};
    size_t bytes;
    char *line;

    s->keys = command_must(calloc(MOST_KEYS, sizeof *s->keys));
    if (!lines_open(&lines, file))
        return false;
    while ((line = lines_next(&lines, true, &bytes))) {
        while (bytes && strchr(" \t\r", line[bytes - 1]))
            line[--bytes] = '\0';
        if (bytes && line[0] != '#' && s->n_keys < MOST_KEYS)
            s->keys[s->n_keys++] = line;
        else
            free(line);
    }
    lines_close(&lines);
    if (!lines.failed && !s->n_keys)
        command_print("%s: --api-key-file: there is no key in %s\n", command_program, file);
    return !lines.failed && s->n_keys;
}

/* A model that cannot have grammars is served without them. */
static void open_grammars(const Server *s, Served *m)
{
    char error[300];

    if (!s->grammars || m->info.kind == FTX_MODEL_ENCODER)
        return;
    m->vocabulary = grammar_open(s->grammars, m, error, sizeof error);
    if (!m->vocabulary)
        command_print("%s: note: %s\n", command_program, error);
}

/* Opens a model and its engine; an exit code. */
static int open_model(Server *s, const char *file, const char *name, const FtxOptions *options,
                      const QueueLimits *limits)
{
    Served *m = &s->models[s->n_models];
    FtxError err = {0};

    if (ftx_model_open(file, options, &m->model, &err))
        return command_failed(&err);
    ftx_model_info(m->model, &m->info);
    m->options = *options;
    snprintf(m->name, sizeof m->name, "%s", name ? name : m->info.name);
    message_marks(m);
    if (s->tools != TOOLS_NONE)
        m->tools = s->tools;
    open_grammars(s, m);
    if (!served_start(m, limits, &err)) {
        grammar_close(m->vocabulary);
        ftx_model_close(m->model);
        return command_failed(&err);
    }
    s->n_models++;
    for (size_t i = 0; i + 1 < s->n_models; i++)
        if (strcmp(s->models[i].name, m->name) == 0)
            return command_mistake("serve", "two models are called %s: give names with --name", m->name);
    command_print("%s: %s: %s on %s, %d sequences, context %d\n", command_program, file, m->name, m->info.device,
                  m->info.sequences, m->info.context);
    return EXIT_DONE;
}

/* The socket that systemd has opened (sd_listen_fds(3)); -1: none. */
static int socket_given(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");

    return pid && n && atoi(pid) == (int)getpid() && atoi(n) == 1 ? FIRST_FILE : -1;
}

/* Each connection is an open file. */
static void allow_files(int connections)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < (rlim_t)connections + 64) {
        r.rlim_cur = r.rlim_max < (rlim_t)connections + 64 ? r.rlim_max : (rlim_t)connections + 64;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int listen_and_serve(Server *s, const Options *o)
{
    HttpOptions h = {.host = o->host,
                     .port = o->port,
                     .listen = socket_given(),
                     .max_body = o->max_body,
                     .connections = o->connections,
                     .per_address = o->per_address,
                     .head_seconds = 10,
                     .body_seconds = 30,
                     .idle_seconds = 60,
                     .write_seconds = 30,
                     .ping_seconds = o->ping,
                     .slow_bytes = 256 << 10,
                     .admit = admit,
                     .handle = handle,
                     .ended = tell,
                     .stop = stop,
                     .refuse = refuse,
                     .user = s};
    char error[300] = "";

    if (o->cors) {
        snprintf(s->header, sizeof s->header, "Access-Control-Allow-Origin: %.200s\r\n", o->cors);
        h.header = s->header;
    }
    allow_files(o->connections);
    s->http = http_open(&h, error, sizeof error);
    if (!s->http) {
        command_say(error);
        return EXIT_FAILED;
    }
    if (!s->n_keys && strcmp(o->host, "127.0.0.1") != 0 && strcmp(o->host, "::1") != 0)
        command_print("%s: note: without --api-key-file everybody who reaches %s may use the models\n", command_program,
                      o->host);
    command_print("%s: listening on http://%s%s%s:%d\n", command_program, strchr(o->host, ':') ? "[" : "", o->host,
                  strchr(o->host, ':') ? "]" : "", http_port(s->http));
    return EXIT_DONE;
}

static int check_options(const Options *o, const TextList *files)
{
    const struct {
        const char *name;
        int value, low, high;
    } ranges[] = {
        {"--port", o->port, 0, 65535},
        {"--connections", o->connections, 1, 1 << 20},
        {"--per-address", o->per_address, 1, 1 << 20},
        {"--queue", o->queue, 0, 1 << 20},
        {"--queue-seconds", o->queue_seconds, 1, 86400},
        {"--step-ms", o->step_ms, 0, 60000},
        {"--ping", o->ping, 1, 86400},
        {"--drain", o->drain, 0, 86400},
        {"--workers", o->workers, 1, 64},
    };

    for (size_t i = 0; i < LEN(ranges); i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return command_mistake("serve", "%s: expected %d to %d, found %d", ranges[i].name, ranges[i].low,
                                   ranges[i].high, ranges[i].value);
    if (!files->n)
        return command_mistake("serve", "no artifact is given");
    if (o->names.n > files->n)
        return command_mistake("serve", "--name: more names than models");
    if (o->cors && strpbrk(o->cors, "\r\n"))
        return command_mistake("serve", "--cors: expected an origin, as https://example.org");
    return EXIT_DONE;
}

static bool parse_style(const char *word, ToolStyle *style)
{
    static const char *const words[] = {"hermes", "llama", "mistral"}; /* ToolStyle, from 1 on */

    for (size_t i = 0; word && i < LEN(words); i++)
        if (strcmp(word, words[i]) == 0)
            *style = (ToolStyle)(i + 1);
    return !word || *style != TOOLS_NONE;
}

static int run_server(Server *s, const Options *o, const TextList *files)
{
    const QueueLimits limits = {.requests = o->queue, .tokens = o->queue_tokens, .seconds = o->queue_seconds};
    FtxOptions options;
    char error[300];
    int code;

    if (!device_parse(o->device, o->threads, o->random_weights, &o->weights, &options, error, sizeof error))
        return command_mistake("serve", "%s", error);
    options.kv_bytes = o->kv_memory;
    options.prefix_cache = !o->no_prefix_cache;
    options.overcommit = !o->no_overcommit;
    options.swap_bytes = o->swap_memory;
    options.step_ms = (size_t)o->step_ms;
    if (command_rank(files->at[0], &options, &code))
        return code;
    if (o->key_file && !read_keys(s, o->key_file))
        return EXIT_FAILED;
    if (o->grammar_lib && !(s->grammars = grammar_load(o->grammar_lib, error, sizeof error))) {
        command_say(error);
        return EXIT_FAILED;
    }
    s->models = command_must(calloc(files->n, sizeof *s->models));
    code = listen_and_serve(s, o);
    for (size_t i = 0; !code && i < files->n; i++)
        code = open_model(s, files->at[i], i < o->names.n ? o->names.at[i] : NULL, &options, &limits);
    s->workers = code ? NULL : workers_open(o->workers);
    if (!code && !s->workers) {
        command_say("no thread can be started");
        code = EXIT_INTERNAL;
    }
    if (!code && !http_listen(s->http, error, sizeof error)) {
        command_say(error);
        code = EXIT_FAILED;
    }
    if (!code) {
        notify(s, "READY=1");
        if (!o->no_seccomp && !seccomp_begin(error, sizeof error))
            command_print("%s: note: %s\n", command_program, error);
        command_print("%s: ready\n", command_program);
        http_run(s->http);
    }
    return code;
}

int serve(int argc, char **argv)
{
    Options o = {.host = "127.0.0.1",
                 .port = 8000,
                 .workers = 2,
                 .connections = 1024,
                 .per_address = 1024,
                 .queue_seconds = 60,
                 .step_ms = 25,
                 .ping = 10,
                 .drain = DRAIN_SECONDS,
                 .max_body = 8 << 20,
                 .queue_tokens = 1 << 20};
    Server s = {.started = time(NULL), .notify = -1};
    TextList files = {0};
    char error[300];
    int code;

    if (!options_parse(table, LEN(table), argc, argv, &o, &files, error, sizeof error))
        return command_mistake("serve", "%s", error);
    if (o.help) {
        help();
        return EXIT_DONE;
    }
    code = check_options(&o, &files);
    if (code)
        return code;
    if (!parse_style(o.tools, &s.tools))
        return command_mistake("serve", "--tools: expected hermes, llama or mistral, found \"%s\"", o.tools);
    s.quiet = o.quiet;
    s.cors = o.cors;
    s.keep_reasoning = o.keep_reasoning;
    s.client_priority = o.client_priority;
    s.drain_seconds = o.drain;
    code = run_server(&s, &o, &files);
    if (s.workers)
        workers_close(s.workers);
    for (size_t i = 0; i < s.n_models; i++)
        served_stop(&s.models[i]); /* before http_close: engines write answers */
    for (size_t i = 0; i < s.n_models; i++)
        grammar_close(s.models[i].vocabulary);
    if (s.http)
        http_close(s.http);
    if (s.notify >= 0)
        close(s.notify);
    for (size_t i = 0; i < s.n_keys; i++)
        free(s.keys[i]);
    free(s.keys);
    free(s.models);
    return code;
}
