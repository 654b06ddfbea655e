/* pages.h - which pages of the KV cache are free, and how many sequences use each of the others.
 *
 * A free page whose text is known (prefix.h) can be shared again until it is taken for other text. */
#ifndef FTX_PAGES_H
#define FTX_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "prefix.h"

typedef struct Pages {
    int32_t *free;   /* [all]: a stack of the pages that were given back */
    uint16_t *users; /* [all]: sequences that use a page */
    uint32_t n, all; /* n are free */
    uint32_t fresh;  /* pages from here on were never taken */
    Prefix *prefix;  /* known pages; NULL: none is ever known */
    bool *doubtful;  /* [all]: nobody has seen whether what stands in a page is finite numbers (grow.c) */
} Pages;

void pages_init(Pages *p, uint32_t all);                   /* all are free; the arrays are the caller's */
bool pages_take(Pages *p, int32_t *to, uint32_t n);        /* n pages with one user each; false: there are fewer */
void pages_share(Pages *p, const int32_t *of, uint32_t n); /* each gets one more user */
/* Each loses a user, the last page first; without a user it is free. */
void pages_give(Pages *p, const int32_t *from, uint32_t n);

#endif
