/* messages.c - reads a conversation and its tools, and has the model's chat template make a prompt of them. */
#include "messages.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "lines.h"

/* A whole file, NUL-terminated; NULL: the reason has been printed. */
static char *read_whole(const char *file)
{
    Lines lines = {0};
    size_t n;
    char *text, *copy = NULL;

    if (!lines_open(&lines, file))
        return NULL;
    text = lines_rest(&lines, &n);
    if (text) {
        copy = command_must(malloc(n + 1));
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    free(text);
    lines_close(&lines);
    return copy;
}

int messages_read(const FtxModel *model, const MessagesJob *job, int32_t **ids, size_t *n)
{
    FtxChat chat = FTX_CHAT_INIT;
    FtxError err = {0};
    char *messages = read_whole(job->messages), *tools = job->tools ? read_whole(job->tools) : NULL;
    FtxStatus s = FTX_OK;
    size_t room = 0;

    if (!messages || (job->tools && !tools)) {
        free(messages);
        free(tools);
        return EXIT_FAILED;
    }
    chat.json = messages;
    chat.tools = tools;
    chat.variables = job->variables;
    chat.template_name = job->name;
    chat.add_generation_prompt = true;
    do { /* the first time for the number of ids */
        room = *n;
        *ids = command_must(realloc(*ids, (room + 1) * sizeof **ids));
        s = ftx_chat(model, &chat, *ids, room, n, &err);
    } while (!s && *n > room);
    free(messages);
    free(tools);
    return s ? command_failed(&err) : EXIT_DONE;
}
