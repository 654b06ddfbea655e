/* team.c - threads that stay: spin a little, then sleep on a futex. */
#include "team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_THREADS = 1024 };

/* Turns of a spinning wait, each some 10 to 40 ns: longer than the longest uneven share of a small
 * kernel, shorter than what a sleeping thread costs on a machine that has other work. */
enum { SPINS = 2000 };

/* A number that grows, and those who sleep until it does. */
typedef struct Gate {
    _Atomic uint32_t turn;
    _Atomic uint32_t sleepers;
} Gate;

struct Team {
    Memory memory;
    size_t bytes;
    int threads; /* with the caller */
    int started; /* workers that run */
    TeamJob *job;
    void *user;
    bool ending;
    _Alignas(64) Gate start;   /* a new job */
    _Alignas(64) Gate meeting; /* a barrier is full */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) pthread_t worker[]; /* [threads - 1] */
};

typedef struct Worker { /* what a new thread is told; it copies it before team_open goes on */
    Team *team;
    int thread;
    _Atomic bool taken;
} Worker;

/* Waits until the gate's turn is no longer `old`. */
static void gate_wait(Gate *g, uint32_t old)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&g->turn, memory_order_acquire) != old)
            return;
        team_pause();
    }
    /* Sleeper and opener each write, then read what the other wrote: one of them sees it. */
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->turn) == old)
        syscall(SYS_futex, &g->turn, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

static void gate_open(Gate *g)
{
    atomic_fetch_add(&g->turn, 1);
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->turn, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
}

void team_barrier(Team *t)
{
    if (t->threads == 1)
        return;

    const uint32_t turn = atomic_load_explicit(&t->meeting.turn, memory_order_relaxed);

    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)t->threads) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        gate_open(&t->meeting);
    } else {
        gate_wait(&t->meeting, turn);
    }
}

static void *work(void *p)
{
    Worker *w = p;
    Team *t = w->team;
    const int thread = w->thread;
    uint32_t turn = 0;

    atomic_store(&w->taken, true);
    for (;;) {
        gate_wait(&t->start, turn++);
        if (t->ending)
            return NULL;
        t->job(t->user, thread, t->threads);
        team_barrier(t);
    }
}

/* Signals are the program's: a worker takes none. */
static int start_worker(Team *t, int i)
{
    Worker w = {.team = t, .thread = i + 1};
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&t->worker[i], NULL, work, &w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (!failed && !atomic_load(&w.taken))
        sched_yield();
    return failed;
}

int team_default_threads(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);

    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n > 0 ? (int)n : 1;
}

FtxStatus team_open(const Memory *m, int threads, Team **out, FtxError *err)
{
    if (threads == 0)
        threads = team_default_threads();
    if (threads < 0 || threads > MAX_THREADS)
        return ftx_fail(err, FTX_EINVAL, "threads: expected 0 to %d, found %d", MAX_THREADS, threads);

    const size_t bytes = sizeof(Team) + sizeof(pthread_t) * (size_t)threads;
    Team *t = memory_alloc(m, bytes, 64);

    *out = NULL;
    if (!t)
        return memory_fail(err, "the threads", bytes);
    t->memory = *m;
    t->bytes = bytes;
    t->threads = threads;
    for (; t->started < threads - 1; t->started++) {
        const int failed = start_worker(t, t->started);

        if (failed) {
            team_close(t);
            return ftx_fail(err, FTX_ENOMEM, "cannot start %d CPU threads: %s", threads, strerror(failed));
        }
    }
    *out = t;
    return FTX_OK;
}

void team_close(Team *t)
{
    if (!t)
        return;
    t->ending = true;
    gate_open(&t->start);
    for (int i = 0; i < t->started; i++)
        pthread_join(t->worker[i], NULL);

    const Memory m = t->memory;

    memory_free(&m, t, t->bytes);
}

int team_threads(const Team *t)
{
    return t->threads;
}

void team_run(Team *t, TeamJob *job, void *user)
{
    t->job = job;
    t->user = user;
    if (t->threads > 1)
        gate_open(&t->start);
    job(user, 0, t->threads);
    team_barrier(t);
}
