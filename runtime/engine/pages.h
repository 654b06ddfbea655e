/* pages.h - which pages of the KV cache are free, and how many sequences use each of the others. */
#ifndef FTX_PAGES_H
#define FTX_PAGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Pages {
    int32_t *free;   /* [all]: a stack of the pages that were given back */
    uint16_t *users; /* [all]: sequences that use a page */
    uint32_t n, all; /* n are free */
    uint32_t fresh;  /* pages from here on were never taken */
} Pages;

void pages_init(Pages *p, uint32_t all);                    /* all are free; the arrays are the caller's */
bool pages_take(Pages *p, int32_t *to, uint32_t n);         /* n pages with one user each; false: there are fewer */
void pages_share(Pages *p, const int32_t *of, uint32_t n);  /* each gets one more user */
void pages_give(Pages *p, const int32_t *from, uint32_t n); /* each loses a user; without one it is free */

#endif
