/* turns.c - the messages of a conversation. */
#include "turns.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"

static bool has_system(const Turns *t)
{
    return t->n && strcmp(t->at[0].role, "system") == 0;
}

static void remove_range(Turns *t, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        free((char *)t->at[i].content);
    if (first < end)
        memmove(t->at + first, t->at + end, (t->n - end) * sizeof *t->at);
    t->n -= end - first;
}

void turns_add(Turns *t, const char *role, char *content, size_t bytes)
{
    if (t->n == t->cap) {
        t->cap = t->cap * 2 + 16;
        t->at = command_must(realloc(t->at, t->cap * sizeof *t->at));
    }
    t->at[t->n++] = (FtxMessage){.role = role, .content = content, .content_bytes = bytes};
}

void turns_system(Turns *t, char *content)
{
    remove_range(t, 0, has_system(t));
    if (!content)
        return;
    turns_add(t, "system", content, strlen(content));
    for (size_t i = t->n - 1; i > 0; i--) {
        const FtxMessage m = t->at[i];

        t->at[i] = t->at[i - 1];
        t->at[i - 1] = m;
    }
}

void turns_remove_last(Turns *t)
{
    remove_range(t, t->n - 1, t->n);
}

void turns_reset(Turns *t)
{
    remove_range(t, has_system(t), t->n);
}

bool turns_forget(Turns *t)
{
    const size_t first = has_system(t);
    size_t end = first + 1;

    while (end < t->n && strcmp(t->at[end].role, "user") != 0)
        end++;
    if (end >= t->n)
        return false;
    remove_range(t, first, end);
    return true;
}

void turns_free(Turns *t)
{
    remove_range(t, 0, t->n);
    free(t->at);
    *t = (Turns){0};
}
