/* test_meeting.c - processes that are ranks meet (runtime/device/group/meeting.c): names that are known late, ranks that come late, die,
 * or are others than was expected, no descriptors. The clock can be put forward, so that nobody waits for a limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/device/group/link.h"

enum { ARTIFACT = 7, OTHER_ARTIFACT = 8, PAST_ALL_LIMITS_S = 200 };

/* --- calls of the system that do what a case asks for; each process has its own --------------------------------- */

static struct {
    int ahead_s;              /* the clock is ahead by this */
    int ahead_at_hello_s;     /* it goes ahead by this when a hello has been read, once */
    int ahead_at_each_part_s; /* when a hello is sent, or a welcome comes */
    int ahead_at_name_s;      /* when a name is asked for, once */
    int names_asked;
    const int *name_fails; /* what getaddrinfo answers for "rank-0.test", to its 0; then it is 127.0.0.1 */
    const int *accept_fails;
    int accepts_failed, accepts_without_rest;
    bool rested; /* since the last accept that failed there was a poll without the listener */
    int connects_to_itself, told_by_connect;
} world;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    const int failed = __real_clock_gettime(id, t);

    t->tv_sec += world.ahead_s;
    return failed;
}

ssize_t __real_recv(int fd, void *p, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t bytes, int flags)
{
    const ssize_t n = __real_recv(fd, p, bytes, flags);

    if (n > 0 && flags == MSG_DONTWAIT) {
        world.ahead_s += world.ahead_at_hello_s;
        world.ahead_at_hello_s = 0;
    }
    if (n > 0 && (size_t)n == bytes && flags == 0)
        world.ahead_s += world.ahead_at_each_part_s;
    return n;
}

ssize_t __real_send(int fd, const void *p, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t bytes, int flags)
{
    const ssize_t n = __real_send(fd, p, bytes, flags);

    world.ahead_s += world.ahead_at_each_part_s;
    return n;
}

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    if (!host || strcmp(host, "rank-0.test") != 0)
        return __real_getaddrinfo(host, port, hints, found);
    world.names_asked++;
    world.ahead_s += world.ahead_at_name_s;
    world.ahead_at_name_s = 0;
    return *world.name_fails ? *world.name_fails++ : __real_getaddrinfo("127.0.0.1", port, hints, found);
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    if (!world.accept_fails || !*world.accept_fails)
        return __real_accept4(fd, address, bytes, flags);
    world.accepts_without_rest += world.accepts_failed && !world.rested;
    world.rested = false;
    world.accepts_failed++;
    errno = *world.accept_fails++;
    return -1;
}

int __real_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
    if (n > 1 && p[0].fd < 0 && ms > 0)
        world.rested = true;
    return __real_poll(p, n, ms);
}

int __real_connect(int fd, const struct sockaddr *to, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t bytes)
{
    if (world.connects_to_itself) { /* this end has the port that it connects to, as the system might choose it */
        world.connects_to_itself--;
        if (bind(fd, to, bytes))
            _exit(90);
    } else if (world.told_by_connect) {
        if (write(world.told_by_connect, "x", 1) != 1)
            _exit(91);
        world.told_by_connect = 0;
    }
    return __real_connect(fd, to, bytes);
}

/* --- processes ---------------------------------------------------------------------------------------------------- */

enum { AGAIN = 3, CHILDREN }; /* AGAIN: the second process that is rank 1 */

static pid_t child[CHILDREN];
static int word[2];     /* a pipe between the processes of a case */
static unsigned master; /* port */
static char said[8][600];
static int n_said;

/* A port that no system chooses by itself, since others may be taking such ports now. */
static void set_master(const char *host)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[64];
    int fd, failed;

    do {
        struct timespec t;

        __real_clock_gettime(CLOCK_MONOTONIC, &t);
        master = 20000 + (unsigned)(t.tv_nsec / 1000 + getpid()) % 10000;
        at.sin_port = htons((uint16_t)master);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        failed = bind(fd, (struct sockaddr *)&at, sizeof at);
        close(fd);
    } while (failed);
    snprintf(text, sizeof text, "%s:%u", host, master);
    setenv("FTX_MASTER", text, 1);
}

static int begin(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    memset(child, 0, sizeof child);
    n_said = 0;
    assert_int_equal(pipe(word), 0);
    set_master("127.0.0.1");
    return setenv("FTX_PEER_TIMEOUT", "10", 1);
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < CHILDREN; i++)
        if (child[i])
            kill(child[i], SIGKILL), waitpid(child[i], NULL, 0);
    return close(word[0]) + close(word[1]);
}

/* True: in the new process. */
static bool is_child(int i)
{
    child[i] = fork();
    if (child[i])
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return true;
}

static void tell(int children)
{
    for (int i = 0; i < children; i++)
        assert_int_equal(write(word[1], "x", 1), 1);
}

static void wait_until_told(void)
{
    char c;

    if (read(word[0], &c, 1) != 1)
        _exit(94);
}

/* In a process of its own: meets the others, or gets a reason with these words, and ends. */
static void join_as(const FtxOptions *o, int rank, int ranks, uint64_t artifact, const char *words)
{
    FtxError err = {FTX_OK, ""};
    Links *l;
    const FtxStatus s = links_open(o, rank, ranks, artifact, &l, &err);

    links_close(l);
    if (words ? s && strstr(err.text, words) : !s)
        _exit(0);
    fprintf(stderr, "rank %d: %d %s\n", rank, (int)s, err.text);
    _exit(1);
}

static void ends_well(int i)
{
    int status = 0;

    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
    child[i] = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void note(void *user, int level, const char *text)
{
    (void)user, (void)level;
    if (n_said < 8)
        snprintf(said[n_said++], sizeof said[0], "%s", text);
}

static FtxOptions noted(void (*log)(void *user, int level, const char *text))
{
    FtxOptions o = FTX_OPTIONS_INIT;

    o.log = log;
    return o;
}

/* This process is rank 0 and meets all. */
static void meet_as_0(const FtxOptions *o, int ranks)
{
    FtxError err = {FTX_OK, ""};
    Links *l;

    if (links_open(o, 0, ranks, ARTIFACT, &l, &err))
        fail_msg("%s", err.text);
    links_close(l);
}

static void fails(const FtxOptions *o, int rank, int ranks, FtxStatus status, const char *words)
{
    FtxError err = {FTX_OK, ""};
    Links *l = NULL;

    assert_int_equal(links_open(o, rank, ranks, ARTIFACT, &l, &err), status);
    if (!strstr(err.text, words))
        fail_msg("no \"%s\" in \"%s\"", words, err.text);
}

/* --- names ---------------------------------------------------------------------------------------------------------- */

/* Rank 1 looks for the name twice, for its kind of address and to connect. */
static void names_come_later(void **state)
{
    static const int again[] = {EAI_AGAIN, EAI_NONAME, EAI_NODATA, 0};

    (void)state;
    set_master("rank-0.test");
    world.name_fails = again;
    if (is_child(1))
        join_as(NULL, 1, 2, ARTIFACT, NULL);
    meet_as_0(NULL, 2);
    assert_int_equal(world.names_asked, 4);
    ends_well(1);
}

static void says_which_name(void **state)
{
    static const int again[] = {EAI_NONAME, EAI_NONAME, EAI_FAIL, 0};
    const FtxOptions o = noted(note);
    char want[200];

    (void)state;
    set_master("rank-0.test");
    world.name_fails = again;
    world.ahead_at_name_s = 3;
    fails(&o, 1, 2, FTX_EIO, "cannot find rank-0.test:");
    assert_int_equal(n_said, 1);
    snprintf(want, sizeof want, "rank 1 of 2 cannot find rank-0.test:%u yet (%s)", master, gai_strerror(EAI_NONAME));
    assert_string_equal(said[0], want);
}

/* A name that nobody has, in time for no meeting; another failure is told at once. */
static void names_that_do_not_come(void **state)
{
    static const int again[] = {EAI_NONAME, EAI_NONAME, EAI_NONAME, 0}, broken[] = {EAI_FAIL, 0};

    (void)state;
    set_master("rank-0.test");
    for (int rank = 0; rank < 2; rank++) {
        world.name_fails = again;
        world.names_asked = 0;
        world.ahead_at_name_s = PAST_ALL_LIMITS_S;
        fails(NULL, rank, 2, FTX_EIO, gai_strerror(EAI_NONAME));
        assert_int_equal(world.names_asked, 1);
        world.name_fails = broken;
        world.names_asked = 0;
        fails(NULL, rank, 2, FTX_EIO, gai_strerror(EAI_FAIL));
        assert_int_equal(world.names_asked, 1);
    }
}

/* --- time ------------------------------------------------------------------------------------------------------------ */

/* Rank 1 comes at the last second, and rank 0 has waited for nearly as long: each part of the meeting has its own limit. */
static void at_the_last_second(void **state)
{
    (void)state;
    if (is_child(1)) {
        world.ahead_at_each_part_s = PAST_ALL_LIMITS_S;
        join_as(NULL, 1, 2, ARTIFACT, NULL);
    }
    world.ahead_at_hello_s = PAST_ALL_LIMITS_S;
    meet_as_0(NULL, 2);
    assert_true(world.ahead_s >= PAST_ALL_LIMITS_S);
    ends_well(1);
}

/* Rank 0 gives up: it says who has not come, also to those that have. */
static void one_does_not_come(void **state)
{
    char want[200];

    (void)state;
    snprintf(want, sizeof want, "2 of 3 ranks have come to 127.0.0.1:%u within 60 s; there is no rank 2", master);
    if (is_child(1))
        join_as(NULL, 1, 3, ARTIFACT, want);
    world.ahead_at_hello_s = PAST_ALL_LIMITS_S;
    fails(NULL, 0, 3, FTX_EDEVICE, want);
    ends_well(1);
}

static void pass_note(void *user, int level, const char *text)
{
    (void)user, (void)level;
    if (write(word[1], text, strlen(text) + 1) < 0)
        _exit(92);
}

/* Rank 1 has come, and says that rank 0 waits for others; rank 2 comes only then. */
static void waits_for_others_aloud(void **state)
{
    const FtxOptions o = noted(pass_note);
    char got[600] = "", want[200];

    (void)state;
    if (is_child(1))
        join_as(&o, 1, 3, ARTIFACT, NULL);
    if (is_child(2)) {
        snprintf(want, sizeof want, "rank 1 of 3 has reached rank 0 at 127.0.0.1:%u, which waits for other ranks",
                 master);
        while (strcmp(got, want) != 0) /* it may have waited for rank 0 before */
            if (read(word[0], got, sizeof got) <= 0)
                _exit(93);
        join_as(NULL, 2, 3, ARTIFACT, NULL);
    }
    meet_as_0(NULL, 3);
    ends_well(1);
    ends_well(2);
}

/* --- who comes --------------------------------------------------------------------------------------------------------- */

/* A connection at the master's port whose other end is closed. */
static bool has_lost_one(void)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in at = {0};
        struct tcp_info info = {0};
        socklen_t at_bytes = sizeof at, bytes = sizeof info;

        if (!getsockname(fd, (struct sockaddr *)&at, &at_bytes) && ntohs(at.sin_port) == master &&
            !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) && info.tcpi_state == TCP_CLOSE_WAIT)
            return true;
    }
    return false;
}

/* When rank 1 has come: it dies, and comes again as another process. */
static void take_its_place(void *user, int level, const char *text)
{
    (void)user, (void)level;
    if (strstr(text, "rank 1") || n_said++) /* it is slow */
        return;
    kill(child[1], SIGKILL);
    waitpid(child[1], NULL, 0);
    child[1] = 0;
    while (!has_lost_one())
        usleep(1000);
    tell(2);
}

static void one_dies_and_comes_again(void **state)
{
    const FtxOptions o = noted(take_its_place);

    (void)state;
    if (is_child(1))
        join_as(NULL, 1, 3, ARTIFACT, NULL);
    if (is_child(AGAIN))
        wait_until_told(), join_as(NULL, 1, 3, ARTIFACT, NULL);
    if (is_child(2))
        wait_until_told(), join_as(NULL, 2, 3, ARTIFACT, NULL);
    meet_as_0(&o, 3);
    ends_well(AGAIN);
    ends_well(2);
}

static void bring_another(void *user, int level, const char *text)
{
    (void)user, (void)level;
    if (!strstr(text, "rank 1"))
        tell(1);
}

/* All are told why there is no meeting. */
static void one_is_another(void **state)
{
    const FtxOptions o = noted(bring_another);

    (void)state;
    if (is_child(1))
        join_as(NULL, 1, 3, ARTIFACT, "rank 2 has another artifact");
    if (is_child(2))
        wait_until_told(), join_as(NULL, 2, 3, OTHER_ARTIFACT, "rank 2 has another artifact");
    fails(&o, 0, 3, FTX_EINVAL, "rank 2 has another artifact");
    ends_well(1);
    ends_well(2);
}

/* --- the system ---------------------------------------------------------------------------------------------------------- */

/* Without descriptors or memory connections stay in the listener's queue, and rank 0 does not turn in a circle. */
static void no_descriptors(void **state)
{
    static const int no[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM, EMFILE, 0};
    const FtxOptions o = noted(note);
    int told = 0;

    (void)state;
    if (is_child(1))
        join_as(NULL, 1, 2, ARTIFACT, NULL);
    world.accept_fails = no;
    meet_as_0(&o, 2);
    assert_int_equal(world.accepts_failed, 5);
    assert_int_equal(world.accepts_without_rest, 0);
    for (int i = 0; i < n_said; i++)
        told += strcmp(said[i], "rank 0 of 2 cannot take a connection yet: Too many open files") == 0;
    assert_int_equal(told, 1);
    ends_well(1);
}

/* A rank that comes first and meets itself at rank 0's port sees it, and leaves the port to rank 0. */
static void meets_itself(void **state)
{
    (void)state;
    if (is_child(1)) {
        world.connects_to_itself = 2;
        world.told_by_connect = word[1];
        join_as(NULL, 1, 2, ARTIFACT, NULL);
    }
    wait_until_told();
    meet_as_0(NULL, 2);
    ends_well(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_come_later, begin, end),
        cmocka_unit_test_setup_teardown(says_which_name, begin, end),
        cmocka_unit_test_setup_teardown(names_that_do_not_come, begin, end),
        cmocka_unit_test_setup_teardown(at_the_last_second, begin, end),
        cmocka_unit_test_setup_teardown(one_does_not_come, begin, end),
        cmocka_unit_test_setup_teardown(waits_for_others_aloud, begin, end),
        cmocka_unit_test_setup_teardown(one_dies_and_comes_again, begin, end),
        cmocka_unit_test_setup_teardown(one_is_another, begin, end),
        cmocka_unit_test_setup_teardown(no_descriptors, begin, end),
        cmocka_unit_test_setup_teardown(meets_itself, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
