/* workers.c - jobs in child processes, results through pipes.
 *
 * Processes, not threads, since NVRTC holds locks while it compiles and its threads would wait for each other. Children
 * take the next job from a counter in shared memory, so that none idles while jobs are left. They are forked without
 * exec: texts and the loaded library are in their memory already. */
#include "parts.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORKERS = 64 };

typedef struct Shared { /* between all processes */
    atomic_size_t next;
    _Atomic size_t current[MAX_WORKERS]; /* the job of each worker; n: none */
} Shared;

typedef struct Message { /* head of a result; its bytes follow */
    uint64_t job, ok, bytes;
} Message;

static bool write_all(int fd, const void *p, size_t n)
{
    for (const char *at = p; n;) {
        const ssize_t k = write(fd, at, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool read_all(int fd, void *p, size_t n)
{
    for (char *at = p; n;) {
        const ssize_t k = read(fd, at, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

_Noreturn static void child(Shared *s, int self, int fd, size_t n, Work *work, void *user)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i; (i = atomic_fetch_add(&s->next, 1)) < n;) {
        Bytes b = {0};

        atomic_store(&s->current[self], i);
        const bool ok = work(user, i, &b);
        const Message m = {i, ok, b.bytes};
        if (!write_all(fd, &m, sizeof m) || !write_all(fd, b.at, b.bytes))
            _exit(1);
        free((void *)(uintptr_t)b.at);
        atomic_store(&s->current[self], n);
    }
    _exit(0);
}

/* Reads one result of a worker and passes it on. False: the pipe is closed, or `done` returned false. */
static bool take_result(int fd, WorkDone *done, void *user, size_t *results, bool *stopped)
{
    Message m;

    if (!read_all(fd, &m, sizeof m))
        return false;
    void *p = malloc(m.bytes + 1);
    if (!p)
        die("no memory");
    const bool whole = read_all(fd, p, m.bytes);
    if (whole) {
        ++*results;
        *stopped = !done(user, m.job, m.ok, (Bytes){p, m.bytes});
    }
    free(p);
    return whole && !*stopped;
}

static size_t processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) ? 1 : (size_t)CPU_COUNT(&set);
}

/* Forks up to `most` children; returns how many were started. */
static size_t start(Shared *s, size_t most, size_t n, Work *work, void *user, struct pollfd *fds, pid_t *pids)
{
    size_t w = 0;

    for (; w < most; w++) {
        int ends[2];

        if (pipe(ends))
            break;
        atomic_store(&s->current[w], n);
        pids[w] = fork();
        if (pids[w] == 0) {
            close(ends[0]);
            for (size_t i = 0; i < w; i++)
                close(fds[i].fd);
            child(s, (int)w, ends[1], n, work, user);
        }
        close(ends[1]);
        if (pids[w] < 0) {
            close(ends[0]);
            break;
        }
        fds[w] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    }
    return w;
}

/* Runs all jobs in this process. */
static bool run_here(size_t n, Work *work, WorkDone *done, void *user)
{
    for (size_t i = 0; i < n; i++) {
        Bytes b = {0};
        const bool ok = work(user, i, &b);
        const bool go_on = done(user, i, ok, b);

        free((void *)(uintptr_t)b.at);
        if (!go_on)
            return false;
    }
    return true;
}

bool workers_run(size_t n, Work *work, WorkDone *done, void *user, size_t *died)
{
    struct pollfd fds[MAX_WORKERS];
    pid_t pids[MAX_WORKERS];
    size_t most = processors(), results = 0;
    bool stopped = false;

    *died = n;
    if (n == 0)
        return true;
    most = most > n ? n : most;
    most = most > MAX_WORKERS ? MAX_WORKERS : most;
    Shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return run_here(n, work, done, user);
    const size_t workers = start(s, most, n, work, user, fds, pids);
    if (workers == 0) { /* no child could be started */
        munmap(s, sizeof *s);
        return run_here(n, work, done, user);
    }
    for (size_t open = workers; open && !stopped;) {
        if (poll(fds, workers, -1) < 0)
            continue;
        for (size_t w = 0; w < workers && !stopped; w++) {
            if (fds[w].fd < 0 || !(fds[w].revents & (POLLIN | POLLHUP | POLLERR)))
                continue;
            if (!take_result(fds[w].fd, done, user, &results, &stopped)) {
                close(fds[w].fd);
                fds[w].fd = -1;
                open--;
            }
        }
    }
    if (!stopped && results < n)
        *died = n - 1; /* a guess, unless `current` of a worker names the job */
    for (size_t w = 0; w < workers; w++) {
        if (fds[w].fd >= 0)
            close(fds[w].fd);
        if (stopped)
            kill(pids[w], SIGKILL);
        while (waitpid(pids[w], NULL, 0) < 0 && errno == EINTR)
            continue;
        if (!stopped && atomic_load(&s->current[w]) < n)
            *died = atomic_load(&s->current[w]);
    }
    munmap(s, sizeof *s);
    return !stopped && *died == n;
}
