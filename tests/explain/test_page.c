/* test_page.c - `ftxc page`: what the page says is what the plan says, and no name can break out of its data. */
#include "tests/artifact/small.h"

#include <jansson.h>
#include <math.h>

#include "compiler/explain/explain.h"

typedef struct Opened {
    Arena *keep;
    const char *text;
    size_t bytes;
    json_t *data, *words;
} Opened;

static Opened open_page(PageOptions o, const char *targets)
{
    Opened p = {.keep = arena_open()};
    json_error_t why;
    const char *from;
    Diag d = {0};

    if ((targets && !targets_parse(targets, &o.targets, &d)) || !explain_page(&o, p.keep, &p.text, &p.bytes, &d))
        fail_msg("%s", d.text);
    from = p.text ? strstr(p.text, "id=\"data\">") : NULL;
    assert_non_null(from);
    p.data = json_loads(from + strlen("id=\"data\">"), JSON_DISABLE_EOF_CHECK, &why);
    if (!p.data)
        fail_msg("%s", why.text);
    p.words = json_object_get(p.data, "words");
    return p;
}

static void close_page(Opened *p)
{
    json_decref(p->data);
    arena_close(p->keep);
}

static size_t count(const char *text, const char *piece)
{
    size_t n = 0;

    for (; (text = strstr(text, piece)); text++)
        n++;
    return n;
}

static void has(const char *text, const char *piece)
{
    if (!strstr(text, piece))
        fail_msg("\"%s\" is not in: %s", piece, text);
}

static json_int_t whole(const json_t *row, size_t i)
{
    assert_true(json_is_integer(json_array_get(row, i)));
    return json_integer_value(json_array_get(row, i));
}

/* The text at place i of a row, which is an index into the words. */
static const char *word(const Opened *p, const json_t *row, size_t i)
{
    const char *s = json_string_value(json_array_get(p->words, (size_t)whole(row, i)));

    assert_non_null(s);
    return s;
}

static json_t *list(const json_t *object, const char *name)
{
    json_t *a = json_object_get(object, name);

    assert_true(json_is_array(a));
    return a;
}

/* --- a spec, against its plan ----------------------------------------------------------------- */

static void check_operands(const Opened *p, const Plan *plan, const FtxLaunch *l, size_t at, json_t *program,
                           json_t *page_plan, json_t *codes)
{
    static const char *const spaces[] = {"", "weights", "state", "input", "workspace", "output", "pages"};

    assert_int_equal(json_array_size(codes), plan->instances.at[l->kernel]->n_operands);
    for (uint32_t k = 0; k < json_array_size(codes); k++) {
        const FtxOperand *o = &plan->operands.at[l->first_operand + k];
        const json_int_t code = whole(codes, k);
        json_t *row;

        if (o->space == FTX_SPACE_NULL) {
            assert_int_equal(code, 0);
        } else if (o->space == FTX_SPACE_WEIGHTS) {
            assert_int_equal(code % 4, 1);
            row = json_array_get(list(p->data, "weights"), (size_t)code / 4);
            assert_int_equal(whole(row, 3), o->offset);
        } else if (o->space == FTX_SPACE_WORK) {
            assert_int_equal(code % 4, 2);
            row = json_array_get(list(program, "buffers"), (size_t)code / 4);
            assert_int_equal(whole(row, 3), o->offset);
            assert_in_range(at, whole(row, 1), whole(row, 2));
        } else { /* caches of layers begin inside $k and $v */
            assert_int_equal(code % 4, 3);
            row = json_array_get(list(page_plan, "fixed"), (size_t)code / 4);
            assert_string_equal(word(p, row, 1), spaces[o->space]);
            assert_in_range(o->offset, whole(row, 2), whole(row, 2) + whole(row, 3) - 1);
        }
    }
}

/* The candidates of one launch: its kernel is among those that are taken. Others are, too: a norm may be computed by all of
 * its readers, and attention by one kernel for prompts and one for single tokens. */
static void check_considered(const Opened *p, json_t *considered, uint32_t program, uint32_t launch, const char *entry,
                             size_t n_values)
{
    bool taken = false;
    json_t *row;
    size_t i;

    json_array_foreach(considered, i, row)
    {
        if (whole(row, 0) != program || whole(row, 1) != launch)
            continue;
        assert_in_range(whole(row, 2), 1, n_values - 1);
        assert_int_equal(json_is_null(json_array_get(row, 3)), json_is_null(json_array_get(row, 5)));
        if (json_is_null(json_array_get(row, 5))) {
            assert_true(strncmp(word(p, row, 6), "templates/", 10) == 0 || /* the line that refused it */
                        strncmp(word(p, row, 6), "kernels/", 8) == 0);
        } else if (!*word(p, row, 6)) {
            taken |= strcmp(word(p, row, 5), entry) == 0;
        }
    }
    assert_true(taken);
}

/* Whether no launch of the program before it has its kernel. */
static bool is_first(const Plan *plan, const FtxProgram *g, size_t at)
{
    const FtxLaunch *l = plan->launches.at + g->first_launch;

    for (size_t k = 0; k < at; k++)
        if (l[k].kernel == l[at].kernel)
            return false;
    return true;
}

static void check_origin(const LaunchOrigin *from, const json_t *row)
{
    json_t *values = json_array_get(row, 4);

    assert_true(from->cost_us > 0 && from->n_values > 0);
    assert_true(fabs(json_real_value(json_array_get(row, 2)) - from->cost_us) < 1e-4 * from->cost_us);
    assert_int_equal(json_array_size(values), from->n_values);
    for (uint32_t v = 0; v < from->n_values; v++)
        assert_int_equal(whole(values, v), from->values[v]);
}

static void check_program(const Opened *p, const Graph *g, const Plan *plan, uint32_t at, json_t *page_plan)
{
    const FtxProgram *from = &plan->programs.at[at];
    json_t *program = json_array_get(list(page_plan, "programs"), at), *launches = list(program, "launches"), *row;
    size_t i, n = 0;

    assert_int_equal(json_array_size(launches), from->n_launches);
    json_array_foreach(launches, i, row)
    {
        const FtxLaunch *l = &plan->launches.at[from->first_launch + i];

        assert_int_equal(whole(row, 0), l->kernel);
        assert_string_equal(word(p, row, 1), plan->strings.at[l->label]);
        check_origin(&plan->origins.at[from->first_launch + i], row);
        check_operands(p, plan, l, i, program, page_plan, json_array_get(row, 5));
        if (is_first(plan, from, i))
            check_considered(p, list(page_plan, "considered"), at, (uint32_t)i, plan->instances.at[l->kernel]->entry,
                             g->values.n);
    }
    json_array_foreach(list(page_plan, "considered"), i, row) if (whole(row, 0) == at)
        assert_true(is_first(plan, from, (size_t)whole(row, 1)));
    for (i = 0; i < plan->buffers.n; i++) {
        const FtxBuffer *b = &plan->buffers.at[i];

        if (b->space != FTX_SPACE_WORK || b->program != at)
            continue;
        row = json_array_get(list(program, "buffers"), n++);
        assert_string_equal(word(p, row, 0), plan->strings.at[b->name]);
        assert_int_equal(whole(row, 1), b->first);
        assert_int_equal(whole(row, 2), b->last);
        assert_int_equal(whole(row, 3), b->offset);
        assert_int_equal(whole(row, 4), b->bytes);
    }
    assert_int_equal(json_array_size(list(program, "buffers")), n);
}

static void check_plan(const Opened *p, const Graph *g, const Plan *plan, json_t *page_plan)
{
    json_t *kernels = list(page_plan, "kernels"), *spaces = list(page_plan, "spaces"), *row;
    json_int_t caches = 0;
    size_t at;

    assert_int_equal(json_array_size(spaces), FTX_SPACE_COUNT - FTX_SPACE_WEIGHTS);
    for (int s = FTX_SPACE_STATE; s < FTX_SPACE_COUNT; s++)
        assert_int_equal(whole(json_array_get(spaces, (size_t)(s - FTX_SPACE_WEIGHTS)), 1), plan->head.space_bytes[s]);
    json_array_foreach(list(page_plan, "caches"), at, row) caches += whole(row, 0);
    assert_int_equal(caches, plan->caches.n);
    assert_true(json_array_size(list(page_plan, "caches")) <= 2); /* layers that are alike share a row */
    assert_string_equal(json_string_value(json_object_get(page_plan, "target")), plan->target.name);
    assert_int_equal(json_array_size(kernels), plan->instances.n);
    for (size_t i = 0; i < plan->instances.n; i++)
        assert_string_equal(word(p, json_array_get(kernels, i), 0), plan->instances.at[i]->entry);
    assert_int_equal(json_array_size(list(page_plan, "programs")), plan->programs.n);
    for (uint32_t i = 0; i < plan->programs.n; i++)
        check_program(p, g, plan, i, page_plan);
}

/* The last graph is that of which the plans are made. */
static void check_graph(const Opened *p, const Graph *g)
{
    json_t *graphs = list(p->data, "graphs");
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    assert_non_null(out);
    ir_print(g, out);
    fclose(out);
    assert_int_equal(json_array_size(graphs), 3);
    has(json_string_value(json_object_get(json_array_get(graphs, 1), "result")), "canonical form");
    has(json_string_value(json_object_get(json_array_get(graphs, 2), "result")), "storage type");
    assert_string_equal(json_string_value(json_object_get(json_array_get(graphs, 0), "pass")), "spec");
    assert_null(strstr(json_string_value(json_object_get(json_array_get(graphs, 0), "text")), "facts"));
    assert_string_equal(json_string_value(json_object_get(json_array_get(graphs, 2), "pass")), "precision");
    assert_string_equal(json_string_value(json_object_get(json_array_get(graphs, 2), "text")), text);
    free(text);
}

static void check_spec(const char *path, const char *targets)
{
    Opened p = open_page((PageOptions){.path = path}, targets);
    Plan plans[MAX_TARGETS] = {0};
    Packing packing = {0};
    Spec spec = {0};
    Targets list_of;
    Catalog catalog;
    Diag d = {0};

    if (!targets_parse(targets, &list_of, &d) || !spec_read(path, NULL, 0, p.keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d) || !catalog_open(p.keep, &catalog, &d))
        fail_msg("%s", d.text);
    check_graph(&p, spec.graph);
    assert_int_equal(json_array_size(list(p.data, "plans")), list_of.n);
    for (size_t i = 0; i < list_of.n; i++) {
        if (!passes_run_target(spec.graph, &catalog, list_of.at[i], &spec.precision, &packing, &plans[i], NULL, &d))
            fail_msg("%s", d.text);
        check_plan(&p, spec.graph, &plans[i], json_array_get(list(p.data, "plans"), i));
    }
    assert_int_equal(json_array_size(list(p.data, "weights")), packing.weights.n);
    ir_graph_close(spec.graph);
    close_page(&p);
}

static void test_spec(void **state)
{
    (void)state;
    check_spec("specs/fable.lua", "sm_90a,cpu");
}

static void test_two_stacks(void **state)
{
    (void)state;
    check_spec("specs/verse.lua", "cpu,sm_80");
}

/* A page of 8 billion parameters is small, since a text stands in it once, and asks no network for anything. */
static void test_alone(void **state)
{
    Opened p = open_page((PageOptions){.path = "specs/llama-3.1-8b.lua"}, "sm_90a");
    json_t *seen = json_object(), *text, *facts = json_object_get(p.data, "facts");
    size_t i;
    (void)state;

    json_array_foreach(p.words, i, text) json_object_set_new(seen, json_string_value(text), json_true());
    assert_int_equal(json_object_size(seen), json_array_size(p.words));
    json_decref(seen);
    assert_int_equal(json_integer_value(json_object_get(facts, "parameters")), 8030261248);
    assert_int_equal(json_integer_value(json_object_get(facts, "layers")), 32);
    assert_int_equal(json_integer_value(json_object_get(facts, "sequences")), 64);
    assert_int_equal(json_integer_value(json_object_get(facts, "kv_pages")), 9216);

    assert_in_range(p.bytes, 100000, 2000000 - 1);
    assert_int_equal(strlen(p.text), p.bytes);
    assert_int_equal(count(p.text, "http:"), 1); /* the name of SVG */
    assert_int_equal(count(p.text, "http://www.w3.org/2000/svg"), 1);
    assert_int_equal(count(p.text, "https:"), 0);
    assert_int_equal(count(p.text, " src="), 0);
    assert_int_equal(count(p.text, "@import") + count(p.text, "url("), 0);
    assert_int_equal(count(p.text, "@DATA@") + count(p.text, "@SCRIPT@"), 0);
    has(p.text, "default-src 'none'");
    close_page(&p);
}

/* --- an artifact ------------------------------------------------------------------------------ */

static const char *write_small(const Small *s, const char *name)
{
    const char *path = temp_path(name);
    Diag d = {0};

    if (!artifact_write(path, &s->parts, NULL, NULL, &d))
        fail_msg("%s", d.text);
    return path;
}

static void test_artifact(void **state)
{
    Small s;
    Opened p;
    json_t *plan, *step, *row;
    (void)state;

    small_begin(&s);
    p = open_page((PageOptions){.path = write_small(&s, "page.ftx"), .artifact = true}, NULL);
    assert_int_equal(json_array_size(list(p.data, "graphs")), 0);
    assert_int_equal(json_array_size(list(p.data, "weights")), 4);
    assert_int_equal(json_array_size(list(p.data, "plans")), 3);
    plan = json_array_get(list(p.data, "plans"), 1);
    assert_string_equal(json_string_value(json_object_get(plan, "gpu")), "H200");
    assert_int_equal(json_array_size(list(plan, "considered")), 0);
    row = json_array_get(list(plan, "kernels"), 0);
    assert_string_equal(word(&p, row, 2), "CUDA");
    assert_int_equal(whole(row, 7), 64 + 512); /* bytes of one token */
    step = json_array_get(list(plan, "programs"), 0);
    assert_int_equal(json_integer_value(json_object_get(step, "T")), 4);
    assert_int_equal(json_integer_value(json_object_get(step, "S")), 2);
    row = json_array_get(list(step, "launches"), 1);
    assert_string_equal(word(&p, row, 1), "layer 0: down");
    assert_true(json_is_null(json_array_get(row, 2)));
    assert_int_equal(whole(row, 3), 4 * 64 + 512);
    assert_int_equal(json_array_size(json_array_get(row, 4)), 0);
    assert_int_equal(whole(json_array_get(row, 5), 0), 4 * 1 + 1); /* the second weight, at 256 */
    assert_int_equal(whole(json_array_get(row, 5), 1), 0);
    assert_int_equal(whole(json_array_get(row, 5), 2), 4 * 1 + 2); /* h, at 2048 */
    step = json_array_get(list(plan, "programs"), 1);
    assert_int_equal(json_integer_value(json_object_get(step, "T")), 1);
    assert_int_equal(json_integer_value(json_object_get(step, "S")), 1);
    close_page(&p);
    small_end(&s);
}

static void test_missing(void **state)
{
    const PageOptions o = {.path = "none.ftx", .artifact = true};
    Arena *keep = arena_open();
    const char *text;
    size_t bytes;
    Diag d = {0};
    (void)state;

    assert_false(explain_page(&o, keep, &text, &bytes, &d));
    assert_true(d.machine);
    has(d.text, "none.ftx");
    arena_close(keep);
}

/* Names that look like HTML, and one that is not UTF-8. */
static void test_names(void **state)
{
    static const char evil[] = "</script><script>alert(1)</script><!--";
    Small s;
    Opened plain, p;
    json_t *row;
    (void)state;

    small_begin(&s);
    plain = open_page((PageOptions){.path = write_small(&s, "plain.ftx"), .artifact = true}, NULL);
    s.spec.name = evil;
    s.plans[0].strings.at[s.plans[0].launches.at[0].label] = evil;
    s.plans[0].strings.at[s.plans[0].launches.at[1].label] = "a\xff";
    p = open_page((PageOptions){.path = write_small(&s, "evil.ftx"), .artifact = true}, NULL);
    assert_int_equal(count(p.text, "</script"), count(plain.text, "</script"));
    assert_int_equal(count(p.text, "<script"), count(plain.text, "<script"));
    assert_int_equal(count(p.text, "<!--"), count(plain.text, "<!--"));
    assert_string_equal(json_string_value(json_object_get(p.data, "name")), evil);
    row = list(json_array_get(list(json_array_get(list(p.data, "plans"), 0), "programs"), 0), "launches");
    assert_string_equal(word(&p, json_array_get(row, 0), 1), evil);
    assert_string_equal(word(&p, json_array_get(row, 1), 1), "a?");
    close_page(&plain);
    close_page(&p);
    small_end(&s);
}

/* --- measured times --------------------------------------------------------------------------- */

static const char *measured_file(const char *lines)
{
    const char *path = temp_path("measured.jsonl");
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(lines, f);
    fclose(f);
    return path;
}

static void refused(const char *artifact, const char *lines, const char *words)
{
    const PageOptions o = {.path = artifact, .artifact = true, .measured = measured_file(lines)};
    Arena *keep = arena_open();
    const char *text;
    size_t bytes;
    Diag d = {0};

    assert_false(explain_page(&o, keep, &text, &bytes, &d));
    assert_false(d.machine);
    has(d.text, words);
    arena_close(keep);
}

static void test_measured(void **state)
{
    static const char lines[] =
        "{\"model\":\"small\",\"kernel\":\"linear__small\",\"launches\":4,\"time_us\":10}\n"
        "{\"model\":\"large\",\"kernel\":\"linear__small\",\"launches\":1,\"time_us\":99}\n"
        "\n"
        "{\"model\":\"small\",\"generation\":64,\"median_ms\":3}\n"
        "{\"model\":\"small\",\"kernel\":\"idle\",\"launches\":0,\"time_us\":0}\n"
        "{\"model\":\"small\",\"step\":\"decode\",\"sequences\":8,\"tokens\":1,\"context\":128,\"median_us\":66.5,"
        "\"device\":\"here\"}";
    char artifact[256];
    json_t *measured, *row;
    Opened p;
    Small s;
    (void)state;

    small_begin(&s);
    snprintf(artifact, sizeof artifact, "%s", write_small(&s, "measured.ftx"));
    p = open_page((PageOptions){.path = artifact, .artifact = true, .measured = measured_file(lines)}, NULL);
    measured = json_object_get(p.data, "measured");
    assert_int_equal(json_object_size(json_object_get(measured, "kernels")), 1);
    row = json_object_get(json_object_get(measured, "kernels"), "linear__small");
    assert_true(json_real_value(row) == 2.5);
    assert_int_equal(json_array_size(list(measured, "steps")), 1);
    row = json_array_get(list(measured, "steps"), 0);
    assert_int_equal(whole(row, 1), 8);
    assert_true(json_real_value(json_array_get(row, 4)) == 66.5);
    assert_string_equal(json_string_value(json_array_get(row, 5)), "here");
    assert_true(json_is_null(json_array_get(row, 6)));
    close_page(&p);

    refused(artifact, "", "nothing in it is about small");
    refused(artifact, "{\"model\":\"large\",\"step\":\"decode\",\"median_us\":1}\n", "nothing in it is about small");
    refused(artifact, "{}\n\n[]\n",
            "measured.jsonl:3: expected a line of `ftxc bench --json`, or a file that --trace wrote: no object");
    refused(artifact, "{}\nkernel  launches\n", "measured.jsonl:2: expected a line");
    small_end(&s);
}

/* The timeline of --trace: launches of the same label, kernel and size are one row. */
static void test_timeline(void **state)
{
    static const char event[] =
        "{\"cat\":\"%s\",\"name\":\"layer 0: up\",\"dur\":%g,\"args\":{\"kernel\":\"linear__small\","
        "\"run\":1,\"T\":%d,\"S\":1}}";
    char artifact[256], text[2000] = "{\"otherData\":{\"model\":\"small\"},\n\"traceEvents\":[\n";
    json_t *rows;
    Opened p;
    Small s;
    (void)state;

    snprintf(text + strlen(text), sizeof text - strlen(text), event, "kernel", 3.0, 1);
    strcat(text, ",\n");
    snprintf(text + strlen(text), sizeof text - strlen(text), event, "kernel", 6.0, 4);
    strcat(text, ",\n");
    snprintf(text + strlen(text), sizeof text - strlen(text), event, "host", 99.0, 1);
    strcat(text, ",\n");
    snprintf(text + strlen(text), sizeof text - strlen(text), event, "kernel", 4.0, 1);
    strcat(text, "]}\n");
    small_begin(&s);
    snprintf(artifact, sizeof artifact, "%s", write_small(&s, "timeline.ftx"));
    p = open_page((PageOptions){.path = artifact, .artifact = true, .measured = measured_file(text)}, NULL);
    rows = list(json_object_get(p.data, "measured"), "launches");
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(json_string_value(json_array_get(json_array_get(rows, 0), 0)), "layer 0: up");
    assert_string_equal(json_string_value(json_array_get(json_array_get(rows, 0), 1)), "linear__small");
    for (size_t i = 0; i < 2; i++)
        assert_true(json_real_value(json_array_get(json_array_get(rows, i), 4)) ==
                    (whole(json_array_get(rows, i), 2) == 1 ? 3.5 : 6.0));
    close_page(&p);
    refused(artifact, "{\"otherData\":{\"model\":\"large\"},\n\"traceEvents\":[]}", "nothing in it is about small");
    small_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec),     cmocka_unit_test(test_two_stacks), cmocka_unit_test(test_alone),
        cmocka_unit_test(test_artifact), cmocka_unit_test(test_missing),    cmocka_unit_test(test_names),
        cmocka_unit_test(test_measured), cmocka_unit_test(test_timeline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
