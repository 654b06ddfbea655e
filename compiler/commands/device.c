/* commands/device.c - the options of commands that open an artifact. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool device_parse(const char *word, int64_t threads, int64_t random_weights, FtxOptions *o)
{
    *o = (FtxOptions){.threads = (int)threads, .random_weights = (uint64_t)random_weights, .log = device_log};
    if (threads < 0 || threads > 1024)
        return false;
    if (!word || strcmp(word, "auto") == 0) {
        o->device = FTX_DEVICE_AUTO;
    } else if (strcmp(word, "cpu") == 0) {
        o->device = FTX_DEVICE_CPU;
    } else if (strncmp(word, "cuda", 4) == 0 && (word[4] == '\0' || word[4] == ':')) {
        char *end = (char *)"";

        o->device = FTX_DEVICE_CUDA;
        if (word[4] == ':')
            o->ordinal = (int)strtol(word + 5, &end, 10);
        return *end == '\0' && o->ordinal >= 0 && (word[4] == '\0' || word[5] != '\0');
    } else {
        return false;
    }
    return true;
}

void device_log(void *user, int level, const char *text)
{
    (void)user;
    fprintf(stderr, "ftxc: %s%s\n", level ? "warning: " : "", text);
}
