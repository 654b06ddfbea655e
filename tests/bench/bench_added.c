/* bench_added.c - what `ftxc serve` adds to TTFT and TPOT: each request goes to a server and to an engine in this process, in turn.
 * No test; it asserts nothing.
 *
 *     ftxc serve FILE.ftx --port PORT --threads N --random-weights 1 --no-prefix-cache --quiet
 *     bench_added FILE.ftx PORT [PAIRS] [THREADS] [TOKENS] [PERIOD_MS]        default: 100 pairs, 1 thread, 64 tokens, 1,000 ms
 *
 * Every period one request begins: a text, greedy, streamed. To the server it goes over a connection of its own, and its time begins
 * before that is made. The engine's begins before its text is submitted, in a thread that has slept as long as the server's. Printed
 * are medians of both, and the median of the differences of pairs, which other programs on the machine change less. The server's
 * engine thread wakes another one for each token, so the last line says what that takes: a write to an eventfd on which a thread
 * sleeps. On a GPU this comes while the next step runs. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/ftx.h"

enum { MOST_EVENTS = 4096, MOST_PAIRS = 100000 };

typedef struct Times {
    double ttft, tpot; /* us */
} Times;

static FtxEvent events[MOST_EVENTS] = {FTX_EVENT_INIT};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void sleep_until(double us)
{
    const struct timespec t = {.tv_sec = (time_t)(us * 1e-6),
                               .tv_nsec = (long)(us - 1e6 * (double)(time_t)(us * 1e-6)) * 1000};

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "bench_added: %s\n", what);
    exit(1);
}

static Times times_of(double start, double first, double last, int tokens, int asked)
{
    must(tokens == asked, "a text has fewer tokens than were asked for");
    return (Times){.ttft = first - start, .tpot = tokens > 1 ? (last - first) / (tokens - 1) : 0.0};
}

static Times ask_engine(FtxEngine *e, const FtxModel *model, const char *text, int tokens)
{
    FtxRequest q = ftx_request_default(model);
    const double start = now_us();
    double first = 0.0, last = 0.0;
    FtxError err;
    int got = 0;

    q.text = text;
    q.max_new = tokens;
    q.temperature = 0.0f;
    q.ignore_eos = true;
    must(ftx_engine_submit(e, &q, NULL, &err) == FTX_OK, err.text);
    while (ftx_engine_busy(e)) {
        size_t n;

        must(ftx_engine_step(e, events, MOST_EVENTS, &n, &err) == FTX_OK, err.text);
        for (size_t i = 0; i < n; i++)
            if (events[i].token >= 0) {
                last = now_us();
                first = got++ ? first : last;
            }
    }
    return times_of(start, first, last, got, tokens);
}

/* Each token is an event with its id. No event is cut in two by a chunk. */
static Times ask_server(int port, const char *text, int tokens)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const double start = now_us();
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    char body[2000], head[2300], in[1 << 20];
    double first = 0.0, last = 0.0;
    size_t n = 0, seen = 0;
    int got = 0;

    must(fd >= 0 && !connect(fd, (const struct sockaddr *)&at, sizeof at), "no server listens at the port");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    snprintf(body, sizeof body,
             "{\"prompt\":\"%s\",\"max_tokens\":%d,\"ignore_eos\":true,\"temperature\":0,\"stream\":true,"
             "\"return_token_ids\":true}",
             text, tokens);
    snprintf(
        head, sizeof head,
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(body), body);
    must(send(fd, head, strlen(head), MSG_NOSIGNAL) == (ssize_t)strlen(head), "the request could not be sent");
    while (!strstr(in + (seen > 10 ? seen - 10 : 0), "[DONE]")) {
        const ssize_t k = recv(fd, in + n, sizeof in - n - 1, 0);
        const double now = now_us();

        must(k > 0, "the server closed the connection");
        n += (size_t)k;
        in[n] = '\0';
        for (const char *p = in + seen; (p = strstr(p, "\"token_ids\":[")); p++) {
            seen = (size_t)(p + 1 - in);
            last = now;
            first = got++ ? first : last;
        }
        must(n + 1 < sizeof in, "the answer is too long");
    }
    close(fd);
    return times_of(start, first, last, got, tokens);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

static double numbers[MOST_PAIRS];

/* which: offset of a time in Times. */
static void print_row(const char *name, const Times *server, const Times *engine, int n, size_t which)
{
    const Times *from[] = {server, engine};
    double middle[2], least[2], added;

    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < n; i++)
            numbers[i] = *(const double *)((const char *)&from[k][i] + which);
        middle[k] = median(numbers, n);
        least[k] = numbers[0];
    }
    for (int i = 0; i < n; i++)
        numbers[i] =
            *(const double *)((const char *)&server[i] + which) - *(const double *)((const char *)&engine[i] + which);
    added = median(numbers, n);
    printf("%-5s server %.1f, engine %.1f, added %.1f us (quarters of the pairs %.1f to %.1f); least %.1f and %.1f\n",
           name, middle[0], middle[1], added, numbers[n / 4], numbers[3 * n / 4], least[0], least[1]);
}

/* --- a wake-up ------------------------------------------------------------------------------------------------ */

enum { WAKES = 300, LAST_WAKE = 2 };

static void *sleep_on(void *user)
{
    const int fd = *(const int *)user;
    uint64_t count = 0;

    while (count != LAST_WAKE && read(fd, &count, sizeof count) == (ssize_t)sizeof count)
        ;
    return NULL;
}

static void print_wake(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    pthread_t thread;
    double at = now_us();

    must(fd >= 0 && !pthread_create(&thread, NULL, sleep_on, &fd), "no thread");
    for (int i = 0; i < WAKES; i++) {
        const uint64_t count = i + 1 < WAKES ? 1 : LAST_WAKE;
        double from;

        sleep_until(at += 1e3);
        from = now_us();
        must(write(fd, &count, sizeof count) == (ssize_t)sizeof count, "eventfd");
        numbers[i] = now_us() - from;
    }
    pthread_join(thread, NULL);
    close(fd);
    printf("wake  %.1f us\n", median(numbers, WAKES));
}

int main(int argc, char **argv)
{
    const int pairs = argc > 3 ? atoi(argv[3]) : 100, threads = argc > 4 ? atoi(argv[4]) : 1;
    const int tokens = argc > 5 ? atoi(argv[5]) : 64;
    const double period = (argc > 6 ? atof(argv[6]) : 1000.0) * 1e3;
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxModel *model = NULL;
    FtxEngine *engine = NULL;
    FtxError err;
    double at;

    if (argc < 3 || pairs < 1 || pairs > MOST_PAIRS || tokens < 2) {
        fprintf(stderr, "usage: bench_added FILE.ftx PORT [PAIRS] [THREADS] [TOKENS] [PERIOD_MS]\n");
        return 2;
    }
    options.threads = threads;
    options.overcommit = 1;
    options.step_ms = 25;
    options.random_weights = 1; /* also of artifacts without weights */
    must(ftx_model_open(argv[1], &options, &model, &err) == FTX_OK &&
             ftx_engine_open(model, &options, &engine, &err) == FTX_OK,
         err.text);

    Times *server = calloc((size_t)pairs, sizeof *server), *bare = calloc((size_t)pairs, sizeof *bare);

    must(server && bare, "no memory");
    ask_server(atoi(argv[2]), "The first", 8);
    ask_engine(engine, model, "The first", 8);
    at = now_us();
    for (int i = 0; i < pairs; i++) {
        char text[300];

        snprintf(text, sizeof text,
                 "Story %d. Once upon a time there was a small girl who lived with her mother in a house near the "
                 "forest. One "
                 "day she found a red ball under the big tree and took it home. Her friend",
                 i);
        for (int k = 0; k < 2; k++) { /* the order changes from pair to pair */
            sleep_until(at += period);
            if ((k + i) % 2)
                bare[i] = ask_engine(engine, model, text, tokens);
            else
                server[i] = ask_server(atoi(argv[2]), text, tokens);
        }
    }
    print_row("TTFT", server, bare, pairs, offsetof(Times, ttft));
    print_row("TPOT", server, bare, pairs, offsetof(Times, tpot));
    print_wake();
    ftx_engine_close(engine);
    ftx_model_close(model);
    free(server);
    free(bare);
    return 0;
}
