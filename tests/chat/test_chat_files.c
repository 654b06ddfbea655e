/* test_chat_files.c - where the chat templates of a tokenizer's folder are found, which of several counts, and what is wrong
 * with one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "compiler/chat/chat.h"
#include "runtime/base/file.h"
#include "runtime/chat/chat.h"

static char room[] = "/tmp/ftx-chat-XXXXXX";
static const char *const all[] = {"tokenizer_config.json",
                                  "chat_template.json",
                                  "chat_template.jinja",
                                  "additional_chat_templates/a.jinja",
                                  "additional_chat_templates/b.jinja",
                                  "additional_chat_templates/c.jinja",
                                  "additional_chat_templates/d.jinja",
                                  "additional_chat_templates/e.jinja",
                                  "additional_chat_templates/f.jinja",
                                  "additional_chat_templates/none.txt",
                                  "additional_chat_templates"};

static const char *in_room(const char *name)
{
    static char path[200];

    snprintf(path, sizeof path, "%s/%s", room, name);
    return path;
}

static void put(const char *name, const char *text)
{
    assert_int_equal(file_write_whole(in_room(name), text, strlen(text), NULL), FTX_OK);
}

static int make_room(void **state)
{
    (void)state;
    strcpy(room + strlen(room) - 6, "XXXXXX");
    return mkdtemp(room) ? mkdir(in_room("additional_chat_templates"), 0700) : -1;
}

static int clear_room(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (unlink(in_room(all[i])))
            rmdir(in_room(all[i]));
    return rmdir(room);
}

typedef struct Reading {
    Arena *keep;
    void *section;
    size_t bytes;
    const char *note;
    Diag d;
    bool ok;
} Reading;

static Reading read_room(void)
{
    Reading r = {.keep = arena_open()};

    r.ok = chat_read(in_room("tokenizer.json"), r.keep, &r.section, &r.bytes, &r.note, &r.d);
    assert_int_equal(r.ok, !r.d.failed);
    return r;
}

/* What the template of that name writes. */
static void check_text(const char *name, const char *want)
{
    Reading r = read_room();
    FtxChat chat = FTX_CHAT_INIT;
    ChatText text = {0};
    ChatTable table;
    FtxError err;
    void *block;

    if (!r.ok)
        fail_msg("%s", r.d.text);
    assert_null(r.note);
    assert_non_null(r.section);
    chat.template_name = name;
    block = calloc(1, chat_memory(&chat));
    assert_non_null(block);
    if (chat_open(r.section, r.bytes, &table, &err) ||
        chat_render(&table, &chat, block, chat_memory(&chat), &text, &err))
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(text.n, strlen(want));
    assert_memory_equal(text.at, want, text.n);
    free(block);
    arena_close(r.keep);
}

static void the_later_of_one_name_counts(void **state)
{
    Reading r = read_room();

    (void)state;
    assert_true(r.ok && !r.section && !r.note); /* none is no mistake */
    arena_close(r.keep);
    put("tokenizer_config.json",
        "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, \"pad_token\": null, \"size\": \"9\", "
        "\"chat_template\": \"1{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ size }}\"}");
    check_text("default", "1<s></s>");
    put("chat_template.json", "{\"bos_token\": \"other\", \"chat_template\": \"2{{ bos_token }}\"}");
    check_text("default", "2<s>");
    put("chat_template.jinja", "3{{ bos_token }}");
    check_text("default", "3<s>");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"a\", \"template\": \"4\"}, {\"name\": \"c\", \"template\": \"5\"}, "
        "{\"name\": \"default\", \"template\": \"6\"}, {\"name\": 7, \"template\": \"7\"}, {\"name\": \"d\"}, 8]}");
    put("additional_chat_templates/a.jinja", "9");
    put("additional_chat_templates/none.txt", "{% wrong");
    check_text("a", "9");
    check_text("c", "5");
    check_text("default", "3");
    unlink(in_room("chat_template.jinja"));
    check_text("default", "2");
    unlink(in_room("chat_template.json"));
    check_text("default", "6");
}

/* The section does not depend on the order in which a folder lists its files. */
static void the_order_is_that_of_the_names(void **state)
{
    ChatTable t;
    Reading r;

    (void)state;
    for (const char *name = "fbdaec"; *name; name++) {
        char file[60];

        snprintf(file, sizeof file, "additional_chat_templates/%c.jinja", *name);
        put(file, "x");
    }
    r = read_room();
    assert_int_equal(chat_open(r.section, r.bytes, &t, NULL), FTX_OK);
    assert_int_equal(t.head->templates, 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(t.bytes[t.consts[t.templates[i].name].word], "abcdef"[i]);
    arena_close(r.keep);
}

/* What cannot be read ends the compilation; what cannot be compiled leaves a note. */
static void what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *file, *text, *why; /* text NULL: a folder */
        bool note;
    } rows[] = {
        {"tokenizer_config.json", "[1]", "tokenizer_config.json: is no JSON object", false},
        {"tokenizer_config.json", "{", "tokenizer_config.json: is no JSON object", false},
        {"chat_template.json", "\"x\"", "chat_template.json: is no JSON object", false},
        {"chat_template.jinja", NULL, "chat_template.jinja: not a regular file", false},
        {"tokenizer_config.json", NULL, "tokenizer_config.json: not a regular file", false},
        {"additional_chat_templates/b.jinja", NULL, "b.jinja: not a regular file", false},
        {"additional_chat_templates/b.jinja", "\n{% x %}",
         "b.jinja:2: chat template: a tag that is not supported, at 'x'; the artifact has no chat template "
         "(docs/chat.md "
         "says what templates may use)",
         true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *got;
        Reading r;

        put("additional_chat_templates/a.jinja", "x");
        if (rows[i].text)
            put(rows[i].file, rows[i].text);
        else
            assert_int_equal(mkdir(in_room(rows[i].file), 0700), 0);
        r = read_room();
        assert_int_equal(r.ok, rows[i].note);
        assert_null(r.section);
        got = rows[i].note ? r.note : r.d.text;
        if (!strstr(got, rows[i].why))
            fail_msg("%s", got);
        arena_close(r.keep);
        if (unlink(in_room(rows[i].file)))
            assert_int_equal(rmdir(in_room(rows[i].file)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_later_of_one_name_counts, make_room, clear_room),
        cmocka_unit_test_setup_teardown(the_order_is_that_of_the_names, make_room, clear_room),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_said, make_room, clear_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
