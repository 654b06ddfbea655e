/* tokenizer.h - tokenizer.json to the tables of runtime/tokenizer.h. */
#ifndef FTXC_TOKENIZER_H
#define FTXC_TOKENIZER_H

#include <stddef.h>

#include "../../runtime/base/arena.h"
#include "../../runtime/base/diag.h"

/* Reads Hugging Face's tokenizer.json: byte-level BPE with its pre-tokenizer, added and special
 * tokens, post-processor. What is not supported is named. */
bool tokenizer_compile(const char *path, Arena *keep, void **tables, size_t *bytes, Diag *d);

#endif
