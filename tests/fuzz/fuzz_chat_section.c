/* fuzz_chat_section.c - any bytes as a section of compiled chat templates: refused with a reason, or run within the block
 * and the steps that a rendering has. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/chat/chat.h"
#include "runtime/chat/chat.h"

enum { ROOM = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const FtxMessage messages[] = {{"user", "Hello", 0}, {"assistant", "a b", 0}};
    FtxChat chat = FTX_CHAT_INIT;
    FtxError err = {FTX_OK, ""};
    ChatTable table;
    ChatText text;
    void *section = malloc(size + 1), *block;

    if (!section)
        return 0;
    if (size)
        memcpy(section, data, size); /* of its exact size, and aligned */
    chat.messages = messages;
    chat.count = 2;
    if (chat_open(section, size, &table, &err)) {
        if (!*err.text)
            fuzz_bug("refused without a reason");
        free(section);
        return 0;
    }
    block = calloc(1, ROOM);
    if (!block)
        fuzz_bug("no memory");
    if (!chat_render(&table, &chat, block, ROOM, &text, &err)) {
        unsigned sum = 0;

        for (size_t i = 0; i < text.n; i++) /* every byte can be read */
            sum += (unsigned char)text.at[i] + (text.user ? text.user[i] : 0u);
        if (text.n && sum == 0 && text.at[0])
            fuzz_bug("a text of nothing");
    } else if (!*err.text) {
        fuzz_bug("refused without a reason");
    }
    free(block);
    free(section);
    return 0;
}

static void template_seed(const char *name, const char *text)
{
    const ChatSource source = {"default", "x.jinja", text, strlen(text)};
    const ChatToken bos = {"bos_token", "<s>"};
    Arena *keep = arena_open();
    Diag d = {0};
    void *section;
    size_t bytes;

    if (!chat_compile(&source, 1, &bos, 1, keep, &section, &bytes, &d))
        fuzz_bug("%s", d.text);
    fuzz_seed(name, section, bytes);
    arena_close(keep);
}

void fuzz_seeds(void)
{
    template_seed("loop",
                  "{% for m in messages if m.role %}{{ loop.index ~ m.content | trim }}{% else %}-{% endfor %}");
    template_seed("macro", "{% macro f(a, b=[1]) %}{{ a }}{{ b[0] }}{% endmacro %}{{ f(1, b=(2,)) }}{{ bos_token }}");
    template_seed("texts",
                  "{% set x | upper %}a{% endset %}{{ x.split('a', 1)[::-1] }}{{ messages | tojson(indent=1) }}");
    template_seed("logic", "{{ 1 < 2 < 3 and not 0 or 2 if x is defined else {'a': -1.5} }}{% set a, b = 1, 2 %}");
    template_seed("space",
                  "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ range(3) | map('string') | join(',') }}");
}
