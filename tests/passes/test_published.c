/* test_published.c - config.json as models are published, field by field, in the sizes that they have: each is read and its
 * graph brought into canonical form. Nothing is planned or run. published.json has the files; the long lists of longrope are
 * ones there.
 *
 * A published file has fields that its class does not read, and none of them may be in the way: that is what fails here. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/passes/pass.h"
#include "compiler/spec/spec.h"

static void read_one(const char *name, const char *folder)
{
    static const Override overrides[] = {{"weights="}};
    Arena *own = arena_open();
    Spec spec = {0};
    Diag d = {0};

    if (!spec_read(folder, overrides, 1, own, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d))
        fail_msg("%s: %s", name, d.text);
    if (strcmp(name, "bigbird-roberta-base") == 0) /* texts that see all of themselves: (5 + 2 * 3) * 64 */
        assert_int_equal(spec.graph->limits.context, 704);
    ir_graph_close(spec.graph);
    arena_close(own);
}

static void test_published(void **state)
{
    json_t *all = json_load_file("tests/passes/published.json", 0, NULL), *config;
    char folder[] = "/tmp/ftx-published-XXXXXX", path[80];
    const char *name;

    (void)state;
    assert_non_null(all);
    assert_true(json_object_size(all) > 100);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_object_foreach(all, name, config)
    {
        assert_int_equal(json_dump_file(config, path, 0), 0);
        read_one(name, folder);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
