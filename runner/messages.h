/* messages.h - `--messages`: a conversation in a file to the ids of a prompt. */
#ifndef FTX_RUNNER_MESSAGES_H
#define FTX_RUNNER_MESSAGES_H

#include "../runtime/ftx.h"

typedef struct MessagesJob {
    const char *messages;  /* a file with a JSON array; "-": standard input */
    const char *tools;     /* a file with a JSON array; NULL: none */
    const char *variables; /* JSON; NULL: none */
    const char *name;      /* of the template; NULL: the default */
} MessagesJob;

/* *ids is the caller's to free. The exit code; what is wrong has been printed. */
int messages_read(const FtxModel *model, const MessagesJob *job, int32_t **ids, size_t *n);

#endif
