/* chat.c - ftx_chat: a conversation through the model's template, and the text through its tokenizer. */
#include <string.h>

#include "../base/sized.h"
#include "model.h"

typedef struct Rendering { /* the block of one call */
    void *block;
    size_t bytes;
    ChatText text;
} Rendering;

static FtxStatus open_rendering(const FtxModel *m, const FtxChat *from, Rendering *r, FtxError *err)
{
    FtxChat q = FTX_CHAT_INIT;
    FtxStatus s;

    *r = (Rendering){0};
    if (!m->chat.head)
        return ftx_fail(err, FTX_EINVAL,
                        "the artifact has no chat template: put chat_template.jinja beside the model's "
                        "tokenizer and compile again");
    s = sized_read("FtxChat", from, &q, sizeof q, err);
    if (s)
        return s;
    if (!q.messages && q.count)
        return ftx_fail(err, FTX_EINVAL, "FtxChat.messages is NULL");
    r->bytes = chat_memory(&q);
    r->block = memory_alloc(&m->memory, r->bytes, 64);
    if (!r->block)
        return memory_fail(err, "a chat template", r->bytes);
    s = chat_render(&m->chat, &q, r->block, r->bytes, &r->text, err);
    return s ? ftx_context(err, s, "chat template") : FTX_OK;
}

static void close_rendering(const FtxModel *m, Rendering *r)
{
    memory_free(&m->memory, r->block, r->bytes);
}

static FtxStatus encode_rendering(const FtxModel *m, const ChatText *text, int32_t *ids, size_t max, size_t *n,
                                  FtxError *err)
{
    const TokenizerPair whole = {.text = text->at, .bytes = text->n, .user = text->user};
    TokenizerScratch *scratch;
    FtxStatus s = tokenizer_scratch_open(m->tokenizer, text->n, &scratch, err);

    if (s)
        return s;
    s = tokenizer_encode_pair(m->tokenizer, scratch, &whole, ids, NULL, max, n, err);
    tokenizer_scratch_close(scratch);
    return s;
}

FtxStatus ftx_chat(const FtxModel *m, const FtxChat *chat, int32_t *ids, size_t max, size_t *n, FtxError *err)
{
    Rendering r;
    FtxStatus s;

    *n = 0;
    if (!m->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "the artifact has no tokenizer");
    s = open_rendering(m, chat, &r, err);
    if (!s)
        s = encode_rendering(m, &r.text, ids, max, n, err);
    close_rendering(m, &r);
    return s;
}

FtxStatus ftx_chat_text(const FtxModel *m, const FtxChat *chat, char *text, size_t max, size_t *n, FtxError *err)
{
    Rendering r;
    FtxStatus s;

    *n = 0;
    s = open_rendering(m, chat, &r, err);
    if (!s) {
        *n = r.text.n;
        if (max && r.text.n)
            memcpy(text, r.text.at, r.text.n < max ? r.text.n : max);
    }
    close_rendering(m, &r);
    return s;
}
