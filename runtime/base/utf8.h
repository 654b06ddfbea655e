/* utf8.h - UTF-8 of unknown origin: decoding, cleaning, places to cut, classes of characters. */
#ifndef FTX_UTF8_H
#define FTX_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

typedef enum Utf8Kind {
    UTF8_CHARACTER, /* *length bytes, *code */
    UTF8_INVALID,   /* *length bytes to replace by one U+FFFD: the longest start of a character */
    UTF8_CUT,       /* the text ends inside a character */
} Utf8Kind;

/* Decodes the start of p[0..n), n > 0. */
Utf8Kind utf8_next(const unsigned char *p, size_t n, size_t *length, uint32_t *code);

bool utf8_valid(const char *p, size_t n);
/* Where to cut a text: utf8_end at or before byte n, utf8_start at or after it. At a blank; if there is none within
 * 256 bytes, between two characters. */
size_t utf8_end(const char *p, size_t n);
size_t utf8_start(const char *p, size_t bytes, size_t n);
/* Copies with every invalid piece replaced; at most 3 * n bytes. Returns how many. */
size_t utf8_clean(const char *p, size_t n, char *out);

bool utf8_is_space(uint32_t code); /* Unicode White_Space */
bool utf8_is_word(uint32_t code);  /* letters, marks, digits, connectors: \w */
bool utf8_is_mark(uint32_t code);  /* punctuation: ASCII's, and Unicode's categories P* */

size_t utf8_put(uint32_t code, char *out); /* at most 4 bytes; returns how many */

#endif
