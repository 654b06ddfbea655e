/* error.h - fail in one line, with the reason. */
#ifndef FTX_BASE_ERROR_H
#define FTX_BASE_ERROR_H

#include "../ftx.h"

/* Writes the reason into *err (if not NULL) and returns status: `return ftx_fail(err, ...)`. */
FtxStatus ftx_fail(FtxError *err, FtxStatus status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__ /* it sees no other file */
#define ftx_fail(err, status, ...) (ftx_fail(err, status, __VA_ARGS__), (status))
#endif

/* Puts "context: " before a reason that a callee left, and returns its status. */
FtxStatus ftx_context(FtxError *err, FtxStatus status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
