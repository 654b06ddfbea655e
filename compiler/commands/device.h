/* device.h - the options of commands that open an artifact. */
#ifndef FTXC_COMMAND_DEVICE_H
#define FTXC_COMMAND_DEVICE_H

#include "../../runtime/ftx.h"

/* --device cpu|cuda[:N]|auto, --threads, --random-weights into FtxOptions. False: not such a word. */
bool device_parse(const char *word, int64_t threads, int64_t random_weights, FtxOptions *o);

/* Prints what the runtime has to say to standard error. */
void device_log(void *user, int level, const char *text);

#endif
