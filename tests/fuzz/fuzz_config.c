/* fuzz_config.c - any text as the config.json of a checkout; with a byte 0 in it, what follows is
 * its generation_config.json. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/spec/spec.h"

static char folder[32], config[64], generation[64];

static void remove_folder(void)
{
    unlink(config);
    unlink(generation);
    rmdir(folder);
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/ftx-config-XXXXXX");
    if (!mkdtemp(folder))
        fuzz_bug("no folder");
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(generation, sizeof generation, "%s/generation_config.json", folder);
    atexit(remove_folder);
}

static void put(const char *path, const void *p, size_t bytes)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(p, 1, bytes, f) != bytes || fclose(f))
        fuzz_bug("%s cannot be written", path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *middle = size ? memchr(data, 0, size) : NULL;
    const size_t first = middle ? (size_t)(middle - data) : size;
    Arena *keep = arena_open();
    Spec spec;
    Diag d = {0};

    if (!*folder)
        make_folder();
    put(config, data, first);
    if (middle)
        put(generation, middle + 1, size - first - 1);
    if (spec_read(folder, NULL, 0, keep, &spec, &d)) {
        if (!ir_verify(spec.graph, &d))
            fuzz_bug("the graph of a checkout: %s", d.text);
        ir_graph_close(spec.graph);
    } else if (!*d.text) {
        fuzz_bug("refused without a reason");
    }
    unlink(generation);
    arena_close(keep);
    return 0;
}

void fuzz_seeds(void)
{
    static char deep[40000];

    memset(deep, '[', sizeof deep);
    fuzz_seed("deep-lists", deep, sizeof deep);
    for (size_t i = 0; i + 5 <= sizeof deep; i += 5)
        memcpy(deep + i, "{\"a\":", 5);
    fuzz_seed("deep-objects", deep, sizeof deep);
    memset(deep, '[', 2000);
    memset(deep + 2000, ']', 2000);
    fuzz_seed("deep-and-closed", deep, 4000);
    FUZZ_SEED("two-files", "{\"architectures\":[\"LlamaForCausalLM\"]}\0{\"eos_token_id\":[[1]]}");
    fuzz_seed("empty", "", 0);
}
