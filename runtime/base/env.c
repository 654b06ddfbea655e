/* env.c - the environment variables of env.def. */
#include "env.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define ENV(name, what) #name,
#include "env.def"
#undef ENV
};

const char *env_text(EnvFlag flag)
{
    const char *s = getenv(names[flag]);

    return s && *s ? s : NULL;
}

bool env_on(EnvFlag flag)
{
    const char *s = env_text(flag);

    return s && strcmp(s, "0") != 0;
}

FtxStatus env_int(EnvFlag flag, int low, int high, int otherwise, int *value, FtxError *err)
{
    const char *s = env_text(flag);
    char *end;
    long n;

    *value = otherwise;
    if (!s)
        return FTX_OK;
    n = strtol(s, &end, 10);
    if (*end || n < low || n > high)
        return ftx_fail(err, FTX_EINVAL, "%s is \"%s\": expected a whole number from %d to %d", names[flag], s, low,
                        high);
    *value = (int)n;
    return FTX_OK;
}
