/* list.h - requests in order: those that wait, run, end or are free. */
#ifndef FTX_LIST_H
#define FTX_LIST_H

#include <stdint.h>

struct Request;

typedef struct RequestList {
    struct Request **at; /* room for all requests of the engine */
    uint32_t n;
} RequestList;

void list_add(RequestList *l, struct Request *r); /* at the end */
void list_add_first(RequestList *l, struct Request *r);
uint32_t list_find(const RequestList *l, const struct Request *r); /* the index of r, which is in it */
void list_remove(RequestList *l, const struct Request *r);         /* which is in it; the others keep their order */
struct Request *list_last(const RequestList *l, uint32_t i);       /* the i-th from the end, which is there */

#endif
