/* env.c - the environment variables of env.def. */
#include "env.h"

#include <limits.h>
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

int env_int(EnvFlag flag, int otherwise)
{
    const char *s = env_text(flag);
    char *end;
    long n;

    if (!s)
        return otherwise;
    n = strtol(s, &end, 10);
    return *end || n < INT_MIN || n > INT_MAX ? otherwise : (int)n;
}
