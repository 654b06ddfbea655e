/* texts.c - the texts of an encoder: from the command line, or from lines as they come. */
#include "texts.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"

enum { WINDOW = 256 }; /* lines that are answered together at most */

typedef struct Texts {
    FtxModel *model;
    FtxEngine *engine;
    const VectorsJob *how;
    const char **text, **pair; /* [cap] */
    char **line;               /* [cap]: what was read, to be freed */
    size_t n, cap, before;     /* texts of earlier windows */
} Texts;

static void *must(void *p)
{
    if (!p) {
        command_say("out of memory");
        exit(EXIT_BUG);
    }
    return p;
}

static void add(Texts *t, const char *text, const char *pair, char *line)
{
    if (t->n == t->cap) {
        t->cap = t->cap * 2 + 64;
        t->text = must(realloc(t->text, t->cap * sizeof *t->text));
        t->pair = must(realloc(t->pair, t->cap * sizeof *t->pair));
        t->line = must(realloc(t->line, t->cap * sizeof *t->line));
    }
    t->text[t->n] = text;
    t->pair[t->n] = pair;
    t->line[t->n++] = line;
}

static void add_line(Texts *t, char *line)
{
    char *tab = strchr(line, '\t');

    if (tab)
        *tab = '\0';
    add(t, line, tab ? tab + 1 : NULL, line);
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
    job.count = job.ids ? 1 : t->n;
    job.before = t->before;
    job.lines = t->n && t->line[0];
    job.quiet |= t->before > 0;
    code = vectors_run(t->model, t->engine, &job);
    drop(t);
    return code;
}

/* Where each text is answered by itself, in windows of what has come; how near they are to each other is
 * known at the end alone. */
static int answer_lines(Texts *t, Lines *lines, bool apart)
{
    int code = EXIT_DONE;

    while (!command_stopped) {
        char *line = lines_next(lines, !apart || t->n == 0);

        if (line)
            add_line(t, line);
        if (t->n && (apart ? !line || t->n == WINDOW : lines->end && !line)) {
            const int one = answer(t);

            code = one > code ? one : code;
        } else if (!line && lines->end) {
            break;
        }
    }
    return command_stopped ? EXIT_INTERRUPTED : code;
}

int texts_run(FtxModel *model, FtxEngine *engine, const VectorsJob *how, const TextList *rest, char *text,
              const char *pair, Lines *lines)
{
    Texts t = {.model = model, .engine = engine, .how = how};
    FtxModelInfo info;
    int code;

    ftx_model_info(model, &info);
    for (size_t i = 1; i < rest->n; i++)
        add(&t, rest->at[i], pair, NULL);
    if (rest->n < 2 && text) {
        if (*text && text[strlen(text) - 1] == '\n')
            text[strlen(text) - 1] = '\0'; /* the end of a line is not meant */
        add(&t, text, pair, NULL);
    }
    code = t.n || how->ids ? answer(&t) : answer_lines(&t, lines, how->json || info.labels);
    drop(&t);
    free(t.text);
    free(t.pair);
    free(t.line);
    return code;
}
