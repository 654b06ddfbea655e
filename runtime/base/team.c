/* team.c - worker threads: they spin briefly, take over late shares, then sleep on a futex. */
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

/* Turns of waiting loops; a turn takes 10 to 40 ns. */
enum {
    GRACE = 50,   /* before another thread's share is taken: longer than a cache line takes between cores */
    SPINS = 3000, /* before the core is yielded: longer than the gap between two steps */
};

/* Pieces are numbered over the life of a team. A thread that was descheduled with an old number finds that piece
 * already claimed. */
typedef struct Share {
    _Alignas(64) _Atomic uint64_t claimed; /* pieces of which this share has been begun */
} Share;

struct Team {
    Memory memory;
    size_t bytes;
    int threads;       /* with the caller */
    int started;       /* workers that run */
    pthread_t *worker; /* [threads - 1] */
    TeamJob *job;      /* the job of the pieces up to `end`; read only after claiming a share of one */
    void *user;
    uint64_t begin;
    _Alignas(64) _Atomic uint64_t end;  /* pieces there are */
    _Alignas(64) _Atomic uint64_t done; /* shares done, all in all */
    _Alignas(64) _Atomic uint32_t turn; /* grows with every job: what sleepers wait on */
    _Atomic uint32_t sleepers;
    _Atomic bool ending;
    Share share[]; /* [threads] */
};

typedef struct Worker { /* the arguments of a new thread, which copies them before team_open continues */
    Team *team;
    int thread;
    _Atomic bool taken;
} Worker;

static bool take_share(Team *t, uint64_t piece, int share)
{
    uint64_t before = piece;

    if (!atomic_compare_exchange_strong(&t->share[share].claimed, &before, piece + 1))
        return false;
    t->job(t->user, (int)(piece - t->begin), share, t->threads);
    atomic_fetch_add_explicit(&t->done, 1, memory_order_acq_rel);
    return true;
}

static bool help(Team *t, uint64_t piece)
{
    for (int i = 0; i < t->threads; i++)
        if (take_share(t, piece, i))
            return true;
    return false;
}

static bool is_done(const Team *t, uint64_t piece)
{
    return atomic_load_explicit(&t->done, memory_order_acquire) >= (piece + 1) * (uint64_t)t->threads;
}

/* Waits until all shares of a piece are done; the caller's is. */
static void finish_piece(Team *t, uint64_t piece)
{
    for (int turn = 0; !is_done(t, piece); turn++) {
        if (turn < GRACE)
            team_pause();
        else if (turn % GRACE == 0 && help(t, piece))
            continue;
        else if (turn < SPINS)
            team_pause();
        else
            sched_yield();
    }
}

/* Works until every piece published so far is done. */
static void work_on(Team *t, int me)
{
    const uint64_t end = atomic_load(&t->end);
    uint64_t piece = atomic_load(&t->done) / (uint64_t)t->threads;

    for (; piece < end; piece++) {
        take_share(t, piece, me);
        finish_piece(t, piece);
    }
}

/* Sleeps until there is a job after number `turn`. */
static void sleep_until(Team *t, uint32_t turn)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&t->turn, memory_order_acquire) != turn)
            return;
        team_pause();
    }
    /* The sleeper and the waker each write first and then read the other's word, so one of them sees the other. */
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->turn) == turn)
        syscall(SYS_futex, &t->turn, FUTEX_WAIT_PRIVATE, turn, NULL, NULL, 0);
    atomic_fetch_sub(&t->sleepers, 1);
}

static void wake(Team *t)
{
    atomic_fetch_add(&t->turn, 1);
    if (atomic_load(&t->sleepers))
        syscall(SYS_futex, &t->turn, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
}

static void *work(void *p)
{
    Worker *w = p;
    Team *t = w->team;
    const int me = w->thread;
    uint32_t turn = 0;

    atomic_store(&w->taken, true);
    for (;;) {
        sleep_until(t, turn);
        turn = atomic_load(&t->turn);
        if (atomic_load(&t->ending))
            return NULL;
        work_on(t, me);
    }
}

/* Workers block all signals: these are for the program's own threads. */
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

    const size_t shares = sizeof(Team) + sizeof(Share) * (size_t)threads;
    const size_t bytes = shares + sizeof(pthread_t) * (size_t)threads;
    Team *t = memory_alloc(m, bytes, 64);

    *out = NULL;
    if (!t)
        return memory_fail(err, "the threads", bytes);
    t->memory = *m;
    t->bytes = bytes;
    t->threads = threads;
    t->worker = (pthread_t *)((char *)t + shares);
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
    atomic_store(&t->ending, true);
    wake(t);
    for (int i = 0; i < t->started; i++)
        pthread_join(t->worker[i], NULL);

    const Memory m = t->memory;

    memory_free(&m, t, t->bytes);
}

int team_threads(const Team *t)
{
    return t->threads;
}

void team_run(Team *t, TeamJob *job, void *user, int pieces)
{
    t->job = job;
    t->user = user;
    t->begin = atomic_load(&t->end);
    atomic_store(&t->end, t->begin + (uint64_t)pieces);
    if (t->threads > 1)
        wake(t);
    work_on(t, 0);
}
