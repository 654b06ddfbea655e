/* nccl.c - NCCL as a table of functions, and a communicator whose calls all end.
 *
 * Why sends and receives in a group, and not ncclAllGather: parts of each size stand at the same places of $exchange, and the
 * first group connects the ranks for all later ones, while NCCL chooses another algorithm, with connections of its own, for
 * another size of a collective call. The sum is not NCCL's: our kernel adds in the order of the ranks. */
#include "nccl.h"

#ifdef FTX_HAVE_CUDA
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_table.h"

enum { ABORT_SECONDS = 20 }; /* then the thread that ends a communicator is left to itself */

struct Nccl {
    Memory memory;
    const NcclTable *nccl;
    NcclHandle comm;
    int rank, ranks;
    int seconds; /* for a call in progress */
    NcclOver *over;
    void *user;
    pthread_t ender;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ending, ended;
};

static struct {
    pthread_mutex_t lock;
    const NcclTable *replaced;
    bool tried;
    FtxError why; /* status FTX_OK: the table is whole */
    NcclTable table;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- the library ------------------------------------------------------------------------------------ */

static FtxStatus check_version(const NcclTable *t, FtxError *err)
{
    int version = 0;

    if (t->ncclGetVersion(&version))
        version = 0;
    if (version >= NCCL_OLDEST)
        return FTX_OK;
    return ftx_fail(err, FTX_ENODEVICE, "NCCL is too old: version %d.%d, needed is %d.%d or newer",
                    version / (version < 10000 ? 1000 : 10000), version / 100 % (version < 10000 ? 10 : 100),
                    NCCL_OLDEST / 10000, NCCL_OLDEST / 100 % 100);
}

static FtxStatus load(NcclTable *t, FtxError *err)
{
    static const char *const names[] = {"libnccl.so.2", "libnccl.so"};
    const char *missing = NULL;
    char why[700];
    void *handle = cuda_library_open(names, sizeof names / sizeof *names, why, sizeof why);
    FtxStatus s;

    if (!handle)
        return ftx_fail(err, FTX_ENODEVICE,
                        "GPUs of several processes need NCCL (the package libnccl2, or nvidia-nccl-cu12 and -cu13 for "
                        "Python; FTX_CUDA names its folder): %s",
                        why);
#define F(name, result, arguments) \
    *(void **)&t->name = dlsym(handle, #name); \
    if (!t->name) \
        missing = #name;
    NCCL_FUNCTIONS(F)
#undef F
    s = t->ncclGetVersion ? check_version(t, err) : FTX_OK;
    if (!s && missing)
        s = ftx_fail(err, FTX_ENODEVICE, "NCCL has no %s", missing);
    if (s)
        dlclose(handle);
    return s; /* else it stays loaded until the process ends */
}

/* Multicast of NVLink gains nothing for messages this small, and needs a driver and a fabric that are set up for it. */
static void choose_settings(void)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

static FtxStatus find_table(const NcclTable **out, FtxError *err)
{
    FtxStatus s = FTX_OK;

    pthread_mutex_lock(&library.lock);
    choose_settings();
    *out = library.replaced;
    if (!*out) {
        if (!library.tried)
            library.why.status = load(&library.table, &library.why);
        library.tried = true;
        s = library.why.status;
        if (s && err)
            *err = library.why;
        *out = s ? NULL : &library.table;
    }
    pthread_mutex_unlock(&library.lock);
    return s;
}

void nccl_replace(const NcclTable *t)
{
    pthread_mutex_lock(&library.lock);
    library.replaced = t;
    pthread_mutex_unlock(&library.lock);
}

FtxStatus nccl_version(int *version, FtxError *err)
{
    const NcclTable *t;
    FtxStatus s = find_table(&t, err);

    *version = 0;
    if (!s && t->ncclGetVersion(version))
        s = ftx_fail(err, FTX_ENODEVICE, "NCCL does not say its version");
    return s;
}

/* --- calls -------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static FtxStatus check(const NcclTable *t, NcclHandle comm, int r, const char *what, FtxError *err)
{
    const char *name, *more;

    if (r == NCCL_SUCCESS)
        return FTX_OK;
    name = t->ncclGetErrorString(r);
    more = t->ncclGetLastError(comm);
    return ftx_fail(err, FTX_EDEVICE, "%s: NCCL: %s%s%.300s", what, name ? name : "error", more && *more ? ": " : "",
                    more ? more : "");
}

/* Waits for a call that is in progress. */
static FtxStatus finish(const Nccl *n, int r, const char *what, FtxError *err)
{
    const double until = now() + n->seconds;

    while (r == NCCL_IN_PROGRESS) {
        int asked;

        if (n->over(n->user))
            return ftx_fail(err, FTX_EDEVICE, "%s: another rank has failed", what);
        if (now() >= until)
            return ftx_fail(err, FTX_EDEVICE, "%s: NCCL has not ended it within %d s: a rank did not come", what,
                            n->seconds);
        nanosleep(&(struct timespec){0, 200 * 1000}, NULL);
        asked = n->nccl->ncclCommGetAsyncError(n->comm, &r);
        r = asked ? asked : r;
    }
    return check(n->nccl, n->comm, r, what, err);
}

FtxStatus nccl_id(char id[NCCL_ID_BYTES], FtxError *err)
{
    const NcclTable *t;
    NcclUniqueId u;
    FtxStatus s = find_table(&t, err);

    if (!s)
        s = check(t, NULL, t->ncclGetUniqueId(&u), "the meeting of the ranks", err);
    if (!s)
        memcpy(id, u.bytes, sizeof u.bytes);
    return s;
}

static bool is_ending(const Nccl *n)
{
    return __atomic_load_n(&n->ending, __ATOMIC_ACQUIRE);
}

FtxStatus nccl_check(const Nccl *n, FtxError *err)
{
    int r = NCCL_SUCCESS, asked;

    if (is_ending(n))
        return ftx_fail(err, FTX_EDEVICE, "the exchange of the ranks has been ended");
    asked = n->nccl->ncclCommGetAsyncError(n->comm, &r);
    r = asked ? asked : r;
    return r == NCCL_IN_PROGRESS ? FTX_OK : check(n->nccl, n->comm, r, "an exchange of the ranks", err);
}

FtxStatus nccl_exchange(Nccl *n, CUdeviceptr x, size_t bytes, CUdeviceptr into, uint64_t share, CUstream stream,
                        FtxError *err)
{
    const NcclTable *t = n->nccl;
    int r, end;

    if (is_ending(n))
        return nccl_check(n, err);
    r = t->ncclGroupStart();
    if (r)
        return check(t, n->comm, r, "an exchange of the ranks", err);
    for (int i = 0; i < 2 * n->ranks && !r; i++) {
        const int rank = i / 2;

        if (rank == n->rank)
            continue;
        if (i % 2 == 0)
            r = t->ncclSend((const void *)(uintptr_t)x, bytes, NCCL_BYTE, rank, n->comm, stream);
        else
            r = t->ncclRecv((void *)(uintptr_t)(into + (uint64_t)rank * share), bytes, NCCL_BYTE, rank, n->comm,
                            stream);
        r = r == NCCL_IN_PROGRESS ? NCCL_SUCCESS : r; /* the group's end waits for it */
    }
    end = t->ncclGroupEnd(); /* also after a failure, to end the group */
    return finish(n, r ? r : end, "an exchange of the ranks", err);
}

/* --- open and close ------------------------------------------------------------------------------------- */

/* Waits until it is told, then ends the communicator. */
static void *end_comm(void *user)
{
    Nccl *n = user;

    pthread_mutex_lock(&n->lock);
    while (!n->ending)
        pthread_cond_wait(&n->changed, &n->lock);
    pthread_mutex_unlock(&n->lock);
    if (n->comm)
        n->nccl->ncclCommAbort(n->comm);
    pthread_mutex_lock(&n->lock);
    n->ended = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

void nccl_abort(Nccl *n)
{
    pthread_mutex_lock(&n->lock);
    __atomic_store_n(&n->ending, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* Whether the thread has ended in time. */
static bool has_ended(Nccl *n)
{
    struct timespec until;
    bool ended;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_SECONDS;
    pthread_mutex_lock(&n->lock);
    while (!n->ended && !pthread_cond_timedwait(&n->changed, &n->lock, &until))
        ;
    ended = n->ended;
    pthread_mutex_unlock(&n->lock);
    return ended;
}

void nccl_close(Nccl *n)
{
    if (!n)
        return;

    const Memory m = n->memory;

    if (n->started) {
        nccl_abort(n);
        if (!has_ended(n)) { /* its thread goes on with this memory */
            pthread_detach(n->ender);
            return;
        }
        pthread_join(n->ender, NULL);
    }
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    memory_free(&m, n, sizeof *n);
}

/* The thread comes first: without it a communicator could not be ended. It blocks all signals. */
static FtxStatus start_ender(Nccl *n, FtxError *err)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&n->ender, NULL, end_comm, n);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    n->started = !failed;
    return failed ? ftx_fail(err, FTX_ENOMEM, "cannot start a thread for NCCL: %s", strerror(failed)) : FTX_OK;
}

FtxStatus nccl_open(const Memory *m, const char id[NCCL_ID_BYTES], int rank, int ranks, int seconds, NcclOver *over,
                    void *user, Nccl **out, FtxError *err)
{
    NcclConfig config = NCCL_CONFIG;
    NcclUniqueId u;
    Nccl *n = memory_alloc(m, sizeof *n, 64);
    FtxStatus s;

    *out = NULL;
    if (!n)
        return memory_fail(err, "the exchange of the ranks", sizeof *n);
    *n = (Nccl){.memory = *m, .rank = rank, .ranks = ranks, .seconds = seconds, .over = over, .user = user};
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    config.blocking = 0;
    memcpy(u.bytes, id, sizeof u.bytes);
    s = find_table(&n->nccl, err);
    if (!s)
        s = start_ender(n, err);
    if (!s)
        s = finish(n, n->nccl->ncclCommInitRankConfig(&n->comm, ranks, u, rank, &config), "the meeting of the ranks",
                   err);
    if (s) {
        nccl_close(n);
        return s;
    }
    *out = n;
    return FTX_OK;
}
#endif
