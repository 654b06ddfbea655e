/* device.h - the options of commands that open an artifact. */
#ifndef FTX_RUNNER_DEVICE_H
#define FTX_RUNNER_DEVICE_H

#include "../runtime/ftx.h"

/* --device cpu|cuda[:N[,N...]]|auto, --threads, --random-weights into FtxOptions. False: the reason in `error`. */
bool device_parse(const char *word, int threads, uint64_t random_weights, FtxOptions *o, char *error,
                  size_t error_bytes);

/* FtxOptions.log: prints the runtime's messages to standard error. */
void device_log(void *user, int level, const char *text);

#endif
