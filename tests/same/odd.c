/* odd.c - writes the specs of the odd models that tests/models runs, for scripts/same: `odd FOLDER`. */
#include <stdio.h>

#include "tests/models/odd.h"
#include "tests/models/odd_text.h"

enum { LLAMAS = 35, GPT2S = 10, ENCODERS = 40 }; /* as many as test_odd.c and test_odd_text.c run */

static int write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    if (!f) {
        perror(path);
        return 1;
    }
    fputs(text, f);
    return fclose(f) != 0;
}

static int write_spec(const char *folder, const char *name, int number, const char *text)
{
    char path[1000];

    snprintf(path, sizeof path, "%s/odd-%s-%02d.lua", folder, name, number);
    return write_file(path, text);
}

static int write_decoder(const char *folder, bool gpt2, int number)
{
    const OddShape s = odd_shape(gpt2, number);
    char text[2000];

    odd_spec(&s, NULL, text, sizeof text);
    return write_spec(folder, gpt2 ? "gpt2" : "llama", number, text);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    char none[1000]; /* a spec's weights must be a file; --no-weights does not read it */
    int failed;

    snprintf(none, sizeof none, "%s/none", folder);
    failed = write_file(none, "");
    for (int i = 0; i < LLAMAS; i++)
        failed |= write_decoder(folder, false, i);
    for (int i = 0; i < GPT2S; i++)
        failed |= write_decoder(folder, true, i);
    for (int i = 0; i < ENCODERS; i++) {
        const OddText s = odd_text(i);
        char text[2000];

        odd_text_spec(&s, "none", text, sizeof text);
        failed |= write_spec(folder, "encoder", i, text);
    }
    return failed;
}
