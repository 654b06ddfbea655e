/* fuzz_model.c - edits of a model's artifact, with the right checksums: a decoder, an encoder, a translator with beams.
 *
 * The first byte of an input chooses the model and the request, the rest are edits (image.h). What is accepted is opened
 * on the CPU with a bounded allocator, gets an engine and a request, makes a few steps and is closed: a plan for the CPU is
 * data, whatever it says. */
#include "image.h"

#include "compiler/compile.h"
#include "runtime/ftx.h"

enum { ROOM = 16 << 20 };

static const int32_t ids[] = {1, 2, 3};

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

static void encode(FtxEngine *e, const FtxModelInfo *info)
{
    static float vector[1 << 16];
    const int32_t lengths[] = {LEN(ids) - 1, 1};
    FtxEncode job = {.size = sizeof job, .count = LEN(lengths), .ids = ids, .lengths = lengths};
    FtxError err = {0};

    if (info->pooled && (size_t)info->pooled <= LEN(vector) / LEN(lengths))
        job.pooled = vector;
    must_say(ftx_engine_encode(e, &job, &err), &err);
}

/* wide: a beam search where there is one, else two samples; or the model's own defaults. */
static void generate(FtxModel *m, FtxEngine *e, const FtxModelInfo *info, bool wide)
{
    FtxRequest r = ftx_request_default(m);
    FtxEvent event[64] = {{.size = sizeof(FtxEvent)}};
    FtxError err = {0};
    size_t n;

    r.ids = ids;
    r.ids_count = LEN(ids);
    r.max_new = 3;
    if (wide && info->max_beams > 1) {
        r.beams = r.n_best = info->max_beams;
    } else if (wide) {
        r.samples = 2;
        r.top_k = 5;
    }
    must_say(ftx_engine_submit(e, &r, NULL, &err), &err);
    for (int steps = 0; info->sequences <= (int)LEN(event) && steps < 3 && ftx_engine_busy(e); steps++)
        must_say(ftx_engine_step(e, event, LEN(event), &n, &err), &err);
}

static void use(FtxModel *m, FtxEngine *e, bool wide)
{
    FtxModelInfo info;
    FtxError err = {0};
    int32_t found[64];
    size_t n;

    ftx_model_info(m, &info);
    if (info.has_tokenizer)
        must_say(ftx_tokenize(m, "Once <x> \xff", 10, true, found, LEN(found), &n, &err), &err);
    if (info.kind != FTX_MODEL_ENCODER)
        generate(m, e, &info, wide);
    else
        encode(e, &info);
}

static void attempt(const void *p, size_t bytes, bool wide)
{
    const FtxAllocator allocator = {take, give_back, NULL};
    const FtxOptions o = {.size = sizeof(FtxOptions),
                          .device = FTX_DEVICE_CPU,
                          .threads = 1,
                          .allocator = &allocator,
                          .random_weights = 1};
    FtxModel *m = NULL;
    FtxEngine *e = NULL;
    FtxError err = {0};
    FtxStatus s = ftx_model_open(fuzz_file(p, bytes), &o, &m, &err);

    must_say(s, &err);
    if (!s) {
        s = ftx_engine_open(m, &o, &e, &err);
        must_say(s, &err);
        if (!s)
            use(m, e, wide);
    }
    ftx_engine_close(e);
    ftx_model_close(m);
    if (taken)
        fuzz_bug("%zu bytes are not given back", taken);
}

/* --- the models, compiled once ------------------------------------------------------------------- */

static const struct {
    const char *name, *spec, *beams;
} of[] = {
    {"decoder", "tests/models/tiny-gpt2", NULL},
    {"encoder", "tests/models/tiny-bert", NULL},
    {"source-beams", "tests/models/tiny-marian", "decode.width=2"},
};

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

static Image model(uint32_t k)
{
    static Image images[LEN(of)];

    if (!images[k].at)
        images[k] = compiled(of[k].spec, of[k].beams);
    return images[k];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Choices c = {data, size};
    const uint32_t what = choose(&c, 2 * LEN(of));
    const Image i = model(what % LEN(of));
    void *copy = NULL;

    if (posix_memalign(&copy, 64, i.n))
        return 0;
    memcpy(copy, i.at, i.n);
    for (int edits = 0; c.left && edits < 8; edits++)
        image_edit(i, copy, &c);
    small_seal(copy, i.n);
    attempt(copy, i.n, what >= LEN(of));
    free(copy);
    return 0;
}

void fuzz_seeds(void)
{
    for (uint8_t what = 0; what < 2 * LEN(of); what++) {
        const Image i = model(what % LEN(of));
        char name[40];

        snprintf(name, sizeof name, "%s%s", of[what % LEN(of)].name, what < LEN(of) ? "" : "-wide");
        fuzz_seed(name, &what, 1);
        if (what < LEN(of))
            image_edit_seeds(i, name, what, image_find(i, FTX_SEC_FACTS), 4);
        if (what == 0)
            image_edit_seeds(i, name, what, image_find(i, FTX_SEC_PLAN), 8);
    }
}
