/* texts.c - the texts of an encoder: arguments, a whole file, or lines as they arrive. */
#include "texts.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"

enum { WINDOW = 256 }; /* at most this many lines are answered together */

typedef struct Texts {
    FtxModel *model;
    FtxEngine *engine;
    const VectorsJob *how;
    const char **text, **pair;       /* [cap] */
    size_t *text_bytes, *pair_bytes; /* [cap] */
    char **line;                     /* [cap]: the line that a text points into; NULL: an argument */
    size_t n, cap;
    size_t before; /* texts of earlier windows */
} Texts;

static void add(Texts *t, const char *text, size_t text_bytes, const char *pair, size_t pair_bytes, char *line)
{
    if (t->n == t->cap) {
        t->cap = t->cap * 2 + 64;
        t->text = command_must(realloc(t->text, t->cap * sizeof *t->text));
        t->pair = command_must(realloc(t->pair, t->cap * sizeof *t->pair));
        t->text_bytes = command_must(realloc(t->text_bytes, t->cap * sizeof *t->text_bytes));
        t->pair_bytes = command_must(realloc(t->pair_bytes, t->cap * sizeof *t->pair_bytes));
        t->line = command_must(realloc(t->line, t->cap * sizeof *t->line));
    }
    t->text[t->n] = text;
    t->pair[t->n] = pair;
    t->text_bytes[t->n] = text_bytes;
    t->pair_bytes[t->n] = pair_bytes;
    t->line[t->n++] = line;
}

static void add_line(Texts *t, char *line, size_t bytes)
{
    char *tab = memchr(line, '\t', bytes);
    const size_t first = tab ? (size_t)(tab - line) : bytes;

    if (tab)
        *tab = '\0';
    add(t, line, first, tab ? tab + 1 : NULL, tab ? bytes - first - 1 : 0, line);
}

static void drop(Texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->line[i]);
    t->before += t->n;
    t->n = 0;
}

static int answer(Texts *t)
{
    VectorsJob job = *t->how;
    int code;

    job.text = job.ids ? NULL : t->text;
    job.pair = t->pair;
    job.text_bytes = t->text_bytes;
    job.pair_bytes = t->pair_bytes;
    job.count = job.ids ? 1 : t->n;
    job.before = t->before;
    job.lines = t->n && t->line[0];
    job.quiet |= t->before > 0;
    code = vectors_run(t->model, t->engine, &job);
    drop(t);
    return code;
}

/* apart: texts are answered in windows, as lines arrive. Otherwise all are answered at the end, since their
 * similarities need all of them. */
static int answer_lines(Texts *t, Lines *lines, bool apart)
{
    int code = EXIT_DONE;

    while (!command_stopped) {
        size_t bytes;
        char *line = lines_next(lines, !apart || t->n == 0, &bytes);

        if (line)
            add_line(t, line, bytes);
        if (t->n && (apart ? !line || t->n == WINDOW : lines->end && !line)) {
            const int one = answer(t);

            code = one > code ? one : code;
        } else if (!line && lines->end) {
            break;
        }
    }
    return command_stopped ? EXIT_INTERRUPTED : lines->failed ? EXIT_FAILED : code;
}

int texts_run(FtxModel *model, FtxEngine *engine, const VectorsJob *how, const TextList *rest, const char *text,
              size_t bytes, const char *pair, Lines *lines)
{
    Texts t = {.model = model, .engine = engine, .how = how};
    const size_t pair_bytes = pair ? strlen(pair) : 0;
    FtxModelInfo info;
    int code;

    ftx_model_info(model, &info);
    for (size_t i = 1; i < rest->n; i++)
        add(&t, rest->at[i], strlen(rest->at[i]), pair, pair_bytes, NULL);
    if (rest->n < 2 && text)
        add(&t, text, bytes, pair, pair_bytes, NULL);
    code = t.n || how->ids ? answer(&t) : answer_lines(&t, lines, how->json || info.labels);
    drop(&t);
    free(t.text);
    free(t.pair);
    free(t.text_bytes);
    free(t.pair_bytes);
    free(t.line);
    return code;
}
