/* diag.c - the compiler's diagnostics. */
#include "diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "file.h"

#undef diag_error
#undef diag_machine

static void say(Diag *d, Loc loc, const char *format, va_list ap)
{
    int at = 0;

    if (loc.file && loc.line)
        at = snprintf(d->text, sizeof d->text, "%s:%d: ", loc.file, loc.line);
    else if (loc.file)
        at = snprintf(d->text, sizeof d->text, "%s: ", loc.file);
    if (at < 0 || at >= (int)sizeof d->text)
        at = 0;
    vsnprintf(d->text + at, sizeof d->text - (size_t)at, format, ap);
}

bool diag_error(Diag *d, Loc loc, const char *format, ...)
{
    va_list ap;

    if (d->failed)
        return false;
    d->failed = true;
    va_start(ap, format);
    say(d, loc, format, ap);
    va_end(ap);
    return false;
}

bool diag_machine(Diag *d, const char *format, ...)
{
    va_list ap;

    if (d->failed)
        return false;
    d->failed = d->machine = true;
    va_start(ap, format);
    say(d, (Loc){0}, format, ap);
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
