/* fuzz_words.c - any lines as words of a command line: lists of ids, devices, targets, options of every
 * kind, and all of them as -D overrides of a spec and of a checkout. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/spec/spec.h"
#include "runner/device.h"
#include "runner/options.h"

enum { MAX_WORDS = 64, MAX_IDS = 16 };

typedef struct Options {
    bool flag, has_number;
    const char *text;
    int64_t integer;
    double number;
    TextList list;
} Options;

static const Option table[] = {
    {"--flag", 'f', OPT_FLAG, NULL, "", offsetof(Options, flag), 0},
    {"--text", 't', OPT_TEXT, "T", "", offsetof(Options, text), 0},
    {"--integer", 'i', OPT_INT, "N", "", offsetof(Options, integer), 0},
    {"--number", 0, OPT_NUMBER, "X", "", offsetof(Options, number), offsetof(Options, has_number)},
    {"--list", 'D', OPT_LIST, "L", "", offsetof(Options, list), 0},
};

static void one_word(const char *word)
{
    int32_t ids[MAX_IDS];
    size_t n = 0;
    FtxOptions device = FTX_OPTIONS_INIT;
    char error[200] = "";
    Diag d = {0};
    Target t;

    if (options_numbers(word, ids, MAX_IDS, &n) && (n == 0 || n > MAX_IDS))
        fuzz_bug("\"%s\" is %zu numbers", word, n);
    if (!device_parse(word, 0, 0, &(DeviceWeights){0}, &device, error, sizeof error) && !*error)
        fuzz_bug("device \"%s\" is refused without a reason", word);
    if (!target_parse(word, &t, &d) && !*d.text)
        fuzz_bug("target \"%s\" is refused without a reason", word);
}

static void as_options(char **words, size_t n)
{
    Options o = {0};
    TextList rest = {.n = 0};
    char error[200] = "";

    if (!options_parse(table, LEN(table), (int)n, words, &o, &rest, error, sizeof error) && !*error)
        fuzz_bug("options are refused without a reason");
}

static void as_overrides(const char *path, char **words, size_t n)
{
    Override overrides[MAX_WORDS];
    Arena *keep = arena_open();
    Spec spec;
    Diag d = {0};

    for (size_t i = 0; i < n; i++)
        overrides[i].text = words[i];
    if (spec_read(path, overrides, n, keep, &spec, &d)) {
        if (!ir_verify(spec.graph, &d))
            fuzz_bug("the graph of %s: %s", path, d.text);
        ir_graph_close(spec.graph);
    } else if (!*d.text) {
        fuzz_bug("refused without a reason");
    }
    arena_close(keep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(size + 1, 1), *words[MAX_WORDS];
    size_t n = 0;

    if (!text)
        return 0;
    memcpy(text, data, size);
    for (char *at = text; at && *at && n < MAX_WORDS;)
        words[n++] = strsep(&at, "\n");
    for (size_t i = 0; i < n; i++)
        one_word(words[i]);
    as_options(words, n);
    as_overrides(size % 2 ? "specs/verse.lua" : "tests/models/tiny-marian", words, n);
    free(text);
    return 0;
}

/* A seed of a line is tried with the spec and, a byte longer, with the checkout. */
static void both(const char *name, const char *text)
{
    char longer[400], other[60];

    fuzz_seed(name, text, strlen(text));
    snprintf(longer, sizeof longer, "%s\n", text);
    snprintf(other, sizeof other, "%s-other", name);
    fuzz_seed(other, longer, strlen(longer));
}

void fuzz_seeds(void)
{
    both("ids", "5,17,9");
    both("ids-bounds", "2147483647,-2147483648,2147483648\n9223372036854775808\n1, 2,\n,1\n1 2");
    both("devices", "cpu\ncuda\ncuda:0\ncuda:99999999999\nauto\ncuda:-1\ncuda:");
    both("targets", "cpu\nsm_90a\nsm_80\ncompute_80\nsm_\nsm_4294967296");
    both("options", "--flag\n-fv\n--text=a\n-tb\n--integer\n9223372036854775808\n--number=1e999\n-D\nx\n--\n--no\n-");
    both("limits", "limits.context=256\nlimits.sequences=4\nlimits.tokens=64\ndecode.width=4");
    both("hostile-sizes", "limits.context=9223372036854775807\nlimits.sequences=-1\nlimits.tokens=1e308");
    both("hostile-words", "limits.context=\nlimits=3\n=\n.=.\nlimits.=1\nlimits.context.x=1\nprecision.weights=int8");
    both("hostile-values",
         "decode.temperature=nan\ndecode.top_p=-0\ndecode.top_k=1.5\nname=../../x\nweights=\ngraph=1");
    both("hostile-utf8", "name=\xff\xfe\nlimits.cont\xc3=1\n\xed\xa0\x80=2");
    both("hostile-lua", "name='..os.exit()..'\nlimits.context=(function() while true do end end)()\nname=[[");
}
