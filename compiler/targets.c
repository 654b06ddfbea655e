/* targets.c - the words of --target, and the table of what they may be. */
#include "targets.h"

#include <string.h>

#include "../runtime/artifact/artifact.h"

_Static_assert((int)MAX_TARGETS == (int)ARTIFACT_MAX_PLANS, "an artifact has a plan for each target");

#define CAPABILITY(name, meaning) #name,
const char *const capability_names[CAPABILITY_COUNT] = {
#include "targets.def"
};
#undef CAPABILITY

enum { TMA = CAPABILITY_TMA, CLUSTER = CAPABILITY_CLUSTER, WGMMA = CAPABILITY_WGMMA };

static const TargetFacts known[] = {
#define TARGET(name, ...) {#name, "all", __VA_ARGS__, NULL},
#define TARGET_PTX(name, ...) {#name, "ptx", __VA_ARGS__, NULL},
#define TARGET_GPU(name, ...) {#name, "", __VA_ARGS__},
#include "targets.def"
#undef TARGET
#undef TARGET_PTX
#undef TARGET_GPU
};

const char targets_known[] =
#define TARGET(name, ...) #name " "
#define TARGET_PTX(name, ...) #name " "
#define TARGET_GPU(name, ...) #name " "
#include "targets.def"
#undef TARGET
#undef TARGET_PTX
#undef TARGET_GPU
    "";

const char targets_help[] = "a list of"
#define TARGET(name, ...) " " #name
#define TARGET_PTX(name, ...)
#define TARGET_GPU(name, ...)
#include "targets.def"
#undef TARGET
#undef TARGET_PTX
#undef TARGET_GPU
                            "; all: each of these; one GPU of a kind:"
#define TARGET(name, ...)
#define TARGET_PTX(name, ...)
#define TARGET_GPU(name, ...) " " #name
#include "targets.def"
#undef TARGET
#undef TARGET_PTX
#undef TARGET_GPU
                            "; PTX for other GPUs:"
#define TARGET(name, ...)
#define TARGET_PTX(name, ...) " " #name
#define TARGET_GPU(name, ...)
#include "targets.def"
#undef TARGET
#undef TARGET_PTX
#undef TARGET_GPU
                            "; ptx: both (default: cpu and this machine's GPU)";

static Target target_of(const TargetFacts *f)
{
    return (Target){.id = f->id, .name = f->name, .device = f->device};
}

static bool find(const char *name, Target *t)
{
    for (size_t i = 0; i < LEN(known); i++)
        if (strcmp(known[i].name, name) == 0) {
            *t = target_of(&known[i]);
            return true;
        }
    return false;
}

bool target_parse(const char *name, Target *t, Diag *d)
{
    return find(name, t) || diag_error(d, (Loc){0}, "there is no target \"%s\"; known: %s", name, targets_known);
}

static bool add(Targets *list, Target t, Diag *d)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->at[i].name, t.name) == 0)
            return true;
    if (list->n == MAX_TARGETS)
        return diag_error(d, (Loc){0}, "--target: more than %d targets", MAX_TARGETS);
    list->at[list->n++] = t;
    return true;
}

static bool add_word(Targets *list, const char *word, Diag *d)
{
    bool is_list = false, ok = true;
    Target t;

    for (size_t i = 0; i < LEN(known) && ok; i++)
        if (strcmp(known[i].list, word) == 0) {
            is_list = true;
            ok = add(list, target_of(&known[i]), d);
        }
    if (is_list)
        return ok;
    if (!find(word, &t))
        return diag_error(d, (Loc){0}, "--target: there is no target \"%s\"; known: %sall ptx", word, targets_known);
    return add(list, t, d);
}

bool targets_parse(const char *words, Targets *list, Diag *d)
{
    Arena *scratch = arena_open();
    bool ok = true;

    list->n = 0;
    for (char *save = NULL, *w = strtok_r(arena_strdup(scratch, words), ",", &save); w && ok;
         w = strtok_r(NULL, ",", &save))
        ok = add_word(list, w, d);
    arena_close(scratch);
    if (ok && list->n == 0)
        return diag_error(d, (Loc){0}, "--target: no target is named; known: %sall ptx", targets_known);
    return ok;
}

const TargetFacts *target_facts(Target t)
{
    for (size_t i = 0; i < LEN(known); i++)
        if (t.name && known[i].id == t.id && strcmp(known[i].name, t.name) == 0)
            return &known[i];
    for (size_t i = 0; i < LEN(known); i++)
        if (known[i].id == t.id)
            return &known[i];
    die("targets.def has no target %u", t.id);
}
