/* file.c - files: mapped for reading, written whole or not at all. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_MAX_FILES = 16, PATH_BYTES = 4096 };

struct FileOut {
    int fd;
    char path[PATH_BYTES], part[PATH_BYTES + 32];
};

/* The files that file_abort_all removes. Storing the pointer last makes a slot valid. */
static FileOut *volatile open_files[OPEN_MAX_FILES];

FtxStatus file_map(const char *path, FileMap *map, FtxError *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    *map = (FileMap){0};
    if (fd < 0)
        return ftx_fail(err, FTX_EIO, "%s: %s", *path ? path : "a file without a name", strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return ftx_fail(err, FTX_EIO, "%s: not a regular file", path);
    }
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

        if (p == MAP_FAILED) {
            const int e = errno;

            close(fd);
            return ftx_fail(err, e == ENOMEM ? FTX_ENOMEM : FTX_EIO, "%s: cannot map %lld bytes: %s", path,
                            (long long)st.st_size, strerror(e));
        }
        map->at = p;
        map->bytes = (size_t)st.st_size;
    }
    close(fd);
    return FTX_OK;
}

void file_unmap(FileMap *map)
{
    if (map->at)
        munmap((void *)(uintptr_t)map->at, map->bytes);
    *map = (FileMap){0};
}

const char *file_text(const FileMap *map, size_t *bytes)
{
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t n = sizeof mark - 1, skip = map->bytes >= n && memcmp(map->at, mark, n) == 0 ? n : 0;

    *bytes = map->bytes - skip;
    return map->at ? (const char *)map->at + skip : "";
}

static void remember(FileOut *f)
{
    for (size_t i = 0; i < OPEN_MAX_FILES; i++)
        if (!open_files[i]) {
            open_files[i] = f;
            return;
        }
}

static void forget(FileOut *f)
{
    for (size_t i = 0; i < OPEN_MAX_FILES; i++)
        if (open_files[i] == f)
            open_files[i] = NULL;
    free(f);
}

/* Creates a file with a new name. The process id alone is not unique where containers share a folder. The name is
 * stored before the file exists, so that Ctrl-C removes it at any time. */
static int open_part(FileOut *f)
{
    struct timespec t;
    int fd = -1;

    remember(f);
    do {
        clock_gettime(CLOCK_REALTIME, &t);
        snprintf(f->part, sizeof f->part, "%s.part-%ld-%09ld", f->path, (long)getpid(), t.tv_nsec);
        fd = open(f->part, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST);
    return fd;
}

FtxStatus file_create(const char *path, FileOut **out, FtxError *err)
{
    FileOut *f = calloc(1, sizeof *f);
    struct stat st;

    *out = NULL;
    if (!f)
        return ftx_fail(err, FTX_ENOMEM, "out of memory");
    if (!*path) {
        free(f);
        return ftx_fail(err, FTX_EIO, "a file without a name cannot be written");
    }
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path) {
        free(f);
        return ftx_fail(err, FTX_EIO, "%.200s...: the path is too long", path);
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) { /* rename would put a file in the place of /dev/null */
        free(f);
        return ftx_fail(err, FTX_EIO, "%s: cannot be written: it is %s", path,
                        S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
    }
    f->fd = open_part(f);
    if (f->fd < 0) {
        const FtxStatus s = ftx_fail(err, FTX_EIO, "%s: cannot be written: %s", path, strerror(errno));

        forget(f);
        return s;
    }
    *out = f;
    return FTX_OK;
}

static FtxStatus write_all(FileOut *f, const char *p, size_t bytes, int64_t at, FtxError *err)
{
    while (bytes) {
        const ssize_t n = at < 0 ? write(f->fd, p, bytes) : pwrite(f->fd, p, bytes, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ftx_fail(err, FTX_EIO, "%s: %s", f->path, n ? strerror(errno) : "disk full");
        p += n;
        bytes -= (size_t)n;
        if (at >= 0)
            at += n;
    }
    return FTX_OK;
}

FtxStatus file_write(FileOut *out, const void *p, size_t bytes, FtxError *err)
{
    return write_all(out, p, bytes, -1, err);
}

FtxStatus file_write_at(FileOut *out, uint64_t offset, const void *p, size_t bytes, FtxError *err)
{
    return write_all(out, p, bytes, (int64_t)offset, err);
}

FtxStatus file_executable(FileOut *out, FtxError *err)
{
    struct stat st;

    if (fstat(out->fd, &st) || fchmod(out->fd, (st.st_mode | (st.st_mode & 0444) >> 2) & 0777))
        return ftx_fail(err, FTX_EIO, "%s: cannot be made executable: %s", out->path, strerror(errno));
    return FTX_OK;
}

FtxStatus file_sync(FileOut *out, FtxError *err)
{
    const int fd = out->fd;
    FtxStatus s = FTX_OK;

    if (fsync(fd))
        s = ftx_fail(err, FTX_EIO, "%s: %s", out->path, strerror(errno));
    out->fd = -1; /* closed, even if close fails */
    if (close(fd) && !s)
        s = ftx_fail(err, FTX_EIO, "%s: %s", out->path, strerror(errno));
    return s;
}

FtxStatus file_commit(FileOut *out, FtxError *err)
{
    FtxStatus s = out->fd >= 0 ? file_sync(out, err) : FTX_OK;

    if (!s && rename(out->part, out->path))
        s = ftx_fail(err, FTX_EIO, "%s: %s", out->path, strerror(errno));
    if (s)
        unlink(out->part);
    forget(out);
    return s;
}

void file_abort(FileOut *out)
{
    if (!out)
        return;
    if (out->fd >= 0)
        close(out->fd);
    unlink(out->part);
    forget(out);
}

void file_abort_all(void)
{
    for (size_t i = 0; i < OPEN_MAX_FILES; i++)
        if (open_files[i])
            unlink(open_files[i]->part);
}

FtxStatus file_write_whole(const char *path, const void *p, size_t bytes, FtxError *err)
{
    FileOut *out;
    FtxStatus s = file_create(path, &out, err);

    if (!out)
        return s;
    s = file_write(out, p, bytes, err);
    if (s) {
        file_abort(out);
        return s;
    }
    return file_commit(out, err);
}

FtxStatus file_make_dirs(const char *path, FtxError *err)
{
    char part[PATH_BYTES];

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return ftx_fail(err, FTX_EIO, "%.200s...: the path is too long", path);
    for (char *p = part + 1;; p++) {
        const char c = *p;

        if (c && c != '/')
            continue;
        *p = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            return ftx_fail(err, FTX_EIO, "%s: %s", part, strerror(errno));
        if (!c)
            return FTX_OK;
        *p = c;
    }
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}
