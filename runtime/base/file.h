/* file.h - files: mapped for reading, written whole or not at all. */
#ifndef FTX_BASE_FILE_H
#define FTX_BASE_FILE_H

#include "error.h"

typedef struct FileMap {
    const void *at; /* NULL for an empty file */
    size_t bytes;
} FileMap;

typedef struct FileMaps {
    FileMap *at;
    size_t n, cap;
} FileMaps;

/* Maps a whole file read-only. The reason names the path. */
FtxStatus file_map(const char *path, FileMap *map, FtxError *err);
void file_unmap(FileMap *map);

/* The text of a file, without the byte order mark (U+FEFF) that some editors write. "" if it is empty; no NUL ends
 * it. */
const char *file_text(const FileMap *map, size_t *bytes);

/* A file that appears at `path` only when it is complete: written to a temporary name beside it,
 * synced, renamed. file_commit or file_abort must follow; both close it. */
typedef struct FileOut FileOut;
FtxStatus file_create(const char *path, FileOut **out, FtxError *err);
FtxStatus file_write(FileOut *out, const void *p, size_t bytes, FtxError *err);
FtxStatus file_write_at(FileOut *out, uint64_t offset, const void *p, size_t bytes, FtxError *err);
FtxStatus file_executable(FileOut *out, FtxError *err); /* everyone who may read it may run it */
FtxStatus file_sync(FileOut *out, FtxError *err);       /* to the disk; only commit or abort may follow */
FtxStatus file_commit(FileOut *out, FtxError *err);     /* syncs unless file_sync was called */
void file_abort(FileOut *out);                          /* NULL is fine */

/* Removes temporary files that are open; safe in a signal handler (Ctrl-C). */
void file_abort_all(void);

FtxStatus file_write_whole(const char *path, const void *p, size_t bytes, FtxError *err);
FtxStatus file_make_dirs(const char *path, FtxError *err); /* like mkdir -p */
bool file_exists(const char *path);

#endif
