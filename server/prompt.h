/* prompt.h - prompts of a request: texts, ids and conversations to the ids of a part. */
#ifndef FTX_SERVER_PROMPT_H
#define FTX_SERVER_PROMPT_H

#include "completion.h"

/* A string, or a list of token ids. keep_text: for an echo. */
bool prompt_read(const Served *m, const json_t *root, const json_t *v, bool keep_text, Part *p, Fault *f);

/* `messages` by the model's chat template. */
bool prompt_chat(const Served *m, const json_t *root, Part *p, Fault *f);

/* Text to ids as `add_special_tokens` of the request says; the caller frees *ids. */
bool prompt_tokenize(const Served *m, const json_t *root, const char *text, size_t bytes, int32_t **ids, size_t *n,
                     Fault *f);
/* Ids to text; special tokens are written unless skip_special. */
bool prompt_detokenize(const Served *m, const int32_t *ids, size_t n, bool skip_special, Text *text, Fault *f);

#endif
