/* env.c - the environment variables of env.def. */
#include "env.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *what;
} flags[] = {
#define ENV(name, what) {#name, what},
#include "env.def"
#undef ENV
};

const char *env_name(EnvFlag flag)
{
    return flags[flag].name;
}

const char *env_what(EnvFlag flag)
{
    return flags[flag].what;
}

const char *env_text(EnvFlag flag)
{
    const char *s = getenv(flags[flag].name);

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
