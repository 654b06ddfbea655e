/* fuzz_artifact.c - any bytes as an artifact, with and without the right checksums; what is
 * accepted is walked. `FUZZ_SEED=FILE fuzz_artifact -runs=0` writes one that is right. */
#include "tests/artifact/small.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *path = getenv("FUZZ_SEED");
    Small s;
    Diag d = {0};

    (void)argc, (void)argv;
    if (!path)
        return 0;
    small_begin(&s);
    if (!artifact_write(path, &s.parts, NULL, NULL, &d))
        fprintf(stderr, "%s\n", d.text);
    small_end(&s);
    return 0;
}

static void attempt(const void *p, size_t size)
{
    Artifact a;
    FtxError err;

    if (artifact_open_bytes(p, size, &a, &err))
        return;
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
