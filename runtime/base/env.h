/* env.h - the environment variables of env.def. */
#ifndef FTX_BASE_ENV_H
#define FTX_BASE_ENV_H

#include <stdbool.h>

typedef enum EnvFlag {
#define ENV(name, what) ENV_##name,
#include "env.def"
#undef ENV
    ENV_COUNT,
} EnvFlag;

const char *env_text(EnvFlag flag);       /* NULL: not set, or empty */
bool env_on(EnvFlag flag);                /* set, and not "0" */
int env_int(EnvFlag flag, int otherwise); /* `otherwise` where not set or not a number */

#endif
