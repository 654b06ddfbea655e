/* measured.c - measured times of a model for `ftxc page`, from one of two kinds of files.
 *
 * Lines of `ftxc bench --json`: the median of steps, and with --profile the time of each kernel. The timeline that --trace
 * writes: the time of each launch. What becomes of them:
 *
 *   {"steps":    [[what, sequences, tokens, context, median in us, device, date]]
 *    "kernels":  {entry: us of a launch}
 *    "launches": [[label, entry, T, S, us]]}      means over all runs with T tokens of S sequences
 *
 * Texts stand there as they are, not as words. */
#include "page.h"

#include <string.h>

#include "../../runtime/base/file.h"

static const char *text_field(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));

    return s ? s : "";
}

/* A field as it is; null: it is not there. */
static json_t *field(const json_t *o, const char *name)
{
    json_t *j = json_object_get(o, name);

    return j ? json_incref(j) : json_null();
}

/* --- lines of ftxc bench ------------------------------------------------------------------------ */

static bool add_line(json_t *steps, json_t *kernels, const json_t *line)
{
    const char *kernel = text_field(line, "kernel");
    const double launches = json_number_value(json_object_get(line, "launches"));
    const double us = json_number_value(json_object_get(line, "time_us"));

    if (*kernel && launches > 0)
        return !json_object_set_new(kernels, kernel, json_real(us / launches));
    return *text_field(line, "step") && json_is_number(json_object_get(line, "median_us")) &&
           !json_array_append_new(steps,
                                  json_pack("[o,o,o,o,o,o,o]", field(line, "step"), field(line, "sequences"),
                                            field(line, "tokens"), field(line, "context"), field(line, "median_us"),
                                            field(line, "device"), field(line, "date")));
}

static size_t add_lines(json_t *steps, json_t *kernels, const char *path, const char *text, size_t bytes,
                        const char *model, Diag *d)
{
    const char *end;
    size_t used = 0;

    for (int n = 1; bytes && !d->failed; n++, bytes -= (size_t)(end - text), text = end) {
        const char *stop = memchr(text, '\n', bytes);
        json_t *line;
        json_error_t why;

        end = stop ? stop + 1 : text + bytes;
        if (strspn(text, " \t\r") >= (size_t)((stop ? stop : end) - text))
            continue;
        line = json_loadb(text, (size_t)(end - text), 0, &why);
        if (!json_is_object(line))
            diag_error(d, (Loc){path, n}, "expected a line of `ftxc bench --json`, or a file that --trace wrote: %s",
                       line ? "no object" : why.text);
        else if (strcmp(text_field(line, "model"), model) == 0)
            used += add_line(steps, kernels, line);
        json_decref(line);
    }
    return used;
}

/* --- a timeline --------------------------------------------------------------------------------- */

/* sums: of each label, kernel, T and S [label, entry, T, S, us of all, how many]. */
static void add_event(Page *p, json_t *sums, const json_t *event)
{
    const json_t *args = json_object_get(event, "args");
    const json_int_t T = json_integer_value(json_object_get(args, "T")),
                     S = json_integer_value(json_object_get(args, "S"));
    const char *label = text_field(event, "name"), *entry = text_field(args, "kernel"), *key;
    json_t *row;

    if (strcmp(text_field(event, "cat"), "kernel") != 0)
        return;
    key = arena_printf(p->keep, "%s\n%s\n%lld %lld", label, entry, (long long)T, (long long)S);
    row = json_object_get(sums, key);
    if (!row) {
        row = json_pack("[s,s,I,I,f,f]", label, entry, T, S, 0.0, 0.0);
        json_object_set_new(sums, key, row);
    }
    json_real_set(json_array_get(row, 4),
                  json_real_value(json_array_get(row, 4)) + json_number_value(json_object_get(event, "dur")));
    json_real_set(json_array_get(row, 5), json_real_value(json_array_get(row, 5)) + 1);
}

static size_t add_timeline(Page *p, json_t *launches, const json_t *trace, const char *model)
{
    json_t *sums = json_object(), *row;
    const char *key;
    size_t i;

    if (strcmp(text_field(json_object_get(trace, "otherData"), "model"), model) == 0)
        json_array_foreach(json_object_get(trace, "traceEvents"), i, row) add_event(p, sums, row);
    json_object_foreach(sums, key, row)
    {
        json_array_set_new(
            row, 4, json_real(json_real_value(json_array_get(row, 4)) / json_real_value(json_array_get(row, 5))));
        json_array_remove(row, 5);
        json_array_append(launches, row);
    }
    json_decref(sums);
    return json_array_size(launches);
}

bool page_add_measured(Page *p, const char *path, const char *model, Diag *d)
{
    json_t *steps = json_array(), *kernels = json_object(), *launches = json_array(), *whole;
    FileMap file;
    FtxError err;
    const char *text;
    size_t bytes, used;

    json_object_set_new(p->root, "measured",
                        json_pack("{so,so,so}", "steps", steps, "kernels", kernels, "launches", launches));
    if (file_map(path, &file, &err))
        return diag_machine(d, "--measured: %s", err.text);
    text = file_text(&file, &bytes);
    whole = json_loadb(text, bytes, 0, NULL);
    if (json_object_get(whole, "traceEvents"))
        used = add_timeline(p, launches, whole, model);
    else
        used = add_lines(steps, kernels, path, text, bytes, model, d);
    json_decref(whole);
    file_unmap(&file);
    return !d->failed &&
           (used ||
            diag_error(d, (Loc){path, 0},
                       "nothing in it is about %s: `ftxc bench FILE.ftx --json` measures steps, `ftxc bench "
                       "FILE.ftx --new 64 --profile --json` kernels, `ftxc run FILE.ftx --trace FILE.json` launches",
                       model));
}
