/* storm.h - random sequences of actions ("storms"): requests of every kind are submitted, cancelled and stepped in random
 * order, and the result of each is compared, bit for bit, with that of the request alone.
 *
 *   seed -> 24 requests, and a list of actions: submit, cancel, step, score, encode
 *        -> each request alone on an idle engine -> the storm -> compare -> check that all slots and pages are free
 *
 * Used by tests/models/test_storm.c (the CPU) and tests/gpu/storm.c (any artifact, on any device). */
#ifndef FTX_TEST_STORM_H
#define FTX_TEST_STORM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/engine/engine.h"

enum {
    STORM_JOBS = 24,
    STORM_ACTIONS = 220,
    STORM_IDS = 512, /* of a prompt, a source or a text at most */
    STORM_SAMPLES = 4,
    STORM_LOG_BYTES = 40000,
    STORM_TEXT_BYTES = 4000,
};

/* What happened to one sample, as text: tokens, reasons of the end, text; and apart from these log-probabilities, scores
 * and logits. Equal texts mean equal bits. */
typedef enum StormPart { STORM_TOKENS, STORM_NUMBERS, STORM_PARTS } StormPart;

typedef struct StormLog {
    char at[STORM_PARTS][STORM_LOG_BYTES];
    size_t n[STORM_PARTS];
    bool begun, ended, cancelled;
} StormLog;

typedef struct StormJob {
    FtxRequest request;
    int32_t ids[STORM_IDS], stop_ids[2], bias_ids[2], bad_ids[4], prefix[4];
    float bias[2];
    size_t bad_lengths[2];
    int samples;
    uint64_t id;
    bool submitted, with_logits;
    FtxStatus status; /* of the submit on the idle engine */
    StormLog alone[STORM_SAMPLES], got[STORM_SAMPLES];
    StormLog *log; /* events are written here: alone or got */
} StormJob;

typedef enum StormKind { STORM_SUBMIT, STORM_CANCEL, STORM_STEP, STORM_SCORE, STORM_ENCODE } StormKind;

typedef struct StormAction {
    StormKind kind;
    int n; /* SUBMIT, CANCEL: index of the job. STEP: its tokens, 0: as many as fit. SCORE, ENCODE: seed of the input */
} StormAction;

/* What was compared, and what of it differed. */
typedef struct StormCounts {
    uint64_t storms, samples, tokens, numbers; /* samples that differ in tokens; in numbers alone */
    uint64_t scores, other_scores, vectors, other_vectors;
} StormCounts;

typedef struct StormScore { /* the log-probabilities of a text: the same at any time */
    bool known;
    uint64_t sum;
} StormScore;

typedef struct Storm {
    const char *name;
    FtxModel *model;                 /* of the requests alone */
    FtxModelInfo info;               /* its */
    FtxEngine *engine, *warm, *cold; /* the one in use; that of the storm; that of each request alone */
    bool prefix;                     /* the storm's engine has a prefix cache, and requests take pages as they grow */
    uint64_t dice;
    StormJob *job; /* [STORM_JOBS] */
    StormAction action[STORM_ACTIONS];
    const bool *left_out; /* [STORM_ACTIONS], or NULL */
    StormScore score[64];
    StormCounts counts;
    char text[STORM_TEXT_BYTES]; /* the first difference of the last storm; "": none */
} Storm;

/* alone: the model of the requests alone, whose limits are no larger; NULL: the same. pages: of the KV cache; 0: the
 * default. What cannot be opened ends the process. */
void storm_open(Storm *s, const char *name, FtxModel *model, FtxModel *alone, unsigned pages, bool prefix);
void storm_close(Storm *s);
/* Makes the requests and actions of a seed. */
void storm_make(Storm *s, uint64_t seed);
/* Runs the storm of a seed, without the actions that are left out. False: something differs, `text` says what. An engine
 * that breaks its rules ends the process with status 1. */
bool storm_run(Storm *s, uint64_t seed);
void storm_print_action(const StormAction *a);
/* Leaves out halves, quarters ... of the actions while the storm still fails (delta debugging, Zeller 2002). Returns how
 * many are left. */
int storm_shrink(bool (*fails)(void *user, const bool *left_out), void *user, bool *left_out);

/* --- storm_requests.c -------------------------------------------------------------------------------- */

unsigned storm_roll(uint64_t *state, unsigned sides);
void storm_make_job(Storm *s, StormJob *j);

#endif
