/* text.h - a text that grows, and JSON printed into it. Without memory the program ends. */
#ifndef FTX_SERVER_TEXT_H
#define FTX_SERVER_TEXT_H

#include <stddef.h>

typedef struct Text {
    char *at; /* [n] and a NUL byte; NULL while nothing was added */
    size_t n, cap;
} Text;

void text_add(Text *t, const void *p, size_t bytes);
void text_put(Text *t, const char *s);
void text_printf(Text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_drop(Text *t, size_t bytes); /* removes bytes at the start */
void text_free(Text *t);               /* and empties it */

/* A JSON string with its quotes. Invalid UTF-8 becomes U+FFFD. text_json_part: without quotes, to be continued. */
void text_json(Text *t, const char *s, size_t bytes);
void text_json_part(Text *t, const char *s, size_t bytes);
void text_json_number(Text *t, double x); /* null if it is not finite */

#endif
