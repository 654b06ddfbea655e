/* turns.h - the messages of a conversation. */
#ifndef FTX_RUNNER_TURNS_H
#define FTX_RUNNER_TURNS_H

#include <stdbool.h>
#include <stddef.h>

#include "../runtime/ftx.h"

typedef struct Turns {
    FtxMessage *at; /* [n]; contents are owned */
    size_t n, cap;
} Turns;

/* Takes over content. role: a string that stays. */
void turns_add(Turns *t, const char *role, char *content, size_t bytes);

/* Replaces the system message, which is the first; takes over content. NULL: there is none from now on. */
void turns_system(Turns *t, char *content);

void turns_remove_last(Turns *t);

/* Removes all messages but the system message. */
void turns_reset(Turns *t);

/* Removes the oldest message of the user and what follows it up to the next one. False: there is only one. */
bool turns_forget(Turns *t);

void turns_free(Turns *t);

#endif
