/* fuzz_artifact.c - any bytes as an artifact, with and without the right checksums; what is
 * accepted is walked. */
#include "fuzz.h"

#include "tests/artifact/small.h"

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

typedef struct Image {
    unsigned char *at;
    size_t n;
} Image;

static FtxSection *sections(Image i)
{
    return (FtxSection *)(void *)(i.at + ((FtxHeader *)(void *)i.at)->sections_at);
}

static void *section_bytes(Image i, uint32_t kind)
{
    FtxSection *s = sections(i);

    while (s->kind != kind)
        s++;
    return i.at + s->offset;
}

static Image right_one(void)
{
    const char *path = temp_path("seed.ftx");
    FtxError err;
    FileMap map;
    Image i;
    Small s;
    Diag d = {0};

    small_begin(&s);
    if (!artifact_write(path, &s.parts, NULL, NULL, &d))
        fuzz_bug("%s", d.text);
    small_end(&s);
    if (file_map(path, &map, &err))
        fuzz_bug("%s", err.text);
    i.n = map.bytes;
    i.at = malloc(i.n);
    if (!i.at)
        fuzz_bug("no memory");
    memcpy(i.at, map.at, i.n);
    file_unmap(&map);
    unlink(path);
    return i;
}

/* Each field in turn gets each of these. */
static const uint64_t sizes[] = {
    0, 1, 63, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 63};

static void with_u64(Image i, const char *name, uint64_t *field)
{
    const uint64_t was = *field;

    for (size_t k = 0; k < LEN(sizes); k++) {
        char text[60];

        *field = sizes[k];
        snprintf(text, sizeof text, "%s-%zu", name, k);
        fuzz_seed(text, i.at, i.n);
    }
    *field = was;
}

static void with_u32(Image i, const char *name, uint32_t *field)
{
    const uint32_t was = *field;

    for (size_t k = 0; k < 5; k++) {
        char text[60];

        *field = (uint32_t)sizes[k];
        snprintf(text, sizeof text, "%s-%zu", name, k);
        fuzz_seed(text, i.at, i.n);
    }
    *field = was;
}

static void hostile_tables(Image i)
{
    FtxHeader *h = (void *)i.at;
    FtxKernel *kernel = section_bytes(i, FTX_SEC_KERNELS);
    FtxProgram *program = section_bytes(i, FTX_SEC_PROGRAMS);
    FtxLaunch *launch = section_bytes(i, FTX_SEC_LAUNCHES);
    FtxOperand *operand = section_bytes(i, FTX_SEC_OPERANDS);
    FtxWeight *weight = section_bytes(i, FTX_SEC_WEIGHT_INDEX);
    FtxFacts *facts = section_bytes(i, FTX_SEC_FACTS);
    FtxPlan *plan = section_bytes(i, FTX_SEC_PLAN);

    with_u64(i, "sections-at", &h->sections_at);
    with_u32(i, "sections", &h->sections);
    with_u64(i, "weight-offset", &weight->offset);
    with_u64(i, "weight-bytes", &weight->bytes);
    with_u64(i, "weight-dim", &weight->dim[0]);
    with_u32(i, "weight-rank", &weight->rank);
    with_u32(i, "weight-name", &weight->name);
    with_u64(i, "facts-weights", &facts->weight_bytes);
    with_u32(i, "facts-context", &facts->context);
    with_u32(i, "facts-pages", &facts->kv_pages);
    with_u32(i, "facts-ends", &facts->n_ends);
    with_u64(i, "plan-space", &plan->space_bytes[FTX_SPACE_STATE]);
    with_u64(i, "plan-named", &plan->named[FTX_NAMED_pages]);
    with_u64(i, "plan-named-bytes", &plan->named_bytes[FTX_NAMED_out]);
    with_u32(i, "kernel-consts", &kernel->first_const);
    with_u32(i, "kernel-operands", &kernel->n_operands);
    with_u32(i, "kernel-grid", &kernel->grid[0][0]);
    with_u32(i, "kernel-grid-words", &kernel->grid[0][1]);
    with_u32(i, "program-launches", &program->n_launches);
    with_u32(i, "program-first", &program->first_launch);
    with_u32(i, "launch-kernel", &launch->kernel);
    with_u32(i, "launch-operand", &launch->first_operand);
    with_u64(i, "operand-offset", &operand->offset);
    with_u32(i, "operand-space", &operand->space);
}

void fuzz_seeds(void)
{
    Image i = right_one();
    FtxHeader *h = (void *)i.at;
    FtxSection *s = sections(i);

    fuzz_seed("right", i.at, i.n);
    fuzz_seed("cut", i.at, i.n / 2);
    fuzz_seed("header-alone", i.at, sizeof *h);
    for (uint32_t k = 0; k < h->sections; k++) {
        const FtxSection was = s[k];
        char name[40];

        snprintf(name, sizeof name, "section-%u-offset", k);
        with_u64(i, name, &s[k].offset);
        snprintf(name, sizeof name, "section-%u-bytes", k);
        with_u64(i, name, &s[k].bytes);
        s[k].offset = s[(k + 1) % h->sections].offset; /* two sections share their bytes */
        snprintf(name, sizeof name, "section-%u-shared", k);
        fuzz_seed(name, i.at, i.n);
        s[k] = was;
    }
    hostile_tables(i);
    free(i.at);
}
