/* fuzz_chat.c - any text as a chat template, over a fixed conversation. It is refused with a reason, or compiled to a section
 * that the runtime accepts; then it renders or is refused, in memory of its own size, and twice the same. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/chat/chat.h"
#include "runtime/chat/chat.h"

enum { ROOM = 4 << 20 };

static const char messages[] =
    "[{\"role\": \"system\", \"content\": \"be brief\"}, {\"role\": \"user\", \"content\": \" H\\u00e4 \\n<|end|>\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
    "{\"x\": 1.5}}}]},"
    " {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"ok\"}]}]";

static FtxStatus render(const void *section, size_t bytes, void *block, ChatText *text, FtxError *err)
{
    FtxChat chat = FTX_CHAT_INIT;
    ChatTable table;

    if (chat_open(section, bytes, &table, err))
        fuzz_bug("the compiler's section is refused: %s", err->text);
    chat.json = messages;
    chat.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"a\": [1, 2.5, true]}}}]";
    chat.variables = "{\"enable_thinking\": false}";
    chat.add_generation_prompt = true;
    chat.time = 1753785296;
    memset(block, 0, ROOM);
    return chat_render(&table, &chat, block, ROOM, text, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ChatSource source = {"default", "x.jinja", (const char *)data, size};
    const ChatToken bos = {"bos_token", "<s>"};
    Arena *keep = arena_open();
    char *first = malloc(ROOM), *second = malloc(ROOM);
    FtxError err = {FTX_OK, ""}, again = {FTX_OK, ""};
    ChatText a = {0}, b = {0};
    Diag d = {0};
    void *section;
    size_t bytes;

    if (!first || !second) {
        fuzz_bug("no memory");
    } else if (!chat_compile(&source, 1, &bos, 1, keep, &section, &bytes, &d)) {
        if (!*d.text)
            fuzz_bug("refused without a reason");
    } else {
        const FtxStatus s = render(section, bytes, first, &a, &err);

        if (s != render(section, bytes, second, &b, &again) || strcmp(err.text, again.text) != 0)
            fuzz_bug("twice the same, and two ends: \"%s\", \"%s\"", err.text, again.text);
        if (s && !*err.text)
            fuzz_bug("refused without a reason");
        if (!s && (a.n != b.n || (a.n && memcmp(a.at, b.at, a.n) != 0)))
            fuzz_bug("twice the same, and two texts");
    }
    free(first);
    free(second);
    arena_close(keep);
    return 0;
}

void fuzz_seeds(void)
{
    FUZZ_SEED("loop",
              "{% for m in messages if m.role != 'tool' %}{{ loop.index ~ m.content | trim }}{% else %}-{% endfor %}");
    FUZZ_SEED("macro", "{%- macro f(a, b=[1]) -%}{{ a }}{{ b[0] }}{%- endmacro %}{{ f(1, b=(2,)) }}");
    FUZZ_SEED(
        "blocks",
        "{% set x | upper %}a{% endset %}{% filter trim %} {{ x }} {% endfilter %}{% generation %}{% endgeneration %}");
    FUZZ_SEED("json", "{{ tools | tojson(indent=2) }}{{ messages | selectattr('role', 'eq', 'user') | "
                      "map(attribute='content') | list }}");
    FUZZ_SEED("slices", "{{ messages[::-1][0].content[1:]['a'] }}{{ 'abc'[-2:] * 2 + \"\\u00e9\" }}{# c #}");
    FUZZ_SEED("numbers",
              "{{ 1 < 2 <= 3.5e1 and not 7 // 2 % 2 ** 2 - -1 or 1 if x is defined and x is not none else {'a': 1} }}");
    FUZZ_SEED("space", "  {%+ if true -%}\n x {{- strftime_now('%d %b %Y') }}\r\n{% set ns = namespace(a=1) %}{% set "
                       "ns.a = ns.a + 1 %}");
    FUZZ_SEED("leave", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i > 4 %}{% break %}{% endif %}{{ "
                       "raise_exception('x') if i > 7 }}{% endfor %}");
}
