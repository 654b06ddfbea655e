/* passes.c - runs the passes in the order of passes.def, verifies the graph after each and writes dumps. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lower.h"
#include "../../runtime/base/file.h"

typedef struct Pass {
    char key;
    const char *name;
    uint32_t needs, gives;
    bool (*run)(Graph *g, const Precision *p, Diag *d);
} Pass;

static const Pass passes[] = {
#define PASS(key, name, needs, gives, what) {key, #name, needs, gives, pass_##name},
#include "passes.def"
#undef PASS
};

typedef struct Stage {
    char key;
    const char *name;
    bool (*run)(Lower *l, Diag *d);
    void (*print)(const Lower *l, FILE *out);
} Stage;

static const Stage stages[] = {
#define STAGE(key, name, what) {key, #name, stage_##name, print_##name},
#include "passes.def"
#undef STAGE
};

static bool is_letter(char c)
{
    for (size_t i = 0; i < LEN(passes); i++)
        if (passes[i].key == c)
            return true;
    for (size_t i = 0; i < LEN(stages); i++)
        if (stages[i].key == c)
            return true;
    return false;
}

bool passes_check_dump(const Dump *dump, Diag *d)
{
    for (const char *p = dump->letters ? dump->letters : ""; *p; p++)
        if (*p != ',' && !is_letter(*p))
            return diag_error(d, (Loc){0}, "--dump: no pass has the letter \"%c\"; `ftxc help opt` lists them", *p);
    return true;
}

/* --- dumps -------------------------------------------------------------------------------------------- */

/* NN-name[-target].ext in the dump's folder, if the letter was asked for; *out NULL if not. */
static bool dump_open(const Dump *dump, char key, size_t number, const char *name, const char *target,
                      const char *extension, Arena *a, FILE **out, Diag *d)
{
    const char *path;
    FtxError err;

    *out = NULL;
    if (!dump || !dump->letters || !strchr(dump->letters, key))
        return true;
    if (file_make_dirs(dump->dir ? dump->dir : ".", &err))
        return diag_machine(d, "--dump: %s", err.text);
    path = arena_printf(a, "%s/%02zu-%s%s%s.%s", dump->dir ? dump->dir : ".", number, name, target ? "-" : "",
                        target ? target : "", extension);
    *out = fopen(path, "w");
    return *out || diag_machine(d, "--dump: %s: %s", path, strerror(errno));
}

static bool dump_graph(const Dump *dump, const Pass *p, size_t number, const Graph *g, Diag *d)
{
    FILE *out;

    if (!dump_open(dump, p->key, number, p->name, NULL, "ir", g->scratch, &out, d) || !out)
        return !d->failed;
    ir_print(g, out);
    return fclose(out) == 0 || diag_machine(d, "--dump: %s", strerror(errno));
}

static bool dump_stage(const Dump *dump, const Stage *s, size_t number, const Lower *l, Diag *d)
{
    FILE *out;

    if (!dump_open(dump, s->key, number, s->name, l->target.name, "txt", l->scratch, &out, d) || !out)
        return !d->failed;
    s->print(l, out);
    return fclose(out) == 0 || diag_machine(d, "--dump: %s", strerror(errno));
}

/* --- running ------------------------------------------------------------------------------------------- */

static bool run_pass(Graph *g, const Pass *p, const Precision *precision, Diag *d)
{
    if (!p->run(g, precision, d))
        return false;
    g->facts |= p->gives;
    arena_reset(g->scratch);
    return ir_verify(g, d);
}

bool passes_run_graph(Graph *g, const Precision *p, const Dump *dump, Diag *d)
{
    for (size_t i = 0; i < LEN(passes); i++) {
        assert((g->facts & passes[i].needs) == passes[i].needs); /* the table is in the wrong order */
        if (!run_pass(g, &passes[i], p, d) || !dump_graph(dump, &passes[i], i + 1, g, d))
            return false;
    }
    return true;
}

bool passes_run_one(Graph *g, const char *name, const Precision *p, Diag *d)
{
    const char *known = "";

    for (size_t i = 0; i < LEN(passes); i++) {
        known = arena_printf(g->keep, "%s%s%s", known, *known ? ", " : "", passes[i].name);
        if (strcmp(passes[i].name, name) != 0)
            continue;
        if (!ir_verify(g, d))
            return false;
        if ((g->facts & passes[i].needs) != passes[i].needs)
            return diag_error(d, (Loc){0}, "pass %s: the passes before it have not run on this graph", name);
        return run_pass(g, &passes[i], p, d);
    }
    return diag_error(d, (Loc){0}, "no pass is called \"%s\"; known: %s", name, known);
}

bool passes_run_target(const Graph *g, const Catalog *c, Target t, const Precision *p, Packing *packing, Plan *plan,
                       const Dump *dump, Diag *d)
{
    Lower l;

    assert((g->facts & (IR_CLEAN | IR_PRECISE)) == (IR_CLEAN | IR_PRECISE));
    lower_open(&l, g, c, t, p, packing, plan);
    for (size_t i = 0; i < LEN(stages); i++) {
        if (!stages[i].run(&l, d) || !dump_stage(dump, &stages[i], LEN(passes) + i + 1, &l, d))
            return false;
        arena_reset(l.scratch);
    }
    return true;
}
