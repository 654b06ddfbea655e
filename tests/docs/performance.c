/* performance.c - makes docs/performance.md from the files of docs/results, and checks those files.
 *
 *   performance FOLDER        reads scenarios.json and all .jsonl files there, writes the page to standard output
 *
 * scenarios.json says what the page shows; each line of a .jsonl file is one result, as `ftxc bench --json`
 * prints it. A scenario shows the newest result that has all fields of its "match". docs/results/README.md
 * describes both. Every mistake is printed with its file and line; the exit code is then 1. */
#include <dirent.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
enum { RESULTS_MAX = 4000, LINE_BYTES = 8000, PATH_BYTES = 1000 };

typedef struct Result {
    json_t *o;
    int run; /* its number on the page; 0: none yet */
} Result;

static Result results[RESULTS_MAX];
static int n_results, n_runs, mistakes;

static void mistake(const char *file, int line, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    mistakes++;
}

/* --- results: what a line may hold ------------------------------------------------------------------- */

typedef enum Type { TEXT, DATE, COUNT, NUMBER, LIMITS } Type;
enum { STEP = 1, GENERATION = 2, MEASURE = 4, ALL = 7 };

/* The first three name the kinds. */
static const struct {
    const char *name;
    Type type;
    int required, allowed; /* kinds */
} fields[] = {
    {"step", TEXT, STEP, STEP},
    {"generation", COUNT, GENERATION, GENERATION},
    {"measure", TEXT, MEASURE, MEASURE},
    {"date", DATE, ALL, ALL},
    {"device", TEXT, ALL, ALL},
    {"ftxc", TEXT, ALL, ALL},
    {"command", TEXT, ALL, ALL},
    {"make", TEXT, 0, ALL},
    {"host", TEXT, 0, ALL},
    {"driver", TEXT, 0, ALL},
    {"note", TEXT, 0, ALL},
    {"model", TEXT, STEP | GENERATION, ALL},
    {"limits", LIMITS, 0, STEP | GENERATION},
    {"sequences", COUNT, STEP, STEP},
    {"tokens", COUNT, STEP, STEP},
    {"context", COUNT, STEP, STEP},
    {"median_us", NUMBER, STEP, STEP},
    {"least_us", NUMBER, 0, STEP},
    {"most_us", NUMBER, 0, STEP},
    {"tokens_per_second", NUMBER, 0, STEP},
    {"source", COUNT, GENERATION, GENERATION},
    {"beams", COUNT, GENERATION, GENERATION},
    {"requests", COUNT, GENERATION, GENERATION},
    {"top_k", COUNT, 0, GENERATION},
    {"top_p", NUMBER, 0, GENERATION},
    {"temperature", COUNT, 0, GENERATION},
    {"median_ms", NUMBER, GENERATION, GENERATION},
    {"least_ms", NUMBER, 0, GENERATION},
    {"most_ms", NUMBER, 0, GENERATION},
    {"workspace_bytes", COUNT, 0, GENERATION},
    {"value", NUMBER, MEASURE, MEASURE},
    {"unit", TEXT, MEASURE, MEASURE},
};

static bool is_date(const char *s)
{
    static const char form[] = "dddd-dd-dd";

    for (size_t i = 0; i < sizeof form; i++)
        if (form[i] == 'd' ? s[i] < '0' || s[i] > '9' : s[i] != form[i])
            return false;
    return true;
}

static bool is_limits(const json_t *v)
{
    static const char *const names[] = {"sequences", "context", "tokens"};

    if (!json_is_object(v) || json_object_size(v) != 3)
        return false;
    for (int i = 0; i < 3; i++)
        if (json_integer_value(json_object_get(v, names[i])) < 1)
            return false;
    return true;
}

static const char *wrong_type(const json_t *v, Type type)
{
    switch (type) {
    case TEXT: return json_string_length(v) ? NULL : "a text";
    case DATE: return json_is_string(v) && is_date(json_string_value(v)) ? NULL : "a date such as 2026-11-22";
    case COUNT: return json_is_number(v) && json_number_value(v) >= 0 ? NULL : "a number of 0 or more";
    case NUMBER: return json_is_number(v) && json_number_value(v) > 0 ? NULL : "a number above 0";
    case LIMITS: return is_limits(v) ? NULL : "an object of sequences, context and tokens";
    }
    return NULL;
}

static void check_result(const json_t *o, const char *file, int line)
{
    const char *name;
    json_t *v;
    int kind = 0;

    for (int i = 0; i < 3; i++)
        kind |= json_object_get(o, fields[i].name) ? fields[i].required : 0;
    if (kind != STEP && kind != GENERATION && kind != MEASURE) {
        mistake(file, line, "expected one of \"step\", \"generation\", \"measure\"");
        return;
    }
    for (size_t i = 0; i < LEN(fields); i++) {
        const json_t *at = json_object_get(o, fields[i].name);
        const char *wanted = at ? wrong_type(at, fields[i].type) : NULL;

        if (!at && fields[i].required & kind)
            mistake(file, line, "\"%s\" is missing", fields[i].name);
        else if (at && !(fields[i].allowed & kind))
            mistake(file, line, "\"%s\" does not belong to this kind of result", fields[i].name);
        else if (wanted)
            mistake(file, line, "\"%s\": expected %s", fields[i].name, wanted);
    }
    json_object_foreach((json_t *)o, name, v)
    {
        size_t i = 0;

        while (i < LEN(fields) && strcmp(fields[i].name, name) != 0)
            i++;
        if (i == LEN(fields))
            mistake(file, line, "\"%s\" is not a field of a result", name);
    }
}

static void read_results(const char *file)
{
    static char text[LINE_BYTES];
    FILE *f = fopen(file, "r");
    json_error_t err;

    if (!f) {
        mistake(file, 0, "cannot be read");
        return;
    }
    for (int line = 1; fgets(text, sizeof text, f); line++) {
        json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &err);

        if (!json_is_object(o)) {
            mistake(file, line, "%s", o ? "expected an object" : err.text);
            json_decref(o);
        } else if (n_results == RESULTS_MAX) {
            mistake(file, line, "more than %d results", RESULTS_MAX);
            json_decref(o);
            break;
        } else {
            check_result(o, file, line);
            results[n_results++].o = o;
        }
    }
    fclose(f);
}

static int is_lines(const struct dirent *d)
{
    const size_t n = strlen(d->d_name);

    return n > 6 && strcmp(d->d_name + n - 6, ".jsonl") == 0;
}

static void read_folder(const char *folder)
{
    struct dirent **names;
    char path[PATH_BYTES];
    const int n = scandir(folder, &names, is_lines, alphasort);

    if (n < 1)
        mistake(folder, 0, "has no results (*.jsonl)");
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        read_results(path);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

/* --- scenarios --------------------------------------------------------------------------------------- */

typedef struct Member {
    const char *name;
    json_type type;
    bool required;
} Member;

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));

    return s ? s : "";
}

static bool matches(const json_t *o, json_t *match)
{
    const char *name;
    json_t *wanted;

    json_object_foreach(match, name, wanted)
    {
        const json_t *v = json_object_get(o, name);

        if (json_is_number(wanted) ? json_number_value(v) != json_number_value(wanted) || !json_is_number(v)
                                   : !json_equal(v, wanted))
            return false;
    }
    return true;
}

/* Says which members of an object of scenarios.json are missing, of another type, or unknown. */
static void check_members(const json_t *o, const char *file, const Member *members, size_t n)
{
    const char *what = *text_of(o, "name") ? text_of(o, "name") : text_of(o, "title"), *name;
    json_t *v;

    for (size_t i = 0; i < n; i++) {
        const json_t *at = json_object_get(o, members[i].name);

        if (at ? json_typeof(at) != members[i].type : members[i].required)
            mistake(file, 0, "\"%s\": \"%s\" is missing or of another type", what, members[i].name);
    }
    json_object_foreach((json_t *)o, name, v)
    {
        size_t i = 0;

        while (i < n && strcmp(members[i].name, name) != 0)
            i++;
        if (i == n)
            mistake(file, 0, "\"%s\": \"%s\" is not known here", what, name);
    }
}

static void check_scenarios(const json_t *page, const char *file)
{
    static const Member of_page[] = {{"head", JSON_ARRAY, true}, {"groups", JSON_ARRAY, true}};
    static const Member of_group[] = {{"title", JSON_STRING, true},   {"text", JSON_ARRAY, true},
                                      {"heading", JSON_STRING, true}, {"value", JSON_STRING, false},
                                      {"match", JSON_OBJECT, true},   {"scenarios", JSON_ARRAY, true}};
    static const Member of_scenario[] = {{"name", JSON_STRING, true},
                                         {"match", JSON_OBJECT, true},
                                         {"target", JSON_REAL, false},
                                         {"peer", JSON_REAL, false},
                                         {"floor", JSON_REAL, false}};
    const json_t *groups = json_object_get(page, "groups");

    check_members(page, file, of_page, LEN(of_page));
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *scenarios = json_object_get(json_array_get(groups, i), "scenarios");

        check_members(json_array_get(groups, i), file, of_group, LEN(of_group));
        for (size_t k = 0; k < json_array_size(scenarios); k++)
            check_members(json_array_get(scenarios, k), file, of_scenario, LEN(of_scenario));
    }
}

/* The newest result that matches a scenario and its group; of one day's the last. NULL: none. */
static Result *find_result(const json_t *group, const json_t *scenario)
{
    Result *best = NULL;

    for (int i = 0; i < n_results; i++)
        if (matches(results[i].o, json_object_get(group, "match")) &&
            matches(results[i].o, json_object_get(scenario, "match")) &&
            (!best || strcmp(text_of(results[i].o, "date"), text_of(best->o, "date")) >= 0))
            best = &results[i];
    return best;
}

/* What results of one run share: first the machine and the day, then the commands. */
static const char *of_run[] = {"date", "device", "host", "driver", "ftxc", "make", "command"};
enum { OF_MACHINE = 5, OF_RUN = LEN(of_run) };

/* Are the first n of these fields the same in both results? */
static bool same_run(const json_t *a, const json_t *b, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(text_of(a, of_run[i]), text_of(b, of_run[i])) != 0)
            return false;
    return true;
}

/* Gives a result the number of its run: results with the same machine, date and command share one. */
static void number_run(Result *r)
{
    for (int i = 0; i < n_results && !r->run; i++)
        if (results[i].run && same_run(results[i].o, r->o, OF_RUN))
            r->run = results[i].run;
    if (!r->run)
        r->run = ++n_runs;
}

/* --- the page ---------------------------------------------------------------------------------------- */

/* Thousands with commas; below, four digits. */
static void print_number(double v)
{
    if (v >= 1000) {
        const long n = (long)(v + 0.5);

        print_number((double)(n / 1000));
        printf(",%03ld", n % 1000);
    } else {
        printf("%.4g", v);
    }
}

/* The cell of an optional number; empty where there is none. */
static void print_cell(const json_t *v)
{
    printf(" | ");
    if (json_is_number(v))
        print_number(json_number_value(v));
}

static void print_lines(const json_t *lines)
{
    for (size_t i = 0; i < json_array_size(lines); i++)
        printf("%s\n", json_string_value(json_array_get(lines, i)));
}

static void print_machine(const json_t *o)
{
    printf("\n%s, %s", text_of(o, "date"), text_of(o, "device"));
    if (*text_of(o, "host"))
        printf(" (%s)", text_of(o, "host"));
    if (*text_of(o, "driver"))
        printf(", %s", text_of(o, "driver"));
    printf(", ftxc %s:\n\n", text_of(o, "ftxc"));
}

static void print_run(const json_t *o, int run)
{
    printf("- run %d: ", run);
    if (*text_of(o, "make"))
        printf("`%s`, ", text_of(o, "make"));
    printf("`%s`\n", text_of(o, "command"));
}

static void print_scenario(const json_t *group, const json_t *scenario, const Result *r)
{
    const json_t *floor = json_object_get(scenario, "floor");
    const char *field = *text_of(group, "value") ? text_of(group, "value") : "value";
    const json_t *v = json_object_get(r->o, field);
    const double scale = strcmp(field, "median_us") == 0 ? 1e-3 : 1;
    const double measured = json_number_value(v) * scale;

    if (!json_is_number(v)) {
        mistake("scenarios.json", 0, "\"%s\": its result has no \"%s\"", text_of(scenario, "name"), field);
        return;
    }
    printf("| %s | ", text_of(scenario, "name"));
    print_number(measured);
    if (*text_of(r->o, "unit"))
        printf(" %s", text_of(r->o, "unit"));
    if (*text_of(r->o, "note"))
        printf(" *");
    print_cell(json_object_get(scenario, "target"));
    print_cell(json_object_get(scenario, "peer"));
    print_cell(floor);
    if (json_is_number(floor))
        printf(" (%.0f %%)", json_number_value(floor) / measured * 100);
    printf(" | %d |\n", r->run);
}

static void print_group(const json_t *group)
{
    const json_t *scenarios = json_object_get(group, "scenarios");
    const size_t n = json_array_size(scenarios);
    Result **shown = calloc(n + 1, sizeof *shown);
    const json_t *last = NULL;
    const int first = n_runs;

    if (!shown)
        abort();
    printf("\n## %s\n\n", text_of(group, "title"));
    print_lines(json_object_get(group, "text"));
    printf("\n| %s | measured | target | peer | floor (reached) | run |\n|---|---|---|---|---|---|\n",
           text_of(group, "heading"));
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(scenarios, i);

        shown[i] = find_result(group, s);
        if (!shown[i]) {
            mistake("scenarios.json", 0, "\"%s\": no result matches it", text_of(s, "name"));
            continue;
        }
        number_run(shown[i]);
        print_scenario(group, s, shown[i]);
    }
    for (int run = first + 1, i = 0; run <= n_runs; run++, i = 0) {
        while (!shown[i] || shown[i]->run != run)
            i++;
        if (!last || !same_run(last, shown[i]->o, OF_MACHINE))
            print_machine(shown[i]->o);
        last = shown[i]->o;
        print_run(last, run);
    }
    free(shown);
}

int main(int argc, char **argv)
{
    char path[PATH_BYTES];
    json_error_t err;
    json_t *page;

    if (argc != 2) {
        fprintf(stderr, "performance FOLDER: expected the folder of the results\n");
        return 2;
    }
    read_folder(argv[1]);
    snprintf(path, sizeof path, "%s/scenarios.json", argv[1]);
    page = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &err);
    if (!page)
        mistake(path, err.line, "%s", err.text);
    check_scenarios(page, path);
    if (!mistakes) {
        const json_t *groups = json_object_get(page, "groups");

        print_lines(json_object_get(page, "head"));
        for (size_t i = 0; i < json_array_size(groups); i++)
            print_group(json_array_get(groups, i));
    }
    json_decref(page);
    for (int i = 0; i < n_results; i++)
        json_decref(results[i].o);
    return mistakes ? 1 : 0;
}
