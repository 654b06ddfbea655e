/* steps.h - compile a whole model for the driver of driver.c; shared by test_steps.c and test_texts.c. */
#ifndef SIMT_STEPS_H
#define SIMT_STEPS_H

#include "compiler/artifact/artifact.h"
#include "driver.h"
#include "tests/models/golden.h"

typedef struct Model {
    const char *checkout;
    Override *overrides;
    size_t n_overrides;
} Model;

/* As compile.c, but a kernel's code is its name, and its text is compiled for the host. Weights that a plan for the
 * CPU reads are packed, too: the reference passes of the tests need all weights unchanged. */
static inline void compile_for_host(const Model *m, const char *path, Build *build)
{
    Arena *keep = arena_open();
    Spec spec = {0};
    Catalog catalog;
    Packing packing = {0};
    Plan plan = {0}, plain = {0};
    Code code = {0};
    Checkpoint *checkpoint = NULL;
    const Dump none = {0};
    Target target, cpu;
    Diag d = {0};
    char *names = NULL;
    size_t bytes = 0;

    if (!target_parse("sm_90a", &target, &d) || !target_parse("cpu", &cpu, &d) ||
        !spec_read(m->checkout, m->overrides, m->n_overrides, keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &none, &d) || !catalog_open(keep, &catalog, &d) ||
        !passes_run_target(spec.graph, &catalog, target, &spec.precision, &packing, &plan, &none, &d) ||
        !passes_run_target(spec.graph, &catalog, cpu, &spec.precision, &packing, &plain, &none, &d))
        fail_msg("%s: %s", m->checkout, d.text);
    plan.head.space_bytes[FTX_SPACE_WEIGHTS] = packing.bytes;

    CodeImage *images = arena_array(keep, CodeImage, plan.instances.n + 1);
    FILE *all = open_memstream(&names, &bytes);
    for (size_t i = 0; i < plan.instances.n; i++) {
        const Instance *in = plan.instances.at[i];

        if (in->device != KD_CUDA)
            fail_msg("%s: %s is no kernel that runs here", m->checkout, in->family);
        while (ftell(all) % 64)
            fputc(0, all);
        images[i] = (CodeImage){(uint32_t)ftell(all), (uint32_t)strlen(in->entry) + 1};
        fwrite(in->entry, 1, strlen(in->entry) + 1, all);
        build_add(build, in->entry, instantiate_text(in, target, keep));
    }
    fclose(all);
    code = (Code){.cubin = names, .cubin_bytes = bytes, .images = images, .source = ""};

    const ArtifactParts parts = {.spec = &spec,
                                 .packing = &packing,
                                 .plans = &plan,
                                 .codes = &code,
                                 .n_plans = 1,
                                 .checkpoint = NULL,
                                 .build = "host\n"};
    ArtifactParts with = parts;
    if (!checkpoint_open(spec.weights, keep, &checkpoint, &d))
        fail_msg("%s", d.text);
    with.checkpoint = checkpoint;
    if (!artifact_write(path, &with, NULL, NULL, &d))
        fail_msg("%s", d.text);
    checkpoint_close(checkpoint);
    ir_graph_close(spec.graph);
    free(names);
    arena_close(keep);
}

#endif
