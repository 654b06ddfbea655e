/* seed.c - before libFuzzer runs: `FUZZ_SEEDS=DIR fuzz_x` writes the seeds made by program there. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);

static const char *folder;

void fuzz_seed(const char *name, const void *p, size_t bytes)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "wb");
    if (!f || fwrite(p, 1, bytes, f) != bytes || fclose(f))
        fuzz_bug("%s cannot be written", path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    folder = getenv("FUZZ_SEEDS");
    if (!folder)
        return 0;
    fuzz_seeds();
    exit(0);
}
