/* test_chat.c - chat templates: whose each byte is, special tokens in users' texts, templates without end, false sections,
 * and ftx_chat on a compiled model. What templates print is compared with Jinja2 by families.py and expressions.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/chat/chat.h"
#include "runtime/chat/chat.h"
#include "runtime/chat/names.h"
#include "tests/temp.h"

typedef struct Case {
    Arena *keep;
    void *section;
    size_t bytes, room;
    void *block;
    ChatText text;
    FtxError err;
} Case;

static bool compile_text(Case *c, const char *text, Diag *d)
{
    const ChatSource source = {"default", "x.jinja", text, strlen(text)};
    const ChatToken bos = {"bos_token", "<s>"};

    *c = (Case){.keep = arena_open()};
    return chat_compile(&source, 1, &bos, 1, c->keep, &c->section, &c->bytes, d);
}

static FtxStatus run_section(Case *c, const FtxChat *chat)
{
    ChatTable table;
    FtxStatus s = chat_open(c->section, c->bytes, &table, &c->err);

    c->room = chat_memory(chat);
    c->block = calloc(1, c->room);
    assert_non_null(c->block);
    return s ? s : chat_render(&table, chat, c->block, c->room, &c->text, &c->err);
}

static FtxStatus render_text(Case *c, const char *text, const FtxChat *chat)
{
    Diag d = {0};

    if (!compile_text(c, text, &d))
        fail_msg("%s", d.text);
    return run_section(c, chat);
}

static void close_case(Case *c)
{
    free(c->block);
    arena_close(c->keep);
}

static FtxChat one_message(const char *content)
{
    static FtxMessage m;
    FtxChat chat = FTX_CHAT_INIT;

    m = (FtxMessage){"user", content, 0};
    chat.messages = &m;
    chat.count = 1;
    return chat;
}

/* The text with the users' bytes as "_". */
static void check_users(const char *template, const char *content, const char *want)
{
    const FtxChat chat = one_message(content);
    Case c;
    char got[400] = "";

    if (render_text(&c, template, &chat))
        fail_msg("%s: %s", template, c.err.text);
    assert_true(c.text.n < sizeof got);
    for (size_t i = 0; i < c.text.n; i++)
        got[i] = c.text.user && c.text.user[i] ? '_' : c.text.at[i];
    assert_string_equal(got, want);
    close_case(&c);
}

static void test_users(void **state)
{
    (void)state;
    check_users("[{{ messages[0].content }}]", "abc", "[___]");
    check_users("{{ '[' + messages[0]['content'].strip() ~ ']' }}{{ bos_token }}", " ab ", "[__]<s>");
    check_users("{{ messages[0].role }}: {{ messages | length }}", "abc", "____: 1");
    check_users("{{ messages[0].content | upper | replace('B', '--') }}", "abc", "_--_");
    check_users("{{ messages[0].content.split('b') | join('<b>') }}", "abc", "_<b>_");
    check_users("{{ messages[0].content[::-1] * 2 }}|{{ messages[0].content[1] }}", "abc", "______|_");
    check_users("{{ messages[0].content | tojson }}", "a\nc", "\"____\"");
    check_users("{{ messages }}", "a\n", "[{'role': '____', 'content': '___'}]");
    check_users("{% set x %}<{{ messages[0].content }}>{% endset %}{{ x | trim('<') | indent }}", "abc", "___>");
    check_users("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(messages[0].content) | title }}", "abc", "(___)");
    check_users("{{ messages[0].content | capitalize | reverse | string | first }}", "abc", "_");
}

/* --- refusals ------------------------------------------------------------------------------------------ */

static void test_without_end(void **state)
{
    static const struct {
        const char *template, *why;
    } rows[] = {
        {"\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "line 2: rendering"},
        {"{% for a in range(100001) %}{% endfor %}", "line 1: Range too big"},
        {"{% for a in range(0, 9223372036854775807, 2) %}{% endfor %}", "line 1: Range too big"},
        {"{{ 'x' * 9223372036854775807 }}", "line 1: rendering"},
        {"{{ '' * 9223372036854775807 }}", "line 1: rendering takes too many steps"},
        {"{{ [] * 9223372036854775807 }}", "line 1: rendering takes too many steps"},
        {"\n\n{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}", "line 3: macros call each other more than"},
        {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
         "line 1: rendering"},
        {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
         "line 1: values are nested deeper"},
        {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson "
         "}}",
         "line 1: values are nested deeper"},
        {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x == ns.x }}",
         "line 1: values are nested deeper"},
        {"{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}", "line 1: a Namespace has no text"},
        {"{{ 2 ** 64 }}", "line 1: an integer is beyond 64 bits"},
        {"{{ 9223372036854775807 + 1 }}", "line 1: an integer is beyond 64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "line 1: an integer is beyond 64 bits"},
        {"{{ raise_exception('two\nlines') }}", "line 1: two lines"},
        {"{{ nothing.at_all }}", "line 1: 'nothing' is undefined"},
        {"{{ messages.append(1) }}", "line 1: 'append' is undefined"},
        {"{{ '99999999999999999999' | int }}", "line 1: an integer is beyond 64 bits"},
        {"{{ 1e300 | int }}", "line 1: an integer is beyond 64 bits"},
        {"{{ 17 | round(-1) }}", "line 1: round takes 0 to 20 places"},
        {"{{ strftime_now('x' * 300) }}", "line 1: strftime_now: its format is too long"},
        {"{{ strftime_now('%c' * 120) }}", "line 1: strftime_now: its text is too long"},
    };
    const FtxChat chat = one_message("x");

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Case c;

        assert_int_not_equal(render_text(&c, rows[i].template, &chat), FTX_OK);
        if (strncmp(c.err.text, rows[i].why, strlen(rows[i].why)) != 0)
            fail_msg("%s: %s", rows[i].template, c.err.text);
        close_case(&c);
    }
}

static void test_not_compiled(void **state)
{
    static const struct {
        const char *template, *why;
    } rows[] = {
        {"\n{% if x %}", "x.jinja:2: chat template: a block is not closed, at its end"},
        {"{{ x", "x.jinja:1: chat template: a tag has no end"},
        {"{# x", "x.jinja:1: chat template: a comment has no end"},
        {"{{ 'x }}", "x.jinja:1: chat template: a string has no end"},
        {"{{ (x] }}", "x.jinja:1: chat template: brackets do not match"},
        {"{{ x | from_json }}", "x.jinja:1: chat template: there is no filter from_json"},
        {"{{ x is filter }}", "x.jinja:1: chat template: there is no test filter"},
        {"{% include 'x' %}", "x.jinja:1: chat template: a tag that is not supported, at 'include'"},
        {"{{ f(*x) }}", "x.jinja:1: chat template: * in arguments is not supported, at '*'"},
        {"{{ x | trim(1, 2) }}", "x.jinja:1: chat template: an argument that is not supported, of trim"},
        {"{% break %}", "x.jinja:1: chat template: break outside of a loop"},
        {"{% for x in y %}{% set z %}{% break %}{% endset %}{% endfor %}",
         "x.jinja:1: chat template: break outside of a loop"},
        {"{% for x in y recursive %}{% endfor %}",
         "x.jinja:1: chat template: recursive loops are not supported, at 'recursive'"},
        {"{% set 1 = 2 %}", "x.jinja:1: chat template: this cannot be assigned to, at '='"},
        {"{{ 9999999999999999999 }}", "x.jinja:1: chat template: an integer is beyond 64 bits"},
        {"{{ '\\ud800' }}", "x.jinja:1: chat template: an escape in a string is no character"},
        {"{{ '\\N{BULLET}' }}", "x.jinja:1: chat template: \\N in a string is not supported: write \\u and the number"},
        {"{{ 0x10 }}", "x.jinja:1: chat template: a number that is not supported"},
        {"{{ x[] }}", "x.jinja:1: chat template: an index is missing, at '}}'"},
        {"{{ x[1, 2] }}", "x.jinja:1: chat template: expected ']', at ','"},
        {"{% set x 1 %}", "x.jinja:1: chat template: expected 'name', at '1'"},
        {"x\xff", "x.jinja:1: chat template: is not UTF-8"},
    };
    char deep[3000];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Diag d = {0};
        Case c;

        assert_false(compile_text(&c, rows[i].template, &d));
        assert_string_equal(d.text, rows[i].why);
        close_case(&c);
    }
    for (int i = 0; i < 3; i++) { /* brackets, signs, words */
        const char *unit = i == 0 ? "(" : i == 1 ? "-" : "not ";
        Diag d = {0};
        Case c;

        strcpy(deep, "{{ ");
        for (int k = 0; k < 500; k++)
            strcat(deep, unit);
        strcat(deep, "1 }}");
        assert_false(compile_text(&c, deep, &d));
        assert_non_null(strstr(d.text, "nested too deep"));
        close_case(&c);
    }
}

static void test_false_input(void **state)
{
    static const struct {
        const char *json, *tools, *variables, *why;
    } rows[] = {
        {"[1]", NULL, NULL, "messages[0]: a JSON object is expected"},
        {"{}", NULL, NULL, "messages: a JSON array is expected"},
        {"[{\"a\": 01}]", NULL, NULL, "messages: no number of JSON at byte 9"},
        {"[{\"a\": 99999999999999999999}]", NULL, NULL, "messages: an integer beyond 64 bits"},
        {"[{\"a\": \"\\x\"}]", NULL, NULL, "messages: an escape that JSON does not have"},
        {"[{\"a\": \"\\u12g4\"}]", NULL, NULL, "messages: \\u needs four hexadecimal digits"},
        {"[{\"a\": 1.}]", NULL, NULL, "messages: no number of JSON"},
        {"[{\"a\": [1 2]}]", NULL, NULL, "messages: a list without its ]"},
        {"[{1: 2}]", NULL, NULL, "messages: a key is missing"},
        {"[{\"a\": 1 2}]", NULL, NULL, "messages: an object without its }"},
        {"[{\"a\": \"\n\"}]", NULL, NULL, "messages: a string without its end"},
        {"[{}] 1", NULL, NULL, "messages: more than one value at byte 5"},
        {"[{\"a\": \"\xff\"}]", NULL, NULL, "messages: is not UTF-8"},
        {"[{}]", "{}", NULL, "tools: a JSON array is expected"},
        {"[{}]", NULL, "[]", "variables: a JSON object is expected"},
        {"[{}]", NULL, "{\"a\" 1}", "variables: a : is missing at byte 5"},
    };
    char deep[1000];

    (void)state;
    for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
        const bool last = i == sizeof rows / sizeof *rows;
        FtxChat chat = FTX_CHAT_INIT;
        Case c;

        memset(deep, '[', sizeof deep - 1);
        deep[sizeof deep - 1] = '\0';
        chat.json = last ? deep : rows[i].json;
        chat.tools = last ? NULL : rows[i].tools;
        chat.variables = last ? NULL : rows[i].variables;
        assert_int_equal(render_text(&c, "x", &chat), FTX_EINVAL);
        if (!strstr(c.err.text, last ? "messages: values are nested too deep" : rows[i].why))
            fail_msg("%s", c.err.text);
        close_case(&c);
    }
}

/* Messages that are no texts, or given in two ways. */
static void test_false_messages(void **state)
{
    static const FtxMessage rows[][2] = {{{"user", "a", 0}, {NULL, "b", 0}},
                                         {{"user", "a", 0}, {"us\xc3", "b", 0}},
                                         {{"user", "a\x80", 0}, {"user", "b", 0}}};
    static const char *const why[] = {"messages[1].role is NULL", "a role is not UTF-8", "a content is not UTF-8",
                                      "messages are given twice, as a list and as JSON"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        FtxChat chat = FTX_CHAT_INIT;
        Case c;

        chat.messages = rows[i % 3];
        chat.count = 2;
        chat.json = i == 3 ? "[]" : NULL;
        assert_int_equal(render_text(&c, "x", &chat), FTX_EINVAL);
        assert_non_null(strstr(c.err.text, why[i]));
        close_case(&c);
    }
}

/* "PART PART ... PART" between two texts. */
static char *many(const char *before, const char *part, size_t n, const char *behind)
{
    char *text = calloc(1, strlen(before) + n * strlen(part) + strlen(behind) + 1), *to = text;

    assert_non_null(text);
    to = stpcpy(to, before);
    for (size_t i = 0; i < n; i++)
        to = stpcpy(to, part);
    strcpy(to, behind);
    return text;
}

/* 200 arguments and 4,000 items are compiled and run; with more of them there is a reason. */
static void test_too_many(void **state)
{
    const FtxChat chat = one_message("x");
    char *texts[] = {many("{% macro m() %}{% endmacro %}{{ m(", "1,", 200, ") }}"),
                     many("{{ m(", "1,", 201, ") }}"),
                     many("{{ m(", "a=1,", 201, ") }}"),
                     many("{{ [", "1,", 4000, "] | length }}"),
                     many("{{ [", "1,", 5000, "] | length }}"),
                     many("{{ ", "(", 201, "1)")};
    static const char *const why[] = {
        "line 1: a macro takes at most 0 arguments",    "x.jinja:1: chat template: too many arguments",
        "x.jinja:1: chat template: too many arguments", NULL,
        "line 1: more than 4096 values at once",        "x.jinja:1: chat template: brackets are nested too deep"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Diag d = {0};
        Case c;

        if (!compile_text(&c, texts[i], &d))
            assert_string_equal(d.text, why[i]);
        else if (run_section(&c, &chat))
            assert_string_equal(c.err.text, why[i]);
        else
            assert_null(why[i]);
        close_case(&c);
        free(texts[i]);
    }
}

/* --- sections that the compiler did not make ---------------------------------------------------------- */

static const char whole[] = "{% macro m(a, b=1) %}{{ a ~ b }}{% endmacro %}{% for x in messages if x.role != 'a' %}"
                            "{{ loop.index }}{{ x.content | default('y') | upper }}{% if 1 < 2 < 3 is divisibleby 3 "
                            "%}{{ m(x.role) }}{% endif %}"
                            "{% else %}{% set q = [1, (2,), {'a': 1}][::2] %}{% endfor %}{{ range(3) | list }}";

/* Each 32-bit word of the section becomes another: it is refused, or runs within its bounds. */
static void test_false_sections(void **state)
{
    const FtxChat chat = one_message("x");
    static const uint32_t values[] = {0, 1, 7, 0x7fffffff, 0xffffffff};
    size_t accepted = 0, refused = 0;
    Diag d = {0};
    Case c;
    char *copy;
    void *block;

    (void)state;
    assert_true(compile_text(&c, whole, &d));
    copy = calloc(1, c.bytes + 8);
    block = malloc(1 << 20);
    assert_true(copy && block);
    for (size_t at = 0; at + 4 <= c.bytes; at += 4)
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            ChatTable table;
            ChatText text;
            FtxError err = {0};

            memcpy(copy, c.section, c.bytes);
            memcpy(copy + at, &values[i], 4);
            if (chat_open(copy, c.bytes, &table, &err)) {
                assert_true(err.text[0]);
                refused++;
                continue;
            }
            memset(block, 0, 1 << 20);
            chat_render(&table, &chat, block, 1 << 20, &text, &err);
            accepted++;
        }
    assert_true(accepted > 200 && refused > 500);
    memcpy(copy, c.section, c.bytes);
    for (size_t n = 0; n <= c.bytes + 8; n++) {
        ChatTable table;

        assert_int_equal(chat_open(copy, n, &table, NULL), n == c.bytes ? FTX_OK : FTX_EFORMAT);
    }
    free(copy);
    free(block);
    close_case(&c);
}

/* Each instruction becomes every other one that does not jump: values, scopes and texts that it lacks are missed. */
static void test_false_instructions(void **state)
{
    enum { ROOM = 1 << 18 };
    static const char *const wanted[] = {"an instruction lacks values", "an instruction lacks its loop",
                                         "a scope ends that never began", "a text ends that never began"};
    const FtxChat chat = one_message("x");
    size_t seen[4] = {0};
    void *block = malloc(ROOM);
    ChatTable table;
    Diag d = {0};
    Case c;

    (void)state;
    assert_non_null(block);
    assert_true(compile_text(&c, whole, &d));
    assert_int_equal(chat_open(c.section, c.bytes, &table, NULL), FTX_OK);
    for (uint32_t i = 0; i < table.head->code; i++) {
        ChatInstr *code = (ChatInstr *)(uintptr_t)&table.code[i];
        const uint8_t op = code->op;

        for (int other = 0; other < CHAT_OP_COUNT; other++) {
            ChatTable again;
            ChatText text;
            FtxError err = {0};

            code->op = (uint8_t)other;
            if (chat_args[other] == CHAT_ARG_JUMP || chat_open(c.section, c.bytes, &again, NULL))
                continue;
            memset(block, 0, ROOM);
            if (!chat_render(&again, &chat, block, ROOM, &text, &err))
                continue;
            assert_true(err.text[0]);
            for (size_t k = 0; k < 4; k++)
                seen[k] += strstr(err.text, wanted[k]) != NULL;
        }
        code->op = op;
    }
    for (size_t k = 0; k < 4; k++)
        assert_true(seen[k] > 0);
    free(block);
    close_case(&c);
}

/* A jump to the other function is refused, wherever it stands. */
static void test_false_jumps(void **state)
{
    ChatTable table;
    size_t jumps = 0;
    Diag d = {0};
    Case c;

    (void)state;
    assert_true(compile_text(&c, whole, &d));
    assert_int_equal(chat_open(c.section, c.bytes, &table, NULL), FTX_OK);
    assert_int_equal(table.functions[0].first, 0);
    for (uint32_t i = table.functions[1].first; i < table.head->code; i++) {
        ChatInstr *code = (ChatInstr *)(uintptr_t)table.code;
        const uint32_t arg = code[i].arg;
        ChatTable again;

        if (code[i].op != CHAT_JUMP && code[i].op != CHAT_NEXT && code[i].op != CHAT_JUMP_FALSE)
            continue;
        jumps++;
        code[i].arg = 0;
        assert_int_equal(chat_open(c.section, c.bytes, &again, NULL), FTX_EFORMAT);
        code[i].arg = arg;
    }
    assert_true(jumps > 4);
    close_case(&c);
}

/* What JSON writes with escapes is the text itself; half of a pair of surrogates is U+FFFD. */
static void test_escapes(void **state)
{
    FtxChat chat = FTX_CHAT_INIT;
    Case c;

    (void)state;
    chat.json = "[{\"a\": \"\\ud83d\\ude42\\u00e9\\n\\/\\\"\"}, {\"a\": \"\\ud83dx\\ude42\\ud83d\\u0041\"}]";
    assert_int_equal(render_text(&c, "{{ messages[0].a }}|{{ messages[1].a }}", &chat), FTX_OK);
    assert_int_equal(c.text.n, strlen("\U0001F642\u00e9\n/\"|\ufffdx\ufffd\ufffdA"));
    assert_memory_equal(c.text.at, "\U0001F642\u00e9\n/\"|\ufffdx\ufffd\ufffdA", c.text.n);
    close_case(&c);
}

/* Every size of the block, to the one that suffices: refused, never beyond its end. */
static void test_little_memory(void **state)
{
    const FtxChat chat = one_message("some words");
    ChatTable table;
    ChatText text = {0};
    FtxError err;
    FtxStatus s = FTX_EFULL;
    Diag d = {0};
    Case c;
    size_t size = 0;

    (void)state;
    assert_true(compile_text(&c, whole, &d));
    assert_int_equal(chat_open(c.section, c.bytes, &table, &err), FTX_OK);
    for (; s && size < 1 << 20; size += 1 + size / 50) {
        void *block = calloc(1, size ? size : 1);

        assert_non_null(block);
        s = chat_render(&table, &chat, block, size, &text, &err);
        assert_true(s == FTX_OK || s == FTX_EFULL);
        free(block);
    }
    assert_int_equal(s, FTX_OK);
    assert_true(size > 60000);
    close_case(&c);
}

/* --- a model ------------------------------------------------------------------------------------------- */

static const char config[] =
    "{\"bos_token\": {\"content\": \"<|begin_of_text|>\"}, \"eos_token\": \"<|end_of_text|>\", \"chat_template\": ["
    "{\"name\": \"default\", \"template\": \"{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content + "
    "eos_token }}"
    "{% endfor %}{{ 'assistant:' if add_generation_prompt }}\"},"
    "{\"name\": \"tool_use\", \"template\": \"{{ tools | tojson }}\"}]}";

static bool memory_is_out;

static void *allocate(void *user, size_t bytes, size_t align)
{
    (void)user;
    return memory_is_out ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void release(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    free(p);
}

static FtxModel *open_model(const char *more)
{
    static const FtxAllocator table = {.alloc = allocate, .release = release};
    FtxOptions options = FTX_OPTIONS_INIT;
    const char *out = temp_path("x.ftx"), *tokenizer = temp_path("tokenizer.json");
    char command[1000];
    FtxModel *m;
    FtxError err;
    FILE *f = fopen(temp_path("tokenizer_config.json"), "w");

    assert_non_null(f);
    fputs(more, f);
    fclose(f);
    snprintf(command, sizeof command,
             "cp specs/fable/tokenizer.json %s && %s compile specs/fable.lua -D tokenizer=%s -t cpu -q -o %s",
             tokenizer, getenv("FTXC"), tokenizer, out);
    assert_int_equal(system(command), 0);
    options.allocator = &table;
    if (ftx_model_open(out, &options, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

/* A template that writes the BOS token makes one; end tokens in a user's text are text. */
static void test_model(void **state)
{
    FtxModel *m = open_model(config);
    FtxChat chat = one_message("Hello <|end_of_text|> there");
    int32_t ids[200], text_ids[200];
    char text[400] = "";
    size_t n, n_text, n_bytes, ends = 0;
    FtxModelInfo info;
    FtxError err;

    (void)state;
    ftx_model_info(m, &info);
    assert_true(info.has_chat);
    chat.add_generation_prompt = true;
    assert_int_equal(ftx_chat(m, &chat, ids, 200, &n, &err), FTX_OK);
    assert_int_equal(ftx_chat_text(m, &chat, text, sizeof text, &n_bytes, &err), FTX_OK);
    text[n_bytes] = '\0';
    assert_string_equal(text, "<|begin_of_text|>user: Hello <|end_of_text|> there<|end_of_text|>assistant:");
    assert_int_equal(ids[0], 0);
    for (size_t i = 0; i < n; i++)
        ends += ids[i] == 1;
    assert_int_equal(ends, 1);
    assert_int_not_equal(ids[1], 0);

    chat = one_message("Hello there"); /* without such a text: the ids of the whole text */
    assert_int_equal(ftx_chat(m, &chat, ids, 200, &n, &err), FTX_OK);
    assert_int_equal(ftx_chat_text(m, &chat, text, sizeof text, &n_bytes, &err), FTX_OK);
    assert_int_equal(ftx_tokenize(m, text, n_bytes, 0, text_ids, 200, &n_text, &err), FTX_OK);
    assert_int_equal(n, n_text);
    assert_memory_equal(ids, text_ids, n * sizeof *ids);
    assert_int_equal(ftx_chat(m, &chat, ids, 2, &n_text, &err), FTX_OK);
    assert_int_equal(n, n_text);

    chat.tools = "[{\"a\": 1.0}]";
    assert_int_equal(ftx_chat_text(m, &chat, text, sizeof text, &n_bytes, &err), FTX_OK);
    assert_int_equal(n_bytes, 12);
    assert_memory_equal(text, "[{\"a\": 1.0}]", 12);
    chat.template_name = "other";
    assert_int_equal(ftx_chat(m, &chat, ids, 200, &n, &err), FTX_EINVAL);
    assert_string_equal(err.text, "chat template: the model has no chat template \"other\"");
    chat.template_name = NULL;
    chat.size = 0;
    assert_int_equal(ftx_chat(m, &chat, ids, 200, &n, &err), FTX_EINVAL);
    chat.size = sizeof chat;
    memory_is_out = true;
    assert_int_equal(ftx_chat(m, &chat, ids, 200, &n, &err), FTX_ENOMEM);
    memory_is_out = false;
    assert_non_null(strstr(err.text, "a chat template"));
    chat.messages = NULL;
    assert_int_equal(ftx_chat(m, &chat, ids, 200, &n, &err), FTX_EINVAL);
    ftx_model_close(m);
}

static void test_model_without(void **state)
{
    const FtxChat chat = one_message("x");
    FtxModel *m = open_model("{\"chat_template\": \"{% include 'x' %}\"}"); /* a note, and no template */
    int32_t ids[10];
    const char *out = temp_path("ids.ftx");
    FtxModelInfo info;
    char command[400];
    FtxError err;
    size_t n;

    (void)state;
    ftx_model_info(m, &info);
    assert_false(info.has_chat);
    assert_int_equal(ftx_chat(m, &chat, ids, 10, &n, &err), FTX_EINVAL);
    assert_string_equal(err.text, "the artifact has no chat template: put chat_template.jinja beside the model's "
                                  "tokenizer and compile again");
    ftx_model_close(m);

    snprintf(command, sizeof command, "%s compile tests/models/tiny-llama -t cpu -q -o %s", getenv("FTXC"), out);
    assert_int_equal(system(command), 0);
    assert_int_equal(ftx_model_open(out, NULL, &m, &err), FTX_OK);
    assert_int_equal(ftx_chat(m, &chat, ids, 10, &n, &err), FTX_EINVAL);
    assert_string_equal(err.text, "the artifact has no tokenizer");
    ftx_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users),          cmocka_unit_test(test_without_end),
        cmocka_unit_test(test_not_compiled),   cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_false_input),    cmocka_unit_test(test_false_messages),
        cmocka_unit_test(test_false_sections), cmocka_unit_test(test_false_instructions),
        cmocka_unit_test(test_little_memory),  cmocka_unit_test(test_false_jumps),
        cmocka_unit_test(test_escapes),        cmocka_unit_test(test_model),
        cmocka_unit_test(test_model_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
