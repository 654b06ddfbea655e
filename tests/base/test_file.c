/* test_file.c - files that appear when they are complete: what stands in the way, and what is left; files as texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/arena.h"
#include "runtime/base/file.h"
#include "tests/temp.h"

/* In place of the C library's: see in_pieces. */
static bool interrupted;
static size_t piece; /* 0: all at once */

static ssize_t write_piece(long call, int fd, const void *p, size_t n, off_t at)
{
    if (interrupted) {
        interrupted = false;
        errno = EINTR;
        return -1;
    }
    return syscall(call, fd, p, piece && n > piece ? piece : n, at);
}

ssize_t write(int fd, const void *p, size_t n)
{
    return write_piece(SYS_write, fd, p, n, 0);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return write_piece(SYS_pwrite64, fd, p, n, at);
}

static void refused(const char *path, const char *word)
{
    FtxError err = {0};
    FileOut *f;

    assert_int_equal(file_create(path, &f, &err), FTX_EIO);
    assert_null(f);
    assert_non_null(strstr(err.text, word));
}

static void no_such_place(void **state)
{
    static char far[5000];

    (void)state;
    memset(far, 'x', sizeof far - 1);
    refused(far, "the path is too long");
    far[4096] = '\0'; /* the first that has no room for its end */
    refused(far, "the path is too long");
    refused("/tmp", "it is a folder");
    refused("", "without a name");
    refused(temp_path("none/file"), "cannot be written");
    assert_int_equal(file_make_dirs(far, NULL), FTX_EIO);

    /* a pipe, as a device: not replaced by a file */
    const char *pipe = temp_path("pipe");
    struct stat st;

    assert_int_equal(mkfifo(pipe, 0600), 0);
    refused(pipe, "it is no regular file");
    assert_int_equal(stat(pipe, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(remove(pipe), 0);
}

static void assert_text(const char *path, const char *wanted)
{
    char text[8] = "";
    FILE *in = fopen(path, "r");

    assert_non_null(in);
    assert_int_equal(fread(text, 1, sizeof text - 1, in), strlen(wanted));
    fclose(in);
    assert_string_equal(text, wanted);
}

/* Files in the folder of temporary ones whose names begin so; the path of one of them. */
static int find_files(const char *start, char *path, size_t size)
{
    DIR *d = opendir(temp_folder);
    int n = 0;

    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, start, strlen(start)) == 0) {
            snprintf(path, size, "%s/%s", temp_folder, e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static int count_files(const char *start)
{
    return find_files(start, (char[1]){0}, 1);
}

/* Two at once, perhaps of one process number in two containers: each whole, the last one stays. */
static void two_writers(void **state)
{
    const char *path = temp_path("whole");
    FileOut *a, *b;

    (void)state;
    assert_int_equal(file_create(path, &a, NULL), FTX_OK);
    assert_int_equal(file_create(path, &b, NULL), FTX_OK);
    assert_int_equal(file_write(a, "one", 3, NULL), FTX_OK);
    assert_int_equal(file_write(b, "other", 5, NULL), FTX_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(file_commit(a, NULL), FTX_OK);
    assert_text(path, "one");
    assert_int_equal(file_commit(b, NULL), FTX_OK);
    assert_text(path, "other");
    assert_int_equal(count_files("whole"), 1);
}

static void given_up(void **state)
{
    const char *path = temp_path("never");
    FileOut *f;

    (void)state;
    assert_int_equal(file_create(path, &f, NULL), FTX_OK);
    assert_int_equal(file_write(f, "x", 1, NULL), FTX_OK);
    assert_int_equal(count_files("never"), 1);
    file_abort(f);
    assert_int_equal(count_files("never"), 0);
}

/* As after Ctrl-C: the files that are being written go, those that are whole stay. */
static void all_given_up(void **state)
{
    const char *path = temp_path("interrupted");
    FileOut *a, *b;

    (void)state;
    assert_int_equal(file_write_whole(path, "old", 3, NULL), FTX_OK);
    assert_int_equal(file_create(path, &a, NULL), FTX_OK);
    assert_int_equal(file_create(path, &b, NULL), FTX_OK);
    assert_int_equal(count_files("interrupted"), 3);
    file_abort_all();
    assert_int_equal(count_files("interrupted"), 1);
    assert_text(path, "old");
    file_abort(a);
    file_abort(b);
}

static void programs_may_run(void **state)
{
    const char *path = temp_path("program");
    struct stat st;
    FileOut *f;

    (void)state;
    assert_int_equal(file_create(path, &f, NULL), FTX_OK);
    assert_int_equal(file_executable(f, NULL), FTX_OK);
    assert_int_equal(file_commit(f, NULL), FTX_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_mode & S_IXUSR);
}

static void text_of(const char *file, size_t bytes, const char *wanted)
{
    const FileMap map = {bytes ? file : NULL, bytes};
    size_t n;
    const char *text = file_text(&map, &n);

    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(text, wanted, n);
}

static void a_mark_is_no_text(void **state)
{
    (void)state;
    text_of(NULL, 0, "");
    text_of("a", 1, "a");
    text_of("\xEF\xBB\xBF", 3, "");
    text_of("\xEF\xBB\xBF{}", 5, "{}");
    text_of("\xEF\xBB\xBF\xEF\xBB\xBF", 6, "\xEF\xBB\xBF"); /* one is skipped */
    text_of("\xEF\xBB{}", 4, "\xEF\xBB{}");
    text_of("\xEF\xBB", 2, "\xEF\xBB");
}

/* A signal comes before the first byte, then the disk takes a few bytes at a time. */
static void in_pieces(void **state)
{
    const char *path = temp_path("pieces");
    FileOut *f;

    (void)state;
    assert_int_equal(file_create(path, &f, NULL), FTX_OK);
    interrupted = true;
    piece = 2;
    assert_int_equal(file_write(f, "abcde", 5, NULL), FTX_OK);
    interrupted = true;
    assert_int_equal(file_write_at(f, 1, "xyz", 3, NULL), FTX_OK);
    piece = 0;
    assert_int_equal(file_commit(f, NULL), FTX_OK);
    assert_text(path, "axyze");
}

/* A file that cannot take its name leaves nothing; when all files are given up, it is none of them.
 * First of all tests: the place of the first file is the one it has. */
static void no_rest(void **state)
{
    const char *path = temp_path("taken");
    char part[5000];
    FileOut *f;
    int other;

    (void)state;
    assert_int_equal(file_create(path, &f, NULL), FTX_OK);
    assert_int_equal(find_files("taken", part, sizeof part), 1);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(file_commit(f, NULL), FTX_EIO);
    other = open(part, O_CREAT | O_EXCL | O_WRONLY, 0600);
    assert_true(other >= 0);
    close(other);
    file_abort_all();
    assert_int_equal(unlink(part), 0);
    assert_int_equal(count_files("taken"), 1); /* the folder */
    assert_int_equal(rmdir(path), 0);
}

static void mapped(void **state)
{
    FtxError err;
    FileMap map;

    (void)state;
    assert_int_equal(file_map(temp_path("."), &map, &err), FTX_EIO);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(file_write_whole(temp_path("empty"), "", 0, &err), FTX_OK);
    assert_int_equal(file_map(temp_path("empty"), &map, &err), FTX_OK);
    assert_int_equal(map.bytes, 0);
    file_unmap(&map);
}

static void folders(void **state)
{
    char outer[300], inner[320];

    (void)state;
    snprintf(outer, sizeof outer, "%s", temp_path("outer"));
    snprintf(inner, sizeof inner, "%s/inner", outer);
    assert_int_equal(file_make_dirs(inner, NULL), FTX_OK);
    assert_int_equal(file_make_dirs(inner, NULL), FTX_OK);
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(rmdir(outer), 0);
}

/* A file that cannot be written to its end is not there; one that is closed gets no mode. */
static void no_room(void **state)
{
    void (*const before)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, small;
    FileOut *out;
    FtxError err;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const FtxStatus s = file_write_whole(temp_path("long"), "12345", 5, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, before);
    assert_int_equal(s, FTX_EIO);
    assert_non_null(strstr(err.text, "long: File too large"));
    assert_false(file_exists(temp_path("long")));

    assert_int_equal(file_create(temp_path("closed"), &out, &err), FTX_OK);
    assert_int_equal(file_sync(out, &err), FTX_OK);
    assert_int_equal(file_executable(out, &err), FTX_EIO);
    assert_non_null(strstr(err.text, "closed: cannot be made executable: Bad file descriptor"));
    file_abort(out);
}

/* What ends the program says why: in a child, whose standard error is read. */
static void dies(void (*f)(Arena *a), const char *message)
{
    static Arena *keep; /* reachable when the program ends */
    char text[200] = "";
    int pipes[2], status;
    pid_t child;
    size_t n = 0;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        f(keep = arena_open());
        _exit(0);
    }
    close(pipes[1]);
    for (ssize_t more; (more = read(pipes[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)more;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_string_equal(text, message);
}

static void ask_for_all(Arena *a)
{
    volatile size_t all = SIZE_MAX;

    arena_alloc(a, all);
}

static void format_nonsense(Arena *a)
{
    arena_printf(a, "%ls", L"\xfffffff"); /* no character of any locale */
}

static void the_end(void **state)
{
    (void)state;
    dies(ask_for_all, "ftxc: out of memory: 18446744073709551615 bytes asked for at once\n");
    dies(format_nonsense, "ftxc: a text could not be formatted: %ls\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rest),          cmocka_unit_test(in_pieces),         cmocka_unit_test(mapped),
        cmocka_unit_test(folders),          cmocka_unit_test(a_mark_is_no_text), cmocka_unit_test(no_such_place),
        cmocka_unit_test(two_writers),      cmocka_unit_test(given_up),          cmocka_unit_test(all_given_up),
        cmocka_unit_test(programs_may_run), cmocka_unit_test(no_room),           cmocka_unit_test(the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
