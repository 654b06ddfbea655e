/* load.c - `ftxc load`: requests to a server at times of their own, and how long their answers took.
 *
 * Open loop: when a request is sent does not depend on the answers to others, so a server that falls behind is seen to
 * (arrivals of a Poisson process; lengths log-normal, as in ShareGPT). Times count from the planned moment, not from the
 * moment at which the connection was made. Prompts are token ids, so that their lengths are exact. */
#include "load.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "head.h"
#include "text.h"
#include "../runner/command.h"
#include "../runner/options.h"
#include "../runtime/base/arena.h"

typedef struct Options {
    bool help;
    const char *host, *model, *key, *out;
    int port, requests, turns, input, output, vocab, most, prefix, groups, ttft_ms, tpot_ms;
    double rate, spread, cancel, timeout;
    uint64_t seed;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--host", 0, OPT_TEXT, "ADDRESS", "of the server (default 127.0.0.1)", AT(host), 0},
    {"--port", 'p', OPT_INT, "N", "its port (default 8000)", AT(port), 0},
    {"--model", 0, OPT_TEXT, "NAME", "the model's name (default: the server's first)", AT(model), 0},
    {"--api-key", 0, OPT_TEXT, "KEY", "sent with each request", AT(key), 0},
    {"--requests", 'n', OPT_INT, "N", "how many (default 100)", AT(requests), 0},
    {"--turns", 0, OPT_INT, "N",
     "each request begins a conversation of N turns: when an answer has ended, a prompt of all that was said and\n"
     "--input more tokens follows (default 1)",
     AT(turns), 0},
    {"--rate", 'r', OPT_NUMBER, "X", "requests a second, on average; 0: all at once (default 0)", AT(rate), 0},
    {"--input", 0, OPT_INT, "N", "tokens of a prompt, on average (default 230)", AT(input), 0},
    {"--output", 0, OPT_INT, "N", "tokens of an answer, on average (default 200)", AT(output), 0},
    {"--spread", 0, OPT_NUMBER, "X",
     "standard deviation of the logarithm of lengths; 0: all as long (default 0.8, as in ShareGPT)", AT(spread), 0},
    {"--most", 0, OPT_INT, "N", "most tokens of a prompt, and of an answer (default 1024)", AT(most), 0},
    {"--vocab", 0, OPT_INT, "N", "ids are drawn from 10 to N - 1 (default 1000)", AT(vocab), 0},
    {"--prefix", 0, OPT_INT, "N",
     "prompts of a group begin with the same N tokens, which are part of --input; those of a conversation's first "
     "turn\n"
     "come before it (default 0)",
     AT(prefix), 0},
    {"--groups", 0, OPT_INT, "N", "number of groups (default 1)", AT(groups), 0},
    {"--cancel", 0, OPT_NUMBER, "P", "share of the clients that leave in the middle of their answer (default 0)",
     AT(cancel), 0},
    {"--ttft", 0, OPT_INT, "MS", "goodput counts answers whose first token came in this time (default 500)",
     AT(ttft_ms), 0},
    {"--tpot", 0, OPT_INT, "MS", "and whose other tokens took this, on average (default 30)", AT(tpot_ms), 0},
    {"--timeout", 0, OPT_NUMBER, "SECONDS", "give up that long after the last request was sent (default 600)",
     AT(timeout), 0},
    {"--seed", 's', OPT_SEED, "N", "of times, lengths and prompts (default 1)", AT(seed), 0},
    {"--out", 'o', OPT_TEXT, "FILE.json", "every time of every request", AT(out), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

typedef struct Request {
    double planned, first, last; /* seconds from the start */
    int input, output, group;
    int *ids;    /* [input]: the prompt, of a later turn with all that was said before */
    int *answer; /* [output]: ids that came, if a turn follows */
    size_t n_answer;
    size_t cached; /* tokens of the prompt that the server knew */
    size_t leave;  /* after so many pieces; 0: stays */
    int fd;        /* -1: not sent, or done */
    int status;    /* HTTP's; 0: none came */
    int error;     /* errno of the connection; 0: the server closed it, if it did not answer */
    bool done, chunked, whole;
    Chunks chunks;
    Text send, in, body;
    size_t tokens; /* as the server counts them; else pieces */
    double *times; /* [n_times]: of pieces */
    size_t n_times, room;
} Request;

typedef struct Load {
    const Options *o;
    Request *requests; /* [n]: the turns of a conversation one after another */
    int n;
    struct sockaddr_storage address;
    socklen_t address_bytes;
    int family, epoll;
    double start;
    uint64_t random;
} Load;

/* --- what is asked ------------------------------------------------------------------------------------------ */

/* In [0, 1): xorshift64*, Vigna 2016. */
static double draw(Load *l)
{
    l->random ^= l->random >> 12;
    l->random ^= l->random << 25;
    l->random ^= l->random >> 27;
    return (double)((l->random * 2685821657736338717u) >> 11) * 0x1p-53;
}

/* A log-normal number with this mean. */
static int draw_length(Load *l, int mean)
{
    const double s = l->o->spread, normal = sqrt(-2.0 * log(1.0 - draw(l))) * cos(6.283185307179586 * draw(l));
    const double x = exp(log((double)mean) - s * s / 2.0 + s * normal);

    return x < 1.0 ? 1 : x > l->o->most ? l->o->most : (int)(x + 0.5);
}

/* Later turns begin when the one before has ended. */
static void plan(Load *l)
{
    double at = 0.0;

    for (int i = 0; i < l->n; i++) {
        Request *r = &l->requests[i];

        r->fd = -1;
        if (l->o->rate > 0.0 && i % l->o->turns == 0)
            at -= log(1.0 - draw(l)) / l->o->rate;
        r->planned = at;
        r->input = draw_length(l, l->o->input);
        r->output = draw_length(l, l->o->output);
        r->group = (int)(draw(l) * l->o->groups);
        r->leave = draw(l) < l->o->cancel ? 1 + (size_t)(draw(l) * r->output) : 0;
    }
}

/* before: the turn before, or NULL. */
static void make_prompt(Load *l, Request *r, const Request *before)
{
    const int said = before ? before->input : 0, known = said + (before ? (int)before->n_answer : 0);
    Load group = {.o = l->o, .random = 0x9e3779b97f4a7c15u * (uint64_t)(r->group + 1)};

    r->input += known + (l->o->turns > 1 && !before ? l->o->prefix : 0);
    r->ids = command_must(malloc((size_t)r->input * sizeof *r->ids));
    for (int i = 0; i < r->input; i++)
        r->ids[i] = i < said    ? before->ids[i]
                    : i < known ? before->answer[i - said]
                                : 10 + (int)(draw(i < l->o->prefix ? &group : l) * (l->o->vocab - 10));
}

static void print_request(const Load *l, Request *r)
{
    const Options *o = l->o;
    Text body = {0};

    text_put(&body, "{\"prompt\":[");
    for (int i = 0; i < r->input; i++)
        text_printf(&body, "%s%d", i ? "," : "", r->ids[i]);
    text_printf(&body,
                "],\"max_tokens\":%d,\"ignore_eos\":true,\"temperature\":0,\"stream\":true,\"return_token_ids\":true,"
                "\"stream_options\":{\"include_usage\":true}",
                r->output);
    if (o->model) {
        text_put(&body, ",\"model\":");
        text_json(&body, o->model, strlen(o->model));
    }
    text_put(&body, "}");
    text_printf(&r->send,
                "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
                "Content-Length: %zu\r\n",
                o->host, body.n);
    if (o->key)
        text_printf(&r->send, "Authorization: Bearer %s\r\n", o->key);
    text_put(&r->send, "\r\n");
    text_add(&r->send, body.at, body.n);
    text_free(&body);
}

/* --- answers ------------------------------------------------------------------------------------------------ */

static void end_request(Request *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    r->done = true;
    text_free(&r->send);
    text_free(&r->in);
    text_free(&r->body);
}

/* The turns behind i are not asked: they would lack an answer. */
static void skip_turns(const Load *l, int i)
{
    while (++i % l->o->turns)
        end_request(&l->requests[i]);
}

static void begin_request(Load *l, int i)
{
    Request *r = &l->requests[i];
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.u32 = (uint32_t)i};
    const int on = 1;

    make_prompt(l, r, i % l->o->turns ? r - 1 : NULL);
    if ((i + 1) % l->o->turns)
        r->answer = command_must(malloc((size_t)r->output * sizeof *r->answer));
    print_request(l, r);
    r->fd = socket(l->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (r->fd < 0 || (connect(r->fd, (struct sockaddr *)&l->address, l->address_bytes) && errno != EINPROGRESS) ||
        setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) || epoll_ctl(l->epoll, EPOLL_CTL_ADD, r->fd, &e)) {
        r->error = errno;
        end_request(r);
        skip_turns(l, i);
    }
}

static void end_turn(Load *l, int i, double now)
{
    end_request(&l->requests[i]);
    if (!l->requests[i].whole) {
        skip_turns(l, i);
    } else if ((i + 1) % l->o->turns) {
        l->requests[i + 1].planned = now;
        begin_request(l, i + 1);
    }
}

/* A model without a tokenizer writes ids and no text; servers without return_token_ids write text. */
static bool has_token(const char *event)
{
    return strncmp(event, "data: ", 6) == 0 && (strstr(event, "\"token_ids\":[") || !strstr(event, "\"text\":\"\""));
}

/* For the prompt of the next turn. */
static void keep_ids(Request *r, const char *event)
{
    const char *at = strstr(event, "\"token_ids\":[");
    char *end;

    for (at = at ? strchr(at, '[') : NULL; at && *at != ']' && r->n_answer < (size_t)r->output; at = end) {
        r->answer[r->n_answer] = (int)strtol(at + 1, &end, 10);
        if (end == at + 1)
            return;
        r->n_answer++;
    }
}

/* One event of the stream, terminated. False: the client leaves. */
static bool take_event(Request *r, const char *event, double now)
{
    const char *usage = strstr(event, "\"completion_tokens\":"), *cached = strstr(event, "\"cached_tokens\":");

    if (strstr(event, "[DONE]")) {
        r->whole = true;
    } else if (usage) {
        r->tokens = strtoull(usage + strlen("\"completion_tokens\":"), NULL, 10);
        r->cached = cached ? strtoull(cached + strlen("\"cached_tokens\":"), NULL, 10) : 0;
    } else if (has_token(event)) {
        if (r->n_times == r->room) {
            r->room = r->room * 2 + 64;
            r->times = command_must(realloc(r->times, r->room * sizeof *r->times));
        }
        r->first = r->n_times ? r->first : now;
        r->last = now;
        r->times[r->n_times++] = now;
        if (r->answer)
            keep_ids(r, event);
        return !r->leave || r->n_times < r->leave;
    }
    return true;
}

/* What has arrived. False: the request is over. */
static bool take_bytes(Request *r, double now)
{
    size_t data = r->in.n, used = r->in.n;
    char *end;

    if (!r->status) {
        end = r->in.n ? strstr(r->in.at, "\r\n\r\n") : NULL;
        if (!end)
            return true;
        r->status = r->in.n > 12 ? atoi(r->in.at + 9) : 1;
        *end = '\0';
        r->chunked = strcasestr(r->in.at, "transfer-encoding: chunked") != NULL;
        text_drop(&r->in, (size_t)(end + 4 - r->in.at));
        data = used = r->in.n;
    }
    if (r->chunked && r->in.n && !chunks_read(&r->chunks, r->in.at, r->in.n, SIZE_MAX, &data, &used))
        return false;
    text_add(&r->body, r->in.at, data);
    text_drop(&r->in, used);
    while (r->body.n && (end = strstr(r->body.at, "\n\n"))) {
        *end = '\0';
        if (!take_event(r, r->body.at, now))
            return false;
        text_drop(&r->body, (size_t)(end + 2 - r->body.at));
    }
    return !(r->chunked && r->chunks.state == CHUNK_DONE);
}

static void serve_request(Load *l, int i, uint32_t events)
{
    Request *r = &l->requests[i];
    char buffer[16 << 10];
    ssize_t n;

    if (r->done)
        return;
    if (events & EPOLLOUT && r->send.n) {
        n = send(r->fd, r->send.at, r->send.n, MSG_NOSIGNAL);
        if (n > 0)
            text_drop(&r->send, (size_t)n);
        if (n < 0)
            r->error = errno;
        if (!r->send.n) {
            struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};

            epoll_ctl(l->epoll, EPOLL_CTL_MOD, r->fd, &e);
        }
    }
    if (!(events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
        return;
    n = recv(r->fd, buffer, sizeof buffer, 0);
    if (n > 0)
        text_add(&r->in, buffer, (size_t)n);
    if (n < 0 && !r->error)
        r->error = errno;
    const double now = command_seconds() - l->start;

    if ((n < 0 && errno != EAGAIN && errno != EINTR) || n == 0 || (n > 0 && !take_bytes(r, now)))
        end_turn(l, i, now);
}

static void run_load(Load *l)
{
    struct epoll_event events[256];
    const int n = l->n, turns = l->o->turns;
    int sent = 0, done = 0;

    l->start = command_seconds();
    while (done < n && !command_stopped) {
        double now = command_seconds() - l->start;
        int k;

        for (; sent < n && l->requests[sent].planned <= now; sent += turns)
            begin_request(l, sent);
        if (sent == n && now > l->requests[n - turns].planned + l->o->timeout)
            break;
        k = sent < n ? (int)((l->requests[sent].planned - now) * 1e3) : 100;
        k = epoll_wait(l->epoll, events, LEN(events), k < 0 ? 0 : k);
        for (int i = 0; i < k; i++)
            serve_request(l, (int)events[i].data.u32, events[i].events);
        for (done = 0; done < n && l->requests[done].done;)
            done++;
    }
}

/* --- results ------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_row(const char *name, double *x, size_t n)
{
    double sum = 0.0;

    qsort(x, n, sizeof *x, by_size);
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    if (n)
        printf("%-6s %10.2f %10.2f %10.2f %10.2f  ms\n", name, sum / (double)n * 1e3, x[n / 2] * 1e3,
               x[(size_t)((double)(n - 1) * 0.99)] * 1e3, x[n - 1] * 1e3);
}

static bool is_whole(const Request *r)
{
    return r->status == 200 && r->whole && r->n_times;
}

static double time_per_token(const Request *r)
{
    return r->tokens > 1 ? (r->last - r->first) / (double)(r->tokens - 1) : 0.0;
}

/* Why the first of the requests without an answer has none. */
static void print_reason(const Load *l)
{
    for (int i = 0; i < l->n; i++) {
        const Request *r = &l->requests[i];

        if (is_whole(r) || (r->leave && r->n_times == r->leave))
            continue;
        if (r->status)
            command_print("ftxc load: request %d: HTTP status %d%s\n", i, r->status,
                          r->status == 200 ? ", and the stream was cut" : "");
        else
            command_print("ftxc load: request %d: %s\n", i,
                          r->error ? strerror(r->error) : "the server closed the connection, or answered too late");
        return;
    }
}

static int print_results(const Load *l)
{
    const int n = l->n;
    double *first = command_must(calloc((size_t)n + 1, sizeof *first)), *each, *gaps, end = 0.0;
    size_t whole = 0, good = 0, left = 0, tokens = 0, input = 0, cached = 0, n_gaps = 0, most = 0;

    each = command_must(calloc((size_t)n + 1, sizeof *each));
    for (int i = 0; i < n; i++)
        most += l->requests[i].n_times;
    gaps = command_must(calloc(most + 1, sizeof *gaps));
    for (int i = 0; i < n; i++) {
        const Request *r = &l->requests[i];

        tokens += r->whole && r->tokens ? r->tokens : r->n_times;
        end = fmax(end, r->last);
        left += r->leave && r->n_times == r->leave;
        for (size_t k = 1; k < r->n_times; k++)
            gaps[n_gaps++] = r->times[k] - r->times[k - 1];
        if (!is_whole(r))
            continue;
        input += (size_t)r->input;
        cached += r->cached;
        first[whole] = r->first - r->planned;
        each[whole++] = time_per_token(r);
        good += (r->first - r->planned) * 1e3 <= l->o->ttft_ms && time_per_token(r) * 1e3 <= l->o->tpot_ms;
    }
    printf("%zu of %d answered, %zu left early, %zu failed; %.2f s\n", whole, n, left, (size_t)n - whole - left, end);
    if (end > 0.0)
        printf("%.2f requests/s, goodput %.2f requests/s, %.1f tokens/s read, %.1f tokens/s written\n",
               (double)whole / end, (double)good / end, (double)input / end, (double)tokens / end);
    if (cached)
        printf("%.1f %% of the prompts' tokens were in the prefix cache\n", 100.0 * (double)cached / (double)input);
    printf("%-6s %10s %10s %10s %10s\n", "", "mean", "p50", "p99", "most");
    print_row("TTFT", first, whole);
    print_row("TPOT", each, whole);
    print_row("ITL", gaps, n_gaps);
    free(first);
    free(each);
    free(gaps);
    print_reason(l);
    return whole + left == (size_t)n ? EXIT_DONE : EXIT_FAILED;
}

static int write_times(const Load *l)
{
    FILE *f = fopen(l->o->out, "w");
    bool failed = !f;

    for (int i = 0; f && i < l->n; i++) {
        const Request *r = &l->requests[i];

        fprintf(f,
                "%s{\"planned\":%.6f,\"turn\":%d,\"status\":%d,\"whole\":%s,\"input\":%d,\"cached\":%zu,"
                "\"output\":%d,\"tokens\":%zu,\"times\":[",
                i ? ",\n" : "[", r->planned, i % l->o->turns, r->status, is_whole(r) ? "true" : "false", r->input,
                r->cached, r->output, r->tokens);
        for (size_t k = 0; k < r->n_times; k++)
            fprintf(f, "%s%.6f", k ? "," : "", r->times[k]);
        fprintf(f, "]}");
    }
    if (f) {
        fprintf(f, "]\n");
        failed = ferror(f) != 0;
        failed = fclose(f) != 0 || failed;
    }
    if (failed)
        command_print("%s: %s cannot be written: %s\n", command_program, l->o->out, strerror(errno));
    return failed ? EXIT_FAILED : EXIT_DONE;
}

/* --- the command -------------------------------------------------------------------------------------------- */

static void help(void)
{
    printf("ftxc load [options]\n\n"
           "Sends requests to a server of OpenAI's interface (`ftxc serve`, vLLM ...) at times of their own, whether\n"
           "others are answered or not, and prints how long the answers took: the time to the first token (TTFT), the\n"
           "mean time of the others of a request (TPOT), and from each piece of a stream to the next (ITL).\n\n");
    options_help(table, LEN(table));
    printf("\nExamples:\n  ftxc load --port 8000 --requests 20 --rate 4 --input 40 --output 20 --timeout 60\n"
           "  ftxc load --port 8000 --requests 4 --turns 3 --input 20 --output 9 --spread 0\n"
           "  ftxc load --port 8000 --requests 20 --input 100 --prefix 80 --groups 2 --output 5 --out times.json\n");
    command_help_exit();
}

static int find_address(Load *l)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char number[8];
    int s;

    snprintf(number, sizeof number, "%d", l->o->port);
    s = getaddrinfo(l->o->host, number, &hints, &list);
    if (s)
        return command_mistake("load", "--host: %.100s: %s", l->o->host, gai_strerror(s));
    memcpy(&l->address, list->ai_addr, list->ai_addrlen);
    l->address_bytes = list->ai_addrlen;
    l->family = list->ai_family;
    freeaddrinfo(list);
    return EXIT_DONE;
}

static int check_options(const Options *o, const TextList *rest)
{
    const struct {
        const char *name;
        int value, low, high;
    } ranges[] = {
        {"--port", o->port, 1, 65535},       {"--requests", o->requests, 1, 1000000},
        {"--turns", o->turns, 1, 1000},      {"--input", o->input, 1, 1 << 20},
        {"--output", o->output, 1, 1 << 20}, {"--vocab", o->vocab, 11, 1 << 24},
        {"--most", o->most, 1, 1 << 20},     {"--prefix", o->prefix, 0, 1 << 20},
        {"--groups", o->groups, 1, 1 << 20}, {"--ttft", o->ttft_ms, 0, 1 << 24},
        {"--tpot", o->tpot_ms, 0, 1 << 24},
    };

    for (size_t i = 0; i < LEN(ranges); i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return command_mistake("load", "%s: expected %d to %d, found %d", ranges[i].name, ranges[i].low,
                                   ranges[i].high, ranges[i].value);
    if (!(o->rate >= 0.0) || !(o->spread >= 0.0 && o->spread <= 3.0) || !(o->cancel >= 0.0 && o->cancel <= 1.0))
        return command_mistake("load", "--rate, --spread (to 3) and --cancel (to 1) are at least 0");
    if (o->turns > 1 && o->cancel > 0.0)
        return command_mistake("load", "--turns: who leaves has no next turn; not with --cancel");
    if (rest->n)
        return command_mistake("load", "unexpected argument \"%.100s\"", rest->at[0]);
    return EXIT_DONE;
}

int load(int argc, char **argv)
{
    Options o = {.host = "127.0.0.1",
                 .port = 8000,
                 .requests = 100,
                 .turns = 1,
                 .input = 230,
                 .output = 200,
                 .spread = 0.8,
                 .most = 1024,
                 .vocab = 1000,
                 .groups = 1,
                 .ttft_ms = 500,
                 .tpot_ms = 30,
                 .timeout = 600.0,
                 .seed = 1};
    Load l = {.o = &o};
    TextList rest = {0};
    char error[300];
    int code;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("load", "%s", error);
    if (o.help) {
        help();
        return EXIT_DONE;
    }
    code = check_options(&o, &rest);
    if (!code)
        code = find_address(&l);
    if (code)
        return code;
    l.random = o.seed * 0x9e3779b97f4a7c15u | 1;
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.n = o.requests * o.turns;
    l.requests = command_must(calloc((size_t)l.n, sizeof *l.requests));
    command_catch_signals();
    plan(&l);
    run_load(&l);
    code = print_results(&l);
    if (o.out && write_times(&l))
        code = EXIT_FAILED;
    for (int i = 0; i < l.n; i++) {
        end_request(&l.requests[i]);
        free(l.requests[i].times);
        free(l.requests[i].ids);
        free(l.requests[i].answer);
    }
    free(l.requests);
    close(l.epoll);
    return command_stopped ? EXIT_INTERRUPTED : code;
}
