/* test_fault_compile.c - compiles, opens, uses and closes real models while the n-th call of the file system or the n-th
 * start of a thread fails, for every n; while the compiler, or the allocator of an embedder, runs out of memory. Each
 * time there is a message, no partial file, the old artifact is unchanged and nothing stays open. Models: a decoder,
 * one with beams, an encoder, a decoder with a source. */
#include <dirent.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "compiler/compile.h"
#include "failing.h"
#include "life.h"
#include "runtime/base/file.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif

static const struct {
    const char *spec;
    bool beams;
} models[] = {{"tests/models/tiny-llama", false},
              {"tests/models/tiny-gpt2", true},
              {"tests/models/tiny-bert", false},
              {"tests/models/tiny-marian", true}};

static char folder[64], out[100], old[] = FTX_MAGIC "what was there before"; /* what compile may replace: an artifact */

/* --- the folder of the artifact -------------------------------------------------------------------- */

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static int open_files(void)
{
    return entries("/proc/self/fd");
}

static void empty_folder(void)
{
    struct dirent *e;
    DIR *d = opendir(folder);

    assert_non_null(d);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') {
            char path[400];

            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            unlink(path);
        }
    closedir(d);
}

static bool is_old(void)
{
    char text[64] = "";
    FILE *f = fopen(out, "rb");
    size_t n = 0;

    if (f) {
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
    }
    return n == strlen(old) && strcmp(text, old) == 0;
}

static void put_old(void)
{
    FILE *f;

    empty_folder();
    f = fopen(out, "wb");
    assert_non_null(f);
    fputs(old, f);
    fclose(f);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ftx-fault-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(out, sizeof out, "%s/tiny.ftx", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

/* --- the file system --------------------------------------------------------------------------------- */

static bool compile_once(size_t model, bool sidecar, Diag *d)
{
    static const Override width = {"decode.width=2"};
    const CompileOptions o = {.spec = models[model].spec,
                              .out = out,
                              .targets = "cpu",
                              .overrides = &width,
                              .n_overrides = models[model].beams,
                              .sidecar = sidecar};
    Arena *keep = arena_open();
    CompileResult r;
    const bool ok = compile(&o, keep, &r, d);

    arena_close(keep);
    return ok;
}

static void told(int n, const char *text)
{
    if (!*text || !strchr(text, ':'))
        fail_msg("call %d (%s) fails: no reason in \"%s\"", n, failing.failed, text);
}

static int fail_compile(size_t model, bool sidecar, int error)
{
    for (int n = 1;; n++) {
        const int files = open_files();
        Diag d = {0};
        bool ok;

        put_old();
        atomic_store(&failing.calls, 0);
        failing.error = error;
        atomic_store(&failing.fail_at, n);
        ok = compile_once(model, sidecar, &d);
        atomic_store(&failing.fail_at, 0);
        assert_int_equal(open_files(), files);
        if (ok) {
            assert_false(is_old());
            assert_int_equal(entries(folder), 1 + sidecar);
            if (atomic_load(&failing.calls) < n)
                return n - 1;
            continue; /* some calls need not succeed: a close after reading */
        }
        told(n, d.text);
        if (!is_old() || entries(folder) != 1)
            fail_msg("call %d (%s) fails: %d files in the folder, the old one %s", n, failing.failed, entries(folder),
                     is_old() ? "is there" : "is not there");
    }
}

static void compile_on_a_bad_disk(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(models); i++)
        print_message("%s: %d calls, each failed once\n", models[i].spec, fail_compile(i, false, EIO));
    fail_compile(0, true, ENOSPC);
}

static void *contents(size_t *bytes)
{
    FileMap map;
    void *copy;

    assert_int_equal(file_map(out, &map, NULL), FTX_OK);
    copy = malloc(map.bytes);
    assert_non_null(copy);
    memcpy(copy, map.at, map.bytes);
    *bytes = map.bytes;
    file_unmap(&map);
    return copy;
}

/* Interrupted and partial writes are continued: the file is the same. */
static void compile_with_short_writes(void **state)
{
    static const int errors[] = {0, EINTR};
    size_t bytes, again;
    Diag d = {0};
    void *whole, *copy;

    (void)state;
    assert_true(compile_once(0, false, &d));
    whole = contents(&bytes);
    for (size_t i = 0; i < LEN(errors); i++)
        for (int n = 1; n == 1 || atomic_load(&failing.calls) >= n; n++) {
            bool ok;

            atomic_store(&failing.calls, 0);
            failing.error = errors[i];
            failing.failed = "";
            atomic_store(&failing.fail_at, n);
            d = (Diag){0};
            ok = compile_once(0, false, &d);
            atomic_store(&failing.fail_at, 0);
            if (!ok && (errors[i] == 0 || strstr(failing.failed, "write")))
                fail_msg("call %d (%s): %s", n, failing.failed, d.text);
            if (!ok)
                continue;
            copy = contents(&again);
            assert_int_equal(again, bytes);
            assert_memory_equal(copy, whole, bytes);
            free(copy);
        }
    free(whole);
}

/* --- open, generate or encode, close ------------------------------------------------------------------------- */

static void run_with(size_t model, bool sidecar, int error)
{
    Diag d = {0};
    int n, failed = 0;

    empty_folder();
    assert_true(compile_once(model, sidecar, &d));
    for (n = 1;; n++) {
        const int files = open_files();
        FtxError err;
        FtxStatus s;

        atomic_store(&failing.calls, 0);
        failing.error = error;
        atomic_store(&failing.fail_at, n);
        s = life(out, FTX_DEVICE_CPU, 3, NULL, &err);
        atomic_store(&failing.fail_at, 0);
        assert_int_equal(open_files(), files);
        failed += s != FTX_OK;
        if (s)
            told(n, err.text);
        else if (atomic_load(&failing.calls) < n)
            break;
    }
    assert_true(failed >= (sidecar ? 6 : 3)); /* open, fstat, mmap of each file */
}

static void run_on_a_bad_disk(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(models); i++)
        run_with(i, false, EIO);
    run_with(0, true, EAGAIN);
}

static int fail_every_block(void)
{
    for (int n = 1;; n++) {
        Ledger ledger = {.fail_at = n};
        FtxError err;
        const FtxStatus s = life(out, FTX_DEVICE_CPU, 2, &ledger, &err);

        assert_int_equal(ledger.live, 0);
        if (ledger.calls < n) {
            assert_int_equal(s, FTX_OK);
            return n - 1;
        }
        if (s != FTX_ENOMEM || !strstr(err.text, "memory"))
            fail_msg("block %d: status %d, \"%s\"", n, (int)s, err.text);
    }
}

static void run_without_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(models); i++) {
        Diag d = {0};

        empty_folder();
        assert_true(compile_once(i, false, &d));
        print_message("%s: %d blocks, each refused once\n", models[i].spec, fail_every_block());
    }
}

/* --- no memory ----------------------------------------------------------------------------------------- */

#ifndef SANITIZED
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t bytes);

static struct Shared { /* with the child */
    atomic_int allocations, fail_at;
} * shared;

static bool no_memory(void)
{
    const bool no = shared && atomic_fetch_add(&shared->allocations, 1) + 1 == atomic_load(&shared->fail_at);

    if (no)
        errno = ENOMEM;
    return no;
}

void *malloc(size_t bytes)
{
    return no_memory() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t size)
{
    return no_memory() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t bytes)
{
    return no_memory() ? NULL : __libc_realloc(p, bytes);
}

/* The exit code of a compile in another process: 0 done, 2 failed with a message, 3 ended by die. */
static int compile_apart(int fail_at)
{
    int status;
    pid_t child;

    fflush(NULL);
    atomic_store(&shared->allocations, 0);
    atomic_store(&shared->fail_at, fail_at);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        Diag d = {0};

        if (!freopen("/dev/null", "w", stderr))
            _exit(9);
        atomic_store(&shared->allocations, 0);
        _exit(compile_once(0, false, &d) ? 0 : d.text[0] ? 2 : 9);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    atomic_store(&shared->fail_at, 0);
    if (!WIFEXITED(status))
        fail_msg("allocation %d fails: the compiler ends by signal %d", fail_at, WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* Without memory the compiler may end the program, but with a message and without a partial file. Fails each of the
 * first hundred allocations, then some of the rest. */
static void compile_without_memory(void **state)
{
    int all, ended = 0;

    (void)state;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    put_old();
    assert_int_equal(compile_apart(0), 0);
    all = atomic_load(&shared->allocations);
    for (int n = 1; n <= all; n += n < 100 ? 1 : all / 150 + 1) {
        int code;

        put_old();
        code = compile_apart(n);
        ended += code != 0;
        if (code == 0) {
            assert_int_equal(entries(folder), 1); /* succeeded all the same: PCRE2 without its JIT */
        } else if ((code != 2 && code != 3) || !is_old() || entries(folder) != 1) {
            fail_msg("allocation %d fails: exit code %d, %d files in the folder", n, code, entries(folder));
        }
    }
    print_message("%d allocations, %d refused compiles\n", all, ended);
    assert_true(ended > 100);
    munmap(shared, 4096);
    shared = NULL;
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef SANITIZED
        cmocka_unit_test(compile_without_memory), /* first: it forks, so no thread may run */
#endif
        cmocka_unit_test(compile_on_a_bad_disk),  cmocka_unit_test(compile_with_short_writes),
        cmocka_unit_test(run_on_a_bad_disk),      cmocka_unit_test(run_without_memory),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
