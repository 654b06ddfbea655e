/* chat.h - chat templates (Jinja) to the section that runtime/chat runs. */
#ifndef FTXC_CHAT_H
#define FTXC_CHAT_H

#include "../../runtime/base/arena.h"
#include "../../runtime/base/diag.h"

/* Reads the templates in a GGUF file, or beside a tokenizer's file: tokenizer_config.json (a text, or a list of named ones),
 * chat_template.jinja or chat_template.json, and additional_chat_templates/NAME.jinja. The later ones hide the earlier.
 * *section stays NULL if there is none. A template that cannot be compiled is no error: *note says why, and the
 * artifact is made without it. */
bool chat_read(const char *tokenizer, Arena *keep, void **section, size_t *bytes, const char **note, Diag *d);

typedef struct ChatSource {
    const char *name; /* "default" */
    const char *file; /* for messages */
    const char *text; /* UTF-8 */
    size_t bytes;
} ChatSource;

typedef struct ChatToken { /* "bos_token", "<s>" */
    const char *name, *text;
} ChatToken;

/* d names the file and the template's line of what is not supported. */
bool chat_compile(const ChatSource *sources, size_t n, const ChatToken *tokens, size_t n_tokens, Arena *keep,
                  void **section, size_t *bytes, Diag *d);

#endif
