/* old.c - a program of an older ftx.h: every struct that begins with its size, with guards behind what the library writes. */
#include <stdio.h>
#include <string.h>

#include <ftx.h>

enum { GUARD = 64, SEQUENCES = 16 };

static int failed(const char *what, const FtxError *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    return 1;
}

static int is_touched(const unsigned char *guard)
{
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xa5)
            return 1;
    return 0;
}

static int write_text(const char *path, const FtxOptions *o)
{
    struct {
        FtxModelInfo is;
        unsigned char guard[GUARD];
    } info;
    struct {
        FtxEvent at[SEQUENCES];
        unsigned char guard[GUARD];
    } events;
    FtxModel *model;
    FtxEngine *engine;
    FtxError err;
    FtxRequest r;
    size_t n;

    memset(&info, 0xa5, sizeof info);
    memset(&events, 0xa5, sizeof events);
    if (ftx_model_open(path, o, &model, &err) || ftx_engine_open(model, o, &engine, &err))
        return failed(path, &err);
    ftx_model_info(model, &info.is);
    printf("%s: %d sequences, vocabulary of %d, %d bytes or more\n", info.is.name, info.is.sequences, info.is.vocab,
           info.is.engine_bytes > 1000);
    r = ftx_request_default(model);
    r.text = "Once upon a time<|end|>";
    r.literal = true;
    r.seed = 7;
    r.samples = 3;
    r.max_new = 20;
    events.at[0].size = sizeof events.at[0];
    if (ftx_engine_submit(engine, &r, NULL, &err))
        return failed("submit", &err);
    while (ftx_engine_busy(engine)) {
        if (ftx_engine_step(engine, events.at, SEQUENCES, &n, &err))
            return failed("step", &err);
        for (size_t i = 0; i < n; i++)
            printf("%d:%d:%.*s:%d\n", events.at[i].sample, (int)events.at[i].token, (int)events.at[i].text_bytes,
                   events.at[i].text, (int)events.at[i].finish);
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
    if (is_touched(info.guard) || is_touched(events.guard)) {
        fprintf(stderr, "the library wrote behind a struct\n");
        return 1;
    }
    return 0;
}

static int write_vector(const char *path, const FtxOptions *o)
{
    static const int32_t ids[] = {1, 2, 3}, lengths[] = {3};
    static float vector[4096];
    FtxModel *model;
    FtxEngine *engine;
    FtxError err;
    FtxEncode job = FTX_ENCODE_INIT;

    if (ftx_model_open(path, o, &model, &err) || ftx_engine_open(model, NULL, &engine, &err))
        return failed(path, &err);
    job.count = 1;
    job.ids = ids;
    job.lengths = lengths;
    job.pooled = vector;
    if (ftx_engine_encode(engine, &job, &err))
        return failed("encode", &err);
    printf("%.6f %.6f %.6f\n", (double)vector[0], (double)vector[1], (double)vector[2]);
    ftx_engine_close(engine);
    ftx_model_close(model);
    return 0;
}

int main(int argc, char **argv)
{
    FtxOptions o = FTX_OPTIONS_INIT;

    fprintf(stderr, "%zu %zu %zu %zu %zu\n", sizeof(FtxOptions), sizeof(FtxModelInfo), sizeof(FtxRequest),
            sizeof(FtxEvent), sizeof(FtxEncode));
    o.device = FTX_DEVICE_CPU;
    o.threads = 1;
    printf("%s %d\n", ftx_version(), ftx_version_number() >= FTX_VERSION_MAJOR * 1000 + FTX_VERSION_MINOR);
    return argc == 3 ? write_text(argv[1], &o) || write_vector(argv[2], &o) : 2;
}
