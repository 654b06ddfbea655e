/* page.h - what the files of `ftxc page` share: its data, one JSON object, of which page.html makes what is seen.
 *
 *   {"name", "source", "version", "facts": {"layers": 32 ...},
 *    "words":   [texts]                       a text elsewhere is an index into them
 *    "graphs":  [{pass, result, text}]        the graph after each pass, as ir_print writes it; an artifact: []
 *    "weights": [[name, type, shape, offset, bytes]]
 *    "plans":   [{target, gpu, read_gbs, ...}]  page_plan.c
 *    "measured": {...}}                       measured.c; absent: none */
#ifndef FTXC_EXPLAIN_PAGE_H
#define FTXC_EXPLAIN_PAGE_H

#include <jansson.h>

#include "window.h"
#include "../passes/pass.h"

typedef struct Page {
    json_t *root, *words, *places; /* places: of each word its index */
    Arena *keep;
} Page;

/* The index of a text among the words. */
json_t *page_word(Page *p, const char *text);
json_t *page_text(const char *text); /* the text itself, whatever its bytes are */

/* A plan of the compiler or of an artifact; the other is NULL. */
typedef struct PlanSource {
    const Plan *plan;
    const Artifact *artifact;
    const ArtifactPlan *stored;
    uint32_t sequences, tokens; /* limits */
} PlanSource;

/* Adds the plan to the page: memory, kernels, programs with their launches. Returns its object, the page's own. */
json_t *page_add_plan(Page *p, const PlanSource *from);

/* Adds the lines of a file about this model; false: there are none, or the file cannot be read. */
bool page_add_measured(Page *p, const char *path, const char *model, Diag *d);

#endif
