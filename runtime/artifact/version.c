/* version.c - whether this libftx reads an artifact's format, and what to do if it does not.
 *
 * An artifact keeps the command that made it among its build facts, since format 7. Header and section table are the
 * same in all formats; of an older one nothing else is read. */
#include "version.h"

#include <stdio.h>
#include <string.h>

#include "ftx_format.h"

/* The line of the build facts that begins with "command ", of *n bytes; NULL: there is none that can be printed. */
static const char *find_command(const char *facts, size_t bytes, size_t *n)
{
    static const char key[] = "command ";

    for (size_t at = 0, end; at < bytes; at = end + 1) {
        bool printable = true;

        for (end = at; end < bytes && facts[end] && facts[end] != '\n'; end++)
            printable &= (unsigned char)facts[end] >= ' ' && facts[end] != 0x7f;
        if (end - at > sizeof key - 1 && memcmp(facts + at, key, sizeof key - 1) == 0) {
            *n = end - at - (sizeof key - 1);
            return printable && *n < 600 ? facts + at + sizeof key - 1 : NULL;
        }
    }
    return NULL;
}

static const char *command_of(FileMap map, size_t *n)
{
    const FtxHeader *h = map.at;
    const FtxSection *s;

    if (h->sections_at % 8 || h->sections_at > map.bytes ||
        h->sections > (map.bytes - h->sections_at) / sizeof(FtxSection))
        return NULL;
    s = (const FtxSection *)((const char *)map.at + h->sections_at);
    for (uint32_t i = 0; i < h->sections; i++)
        if (s[i].kind == FTX_SEC_BUILD && s[i].offset <= map.bytes && s[i].bytes <= map.bytes - s[i].offset)
            return find_command((const char *)map.at + s[i].offset, (size_t)s[i].bytes, n);
    return NULL;
}

FtxStatus version_check(FileMap map, const char *path, bool program, FtxError *err)
{
    const FtxHeader *h = map.at;
    const char *exe = program ? " --exe" : "", *command;
    size_t n = 0;
    char who[120];

    snprintf(who, sizeof who, "ftxc %u.%u wrote format %u, this libftx %d.%d reads format %d", h->version_major,
             h->version_minor, h->format, FTX_VERSION_MAJOR, FTX_VERSION_MINOR, FTX_FORMAT);
    if (h->format > FTX_FORMAT)
        return ftx_fail(err, FTX_EVERSION,
                        "the artifact is newer: %s; update libftx, or compile the model again with ftxc %d.%d", who,
                        FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
    if (h->format == FTX_FORMAT)
        return FTX_OK;
    command = command_of(map, &n);
    if (command)
        return ftx_fail(err, FTX_EVERSION, "the artifact is older: %s; make a new one: %.*s%s -o %s", who, (int)n,
                        command, exe, path ? path : "FILE.ftx");
    return ftx_fail(
        err, FTX_EVERSION,
        "the artifact is older: %s; make a new one: ftxc compile SPEC%s -o %s, where SPEC is the spec or the "
        "checkout that it was made from",
        who, exe, path ? path : "FILE.ftx");
}
