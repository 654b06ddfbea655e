/* chat.h - conversations to text, by the model's chat templates as the compiler left them. */
#ifndef FTX_CHAT_H
#define FTX_CHAT_H

#include "../base/error.h"
#include "format.h"

typedef struct ChatTable { /* the parts of a section, checked; borrowed */
    const ChatHeader *head;
    const ChatConst *consts;
    const ChatInstr *code;
    const ChatFunction *functions;
    const ChatTemplate *templates;
    const ChatVar *vars;
    const uint32_t *params;
    const char *bytes;
} ChatTable;

/* Checks every count, index and jump. `section` (8-byte aligned) must outlive the table. */
FtxStatus chat_open(const void *section, size_t bytes, ChatTable *table, FtxError *err);

typedef struct ChatText {
    const char *at;
    const unsigned char *user; /* [n]: not 0: the byte came with the request; NULL: none did */
    size_t n;
} ChatText;

/* Memory that rendering may use, which grows with what the caller brings. */
size_t chat_memory(const FtxChat *chat);

/* Renders in `block`, which is zero, 16-byte aligned and of `size` bytes, and allocates nothing. *text is in the block.
 * FTX_EINVAL: the template refuses the conversation, or a field is wrong; FTX_EFULL: it needs too much memory or too
 * many steps. Messages name the template's line. */
FtxStatus chat_render(const ChatTable *table, const FtxChat *chat, void *block, size_t size, ChatText *text,
                      FtxError *err);

#endif
