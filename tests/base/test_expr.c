/* test_expr.c - launch expressions: values, folding, laziness, errors, and word lists from a file
 * that lies. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/expr.h"

/* N is 640; A, B are variables 0 and 1. */
static bool lookup(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    (void)user;
    *kind = EXPR_CONSTANT;
    if (strcmp(name, "N") == 0 || strcmp(name, "glu.kind") == 0 || strcmp(name, "sizeof(X)") == 0) {
        *value = strcmp(name, "N") == 0 ? 640 : strcmp(name, "glu.kind") == 0 ? 5 : 2;
        return true;
    }
    *kind = EXPR_VARIABLE;
    *value = name[0] == 'B';
    return strcmp(name, "A") == 0 || strcmp(name, "B") == 0;
}

static const int64_t variables[] = {7, 3};

static int64_t value_of(const char *text)
{
    FtxError err = {0};
    Expr e;
    int64_t value = -999;

    if (expr_parse(text, lookup, NULL, &e, &err) || expr_check(e.words, e.n, 2, &err) ||
        expr_run(e.words, e.n, variables, 2, &value, &err))
        fail_msg("%s: %s", text, err.text);
    return value;
}

static const char *error_of(const char *text)
{
    static FtxError err;
    Expr e;
    int64_t value;

    err = (FtxError){0};
    if (expr_parse(text, lookup, NULL, &e, &err) == FTX_OK)
        expr_run(e.words, e.n, variables, 2, &value, &err);
    return err.text;
}

static void values(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"1 + 2 * 3", 7},
        {"(1 + 2) * 3", 9},
        {"10 - 3 - 2", 5},
        {"-A + 10", 3},
        {"A * B + N", 661},
        {"A /^ B", 3},
        {"A / B", 2},
        {"A % B", 1},
        {"-A / B", -2},
        {"-A /^ B", -2},
        {"ceil_div(A, 2)", 4},
        {"round_up(A, 4)", 8},
        {"pow2(A)", 8},
        {"pow2(8)", 8},
        {"pow2(0)", 1},
        {"pow2(4611686018427387904)", INT64_C(1) << 62},
        {"min(A, B)", 3},
        {"max(A, B)", 7},
        {"A > B", 1},
        {"A <= B", 0},
        {"A == 7 && B == 3", 1},
        {"A == 1 || B == 3", 1},
        {"A && !B", 0},
        {"A > B ? 10 : 20", 10},
        {"A < B ? 10 : 20", 20},
        {"(A < B ? 1 : 2) + 3", 5},
        {"3 + (A < B ? 1 : 2)", 5},
        {"A < B ? 1 : A == 7 ? 2 : 3", 2},
        {"0 ? 1 / 0 : 4", 4},
        {"1 || 1 / 0", 1},
        {"0 && 1 / 0", 0},
        {"A - 7 ? B / (A - 7) : 42", 42},
        {"A - 7 && B / (A - 7)", 0},
        {"A == 7 || B / (A - 7)", 1},
        {"glu.kind == 5", 1},
        {"sizeof(X) * N", 1280},
        {"1 == 2 || A", 1},
        {"2 && A", 1},
        {"9223372036854775807", INT64_MAX},
        {"N % 128 == 0 ? A : B", 7},
        {"A ? (B ? 1 : 2) : (B ? 3 : 4)", 1},
        {"A != 7", 0},
        {"1 - -1", 2},
        {"(A || 0) + (0 || B)", 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (value_of(cases[i].text) != cases[i].value)
            fail_msg("%s = %lld, not %lld", cases[i].text, (long long)value_of(cases[i].text),
                     (long long)cases[i].value);
}

/* What is known is one PUSH; what is not keeps its known parts folded. */
static void folding(void **state)
{
    FtxError err;
    Expr e;

    (void)state;
    assert_int_equal(expr_parse("N * 2 + max(3, 4) == 1284 ? N : A", lookup, NULL, &e, &err), FTX_OK);
    assert_int_equal(e.n, 2);
    assert_int_equal(e.words[1], 640);
    assert_int_equal(expr_parse("A * (N / 64 + 1)", lookup, NULL, &e, &err), FTX_OK);
    assert_int_equal(e.n, 5);
}

static void errors(void **state)
{
    (void)state;
    assert_string_equal(error_of("1 +"), "expression \"1 +\": a number, a name or \"(\" expected at \"end\"");
    assert_string_equal(error_of("Q"), "expression \"Q\": unknown name \"Q\" at \"end\"");
    assert_non_null(strstr(error_of("1 / 0"), "division by zero"));
    assert_non_null(strstr(error_of("1 / (A - 7)"), "division by zero"));
    assert_non_null(strstr(error_of("A % (B - 3)"), "division by zero"));
    assert_non_null(strstr(error_of("9223372036854775807 + A"), "overflow"));
    assert_non_null(strstr(error_of("-9223372036854775807 - 2"), "overflow"));
    assert_non_null(strstr(error_of("(-9223372036854775807 - 1) / -1"), "overflow"));
    assert_non_null(strstr(error_of("9223372036854775808"), "63 bits"));
    assert_non_null(strstr(error_of("pow2(9223372036854775807)"), "overflow"));
    assert_non_null(strstr(error_of("2 3"), "operator"));
    assert_non_null(strstr(error_of("2x"), "operator"));
    assert_non_null(strstr(error_of("(1"), ")"));
    assert_non_null(strstr(error_of("min(1)"), ","));
    assert_non_null(strstr(error_of("foo(1)"), "one name"));
    assert_non_null(strstr(error_of("foo(A)"), "unknown name \"foo(A)\""));
    assert_non_null(strstr(error_of(""), "expected"));
    assert_non_null(strstr(error_of("A ? 1"), ":"));
    {
        char deep[400];

        memset(deep, '(', sizeof deep);
        deep[sizeof deep - 1] = 0;
        assert_non_null(strstr(error_of(deep), "deep"));
        memset(deep, '-', sizeof deep - 1);
        assert_non_null(strstr(error_of(deep), "deep"));
        strcpy(deep, "A");
        while (strlen(deep) < sizeof deep - 5)
            strcat(deep, "+A");
        assert_non_null(strstr(error_of(deep), "too long"));
        strcpy(deep, "1");
        while (strlen(deep) < sizeof deep - 5)
            strcat(deep, "+1");
        assert_int_equal(value_of(deep), 198); /* long, but not deep */
        memset(deep, 'x', 64);
        deep[63] = 0;
        assert_non_null(strstr(error_of(deep), "unknown name"));
        strcpy(deep + 63, "x"); /* there is room for 63 bytes and the end */
        assert_non_null(strstr(error_of(deep), "a number, a name or"));
    }
}

/* Word lists at the bounds of what is taken. */
static void bounds(void **state)
{
    enum { PUSH = 1, LOAD, JUMP, JUMP_IF_ZERO, ADD };
    static const struct {
        int64_t words[10];
        size_t n;
        bool good;
    } cases[] = {
        {{LOAD, 1}, 2, true},
        {{LOAD, 2}, 2, false},
        {{PUSH, 1, PUSH, 1, JUMP_IF_ZERO, 0}, 6, true},
        {{PUSH, 1, PUSH, 1, JUMP_IF_ZERO, 1}, 6, false},               /* behind the end */
        {{PUSH, 1, PUSH, 0, JUMP_IF_ZERO, 1, PUSH, 7, ADD}, 9, false}, /* to an operand */
        {{PUSH, 1, PUSH, 0, JUMP_IF_ZERO, 2, PUSH, 5, ADD}, 9, false}, /* ADD with one value */
        {{PUSH, 1, PUSH, 0, JUMP_IF_ZERO, 3, PUSH, 5, ADD}, 9, true},
        {{PUSH, 1, PUSH, 0, JUMP_IF_ZERO, 4, PUSH, 5, JUMP, 0},
         10,
         false}, /* both jump to the end, with 1 and 2 values */
        {{PUSH, 1}, 0, false},
        {{PUSH, 1}, EXPR_MAX_WORDS + 1, false},
    };
    int64_t deep[EXPR_MAX_WORDS];
    FtxError err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if ((expr_check(cases[i].words, cases[i].n, 2, &err) == FTX_OK) != cases[i].good)
            fail_msg("case %zu", i);
    assert_int_equal(expr_check(cases[3].words, cases[3].n, 2, &err), FTX_EFORMAT);
    assert_string_equal(err.text, "expression word 4 jumps out of the list");
    for (int values = 32; values <= 33; values++) { /* the stack holds 32 */
        size_t n = 0;

        for (int i = 0; i < values; i++) {
            deep[n++] = PUSH;
            deep[n++] = i;
        }
        for (int i = 1; i < values; i++)
            deep[n++] = ADD;
        assert_int_equal(expr_check(deep, n, 0, NULL), values == 32 ? FTX_OK : FTX_EFORMAT);
    }
}

/* Random words: the checker refuses or the runner gives a value or an error; never harm. What the
 * checker accepts is never "malformed" to the runner. */
static void lies(void **state)
{
    uint64_t seed = 7;
    int accepted = 0;

    (void)state;
    for (int i = 0; i < 300000; i++) {
        int64_t words[12], value;
        const size_t n = 1 + (size_t)i % 12;
        FtxError err = {0};
        bool good;

        for (size_t k = 0; k < n; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            words[k] = (int64_t)(seed >> 33) % 26 - 1;
            if ((seed >> 20) % 64 == 0)
                words[k] = (int64_t)seed;
        }
        good = expr_check(words, n, 2, &err) == FTX_OK;
        accepted += good;
        err = (FtxError){0};
        expr_run(words, n, variables, 2, &value, &err);
        if (good)
            assert_null(strstr(err.text, "malformed"));
    }
    assert_true(accepted > 100);
}

/* Expressions made at random: folded, and run with the same numbers as variables, agree. */
static void grow(char *text, uint64_t *seed, int depth)
{
    static const char *const operators[] = {"+", "-", "*", "/", "%", "/^", "<", "==", "&&", "||", ">=", "!="};
    char a[600], b[600], c[600];

    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint64_t r = *seed >> 33;

    if (depth == 0) {
        snprintf(text, 600, "%c", "ABCD"[r % 4]);
        return;
    }
    grow(a, seed, depth - 1);
    grow(b, seed, depth - 1);
    if (r % 5 == 0) {
        grow(c, seed, depth - 1);
        snprintf(text, 600, "(%.150s ? %.150s : %.150s)", a, b, c);
    } else if (r % 7 == 0) {
        snprintf(text, 600, "max(%.200s, %.200s)", a, b);
    } else {
        snprintf(text, 600, "(%.200s %s %.200s)", a, operators[(r >> 8) % 12], b);
    }
}

static const int64_t letters[] = {7, -3, 0, 12};

/* user: bit i set, letter i is a variable. */
static bool some_known(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    const int i = name[0] - 'A';

    *kind = *(int *)user >> i & 1 ? EXPR_VARIABLE : EXPR_CONSTANT;
    *value = *kind == EXPR_VARIABLE ? i : letters[i];
    return true;
}

static void known_or_not(void **state)
{
    uint64_t seed = 3;
    int compared = 0;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        char text[600];
        int64_t results[16];
        bool ok[16], same_size = true;

        grow(text, &seed, 1 + i % 3);
        for (int mask = 0; mask < 16; mask++) {
            FtxError err = {0};
            Expr e;

            ok[mask] = expr_parse(text, some_known, &mask, &e, &err) == FTX_OK &&
                       expr_run(e.words, e.n, letters, 4, &results[mask], &err) == FTX_OK;
            same_size &= strstr(err.text, "too long") == NULL;
        }
        for (int mask = 1; same_size && mask < 16; mask++) {
            if (ok[mask] != ok[0] || (ok[0] && results[mask] != results[0]))
                fail_msg("%s differs where %d are unknown", text, mask);
            compared += ok[0];
        }
    }
    assert_true(compared > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values), cmocka_unit_test(folding),      cmocka_unit_test(errors),
        cmocka_unit_test(lies),   cmocka_unit_test(known_or_not), cmocka_unit_test(bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
