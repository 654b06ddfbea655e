/* test_remake.c - the spec and the settings of an artifact are those of the command that it keeps. */
#include "tests/artifact/small.h"

#include "compiler/commands/remake.h"

static bool remake_of(const char *build, Arena *keep, Remake *r, char *why)
{
    const char *path = temp_path("remake.ftx");
    Diag d = {0};
    Small s;
    bool ok;

    small_begin(&s);
    s.parts.build = build;
    if (!artifact_write(path, &s.parts, NULL, NULL, &d))
        fail_msg("%s", d.text);
    small_end(&s);
    ok = remake_read(path, keep, r, &d);
    memcpy(why, d.text, sizeof d.text);
    return ok;
}

static void make_file(const char *path)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fclose(f);
}

static void commands(void **state)
{
    Arena *keep = arena_open();
    char why[sizeof((Diag *)0)->text];
    Remake r;

    (void)state;
    make_file(temp_path("a spec.lua"));
    assert_true(
        remake_of("ftxc 0.1\ncommand ftxc compile 'a spec.lua' -t cpu,sm_90a -D limits.context=256 -D 'name=two words' "
                  "--lora x.lua -D weights= --no-weights --sidecar\nadapter y\n",
                  keep, &r, why));
    assert_string_equal(r.spec, temp_path("a spec.lua"));
    assert_int_equal(r.n, 3);
    assert_string_equal(r.overrides[0].text, "limits.context=256");
    assert_string_equal(r.overrides[1].text, "name=two words");
    assert_string_equal(r.overrides[2].text, "weights=");

    /* in the current folder, which is the tree's */
    assert_true(remake_of("command ftxc compile README.md -t cpu\n", keep, &r, why));
    assert_string_equal(r.spec, "README.md");
    assert_int_equal(r.n, 0);
    assert_true(remake_of("command ftxc compile README.md -t cpu -D", keep, &r, why)); /* cut off */
    assert_int_equal(r.n, 0);

    assert_false(remake_of("command ftxc compile nowhere.lua -t cpu\n", keep, &r, why));
    assert_non_null(
        strstr(why, "remake.ftx: was made from nowhere.lua, which is neither beside it nor in this folder"));
    assert_false(remake_of("command ftxc compile -t cpu -D a=b\n", keep, &r, why));
    assert_non_null(strstr(why, "does not say which spec it was made from"));
    assert_false(remake_of("no command ftxc compile README.md\n", keep, &r, why));
    assert_non_null(strstr(why, "does not say which spec"));
    arena_close(keep);
}

static void files(void **state)
{
    Arena *keep = arena_open();
    Diag d = {0};
    Remake r;

    (void)state;
    assert_true(remake_is_artifact("x.ftx") && remake_is_artifact("a/b.ftx"));
    assert_false(remake_is_artifact(".ftx") || remake_is_artifact("x.lua") || remake_is_artifact("x.ftx/y") ||
                 remake_is_artifact(""));
    assert_false(remake_read(temp_path("none.ftx"), keep, &r, &d));
    assert_true(d.machine);
    d = (Diag){0};
    make_file(temp_path("empty.ftx"));
    assert_false(remake_read(temp_path("empty.ftx"), keep, &r, &d));
    assert_false(d.machine);
    assert_non_null(strstr(d.text, "empty.ftx"));
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(commands), cmocka_unit_test(files)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
