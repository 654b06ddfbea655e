/* fuzz_spec.c - any text as a spec. One that is accepted gives a graph that is verified, and that
 * the graph passes take, or refuse with a reason. */
#include "fuzz.h"

#include <string.h>

#include "compiler/spec/spec.h"

enum { MAX_VALUES = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const Override tokens = {"limits.tokens=4096"};
    Arena *keep = arena_open();
    Spec spec;
    Diag d = {0};

    if (spec_read(fuzz_file(data, size), &tokens, size % 2, keep, &spec, &d)) {
        if (!ir_verify(spec.graph, &d))
            fuzz_bug("the graph of a spec: %s", d.text);
        if (spec.graph->values.n < MAX_VALUES && !passes_run_graph(spec.graph, &spec.precision, NULL, &d) && !d.failed)
            fuzz_bug("the passes refuse a graph without a reason");
        ir_graph_close(spec.graph);
    } else if (!*d.text) {
        fuzz_bug("refused without a reason");
    }
    arena_close(keep);
    return 0;
}

/* Texts that are long, or that no editor would keep. */
void fuzz_seeds(void)
{
    static char deep[20000];

    memset(deep, '{', sizeof deep);
    memcpy(deep, "return ", 7);
    fuzz_seed("deep-tables", deep, sizeof deep);
    memset(deep, '(', sizeof deep);
    memcpy(deep, "return ", 7);
    fuzz_seed("deep-parentheses", deep, sizeof deep);
    memset(deep, '-', sizeof deep);
    for (size_t i = 8; i + 1 < sizeof deep; i += 2)
        deep[i] = ' ';
    memcpy(deep, "return ", 7);
    fuzz_seed("minuses", deep, sizeof deep);
    FUZZ_SEED("bytecode", "\x1bLua\x54\x00\x19\x93\r\n\x1a\n\x04\x08\x08");
    FUZZ_SEED("invalid-utf8", "return '\xff\xfe\xc0\x80\xed\xa0\x80'");
    FUZZ_SEED("nul", "return\0 1");
    fuzz_seed("empty", "", 0);
}
