/* test_settings.c - every row of decode.def at its edges: spec, artifact, request and command line agree. */
#include <float.h>
#include <math.h>

#include "runtime/ftx.h"
#include "tests/artifact/small.h"

#define SPEC "tests/runtime/settings.lua"

enum { FORMS = 4 };
static const char *const forms[FORMS] = {"a spec", "an artifact", "a request", "the command line"};
static const char *const early[] = {"false", "true", "never"}; /* FtxEarly */

static char model_path[300];
static FtxModel *model;
static FtxEngine *engine;

/* --- one value in each form: is it taken? ------------------------------------------------------------ */

static void shown(char *text, size_t bytes, bool is_early, double v)
{
    if (is_early && v >= 0 && v <= 2)
        snprintf(text, bytes, "%s", early[(int)v]);
    else
        snprintf(text, bytes, "%.9g", v);
}

static bool spec_takes(const char *name, const char *value)
{
    Arena *a = arena_open();
    const Override o = {arena_printf(a, "decode.%s=%s", name, value)};
    Spec spec = {0};
    Diag d = {0};
    const bool taken = spec_read(SPEC, &o, 1, a, &spec, &d);

    if (!taken && !strstr(d.text, name))
        fail_msg("%s=%s: '%s' does not name it", name, value, d.text);
    ir_graph_close(spec.graph);
    arena_close(a);
    return taken;
}

static bool artifact_takes(Small *s)
{
    const char *path = temp_path("row.ftx");
    FtxError err = {0};
    Diag d = {0};
    Artifact a;
    FtxStatus status;

    assert_true(artifact_write(path, &s->parts, NULL, NULL, &d));
    status = artifact_open(path, &a, &err);
    artifact_close(&a);
    if (status && !strstr(err.text, "its decoding default"))
        fail_msg("%s", err.text);
    return !status;
}

static bool request_takes(const char *name, FtxRequest *q)
{
    static const int32_t ids[] = {1};
    FtxError err = {0};
    FtxStatus s;

    q->ids = ids;
    q->ids_count = 1;
    s = ftx_engine_submit(engine, q, NULL, &err);
    if (s && !strstr(err.text, name))
        fail_msg("'%s' does not name %s", err.text, name);
    return !s;
}

static bool command_takes(const char *option, const char *value)
{
    char command[1000];
    int code;

    snprintf(command, sizeof command, "%s run %s --ids 1 -q --json --random-weights 1 %s=%s >/dev/null 2>&1",
             getenv("FTXC"), model_path, option, value);
    code = system(command);
    assert_true(WIFEXITED(code) && (WEXITSTATUS(code) == 0 || WEXITSTATUS(code) == 2));
    return WEXITSTATUS(code) == 0;
}

/* --- the rows ------------------------------------------------------------------------------------------ */

static void expect(const char *name, const char *value, bool wanted, const bool *taken)
{
    for (int i = 0; i < FORMS; i++)
        if (taken[i] != wanted)
            fail_msg("%s=%s: %s %s it", name, value, forms[i], taken[i] ? "takes" : "refuses");
}

#define IS_COUNT(v) (v)
#define IS_NUMBER(v) (float)(v)
#define IS_EARLY(v) (FtxEarly)(v)
#define TO_COUNT(v) (int32_t)(v)
#define TO_NUMBER(v) (float)(v)
#define TO_EARLY(v) (int32_t)(v)
#define STEP_COUNT(v, by) ((v) + (by))
#define STEP_NUMBER(v, by) (double)nextafterf((float)(v), (float)(by)*FLT_MAX)
#define STEP_EARLY STEP_COUNT
#define EARLY_COUNT false
#define EARLY_NUMBER false
#define EARLY_EARLY true

static void test_edges(void **state)
{
    int rows = 0;
    Small s;

    (void)state;
    small_begin(&s);
#define TRY(name, type, option, v, wanted) \
    do { \
        const FtxDecode kept = s.spec.decode; \
        FtxRequest q = ftx_request_default(model); \
        bool taken[FORMS]; \
        char text[40]; \
\
        shown(text, sizeof text, EARLY_##type, v); \
        taken[0] = spec_takes(#name, text); \
        s.spec.decode.name = TO_##type(v); \
        taken[1] = artifact_takes(&s); \
        s.spec.decode = kept; \
        q.name = IS_##type(v); \
        taken[2] = request_takes(#name, &q); \
        taken[3] = command_takes(option, text); \
        expect(#name, text, wanted, taken); \
    } while (0);
#define DECODE(name, type, low, high, missing, letter, option, arg, help) \
    TRY(name, type, option, STEP_##type(low, -1), false) \
    TRY(name, type, option, low, true) \
    TRY(name, type, option, missing, true) \
    if (strcmp(#name, "min_new") != 0) /* which max_new and the context bound, too */ \
        TRY(name, type, option, high, true) \
    TRY(name, type, option, STEP_##type(high, 1), false) \
    rows++;
#include "runtime/decode.def"
#undef DECODE
    TRY(temperature, NUMBER, "--temperature", (double)NAN, false)
    TRY(diversity_rate, NUMBER, "--diversity-rate", (double)INFINITY, false)
    assert_int_equal(rows, 19);
    small_end(&s);
}

/* Above a compiled maximum the message says how to raise it. */
static void test_compiled(void **state)
{
    const char *path = temp_path("narrow.ftx");
    char command[900];
    FtxModel *narrow;
    FtxEngine *e;
    FtxRequest q;
    FtxError err = {0};

    (void)state;
    snprintf(command, sizeof command,
             "%s compile " SPEC " -t cpu -q -D limits.sequences=8 -D decode.width=1 -D decode.max_top_k=20 -o %s",
             getenv("FTXC"), path);
    assert_int_equal(system(command), 0);
    assert_int_equal(
        ftx_model_open(path, &(FtxOptions){.size = sizeof(FtxOptions), .random_weights = 1}, &narrow, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(narrow, NULL, &e, &err), FTX_OK);
#define REFUSED(field, value, why) \
    q = ftx_request_default(narrow); \
    q.ids = (const int32_t[]){1}; \
    q.ids_count = 1; \
    q.field = value; \
    assert_int_equal(ftx_engine_submit(e, &q, NULL, &err), FTX_EINVAL); \
    assert_string_equal(err.text, why)
    REFUSED(top_k, 1000,
            "top_k: expected 0 to 20, found 1000: this artifact was compiled for at most 20; compile it again with -D "
            "decode.max_top_k=1000");
    REFUSED(beams, 4,
            "beams: expected 0 to 1, found 4: this artifact was compiled for at most 1; compile it again with -D "
            "decode.width=4");
    REFUSED(samples, 9,
            "samples: expected 0 to 8, found 9: this artifact was compiled for at most 8; compile it again with -D "
            "limits.sequences=9");
    ftx_engine_close(e);
    ftx_model_close(narrow);
}

/* The comments of ftx.h state the ranges of decode.def. */
static void test_header(void **state)
{
    FileMap map;
    FtxError err;
    char *text;
    int stated = 0;

    (void)state;
    assert_int_equal(file_map("runtime/ftx.h", &map, &err), FTX_OK);
    text = calloc(1, map.bytes + 1);
    assert_non_null(text);
    memcpy(text, map.at, map.bytes);
#define SAYS_COUNT(name, low, high)
#define SAYS_EARLY(name, low, high)
#define SAYS_NUMBER(name, low, high) \
    do { \
        const char *field = strstr(text, "    float " name ";"), *end = field ? strchr(field, '\n') : NULL; \
        const char *range = field ? strstr(field, low " to " high) : NULL; \
\
        if (!range || range > end) \
            fail_msg("ftx.h does not say \"%s to %s\" of %s", low, high, name); \
        stated++; \
    } while (0);
#define DECODE(name, type, low, high, ...) SAYS_##type(#name, #low, #high)
#include "runtime/decode.def"
#undef DECODE
    assert_int_equal(stated, 9);
    free(text);
    file_unmap(&map);
}

static int open_model(void **state)
{
    char command[900];
    FtxError err = {0};

    (void)state;
    strcpy(model_path, temp_path("settings.ftx"));
    snprintf(command, sizeof command, "%s compile " SPEC " -t cpu -q -o %s", getenv("FTXC"), model_path);
    if (system(command) != 0)
        return 1;
    return ftx_model_open(model_path, &(FtxOptions){.size = sizeof(FtxOptions), .random_weights = 1}, &model, &err) ||
           ftx_engine_open(model, NULL, &engine, &err);
}

static int close_model(void **state)
{
    (void)state;
    ftx_engine_close(engine);
    ftx_model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_edges), cmocka_unit_test(test_compiled),
                                       cmocka_unit_test(test_header)};

    return cmocka_run_group_tests(tests, open_model, close_model);
}
