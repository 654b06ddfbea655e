/* fuzz_model.c - any bytes as a model, its checksums made right: a decoder, an encoder, a reader of sources,
 * each with beams or without. What is accepted is opened on the CPU with a bounded allocator, gets an
 * engine and a request, and is closed. No step: kernels are programs, and an artifact is as safe to run
 * as any other. */
#include "image.h"

#include "compiler/compile.h"
#include "runtime/ftx.h"

enum { ROOM = 16 << 20 };

static size_t taken;

static void *take(void *user, size_t bytes, size_t align)
{
    void *p = NULL;

    (void)user;
    if (bytes > ROOM - taken || posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes))
        return NULL;
    taken += bytes;
    return p;
}

static void give_back(void *user, void *p, size_t bytes)
{
    (void)user;
    taken -= p ? bytes : 0;
    free(p);
}

static void must_say(FtxStatus s, const FtxError *err)
{
    if (s && !*err->text)
        fuzz_bug("refused without a reason");
}

static void ask(FtxModel *m, FtxEngine *e, const FtxModelInfo *info)
{
    static const int32_t ids[] = {1, 2, 3};
    FtxRequest r = ftx_request_default(m);
    FtxError err = {0};
    int32_t found[64];
    size_t n;

    if (info->has_tokenizer)
        must_say(ftx_tokenize(m, "Once <x> \xff", 10, true, found, LEN(found), &n, &err), &err);
    if (info->kind == FTX_MODEL_ENCODER)
        return;
    r.ids = ids;
    r.ids_count = LEN(ids);
    must_say(ftx_engine_submit(e, &r, NULL, &err), &err);
}

static void attempt(const void *p, size_t bytes)
{
    const FtxAllocator allocator = {take, give_back, NULL};
    const FtxOptions o = {.size = sizeof(FtxOptions),
                          .device = FTX_DEVICE_CPU,
                          .threads = 1,
                          .allocator = &allocator,
                          .random_weights = 1};
    FtxModel *m = NULL;
    FtxEngine *e = NULL;
    FtxModelInfo info;
    FtxError err = {0};
    FtxStatus s = ftx_model_open(fuzz_file(p, bytes), &o, &m, &err);

    must_say(s, &err);
    if (!s) {
        ftx_model_info(m, &info);
        s = ftx_engine_open(m, &o, &e, &err);
        must_say(s, &err);
        if (!s)
            ask(m, e, &info);
    }
    ftx_engine_close(e);
    ftx_model_close(m);
    if (taken)
        fuzz_bug("%zu bytes are not given back", taken);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *copy = NULL;

    if (size < sizeof(FtxHeader) || posix_memalign(&copy, 64, size))
        return 0;
    memcpy(copy, data, size);
    ((FtxHeader *)copy)->file_bytes = size;
    small_seal(copy, size);
    attempt(copy, size);
    free(copy);
    return 0;
}

/* --- seeds -------------------------------------------------------------------------------------- */

static Image compiled(const char *spec, const char *beams)
{
    const Override overrides[] = {{"limits.context=32"}, {"limits.tokens=32"}, {"limits.sequences=2"}, {beams}};
    const CompileOptions o = {.spec = spec,
                              .out = temp_path("seed.ftx"),
                              .targets = "cpu",
                              .overrides = overrides,
                              .n_overrides = beams ? LEN(overrides) : LEN(overrides) - 1,
                              .no_weights = true};
    Arena *keep = arena_open();
    CompileResult result;
    Diag d = {0};

    if (!compile(&o, keep, &result, &d))
        fuzz_bug("%s", d.text);
    const Image i = image_of(o.out);
    arena_close(keep);
    return i;
}

/* Every word of the facts at each size, and every word of the plan's head at the largest. */
static void hostile_words(Image i, const char *name)
{
    uint32_t *facts = image_section_bytes(i, FTX_SEC_FACTS), *plan = image_section_bytes(i, FTX_SEC_PLAN);
    char text[40];

    for (size_t k = 0; k < sizeof(FtxFacts) / sizeof *facts; k++) {
        snprintf(text, sizeof text, "%s-facts-%zu", name, k);
        image_u32(i, text, &facts[k]);
    }
    for (size_t k = 0; k < sizeof(FtxPlan) / sizeof *plan; k++) {
        const uint32_t was = plan[k];

        plan[k] = UINT32_MAX;
        snprintf(text, sizeof text, "%s-plan-%zu", name, k);
        fuzz_seed(text, i.at, i.n);
        plan[k] = was;
    }
}

void fuzz_seeds(void)
{
    static const struct {
        const char *name, *spec, *beams;
    } of[] = {
        {"decoder", "tests/models/tiny-gpt2", NULL},
        {"encoder", "tests/models/tiny-bert", NULL},
        {"source-beams", "tests/models/tiny-marian", "decode.width=2"},
    };

    for (size_t k = 0; k < LEN(of); k++) {
        Image i = compiled(of[k].spec, of[k].beams);

        fuzz_seed(of[k].name, i.at, i.n);
        hostile_words(i, of[k].name);
        free(i.at);
    }
}
