/* fuzz_artifact.c - any bytes as an artifact, with and without the right checksums; what is
 * accepted is walked. */
#include "image.h"

static void attempt(const void *p, size_t size)
{
    Artifact a;
    FtxError err = {FTX_OK, ""};

    if (artifact_open_bytes(p, size, &a, &err)) {
        if (!*err.text)
            fuzz_bug("refused without a reason");
        return;
    }
    small_walk(&a);
    artifact_close(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *copy = NULL;

    if (posix_memalign(&copy, 64, size ? size : 1))
        return 0;
    memcpy(copy, data, size);
    attempt(copy, size);
    if (size >= sizeof(FtxHeader)) {
        ((FtxHeader *)copy)->file_bytes = size;
        small_seal(copy, size);
        attempt(copy, size);
    }
    free(copy);
    return 0;
}

/* --- seeds: one that is right, and sizes that no file has ------------------------------------- */

static Image right_one(void)
{
    const char *path = temp_path("seed.ftx");
    Small s;
    Diag d = {0};

    small_begin(&s);
    if (!artifact_write(path, &s.parts, NULL, NULL, &d))
        fuzz_bug("%s", d.text);
    small_end(&s);
    return image_of(path);
}

static void hostile_tables(Image i)
{
    FtxHeader *h = (void *)i.at;
    FtxKernel *kernel = image_section_bytes(i, FTX_SEC_KERNELS);
    FtxProgram *program = image_section_bytes(i, FTX_SEC_PROGRAMS);
    FtxLaunch *launch = image_section_bytes(i, FTX_SEC_LAUNCHES);
    FtxOperand *operand = image_section_bytes(i, FTX_SEC_OPERANDS);
    FtxWeight *weight = image_section_bytes(i, FTX_SEC_WEIGHT_INDEX);
    FtxFacts *facts = image_section_bytes(i, FTX_SEC_FACTS);
    FtxPlan *plan = image_section_bytes(i, FTX_SEC_PLAN);

    image_u64(i, "sections-at", &h->sections_at);
    image_u32(i, "sections", &h->sections);
    image_u64(i, "weight-offset", &weight->offset);
    image_u64(i, "weight-bytes", &weight->bytes);
    image_u64(i, "weight-dim", &weight->dim[0]);
    image_u32(i, "weight-rank", &weight->rank);
    image_u32(i, "weight-name", &weight->name);
    image_u64(i, "facts-weights", &facts->weight_bytes);
    image_u32(i, "facts-context", &facts->context);
    image_u32(i, "facts-pages", &facts->kv_pages);
    image_u32(i, "facts-ends", &facts->n_ends);
    image_u64(i, "plan-space", &plan->space_bytes[FTX_SPACE_STATE]);
    image_u64(i, "plan-named", &plan->named[FTX_NAMED_pages]);
    image_u64(i, "plan-named-bytes", &plan->named_bytes[FTX_NAMED_out]);
    image_u32(i, "kernel-consts", &kernel->first_const);
    image_u32(i, "kernel-operands", &kernel->n_operands);
    image_u32(i, "kernel-grid", &kernel->grid[0][0]);
    image_u32(i, "kernel-grid-words", &kernel->grid[0][1]);
    image_u32(i, "program-launches", &program->n_launches);
    image_u32(i, "program-first", &program->first_launch);
    image_u32(i, "launch-kernel", &launch->kernel);
    image_u32(i, "launch-operand", &launch->first_operand);
    image_u64(i, "operand-offset", &operand->offset);
    image_u32(i, "operand-space", &operand->space);
}

void fuzz_seeds(void)
{
    Image i = right_one();
    FtxHeader *h = (void *)i.at;
    FtxSection *s = image_sections(i);

    fuzz_seed("right", i.at, i.n);
    fuzz_seed("cut", i.at, i.n / 2);
    fuzz_seed("header-alone", i.at, sizeof *h);
    for (uint32_t k = 0; k < h->sections; k++) {
        const FtxSection was = s[k];
        char name[40];

        snprintf(name, sizeof name, "section-%u-offset", k);
        image_u64(i, name, &s[k].offset);
        snprintf(name, sizeof name, "section-%u-bytes", k);
        image_u64(i, name, &s[k].bytes);
        s[k].offset = s[(k + 1) % h->sections].offset; /* two sections share their bytes */
        snprintf(name, sizeof name, "section-%u-shared", k);
        fuzz_seed(name, i.at, i.n);
        s[k] = was;
    }
    hostile_tables(i);
    free(i.at);
}
