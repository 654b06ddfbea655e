/* list.c - requests in order. */
#include "list.h"

#include <string.h>

void list_add(RequestList *l, struct Request *r)
{
    l->at[l->n++] = r;
}

void list_add_first(RequestList *l, struct Request *r)
{
    memmove(&l->at[1], &l->at[0], l->n++ * sizeof *l->at);
    l->at[0] = r;
}

uint32_t list_find(const RequestList *l, const struct Request *r)
{
    uint32_t i = 0;

    while (l->at[i] != r)
        i++;
    return i;
}

void list_remove(RequestList *l, const struct Request *r)
{
    const uint32_t i = list_find(l, r);

    memmove(&l->at[i], &l->at[i + 1], (--l->n - i) * sizeof *l->at);
}

struct Request *list_last(const RequestList *l, uint32_t i)
{
    return l->at[l->n - 1 - i];
}
