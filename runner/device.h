/* device.h - the options of commands that open an artifact. */
#ifndef FTX_RUNNER_DEVICE_H
#define FTX_RUNNER_DEVICE_H

#include <stdbool.h>

#include "../runtime/ftx.h"

/* --gpu-layers, --gpu-memory (weights_options.def). */
typedef struct DeviceWeights {
    const char *gpu_layers; /* a number; NULL: not given, which is not 0 */
    uint64_t gpu_memory;
} DeviceWeights;

/* --device cpu|cuda[:N[,N...]]|auto, --threads, --random-weights and what w has into FtxOptions. False: the reason in `error`. */
bool device_parse(const char *word, int threads, uint64_t random_weights, const DeviceWeights *w, FtxOptions *o,
                  char *error, size_t error_bytes);

/* FtxOptions.log: prints the runtime's messages to standard error. */
void device_log(void *user, int level, const char *text);

#endif
