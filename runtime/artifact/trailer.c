/* trailer.c - finds the artifact appended to a program. */
#include "trailer.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

#include "../base/hash.h"

FtxTrailer trailer_make(uint64_t offset, uint64_t bytes)
{
    FtxTrailer t = {.offset = offset, .bytes = bytes};

    t.checksum = hash64(&t, offsetof(FtxTrailer, checksum));
    memcpy(t.magic, FTX_TRAILER_MAGIC, sizeof t.magic);
    return t;
}

static bool is_program(FileMap file)
{
    return file.bytes >= sizeof(Elf64_Ehdr) && memcmp(file.at, ELFMAG, SELFMAG) == 0;
}

/* Linkers put the section table last. */
static uint64_t program_end(FileMap file)
{
    Elf64_Ehdr h;

    memcpy(&h, file.at, sizeof h);
    return h.e_shoff + (uint64_t)h.e_shnum * h.e_shentsize;
}

FtxStatus trailer_find(FileMap file, FileMap *artifact, FtxError *err)
{
    FtxTrailer t, right;

    *artifact = file;
    if (!is_program(file))
        return FTX_OK;
    memcpy(&t, (const char *)file.at + file.bytes - sizeof t, sizeof t);
    if (memcmp(t.magic, FTX_TRAILER_MAGIC, sizeof t.magic) != 0)
        return file.bytes == program_end(file)
                   ? ftx_fail(err, FTX_EFORMAT, "is a program with no model inside")
                   : ftx_fail(err, FTX_EFORMAT,
                              "the model inside has lost its end: the file was cut off, or another "
                              "tool wrote to it; make it again with ftxc compile --exe");
    right = trailer_make(t.offset, t.bytes);
    if (t.checksum != right.checksum || t.offset % FTX_TRAILER_ALIGN || t.offset > file.bytes - sizeof t ||
        t.bytes != file.bytes - sizeof t - t.offset)
        return ftx_fail(err, FTX_EFORMAT,
                        "the model inside is not where the end of the file says: damaged; make it "
                        "again with ftxc compile --exe");
    *artifact = (FileMap){(const char *)file.at + t.offset, (size_t)t.bytes};
    return FTX_OK;
}

FtxStatus trailer_alone(const char *path, bool *alone, FtxError *err)
{
    FileMap file;
    FtxStatus s = file_map(path, &file, err);

    *alone = false;
    if (s)
        return s;
    *alone = is_program(file) && file.bytes == program_end(file);
    file_unmap(&file);
    return FTX_OK;
}
