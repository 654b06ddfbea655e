/* table.c - reads and writes the table of compiled kernels, kernels.txt (format: table.h). */
#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"

enum { WORDS = 7 }; /* numbers of a line before the counts of instruction classes */

static uint32_t *word_at(Resources *r, int i)
{
    uint32_t *const words[WORDS] = {&r->registers, &r->stack_bytes,  &r->spill_bytes,  &r->static_smem,
                                    &r->barriers,  &r->instructions, &r->operand_moves};

    return i < WORDS ? words[i] : &r->code[i - WORDS];
}

static bool parse_row(Table *t, char *line, Row *row)
{
    char *save, *word = strtok_r(line, " ", &save), *end;

    *row = (Row){.target = word ? arena_strdup(t->keep, word) : NULL};
    if (!word || !(word = strtok_r(NULL, " ", &save)))
        return false;
    row->entry = arena_strdup(t->keep, word);
    if (!(word = strtok_r(NULL, " ", &save)))
        return false;
    row->key = strtoull(word, &end, 16);
    for (int i = 0; i < WORDS + CODE_COUNT; i++) {
        if (*end || !(word = strtok_r(NULL, " ", &save)))
            return false;
        *word_at(&row->r, i) = (uint32_t)strtoul(word, &end, 10);
    }
    return !*end && !strtok_r(NULL, " ", &save);
}

void table_read(Table *t, const char *path, Arena *keep)
{
    FILE *f = fopen(path, "r");
    char line[2000], version[40];

    *t = (Table){.keep = keep};
    snprintf(version, sizeof version, "# NVRTC %s", nvrtc_version());
    for (int n = 1; f && fgets(line, sizeof line, f); n++) {
        line[strcspn(line, "\n")] = '\0';
        if (n == 1)
            t->other = strcmp(line, version) != 0;
        else if (!parse_row(t, line, arena_push(keep, t->rows)))
            die("%s:%d: no line of this table; FTX_GATES=update writes it anew", path, n);
    }
    if (f)
        fclose(f);
}

Row *table_find(Table *t, const char *target, const char *entry)
{
    for (size_t i = 0; i < t->rows.n; i++)
        if (strcmp(t->rows.at[i].entry, entry) == 0 && strcmp(t->rows.at[i].target, target) == 0)
            return &t->rows.at[i];
    return NULL;
}

void table_put(Table *t, const Row *row)
{
    Row *old = table_find(t, row->target, row->entry);

    if (!old)
        old = arena_push(t->keep, t->rows);
    *old = *row;
    old->target = arena_strdup(t->keep, row->target);
    old->entry = arena_strdup(t->keep, row->entry);
}

static int by_name(const void *a, const void *b)
{
    const Row *x = a, *y = b;
    const int targets = strcmp(x->target, y->target);

    return targets ? targets : strcmp(x->entry, y->entry);
}

void table_write(Table *t, const char *path, bool (*ran)(const char *target))
{
    char *all = NULL;
    size_t bytes = 0;
    FtxError err;
    FILE *f = open_memstream(&all, &bytes);

    if (!f)
        die("no memory");
    if (t->rows.n)
        qsort(t->rows.at, t->rows.n, sizeof *t->rows.at, by_name);
    fprintf(f, "# NVRTC %s\n", nvrtc_version());
    for (size_t i = 0; i < t->rows.n; i++) {
        Row *row = &t->rows.at[i];

        if (!row->used && ran(row->target))
            continue;
        fprintf(f, "%s %s %016" PRIx64, row->target, row->entry, row->key);
        for (int w = 0; w < WORDS + CODE_COUNT; w++)
            fprintf(f, " %" PRIu32, *word_at(&row->r, w));
        fputc('\n', f);
    }
    fclose(f);
    if (file_write_whole(path, all, bytes, &err))
        die("%s", err.text);
    free(all);
}
