/* json.c - JSON values for numbers and texts that JSON has no form for. */
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "command.h"

json_t *runner_json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *runner_json_text(const char *text, size_t bytes)
{
    json_t *s = json_stringn(text, bytes);
    char *copy;

    if (s)
        return s;
    copy = command_must(malloc(bytes));
    for (size_t i = 0; i < bytes; i++)
        copy[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    s = command_must(json_stringn(copy, bytes));
    free(copy);
    return s;
}

void runner_json_print(json_t *o)
{
    char *line = command_must(json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)));

    puts(line);
    free(line);
    json_decref(o);
}
