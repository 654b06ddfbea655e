/* device.c - the options of commands that open an artifact. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "../runtime/base/team.h"

enum { MAX_THREADS = 1024 };

/* "cuda", "cuda:1" */
static bool parse_cuda(const char *word, FtxOptions *o)
{
    const char *number = word[4] == ':' ? word + 5 : "0";

    o->device = FTX_DEVICE_CUDA;
    o->ordinal = atoi(number);
    return *number && strlen(number) < 4 && strspn(number, "0123456789") == strlen(number);
}

bool device_parse(const char *word, int threads, uint64_t random_weights, FtxOptions *o, char *error,
                  size_t error_bytes)
{
    bool known = true;

    *o = (FtxOptions){
        .size = sizeof(FtxOptions), .threads = threads, .random_weights = random_weights, .log = device_log};
    if (threads < 0 || threads > MAX_THREADS) {
        snprintf(error, error_bytes, "--threads: expected 0 (all CPUs) to %d, found %d", MAX_THREADS, threads);
        return false;
    }
    if (!word || strcmp(word, "auto") == 0)
        o->device = FTX_DEVICE_AUTO;
    else if (strcmp(word, "cpu") == 0)
        o->device = FTX_DEVICE_CPU;
    else
        known = strncmp(word, "cuda", 4) == 0 && (word[4] == '\0' || word[4] == ':') && parse_cuda(word, o);
    if (!known)
        snprintf(error, error_bytes, "--device: expected cpu, cuda, cuda:N or auto, found \"%s\"", word);
    else if (threads > 2 * team_default_threads())
        command_print("%s: note: %d threads on %d CPUs: more threads than CPUs slow each other down\n", command_program,
                      threads, team_default_threads());
    return known;
}

void device_log(void *user, int level, const char *text)
{
    (void)user;
    command_print("%s: %s%s\n", command_program, level ? "warning: " : "", text);
}
