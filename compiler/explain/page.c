/* page.c - `ftxc page`: the graph after each pass, the plan of each target and its candidates as one page of HTML.
 *
 * page.html and page.js stand inside ftxc. The data go where the first says @DATA@, the second where it says @SCRIPT@.
 * The data are JSON in a <script>, in which `<` is written \u003c, so that no name can end it. */
#include "page.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../catalog/catalog.h"
#include "../weights/weights.h"
#include "../../runner/json.h"
#include "../../runtime/base/dtype.h"

json_t *page_word(Page *p, const char *text)
{
    json_t *word = runner_json_text(text, strlen(text));
    json_t *place = json_object_get(p->places, json_string_value(word));

    if (place) {
        json_decref(word);
        return json_incref(place);
    }
    place = json_integer((json_int_t)json_array_size(p->words));
    json_object_set(p->places, json_string_value(word), place);
    json_array_append_new(p->words, word);
    return place;
}

json_t *page_text(const char *text)
{
    return runner_json_text(text, strlen(text));
}

/* --- of a spec ---------------------------------------------------------------------------------------- */

/* The whole graph as text; NULL: no memory. */
static char *graph_text(const Graph *g)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        return NULL;
    ir_print(g, out);
    return fclose(out) ? (free(text), NULL) : text;
}

/* The graph as the pass left it, unless that is how it found it. */
static void add_graph(Page *p, const Graph *g, const char *pass, const char *result)
{
    json_t *graphs = json_object_get(p->root, "graphs");
    json_t *last = json_array_get(graphs, json_array_size(graphs) - 1), *row;
    char *text = graph_text(g);

    if (!text)
        die("out of memory");
    row = json_pack("{ss,ss,so}", "pass", pass, "result", result, "text", page_text(text));
    if (!json_equal(json_object_get(last, "text"), json_object_get(row, "text")))
        json_array_append(graphs, row);
    json_decref(row);
    free(text);
}

static bool run_graph_passes(Page *p, const Spec *spec, Diag *d)
{
    static const struct {
        const char *name, *what;
    } passes[] = {
#define PASS(key, name, needs, gives, what) {#name, what},
#include "../passes/passes.def"
#undef PASS
    };

    add_graph(p, spec->graph, "spec", "what the spec says");
    for (size_t i = 0; i < LEN(passes); i++) {
        if (!passes_run_one(spec->graph, passes[i].name, &spec->precision, d))
            return false;
        add_graph(p, spec->graph, passes[i].name, passes[i].what);
    }
    return true;
}

static void add_weight(Page *p, const char *name, const char *type, const char *shape, uint64_t offset, uint64_t bytes)
{
    json_array_append_new(json_object_get(p->root, "weights"),
                          json_pack("[o,o,o,I,I]", page_word(p, name), page_word(p, type), page_word(p, shape),
                                    (json_int_t)offset, (json_int_t)bytes));
}

typedef struct Sink {
    Page *page;
    json_t *rows;
} Sink;

static void add_considered(void *user, const Considered *x)
{
    const Sink *s = user;

    json_array_append_new(s->rows,
                          json_pack("[i,i,i,o,o,o,o,o]", (int)x->program, (int)x->launch, (int)x->root,
                                    x->fits ? json_real(x->cost_us) : json_null(), page_word(s->page, x->kernel),
                                    x->entry ? page_word(s->page, x->entry) : json_null(),
                                    page_word(s->page, x->reason), page_word(s->page, x->tuned)));
}

static json_t *spec_facts(const Spec *s, Arena *scratch)
{
    const Limits *l = &s->graph->limits;

    return json_pack("{sI,si,si,si,si,sI,sI,sI,sI,sI}", "parameters", (json_int_t)weights_parameters(s->graph, scratch),
                     "vocab", (int)s->vocab, "hidden", (int)s->hidden, "layers", (int)s->layers, "heads", (int)s->heads,
                     "sequences", (json_int_t)l->sequences, "context", (json_int_t)l->context, "tokens",
                     (json_int_t)l->tokens, "kv_block", (json_int_t)l->kv_block, "kv_pages", (json_int_t)l->kv_pages);
}

static bool add_spec_plans(Page *p, const PageOptions *o, const Spec *spec, Diag *d)
{
    const Limits *limits = &spec->graph->limits;
    Plan plans[MAX_TARGETS] = {0};
    Packing packing = {0};
    Catalog catalog;

    if (!catalog_open(p->keep, &catalog, d))
        return false;
    for (size_t i = 0; i < o->targets.n; i++)
        if (!passes_run_target(spec->graph, &catalog, o->targets.at[i], &spec->precision, &packing, &plans[i], NULL, d))
            return false;
    for (size_t i = 0; i < packing.weights.n; i++) {
        const PackedWeight *w = &packing.weights.at[i];

        add_weight(p, weights_packed_name(spec->graph, w, p->keep), dtype_name(w->type),
                   ir_shape_text(p->keep, ir_value(spec->graph, w->value)->shape), w->offset, w->bytes);
    }
    for (size_t i = 0; i < o->targets.n; i++) {
        const PlanSource from = {
            .plan = &plans[i], .sequences = (uint32_t)limits->sequences, .tokens = (uint32_t)limits->tokens};
        Sink sink = {.page = p};

        plans[i].head.space_bytes[FTX_SPACE_WEIGHTS] = packing.bytes;
        sink.rows = json_object_get(page_add_plan(p, &from), "considered");
        if (!passes_considered(spec->graph, &catalog, o->targets.at[i], &spec->precision, add_considered, &sink, d))
            return false;
    }
    return true;
}

static bool add_spec(Page *p, const PageOptions *o, Diag *d)
{
    Spec spec = {0};
    const bool ok = spec_read(o->path, o->overrides, o->n_overrides, p->keep, &spec, d) &&
                    run_graph_passes(p, &spec, d) && add_spec_plans(p, o, &spec, d);

    if (ok) {
        json_object_set_new(p->root, "name", page_text(spec.name));
        json_object_set_new(p->root, "facts", spec_facts(&spec, p->keep));
    }
    if (spec.graph)
        ir_graph_close(spec.graph);
    return ok;
}

/* --- of an artifact ----------------------------------------------------------------------------------- */

static json_t *stored_facts(const FtxFacts *f)
{
    return json_pack("{sI,si,si,si,si,si,si,si,si,si}", "parameters", (json_int_t)f->parameters, "vocab", (int)f->vocab,
                     "hidden", (int)f->hidden, "layers", (int)f->layers, "heads", (int)f->heads, "sequences",
                     (int)f->sequences, "context", (int)f->context, "tokens", (int)f->tokens, "kv_block",
                     (int)f->kv_block, "kv_pages", (int)f->kv_pages);
}

static bool add_artifact(Page *p, const PageOptions *o, Diag *d)
{
    Artifact a;
    FtxError err;

    if (artifact_open(o->path, &a, &err))
        return diag_machine(d, "%s", err.text);
    json_object_set_new(p->root, "name", page_text(artifact_string(&a, a.facts->name)));
    json_object_set_new(p->root, "facts", stored_facts(a.facts));
    for (uint32_t i = 0; i < a.n_weights; i++) {
        const FtxWeight *w = &a.weights[i];

        add_weight(p, artifact_string(&a, w->name), dtype_name((DType)w->type), window_shape(w), w->offset, w->bytes);
    }
    for (uint32_t i = 0; i < a.n_plans; i++)
        page_add_plan(
            p, &(PlanSource){
                   .artifact = &a, .stored = &a.plans[i], .sequences = a.facts->sequences, .tokens = a.facts->tokens});
    artifact_close(&a);
    return true;
}

/* --- the page ----------------------------------------------------------------------------------------- */

/* Appends the HTML up to a mark; *html is then what follows the mark. */
static char *copy_up_to(const char *mark, const char **html, char *to)
{
    const char *at = strstr(*html, mark);

    assert(at);
    to = mempcpy(to, *html, (size_t)(at - *html));
    *html = at + strlen(mark);
    return to;
}

static const char *page_html(Page *p, size_t *bytes)
{
    const char *html = catalog_text("compiler/explain/page.html"), *script = catalog_text("compiler/explain/page.js");
    char *json = json_dumps(p->root, JSON_COMPACT | JSON_REAL_PRECISION(6)), *text, *to;
    size_t less = 0;

    if (!json)
        die("out of memory");
    for (const char *s = json; *s; s++)
        less += *s == '<';
    text = to = arena_alloc(p->keep, strlen(html) + strlen(script) + strlen(json) + 5 * less + 1);
    to = copy_up_to("@DATA@", &html, to);
    for (const char *s = json; *s; s++)
        to = *s == '<' ? stpcpy(to, "\\u003c") : mempcpy(to, s, 1);
    to = copy_up_to("@SCRIPT@", &html, to);
    to = stpcpy(stpcpy(to, script), html);
    *bytes = (size_t)(to - text);
    free(json);
    return text;
}

bool explain_page(const PageOptions *o, Arena *keep, const char **text, size_t *bytes, Diag *d)
{
    Page p = {.root = json_object(), .words = json_array(), .places = json_object(), .keep = keep};
    bool ok;

    json_object_set_new(p.root, "source", page_text(o->path));
    json_object_set_new(p.root, "artifact", json_boolean(o->artifact));
    json_object_set(p.root, "words", p.words);
    json_object_set_new(p.root, "graphs", json_array());
    json_object_set_new(p.root, "weights", json_array());
    json_object_set_new(p.root, "plans", json_array());
    ok = (o->artifact ? add_artifact(&p, o, d) : add_spec(&p, o, d)) &&
         (!o->measured || page_add_measured(&p, o->measured, json_string_value(json_object_get(p.root, "name")), d));
    if (ok)
        *text = page_html(&p, bytes);
    json_decref(p.root);
    json_decref(p.words);
    json_decref(p.places);
    return ok;
}
