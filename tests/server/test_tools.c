/* test_tools.c - calls and reasoning in texts, whatever the pieces in which the texts arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/arena.h"
#include "server/tools.h"

/* Pieces of one kind in a row are one: T(text) R(reasoning) C(name) A(arguments). */
typedef struct Found {
    Text text;
    int kind;
} Found;

static void take(void *user, Piece piece, const char *text, size_t bytes)
{
    Found *f = user;

    if (f->kind != (int)piece || piece == PIECE_CALL)
        text_printf(&f->text, "%s%c(", f->kind >= 0 ? ")" : "", "TRCA"[piece]);
    f->kind = (int)piece;
    text_add(&f->text, text, bytes);
}

static Text parse(ToolStyle style, bool reasons, bool inside, const char *text, size_t step)
{
    Found f = {.kind = -1};
    const size_t n = strlen(text);
    Parser p;

    parser_open(&p, style, reasons, inside);
    for (size_t at = 0; at < n; at += step)
        parser_feed(&p, text + at, n - at < step ? n - at : step, false, take, &f);
    parser_feed(&p, "", 0, true, take, &f);
    parser_close(&p);
    text_put(&f.text, f.kind >= 0 ? ")" : "");
    return f.text;
}

static const struct {
    ToolStyle style;
    bool reasons, inside;
    const char *text, *want;
} cases[] = {
    {TOOLS_NONE, false, false, "a <tool_call> <think>", "T(a <tool_call> <think>)"},
    {TOOLS_NONE, true, false, "<think>\nwell</think>\n\nyes", "R(\nwell)T(yes)"},
    {TOOLS_NONE, true, false, " \n<think>x</think> y <think>z", "R(x)T(y <think>z)"},
    {TOOLS_NONE, true, false, "<thin", "T(<thin)"},
    {TOOLS_NONE, true, false, "<think>never ends </thin", "R(never ends </thin)"},
    {TOOLS_NONE, true, true, "so</think>\nyes", "R(so)T(yes)"},
    {TOOLS_NONE, true, false, "  plain", "T(  plain)"},
    {TOOLS_HERMES, false, false, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
     "C(f)A({\"a\": [1, \"}\\\"\"]})"},
    {TOOLS_HERMES, false, false,
     "I "
     "will.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
     "tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{\"b\":2}}"
     "</tool_call> Done.",
     "T(I will.\n)C(f)A({})C(g)A({\"b\":2})T(Done.)"},
    {TOOLS_HERMES, false, false, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"late\"}</tool_call>",
     "C(late)A({\"a\": 1})"},
    {TOOLS_HERMES, false, false, "<tool_call>{\"name\": \"f\"}</tool_call>", "C(f)A({})"},
    {TOOLS_HERMES, false, false, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "C(f)A({\"a\": 1})"},
    {TOOLS_HERMES, false, false, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut o",
     "C(f)A({\"a\": \"cut o)"},
    {TOOLS_HERMES, false, false, "<tool_call>{\"na", "T({\"na)"},
    {TOOLS_HERMES, false, false, "a < b, <tool", "T(a < b, <tool)"},
    {TOOLS_HERMES, false, false, "<tool_call>{nonsense} more", "T({nonsense} more)"},
    {TOOLS_HERMES, true, false, "<think>call?</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
     "R(call?)C(f)A({})"},
    {TOOLS_LLAMA, false, false, "{\"name\": \"f\", \"parameters\": {\"a\": \"\\u00e4\"}}",
     "C(f)A({\"a\": \"\\u00e4\"})"},
    {TOOLS_LLAMA, false, false,
     "\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
     "T(\n)C(f)A({})C(g)A({})"},
    {TOOLS_LLAMA, false, false, "{\"a\": 1}", "T({\"a\": 1})"},
    {TOOLS_LLAMA, false, false, "A brace { is text", "T(A brace { is text)"},
    {TOOLS_LLAMA, false, false, "{\"name\": 5}", "T({\"name\": 5})"},
    {TOOLS_LLAMA, false, false, "{\"name\": \"\"}", "T({\"name\": \"\"})"},
    {TOOLS_LLAMA, false, false, "{\"name\": \"\\x\"}", "T({\"name\": \"\\x\"})"},
    {TOOLS_MISTRAL, false, false,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
     "C(f)A({\"a\": 1})C(g)A({})"},
    {TOOLS_MISTRAL, false, false, "Hm. [TOOL_CALLS]f[ARGS]{\"a\": {\"b\": 1}}", "T(Hm. )C(f)A({\"a\": {\"b\": 1}})"},
    {TOOLS_MISTRAL, false, false, "[TOOL_CALLS]f{\"a\": 1}[TOOL_CALLS]g[ARGS]{}", "C(f)A({\"a\": 1})C(g)A({})"},
    {TOOLS_MISTRAL, false, false, "[TOOL_CALLS]f", "T(f)"},
};

static void calls_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(cases); i++)
        for (size_t step = 1; step <= strlen(cases[i].text); step++) {
            Text found = parse(cases[i].style, cases[i].reasons, cases[i].inside, cases[i].text, step);

            if (strcmp(found.at, cases[i].want) != 0)
                fail_msg("%s in steps of %zu: %s, not %s", cases[i].text, step, found.at, cases[i].want);
            text_free(&found);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_are_found)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
