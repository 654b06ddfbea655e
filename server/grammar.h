/* grammar.h - texts that follow a JSON schema, a regular expression or a grammar, by llguidance's C library, which is
 * loaded at run time. */
#ifndef FTX_SERVER_GRAMMAR_H
#define FTX_SERVER_GRAMMAR_H

#include "body.h"
#include "model.h"

typedef struct GrammarLibrary GrammarLibrary;
typedef struct Vocabulary Vocabulary; /* a model's, as the library sees it */
typedef struct Matcher Matcher;       /* a text that is being written */

/* NULL: the file cannot be loaded; the reason is in `error`. It stays loaded until the program ends. */
const GrammarLibrary *grammar_load(const char *file, char *error, size_t error_bytes);

/* Takes seconds for large vocabularies. NULL: the model cannot have grammars. */
Vocabulary *grammar_open(const GrammarLibrary *l, const Served *m, char *error, size_t error_bytes);
void grammar_close(Vocabulary *v); /* NULL is allowed */

/* What response_format, structured_outputs and the guided_* fields ask for. */
typedef struct Grammar {
    const char *type; /* "json", "regex", "lark"; NULL: any text */
    char *data;       /* freed by grammar_free */
} Grammar;
bool grammar_read(const json_t *root, Grammar *g, Fault *f);
void grammar_free(Grammar *g);

/* A matcher of a new text. NULL: the grammar is wrong, and f says where. */
Matcher *matcher_open(const Vocabulary *v, const Grammar *g, Fault *f);
void matcher_close(Matcher *m); /* NULL is allowed */
/* Token number `count` of the text is there, another follows: its mask is computed by another thread. */
void matcher_follow(Matcher *m, int32_t id, size_t count);
/* FtxRequest.mask for one text: ids are all its new tokens. *why: of a library that has failed; else NULL. */
bool matcher_mask(Matcher *m, const int32_t *ids, size_t count, uint32_t *bits, const char **why);

#endif
