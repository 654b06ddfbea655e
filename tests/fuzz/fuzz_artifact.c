/* fuzz_artifact.c - any bytes as an artifact, with and without the right checksums, or choices: edits of the small
 * artifact (small.h) with the right checksums. What is accepted is walked. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Image small; /* for the whole run */
    void *copy = NULL;
    Choices c;

    if (choices_begin(&c, data, size)) {
        if (!small.at)
            small = right_one();
        if (posix_memalign(&copy, 64, small.n))
            return 0;
        memcpy(copy, small.at, small.n);
        for (int edits = 0; c.left && edits < 8; edits++)
            image_edit(small, copy, &c);
        small_seal(copy, small.n);
        attempt(copy, small.n);
        free(copy);
        return 0;
    }
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

        s[k].offset = s[(k + 1) % h->sections].offset; /* two sections share their bytes */
        snprintf(name, sizeof name, "section-%u-shared", k);
        fuzz_seed(name, i.at, i.n);
        s[k] = was;
    }
    for (uint8_t k = 0; k < h->sections + 2; k++) {
        image_edit_seeds(i, "edit", CHOICES, k, 4);
        image_edit_seeds(i, "edit", CHOICES, k, 8);
    }
    free(i.at);
}
