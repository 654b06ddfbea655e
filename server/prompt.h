/* prompt.h - prompts of a request: texts, ids and conversations to the ids of a part. */
#ifndef FTX_SERVER_PROMPT_H
#define FTX_SERVER_PROMPT_H

#include "completion.h"

/* A string, or a list of token ids. keep_text: for an echo. */
bool prompt_read(const Served *m, const json_t *root, const json_t *v, bool keep_text, Part *p, Fault *f);

/* `messages`, and with_tools `tools`, by the model's chat template. */
bool prompt_chat(const Served *m, const json_t *root, bool with_tools, Part *p, Fault *f);

/* Text to ids; special: with the tokens that the tokenizer puts around one. The caller frees *ids. */
bool prompt_tokenize(const Served *m, bool special, const char *text, size_t bytes, int32_t **ids, size_t *n, Fault *f);
/* Ids to text; special tokens are written unless skip_special. */
bool prompt_detokenize(const Served *m, const int32_t *ids, size_t n, bool skip_special, Text *text, Fault *f);

#endif
