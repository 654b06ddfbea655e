/* parts.h - what the files of this room share. */
#ifndef FTXC_TOKENIZER_PARTS_H
#define FTXC_TOKENIZER_PARTS_H

#include "tokenizer.h"

/* A pattern as Hugging Face's tokenizers read it (Oniguruma, Ruby syntax) as one for PCRE2 with
 * the same meaning. False: d names what has none. */
bool pattern_translate(const char *pattern, Loc loc, Arena *keep, const char **out, Diag *d);

/* A text that stands for itself, as a pattern. */
const char *pattern_quote(const char *text, Arena *keep);

#endif
