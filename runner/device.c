/* device.c - the options of commands that open an artifact. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "../runtime/base/team.h"

enum { MAX_THREADS = 1024 };

/* "", ":1", ":0,1": the numbers of devices, of which several are those of ranks. */
static bool parse_numbers(const char *at, FtxOptions *o)
{
    const size_t most = sizeof o->devices / sizeof *o->devices;
    size_t n = 0;

    if (*at == '\0')
        return true;
    do {
        const size_t digits = strspn(++at, "0123456789");

        if (digits < 1 || digits > 3 || n == most)
            return false;
        o->devices[n++] = atoi(at);
        at += digits;
    } while (*at == ',');
    o->ordinal = o->devices[0];
    o->device_count = n > 1 ? n : 0;
    return *at == '\0';
}

bool device_parse(const char *word, int threads, uint64_t random_weights, const DeviceWeights *w, FtxOptions *o,
                  char *error, size_t error_bytes)
{
    bool known = true;
    const char *end;
    int32_t layers = 0;

    if (w->gpu_layers && (!options_integer(w->gpu_layers, &layers, &end) || *end || layers < 0)) {
        snprintf(error, error_bytes, "--gpu-layers: expected a number of layers, found \"%.100s\"", w->gpu_layers);
        return false;
    }
    *o = (FtxOptions){.size = sizeof(FtxOptions),
                      .threads = threads,
                      .random_weights = random_weights,
                      .log = device_log,
                      .gpu_memory = w->gpu_memory,
                      .gpu_layers = layers          ? layers
                                    : w->gpu_layers ? FTX_NO_GPU_LAYERS
                                                    : 0};
    if (threads < 0 || threads > MAX_THREADS) {
        snprintf(error, error_bytes, "--threads: expected 0 (all CPUs) to %d, found %d", MAX_THREADS, threads);
        return false;
    }
    if (!word || strcmp(word, "auto") == 0) {
        o->device = FTX_DEVICE_AUTO;
    } else if (strncmp(word, "cpu", 3) == 0 && strcspn(word, ":") == 3) {
        o->device = FTX_DEVICE_CPU;
        known = parse_numbers(word + 3, o);
    } else {
        o->device = FTX_DEVICE_CUDA;
        known = strncmp(word, "cuda", 4) == 0 && strcspn(word, ":") == 4 && parse_numbers(word + 4, o);
    }
    if (!known)
        snprintf(error, error_bytes,
                 "--device: expected cpu, cuda, cuda:N or auto, found \"%s\" (for several ranks: cpu:0,1 or cuda:0,1)",
                 word);
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
