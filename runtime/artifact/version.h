/* version.h - whether this libftx reads an artifact's format. */
#ifndef FTX_ARTIFACT_VERSION_H
#define FTX_ARTIFACT_VERSION_H

#include "../base/error.h"
#include "../base/file.h"

/* FTX_EVERSION says what to do: update libftx, or the command that makes the artifact anew. map: at least an
 * FtxHeader. path: the file's; NULL: there is none. program: the artifact is appended to a program (--exe). */
FtxStatus version_check(FileMap map, const char *path, bool program, FtxError *err);

#endif
