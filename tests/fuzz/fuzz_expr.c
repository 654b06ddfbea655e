/* fuzz_expr.c - any text as a launch expression, and any words as a compiled one. What the parser
 * accepts passes the check, and both ways of running give a value or a reason. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/expr.h"

static bool lookup(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    static const struct {
        const char *name;
        ExprKind kind;
        int64_t value;
    } names[] = {
        {"T", EXPR_VARIABLE, VAR_T},     {"S", EXPR_VARIABLE, VAR_S},       {"SMS", EXPR_VARIABLE, VAR_SMS},
        {"K", EXPR_CONSTANT, 4096},      {"ZERO", EXPR_CONSTANT, 0},        {"BIG", EXPR_CONSTANT, INT64_MAX},
        {"sizeof(X)", EXPR_CONSTANT, 2}, {"LOW", EXPR_CONSTANT, INT64_MIN}, {"glu.kind", EXPR_CONSTANT, 5},
    };

    (void)user;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) {
            *kind = names[i].kind;
            *value = names[i].value;
            return true;
        }
    return false;
}

static void run(const int64_t *words, size_t n)
{
    static const int64_t variables[][VAR_COUNT] = {{4, 2, 132}, {0, 0, 0}, {INT64_MAX, INT64_MIN, -1}};

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        FtxError err = {FTX_OK, ""};
        int64_t value;

        if (expr_run(words, n, variables[i], VAR_COUNT, &value, &err) && !*err.text)
            fuzz_bug("refused without a reason");
    }
}

/* The words are a copy of their exact size. */
static void run_copy(const void *p, size_t n)
{
    int64_t *words = malloc(n * sizeof *words + 1);
    FtxError err;

    if (!words)
        return;
    memcpy(words, p, n * sizeof *words);
    if (!expr_check(words, n, VAR_COUNT, &err))
        run(words, n);
    free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    FtxError err = {FTX_OK, ""};
    Expr e;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!expr_parse(text, lookup, NULL, &e, &err)) {
        if (expr_check(e.words, e.n, VAR_COUNT, &err))
            fuzz_bug("\"%s\" was parsed to words that the check refuses: %s", text, err.text);
        run(e.words, e.n);
    } else if (!*err.text) {
        fuzz_bug("\"%s\" was refused without a reason", text);
    }
    free(text);
    run_copy(data, size / sizeof(int64_t));
    return 0;
}

static void words_seed(const char *name, const int64_t *words, size_t n)
{
    fuzz_seed(name, words, n * sizeof *words);
}

void fuzz_seeds(void)
{
    static const char *const texts[] = {
        "ceil_div(T, 8) * min(SMS, K)",
        "T > 64 && S ? round_up(T, 16) : pow2(S) /^ 3",
        "-9223372036854775807 - 1",
        "LOW / -1",
        "LOW % -1",
        "ZERO ? 1 / ZERO : BIG + 1",
        "T ? BIG * BIG : LOW - 1",
        "pow2(BIG)",
        "sizeof(X) * glu.kind",
        "9223372036854775808",
        "round_up(BIG, T)",
        "!(T == S) || T != 3 && S <= 2 || T >= 1",
    };
    static const int64_t push_far[] = {1, INT64_MAX, 2, 2, 3, 1}, jump_out[] = {1, 0, 4, INT64_MAX, 1, 1},
                         jump_back[] = {3, -2, 1, 1}, deep[64] = {1, 1, 1, 1, 1, 1}, load_far[] = {2, INT64_C(1) << 62};
    char nested[600];
    Expr e;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char name[] = "text-a";

        name[5] = (char)(name[5] + (char)i);
        fuzz_seed(name, texts[i], strlen(texts[i]));
        name[0] = 'w';
        if (!expr_parse(texts[i], lookup, NULL, &e, NULL))
            words_seed(name, e.words, e.n);
    }
    memset(nested, '(', sizeof nested);
    fuzz_seed("nested", nested, sizeof nested);
    memset(nested, '-', sizeof nested);
    fuzz_seed("minuses", nested, sizeof nested);
    memset(nested, '!', sizeof nested);
    fuzz_seed("nots", nested, sizeof nested);
    for (size_t i = 0; i + 1 < sizeof nested; i += 2)
        memcpy(nested + i, "T?", 2);
    fuzz_seed("conditions", nested, sizeof nested);
    words_seed("push-far", push_far, sizeof push_far / sizeof *push_far);
    words_seed("jump-out", jump_out, sizeof jump_out / sizeof *jump_out);
    words_seed("jump-back", jump_back, sizeof jump_back / sizeof *jump_back);
    words_seed("deep", deep, sizeof deep / sizeof *deep);
    words_seed("load-far", load_far, sizeof load_far / sizeof *load_far);
}
