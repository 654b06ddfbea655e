/* trailer.h - an artifact appended to a program: `ftxc compile --exe`.
 *
 *     program (ELF) | zeros to a page | artifact, as it is in an .ftx file | FtxTrailer
 *
 * The system loads the program and ignores what follows it. ftx reads the end of the file first. */
#ifndef FTX_TRAILER_H
#define FTX_TRAILER_H

#include "../base/file.h"

#define FTX_TRAILER_MAGIC "\211FTXEXE\n" /* 8 bytes, no NUL */
enum { FTX_TRAILER_ALIGN = 4096 };       /* of the artifact in the file */

typedef struct FtxTrailer {
    uint64_t offset;   /* of the artifact in the file */
    uint64_t bytes;    /* of the artifact; the trailer follows at once */
    uint64_t checksum; /* of the two above; the artifact has its own */
    uint8_t magic[8];
} FtxTrailer;

FtxTrailer trailer_make(uint64_t offset, uint64_t bytes);

/* The artifact in a file: the whole file, or the part appended to a program. A program that has lost its end is refused;
 * a file that is no program is returned whole. */
FtxStatus trailer_find(FileMap file, FileMap *artifact, FtxError *err);

/* *alone: the program at `path` ends where its ELF file ends, so no artifact was ever appended to it. */
FtxStatus trailer_alone(const char *path, bool *alone, FtxError *err);

#endif
