/* requests.h - `--requests`: each line is a request as in OpenAI's batches, with an id and settings of its own. */
#ifndef FTX_RUNNER_REQUESTS_H
#define FTX_RUNNER_REQUESTS_H

#include <jansson.h>

#include "../runtime/ftx.h"

typedef struct LineRequest {
    json_t *root;   /* the line; NULL: it is no JSON object */
    const char *id; /* custom_id; NULL: it has none */
    bool chat;      /* it has messages */
    int32_t *ids;
    const char *stop[16];
    int32_t stop_ids[64];
} LineRequest;

/* What a line was answered. */
typedef struct LineAnswer {
    const char *refusal; /* NULL: it was answered */
    const char *text;
    size_t text_bytes, prompt_tokens, new_tokens;
    FtxFinish finish;
} LineAnswer;

/* Fills q, which has the defaults. What q points to is the result's, and the line's. *why is not empty: it is refused. */
LineRequest *requests_read(const FtxModel *model, const char *line, size_t bytes, FtxRequest *q, char *why,
                           size_t why_bytes);
void requests_print(const LineRequest *l, size_t number, const FtxModelInfo *info, const LineAnswer *a);
/* A piece of an answer, as in OpenAI's streams; the last one has its finish_reason and usage. */
void requests_print_piece(const LineRequest *l, size_t number, const FtxModelInfo *info, const LineAnswer *piece);
void requests_free(LineRequest *l); /* NULL is allowed */

#endif
