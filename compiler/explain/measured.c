/* measured.c - what `ftxc bench --json` measured of a model, for `ftxc page`: the median of steps, and with --profile the
 * time of each kernel.
 *
 *   {"steps":   [[what, sequences, tokens, context, median in us, device, date]]
 *    "kernels": {entry: [us of a launch, launches, device, date]}}      texts as they are, no words */
#include "page.h"

#include <string.h>

#include "../../runtime/base/file.h"

static bool is_about(const json_t *line, const char *model)
{
    const char *name = json_string_value(json_object_get(line, "model"));

    return name && strcmp(name, model) == 0;
}

/* A field as it is; null: it is not there. */
static json_t *field(const json_t *line, const char *name)
{
    json_t *j = json_object_get(line, name);

    return j ? json_incref(j) : json_null();
}

static bool add_line(json_t *steps, json_t *kernels, const json_t *line)
{
    const char *kernel = json_string_value(json_object_get(line, "kernel"));
    const double launches = json_number_value(json_object_get(line, "launches"));
    const double us = json_number_value(json_object_get(line, "time_us"));

    if (kernel && launches > 0)
        return !json_object_set_new(
            kernels, kernel,
            json_pack("[f,f,o,o]", us / launches, launches, field(line, "device"), field(line, "date")));
    return json_is_string(json_object_get(line, "step")) && json_is_number(json_object_get(line, "median_us")) &&
           !json_array_append_new(steps,
                                  json_pack("[o,o,o,o,o,o,o]", field(line, "step"), field(line, "sequences"),
                                            field(line, "tokens"), field(line, "context"), field(line, "median_us"),
                                            field(line, "device"), field(line, "date")));
}

bool page_add_measured(Page *p, const char *path, const char *model, Diag *d)
{
    json_t *steps = json_array(), *kernels = json_object();
    FileMap file;
    FtxError err;
    const char *text, *end;
    size_t bytes, used = 0;
    int n = 0;

    json_object_set_new(p->root, "measured", json_pack("{so,so}", "steps", steps, "kernels", kernels));
    if (file_map(path, &file, &err))
        return diag_machine(d, "--measured: %s", err.text);
    text = file_text(&file, &bytes);
    for (; bytes && !d->failed; bytes -= (size_t)(end - text), text = end) {
        const char *stop = memchr(text, '\n', bytes);
        json_t *line;
        json_error_t why;

        end = stop ? stop + 1 : text + bytes;
        n++;
        if (strspn(text, " \t\r") >= (size_t)((stop ? stop : end) - text))
            continue;
        line = json_loadb(text, (size_t)(end - text), 0, &why);
        if (!json_is_object(line))
            diag_error(d, (Loc){path, n}, "expected a line of `ftxc bench --json`: %s", line ? "no object" : why.text);
        else if (is_about(line, model))
            used += add_line(steps, kernels, line);
        json_decref(line);
    }
    file_unmap(&file);
    return !d->failed &&
           (used || diag_error(d, (Loc){path, 0},
                               "no line is about %s: make them with `ftxc bench FILE.ftx --json` (steps) and `ftxc "
                               "bench FILE.ftx --new 64 --profile --json` (kernels)",
                               model));
}
