/* replay.c - the main program of a fuzzer without libFuzzer: every seed, and every file of the
 * folders given (folders that are not there are empty), goes through the target once. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"

static int ran;

/* An exact copy, so that a sanitizer sees a read past its end. */
void fuzz_seed(const char *name, const void *p, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);

    if (!copy)
        fuzz_bug("%s: no memory", name);
    if (bytes)
        memcpy(copy, p, bytes);
    if (getenv("FUZZ_TRACE"))
        fprintf(stderr, "%s\n", name);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
    ran++;
}

static void run_file(const char *path)
{
    FileMap map;
    FtxError err;

    if (file_map(path, &map, &err))
        fuzz_bug("%s", err.text);
    fuzz_seed(path, map.at, map.bytes);
    file_unmap(&map);
}

static void run_folder(const char *folder)
{
    struct dirent **list = NULL;
    const int n = scandir(folder, &list, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        char path[4096];

        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.')
            run_file(path);
        free(list[i]);
    }
    free(list);
}

int main(int argc, char **argv)
{
    fuzz_seeds();
    for (int i = 1; i < argc; i++)
        run_folder(argv[i]);
    printf("%d inputs\n", ran);
    return ran ? 0 : 1;
}
