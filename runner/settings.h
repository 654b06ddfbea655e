/* settings.h - the options about how text is written, which several commands have, and the request that they make. */
#ifndef FTX_RUNNER_SETTINGS_H
#define FTX_RUNNER_SETTINGS_H

#include "options.h"
#include "../runtime/ftx.h"

/* Filled by settings_options.def. */
typedef struct Settings {
    bool greedy, ignore_eos, has_seed;
    uint64_t seed;
#define FIELD_COUNT int
#define FIELD_NUMBER double
#define FIELD_EARLY const char *
#define DECODE(name, type, ...) \
    bool has_##name; \
    FIELD_##type name;
#include "../runtime/decode.def"
#undef DECODE
    TextList stop, stop_ids, bias, bad_words, bad_ids;
} Settings;

/* What lists of numbers become. A request points to it. */
typedef struct SettingsLists {
    int32_t stop_ids[64], bias_ids[64], bad_ids[1 << 12];
    size_t bad_lengths[64];
    float bias_values[64];
} SettingsLists;

/* Replaces fields of q, which has the spec's defaults, by those options that were given; the seed comes from the clock
 * if none was. command: the name in messages. Returns an exit code. */
int settings_apply(const char *command, const Settings *s, SettingsLists *lists, FtxRequest *q);

#endif
