/* env.h - the environment variables of env.def. */
#ifndef FTX_BASE_ENV_H
#define FTX_BASE_ENV_H

#include <stdbool.h>

#include "error.h"

typedef enum EnvFlag {
#define ENV(name, what) ENV_##name,
#include "env.def"
#undef ENV
    ENV_COUNT,
} EnvFlag;

const char *env_text(EnvFlag flag); /* NULL: not set, or empty */
bool env_on(EnvFlag flag);          /* set, and not "0" */

/* A whole number from `low` to `high`; where the variable is not set, `otherwise`. */
FtxStatus env_int(EnvFlag flag, int low, int high, int otherwise, int *value, FtxError *err);

#endif
