/* body.h - reads the JSON of a request: bounded depth, and each field with its range. A field that is null is missing. */
#ifndef FTX_SERVER_BODY_H
#define FTX_SERVER_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "../runtime/ftx.h"

enum { MOST_DEPTH = 64, MOST_STOPS = 16, MOST_BIAS = 300, MOST_STOP_IDS = 64 };

/* Why a request is refused. */
typedef struct Fault {
    int status;       /* HTTP's */
    const char *code; /* a word for programs, "model_not_found"; NULL: none */
    char param[100];  /* the field; "": none */
    char why[700];
    int retry; /* seconds, of 429 and 503; 0: do not say */
} Fault;

/* Fills *f; returns false. status 400, no code. */
bool fault(Fault *f, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whether a request has ended so that its client gets an error, too late or by logits that are not finite: fills *f. Clients of
 * OpenAI's interface would send it again, so the answer should have `x-should-retry: false`. */
bool fault_of_end(Fault *f, FtxFinish finish);

/* An object of at most MOST_DEPTH levels, for json_decref; NULL: refused. */
json_t *body_parse(const char *text, size_t bytes, Fault *f);

/* NULL: missing or null. */
json_t *body_field(const json_t *root, const char *name);

/* Each leaves *out as it is if the field is missing. False: refused. */
bool body_count(const json_t *root, const char *name, int64_t low, int64_t high, int64_t *out, Fault *f);
bool body_number(const json_t *root, const char *name, double low, double high, double *out, Fault *f);
bool body_bool(const json_t *root, const char *name, bool *out, Fault *f);
bool body_text(const json_t *root, const char *name, const char **out, Fault *f); /* valid as long as root */

/* The lists of a request; they are kept here, texts by root. */
typedef struct Lists {
    const char *stop[MOST_STOPS];
    int32_t stop_ids[MOST_STOP_IDS];
    int32_t bias_ids[MOST_BIAS];
    float bias_values[MOST_BIAS];
} Lists;

/* Everything that becomes a field of FtxRequest but the prompt and the numbers of new tokens and samples. */
bool body_request(const json_t *root, const FtxModelInfo *info, FtxRequest *q, Lists *lists, Fault *f);

bool body_salt(const json_t *root, FtxRequest *q, Fault *f);     /* cache_salt */
bool body_deadline(const json_t *root, FtxRequest *q, Fault *f); /* deadline */

/* Token ids: a list of whole numbers, at most `most`; the caller frees *ids. */
bool body_ids(const json_t *list, const char *name, int vocab, int32_t **ids, size_t *n, Fault *f);

#endif
