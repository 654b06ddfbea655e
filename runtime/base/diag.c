/* diag.c - the compiler's diagnostics. */
#include "diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "file.h"

#undef diag_error
bool diag_error(Diag *d, Loc loc, const char *format, ...)
{
    va_list ap;
    int at = 0;

    if (d->failed)
        return false;
    d->failed = true;
    if (loc.file && loc.line)
        at = snprintf(d->text, sizeof d->text, "%s:%d: ", loc.file, loc.line);
    else if (loc.file)
        at = snprintf(d->text, sizeof d->text, "%s: ", loc.file);
    if (at < 0 || at >= (int)sizeof d->text)
        at = 0;
    va_start(ap, format);
    vsnprintf(d->text + at, sizeof d->text - (size_t)at, format, ap);
    va_end(ap);
    return false;
}

_Noreturn void die(const char *format, ...)
{
    va_list ap;

    fputs("ftxc: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    file_abort_all(); /* no half-written file stays */
    exit(3);
}
