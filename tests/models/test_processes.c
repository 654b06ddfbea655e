/* test_processes.c - a rank in another process whose rank 0 is this test: steps that are not the next one or were changed, calls
 * that make no sense, an engine after another, a rank that hangs, strangers at the door, the end. */
#include "golden.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/device/group/group.h"
#include "runtime/device/group/remote.h"

static char path[1000];
static uint64_t artifact;
static uint64_t io_space;
static Artifact opened;
static pid_t child;
static Links *links;

static void set_master(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof at;
    char text[64];

    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(at.sin_port));
    setenv("FTX_MASTER", text, 1);
}

static int compile_once(void **state)
{
    FtxModel *model = golden_open("tests/models/tiny-llama", "processes", "-D parallel=2");
    FtxError err;

    (void)state;
    ftx_model_close(model);
    golden_path("processes", path, sizeof path);
    assert_int_equal(artifact_open(path, &opened, &err), FTX_OK);
    artifact = opened.header->sections_checksum;
    io_space = artifact_plan(&opened, FTX_TARGET_CPU, "")->head->space_bytes[FTX_SPACE_IO];
    setenv("FTX_PEER_TIMEOUT", "5", 1);
    return 0;
}

static int close_once(void **state)
{
    (void)state;
    artifact_close(&opened);
    return 0;
}

/* Rank 1 in a process of its own, which exits with the status of ftx_rank_run. */
static int begin(void **state)
{
    FtxError err;

    (void)state;
    set_master();
    child = fork();
    if (child == 0) {
        FtxOptions o = FTX_OPTIONS_INIT;
        int rank = 0;

        o.device = FTX_DEVICE_CPU;
        o.threads = 1;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("FTX_RANK", "1", 1);
        setenv("FTX_RANKS", "2", 1);
        const FtxStatus s = ftx_rank_run(path, &o, &rank, &err);
        _exit(rank == 1 ? (int)s : 100);
    }
    if (links_open(NULL, 0, 2, artifact, &links, &err))
        fail_msg("%s", err.text);
    return 0;
}

/* The status with which rank 1 has ended. */
static int ended(void)
{
    int status = 0;

    assert_int_equal(waitpid(child, &status, 0), child);
    child = 0;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int end(void **state)
{
    (void)state;
    links_close(links);
    if (child)
        kill(child, SIGKILL), waitpid(child, NULL, 0);
    return 0;
}

/* The answer's status; `text` stands in its error. */
static int ask(RemoteCall c, const void *bytes, RemoteAnswer *a, const char *text)
{
    FtxError err = {0};

    if (link_send(links, 1, &c, sizeof c, &err) || (c.bytes && link_send(links, 1, bytes, c.bytes, &err)) ||
        link_receive(links, 1, a, sizeof *a, 20, &err))
        fail_msg("%s", err.text);
    if (text && !strstr(a->text, text))
        fail_msg("the answer is \"%s\"", a->text);
    return a->status;
}

static void open_session(void)
{
    static const char word[FTX_JOIN_WORD];
    RemoteAnswer a;

    assert_int_equal(ask((RemoteCall){.op = REMOTE_OPEN}, NULL, &a, NULL), FTX_OK);
    assert_true(a.pages > 0);
    assert_int_equal(ask((RemoteCall){.op = REMOTE_JOIN, .bytes = FTX_JOIN_WORD}, word, &a, NULL), FTX_OK);
    assert_int_equal(ask((RemoteCall){.op = REMOTE_WAIT}, NULL, &a, NULL), FTX_OK);
}

enum { STEP_BYTES = 512 };

static const char *step_numbered(unsigned number)
{
    static char io[STEP_BYTES];
    FtxStep step = {.tokens = 1, .rows = 1, .number = number};
    uint64_t hash;

    memset(io, 0, sizeof io);
    memcpy(io, &step, sizeof step);
    hash = group_step_hash(io, sizeof io);
    step.hash_low = (unsigned)hash;
    step.hash_high = (unsigned)(hash >> 32);
    memcpy(io, &step, sizeof step);
    return io;
}

static int upload(unsigned number, int changed, const char *text)
{
    char io[STEP_BYTES];
    RemoteAnswer a;

    memcpy(io, step_numbered(number), sizeof io);
    if (changed >= 0)
        io[changed]++;
    return ask((RemoteCall){.op = REMOTE_UPLOAD, .bytes = sizeof io}, io, &a, text);
}

static void steps(void **state)
{
    const RemoteCall bye = {.op = REMOTE_END};
    RemoteAnswer a;

    (void)state;
    open_session();
    assert_int_equal(upload(1, -1, NULL), FTX_OK);
    assert_int_equal(upload(2, -1, NULL), FTX_OK);
    assert_int_equal(upload(2, -1, "step 2 has come with the hash "), FTX_EDEVICE);
    assert_int_equal(upload(4, STEP_BYTES - 1, "this rank expects step 4"), FTX_EDEVICE);
    assert_int_equal(upload(5, 0, "this rank expects step 5"), FTX_EDEVICE); /* in the step itself */
    assert_int_equal(upload(6, -1, NULL), FTX_OK);
    assert_int_equal(ask((RemoteCall){.op = REMOTE_CLOSE}, NULL, &a, NULL), FTX_OK);
    open_session(); /* the next engine counts from 1 */
    assert_int_equal(upload(1, -1, NULL), FTX_OK);
    assert_int_equal(link_send(links, 1, &bye, sizeof bye, NULL), FTX_OK);
    assert_int_equal(ended(), FTX_OK);
}

static void calls(void **state)
{
    RemoteAnswer a;

    (void)state;
    assert_int_equal(ask((RemoteCall){.op = REMOTE_RUN, .T = 1, .S = 1, .times = 1}, NULL, &a, "one session at a time"),
                     FTX_EINVAL);
    open_session();
    assert_int_equal(ask((RemoteCall){.op = REMOTE_OPEN}, NULL, &a, "close the other engine first"), FTX_EINVAL);
    assert_int_equal(ask((RemoteCall){.op = 77}, NULL, &a, "rank 0 asks for call 77"), FTX_EINVAL);
    assert_int_equal(ask((RemoteCall){.op = REMOTE_WRITE, .named = FTX_NAMED_pages, .offset = 1 << 30, .bytes = 4},
                         "abc", &a, "runs past a named buffer"),
                     FTX_EINVAL);
    assert_int_equal(
        link_send(links, 1, &(RemoteCall){.op = REMOTE_UPLOAD, .bytes = io_space + 1}, sizeof(RemoteCall), NULL),
        FTX_OK);
    assert_int_equal(ended(), FTX_EDEVICE);
}

/* A step that is too short to be one ends the rank. */
static void short_step(void **state)
{
    (void)state;
    open_session();
    assert_int_equal(link_send(links, 1, &(RemoteCall){.op = REMOTE_UPLOAD, .bytes = 8}, sizeof(RemoteCall), NULL),
                     FTX_OK);
    assert_int_equal(ended(), FTX_EDEVICE);
}

/* A second engine is refused without a call, since the first may be making one: the rank does not even run meanwhile. */
static void second_engine(void **state)
{
    const Memory m = memory_of(NULL);
    Session *first, *second;
    Device *rank;
    uint32_t pages = 0;
    FtxError err = {0};

    (void)state;
    assert_int_equal(remote_open(&m, artifact_plan(&opened, FTX_TARGET_CPU, ""), links, 1, &rank, &err), FTX_OK);
    assert_int_equal(device_remote.session_open(rank, 0, &first, &pages, &err), FTX_OK);
    kill(child, SIGSTOP);
    alarm(30);
    assert_int_equal(device_remote.session_open(rank, 0, &second, &pages, &err), FTX_EINVAL);
    assert_string_equal(err.text, "a rank has one session at a time: close the other engine first");
    alarm(0);
    kill(child, SIGCONT);
    device_remote.session_close(first);
    assert_int_equal(device_remote.session_open(rank, 1, &first, &pages, &err), FTX_EINVAL); /* too few pages */
    assert_int_equal(device_remote.session_open(rank, 0, &first, &pages, &err), FTX_OK);
    device_remote.session_close(first);
    device_remote.close(rank);
    assert_int_equal(ended(), FTX_OK);
}

/* What rank 0 does not bring ends a run at the deadline; the rank says for whom it waited. */
static void no_exchange(void **state)
{
    RemoteAnswer a;

    (void)state;
    open_session();
    assert_int_equal(upload(1, -1, NULL), FTX_OK);
    assert_int_equal(
        ask((RemoteCall){.op = REMOTE_RUN, .T = 1, .S = 1, .times = 1}, NULL, &a, "rank 0 did not come within 5 s"),
        FTX_EDEVICE);
    link_stop(links, 1);
    assert_int_equal(ended(), FTX_EDEVICE);
}

/* A rank that hangs when rank 0 has made its part: its answer is due. */
static void no_answer(void **state)
{
    RemoteAnswer a;
    FtxError err = {0};

    (void)state;
    kill(child, SIGSTOP);
    links_hurry(links, true);
    alarm(60);
    assert_int_equal(link_receive(links, 1, &a, sizeof a, 0, &err), FTX_EDEVICE);
    alarm(0);
    assert_string_equal(err.text, "rank 1 has not answered within 5 s (FTX_PEER_TIMEOUT)");
    kill(child, SIGCONT);
}

/* How many ends of connections with rank 0 have a keepalive timer of at most `seconds`; -1: the kernel does not say. */
static int timed_ends(unsigned long seconds)
{
    const unsigned master = (unsigned)atoi(strrchr(getenv("FTX_MASTER"), ':') + 1);
    FILE *f = fopen("/proc/net/tcp", "r");
    unsigned local, remote, timer;
    unsigned long when;
    int ends = 0;
    char line[300];

    if (!f)
        return -1;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%*d: %*x:%x %*x:%x %*x %*x:%*x %x:%lx", &local, &remote, &timer, &when) == 4)
            ends += (local == master || remote == master) && timer == 2 &&
                    when <= seconds * (unsigned long)sysconf(_SC_CLK_TCK);
    fclose(f);
    return ends;
}

/* A connection whose machine loses its power is missed: both ends of both connections ask after FTX_PEER_TIMEOUT. */
static void keepalive(void **state)
{
    int ends = 0;

    (void)state;
    open_session();
    for (int i = 0; i < 100 && ends >= 0 && ends < 4; i++) {
        usleep(50000); /* what was sent is acknowledged, then the timers are those of quiet connections */
        ends = timed_ends(5);
    }
    if (ends < 0)
        skip(); /* the system has no /proc/net/tcp */
    assert_int_equal(ends, 4);
}

/* The other process ends while a kernel waits for it: the wait ends at once, long before its deadline. */
static int begin_patient(void **state)
{
    int failed;

    setenv("FTX_PEER_TIMEOUT", "600", 1);
    failed = begin(state);
    setenv("FTX_PEER_TIMEOUT", "5", 1);
    return failed;
}

static void lost(void **state)
{
    const RemoteCall run = {.op = REMOTE_RUN, .T = 1, .S = 1, .times = 1};

    (void)state;
    open_session();
    assert_int_equal(upload(1, -1, NULL), FTX_OK);
    assert_int_equal(link_send(links, 1, &run, sizeof run, NULL), FTX_OK);
    links_close(links);
    links = NULL;
    alarm(60);
    assert_int_equal(ended(), FTX_EDEVICE);
    alarm(0);
}

static int begin_hasty(void **state)
{
    int failed;

    setenv("FTX_PEER_TIMEOUT", "2", 1);
    failed = begin(state);
    setenv("FTX_PEER_TIMEOUT", "5", 1);
    return failed;
}

/* A rank that hangs in an upload, or anywhere but in a run: rank 0 gives it up after FTX_PEER_TIMEOUT. */
static void hangs_in_an_upload(void **state)
{
    const Memory m = memory_of(NULL);
    Session *session;
    Device *rank;
    uint32_t pages = 0;
    FtxError err = {0};

    (void)state;
    assert_int_equal(remote_open(&m, artifact_plan(&opened, FTX_TARGET_CPU, ""), links, 1, &rank, &err), FTX_OK);
    assert_int_equal(device_remote.session_open(rank, 0, &session, &pages, &err), FTX_OK);
    kill(child, SIGSTOP);
    alarm(30);
    assert_int_equal(device_remote.upload(session, STEP_BYTES, &err), FTX_EDEVICE);
    alarm(0);
    assert_string_equal(err.text, "rank 1 has not answered within 2 s (FTX_PEER_TIMEOUT)");
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    child = 0;
    device_remote.session_close(session);
    device_remote.close(rank);
}

/* --- a rank 1 of the test's own ------------------------------------------------------------------------------- */

static int word[2]; /* a pipe from the test to that process */

/* Runs `act` in a process, which then is rank 1, or what it makes of that. */
static void fork_to(void (*act)(void))
{
    set_master();
    assert_int_equal(pipe(word), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("FTX_RANK", "1", 1);
        setenv("FTX_RANKS", "2", 1);
        act();
        _exit(0);
    }
}

static void run_rank_1(void)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    int rank;

    o.device = FTX_DEVICE_CPU;
    o.threads = 1;
    _exit((int)ftx_rank_run(path, &o, &rank, NULL));
}

/* Says half of an answer and no more. */
static void stammer(void)
{
    Links *l;
    RemoteAnswer a = {0};

    if (links_open(NULL, 1, 2, artifact, &l, NULL) || link_send(l, 0, &a, sizeof a / 2, NULL))
        _exit(1);
    for (;;)
        pause();
}

static void half_an_answer(void **state)
{
    RemoteAnswer a;
    FtxError err = {0};

    (void)state;
    setenv("FTX_PEER_TIMEOUT", "2", 1);
    fork_to(stammer);
    if (links_open(NULL, 0, 2, artifact, &links, &err))
        fail_msg("%s", err.text);
    setenv("FTX_PEER_TIMEOUT", "5", 1);
    alarm(60);
    assert_int_equal(link_receive(links, 1, &a, sizeof a, 0, &err), FTX_EDEVICE);
    alarm(0);
    assert_string_equal(err.text, "rank 1 has not answered within 2 s (FTX_PEER_TIMEOUT)");
}

/* A socket that is connected to rank 0 when that listens, and says nothing. */
static void connect_silently(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = -1;

    at.sin_port = htons((uint16_t)atoi(strrchr(getenv("FTX_MASTER"), ':') + 1));
    do {
        if (fd >= 0)
            close(fd), usleep(10000);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    } while (connect(fd, (struct sockaddr *)&at, sizeof at));
}

static void come_behind_strangers(void)
{
    for (int i = 0; i < 50; i++)
        connect_silently();
    run_rank_1();
}

/* Connections that say nothing hold up nobody, also if there are more than are kept. */
static void strangers(void **state)
{
    const RemoteCall bye = {.op = REMOTE_END};
    FtxError err = {0};

    (void)state;
    fork_to(come_behind_strangers);
    if (links_open(NULL, 0, 2, artifact, &links, &err))
        fail_msg("%s", err.text);
    assert_int_equal(link_send(links, 1, &bye, sizeof bye, NULL), FTX_OK);
    assert_int_equal(ended(), FTX_OK);
}

static void come_when_told(void)
{
    char c;

    if (read(word[0], &c, 1) == 1)
        run_rank_1();
}

static char said[600];

static void take_note(void *user, int level, const char *text)
{
    (void)user, (void)level;
    snprintf(said, sizeof said, "%s", text);
    assert_int_equal(write(word[1], "x", 1), 1);
}

/* Rank 0 says for whom it waits: rank 1 comes only then. Meanwhile, and while the model is open, the process has no other. */
static void waits_aloud(void **state)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err = {0};
    char want[200];
    Links *second;

    (void)state;
    o.log = take_note;
    said[0] = '\0';
    fork_to(come_when_told);
    if (links_open(&o, 0, 2, artifact, &links, &err))
        fail_msg("%s", err.text);
    snprintf(want, sizeof want, "rank 0 of 2 waits for rank 1 at %s", getenv("FTX_MASTER"));
    assert_string_equal(said, want);
    assert_int_equal(links_open(NULL, 0, 2, artifact, &second, &err), FTX_EINVAL);
    assert_string_equal(err.text,
                        "FTX_MASTER is set, so this process takes part in one model at a time, and one is open");
}

static int close_word(void **state)
{
    close(word[0]), close(word[1]);
    return end(state);
}

/* --- a rank 0 that is not there ---------------------------------------------------------------------------------- */

/* A host that answers nothing: the queue of its listener is full. The attempt ends when the time to meet is over. */
static void deaf_master(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof at;
    int before[4];
    FtxError err = {0};
    char text[64];

    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    for (int i = 0; i < 4; i++) {
        before[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(before[i], (struct sockaddr *)&at, size);
    }
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(at.sin_port));
    setenv("FTX_MASTER", text, 1);
    setenv("FTX_PEER_TIMEOUT", "1", 1);
    alarm(60);
    assert_int_equal(links_open(NULL, 1, 2, artifact, &links, &err), FTX_EIO);
    alarm(0);
    assert_non_null(strstr(err.text, "cannot connect to 127.0.0.1:"));
    setenv("FTX_PEER_TIMEOUT", "5", 1);
    for (int i = 0; i < 4; i++)
        close(before[i]);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps, begin, end),
        cmocka_unit_test_setup_teardown(calls, begin, end),
        cmocka_unit_test_setup_teardown(short_step, begin, end),
        cmocka_unit_test_setup_teardown(second_engine, begin, end),
        cmocka_unit_test_setup_teardown(no_exchange, begin, end),
        cmocka_unit_test_setup_teardown(no_answer, begin, end),
        cmocka_unit_test_setup_teardown(keepalive, begin, end),
        cmocka_unit_test_setup_teardown(lost, begin_patient, end),
        cmocka_unit_test_setup_teardown(hangs_in_an_upload, begin_hasty, end),
        cmocka_unit_test_teardown(half_an_answer, close_word),
        cmocka_unit_test_teardown(strangers, close_word),
        cmocka_unit_test_teardown(waits_aloud, close_word),
        cmocka_unit_test(deaf_master),
    };

    return cmocka_run_group_tests(tests, compile_once, close_once);
}
