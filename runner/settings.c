/* settings.c - makes a request of the options about how text is written. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "../runtime/base/arena.h"

static bool early_parse(const char *word, FtxEarly *early)
{
    static const char *const words[] = {"false", "true", "never"}; /* FtxEarly */

    for (size_t i = 0; i < LEN(words); i++)
        if (strcmp(word, words[i]) == 0) {
            *early = (FtxEarly)i;
            return true;
        }
    return false;
}

/* "5=-1.5" */
static bool parse_bias(const char *text, int32_t *id, float *value)
{
    const char *equals;
    char *end;

    if (!options_integer(text, id, &equals) || *equals != '=')
        return false;
    *value = strtof(equals + 1, &end);
    return end != equals + 1 && !*end;
}

/* --bad-words and --bad-word-ids. */
static int take_bad_words(const char *command, const Settings *s, SettingsLists *l, FtxRequest *q)
{
    size_t n = 0;

    for (size_t i = 0; i < s->bad_ids.n; n += l->bad_lengths[i++])
        if (!options_numbers(s->bad_ids.at[i], l->bad_ids + n, LEN(l->bad_ids) - n, &l->bad_lengths[i]))
            return command_mistake(
                command, "--bad-word-ids: expected whole numbers of 32 bits with commas between, found \"%.100s\"",
                s->bad_ids.at[i]);
    q->bad_ids = l->bad_ids;
    q->bad_lengths = l->bad_lengths;
    q->bad_count = s->bad_ids.n;
    q->bad_words = s->bad_words.at;
    q->bad_words_count = s->bad_words.n;
    return EXIT_DONE;
}

/* --stop, --stop-id, --logit-bias and the bad words. */
static int take_lists(const char *command, const Settings *s, SettingsLists *l, FtxRequest *q)
{
    q->stop = s->stop.at;
    q->stop_count = s->stop.n;
    for (size_t i = 0; i < s->stop_ids.n; i++) {
        size_t n;

        if (!options_numbers(s->stop_ids.at[i], &l->stop_ids[i], 1, &n))
            return command_mistake(command, "--stop-id: expected a token id, found \"%s\"", s->stop_ids.at[i]);
    }
    q->stop_ids = l->stop_ids;
    q->stop_ids_count = s->stop_ids.n;
    for (size_t i = 0; i < s->bias.n; i++) {
        if (!parse_bias(s->bias.at[i], &l->bias_ids[i], &l->bias_values[i]))
            return command_mistake(command, "--logit-bias: expected ID=NUMBER, found \"%s\"", s->bias.at[i]);
    }
    q->bias_ids = l->bias_ids;
    q->bias_values = l->bias_values;
    q->bias_count = s->bias.n;
    return take_bad_words(command, s, l, q);
}

int settings_apply(const char *command, const Settings *s, SettingsLists *lists, FtxRequest *q)
{
    if (s->greedy) { /* also if the spec asks for beams */
        q->temperature = 0.0f;
        q->beams = q->beam_groups = q->n_best = 1;
    }
#define TAKE_COUNT(name) q->name = s->name
#define TAKE_NUMBER(name) q->name = (float)s->name
#define TAKE_EARLY(name) \
    if (!early_parse(s->name, &q->name)) \
    return command_mistake(command, "--early-stopping: expected true, false or never, found \"%s\"", s->name)
#define DECODE(name, type, ...) \
    if (s->has_##name) \
        TAKE_##type(name);
#include "../runtime/decode.def"
#undef DECODE
    if (s->greedy && (q->temperature != 0.0f || q->beams > 1))
        return command_mistake(command, "--greedy is always the likeliest token, no beams: not with %s",
                               q->beams > 1 ? "--beams" : "--temperature");
    if (!s->has_samples && (q->temperature == 0.0f || q->beams > 1))
        q->samples = 1; /* the spec's number of samples is meant for drawing */
    if (!s->has_min_new && q->max_new && q->min_new > q->max_new)
        q->min_new = q->max_new; /* the spec's gives way */
    q->seed = s->has_seed ? s->seed : (uint64_t)time(NULL) * 2654435761u;
    q->ignore_eos = s->ignore_eos;
    return take_lists(command, s, lists, q);
}
