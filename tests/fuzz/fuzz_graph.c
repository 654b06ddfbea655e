/* fuzz_graph.c - any text as a graph. What parses prints and parses to the same text; what is
 * verified, too, goes through the passes and finds kernels on the CPU and on a GPU, or a reason. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/passes/pass.h"
#include "compiler/spec/spec.h"

enum { MAX_VALUES = 200, MAX_TEXT = 1 << 16 };

static char *text_of(const Graph *g)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    if (!f)
        fuzz_bug("no memory");
    ir_print(g, f);
    fclose(f);
    return text;
}

static void must_round_trip(const Graph *g)
{
    char *once = text_of(g), *twice;
    Diag d = {0};
    Graph *again = ir_parse("again", once, &d);

    if (!again)
        fuzz_bug("what was printed does not parse: %s\n%s", d.text, once);
    twice = text_of(again);
    if (strcmp(once, twice) != 0)
        fuzz_bug("printed:\n%s\nparsed and printed:\n%s", once, twice);
    ir_graph_close(again);
    free(once);
    free(twice);
}

static const Catalog *catalog(void)
{
    static Arena *keep;
    static Catalog c;
    Diag d = {0};

    if (!keep) {
        keep = arena_open(); /* for the whole run */
        if (!catalog_open(keep, &c, &d))
            fuzz_bug("%s", d.text);
    }
    return &c;
}

static void find_kernels(const Graph *g, const Precision *p)
{
    static const char *const targets[] = {"cpu", "sm_90a"};

    for (size_t i = 0; i < LEN(targets); i++) {
        Packing packing = {0};
        Plan plan = {0};
        Diag d = {0};
        Target t;

        if (!target_parse(targets[i], &t, &d))
            fuzz_bug("%s", d.text);
        if (!passes_run_target(g, catalog(), t, p, &packing, &plan, NULL, &d) && !d.failed)
            fuzz_bug("no plan for %s and no reason", targets[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const Precision p = {.weights = DT_BF16};
    Diag d = {0};
    char *text;
    Graph *g;

    if (size > MAX_TEXT)
        return 0;
    text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    g = ir_parse("fuzz.ir", text, &d);
    free(text);
    if (!g) {
        if (!d.failed || !*d.text)
            fuzz_bug("refused without a reason");
        return 0;
    }
    must_round_trip(g);
    if (g->values.n <= MAX_VALUES && ir_verify(g, &d)) {
        if (passes_run_graph(g, &p, NULL, &d)) {
            must_round_trip(g);
            find_kernels(g, &p);
        }
    }
    ir_graph_close(g);
    return 0;
}

/* The graphs of the tiny models: decoders, encoders, readers of sources, with and without beams. */
void fuzz_seeds(void)
{
    static const char *const models[] = {"llama", "gpt2", "bert", "roberta", "distilbert", "marian", "bart"};

    for (size_t i = 0; i < LEN(models); i++) {
        Arena *keep = arena_open();
        char *text;
        Spec spec;
        Diag d = {0};

        if (!spec_read(arena_printf(keep, "tests/models/tiny-%s", models[i]), NULL, 0, keep, &spec, &d))
            fuzz_bug("%s", d.text);
        text = text_of(spec.graph);
        fuzz_seed(models[i], text, strlen(text));
        free(text);
        ir_graph_close(spec.graph);
        arena_close(keep);
    }
}
