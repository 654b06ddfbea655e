/* error.c - fail in one line, with the reason. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VERSION_TEXT(major, minor) VERSION_JOINED(major, minor)
#define VERSION_JOINED(major, minor) #major "." #minor

#undef ftx_fail
FtxStatus ftx_fail(FtxError *err, FtxStatus status, const char *format, ...)
{
    va_list ap;

    if (!err)
        return status;
    err->status = status;
    va_start(ap, format);
    vsnprintf(err->text, sizeof err->text, format, ap);
    va_end(ap);
    return status;
}

FtxStatus ftx_context(FtxError *err, FtxStatus status, const char *format, ...)
{
    char before[sizeof err->text], after[sizeof err->text];
    va_list ap;

    if (!err || status == FTX_OK)
        return status;
    va_start(ap, format);
    vsnprintf(before, sizeof before, format, ap);
    va_end(ap);
    memcpy(after, err->text, sizeof after);
    after[sizeof after - 1] = '\0';
    snprintf(err->text, sizeof err->text, "%.480s: %.510s", before, after);
    err->status = status;
    return status;
}

const char *ftx_version(void)
{
    return VERSION_TEXT(FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
}

int ftx_version_number(void)
{
    return FTX_VERSION_MAJOR * 1000 + FTX_VERSION_MINOR;
}

const char *ftx_status_name(FtxStatus status)
{
    switch (status) {
    case FTX_OK: return "ok";
    case FTX_EINVAL: return "invalid request";
    case FTX_EFORMAT: return "bad file";
    case FTX_EIO: return "input/output";
    case FTX_ENOMEM: return "out of memory";
    case FTX_EDEVICE: return "device";
    case FTX_ENODEVICE: return "no device";
    case FTX_EVERSION: return "version";
    case FTX_EFULL: return "full";
    }
    return "unknown";
}
