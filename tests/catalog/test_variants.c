/* test_variants.c - several contracts in one file: lines of all, lines of each, and what is wrong with such lines. */
#include "bench.h"

#define TWINS "//@ kernel lin\n//@ variant plain | LAST=0\n//@ variant head | LAST=1 WIDE=3\n"

/* Each mistake in lines of variants, with its line. */
static void wrong_variants(void **state)
{
    (void)state;
    assert_string_equal(message("//@ kernel lin\n//@ rank 1\n//@ variant head\n"),
                        "templates/t.cu:3: contract: variant lines stand right after the kernel line");
    assert_string_equal(message("//@ kernel lin\n//@ variant head\n//@ variant head\n"),
                        "templates/t.cu:3: contract: variant head is given twice");
    assert_string_equal(message("//@ kernel lin\n//@ variant | A=1\n"),
                        "templates/t.cu:2: contract: expected name of the variant, found \"| A=1\"; the line is: "
                        "//@ variant NAME | NAME=1 NAME=0");
    assert_string_equal(message("//@ kernel lin\n//@ variant head | A=x\n"),
                        "templates/t.cu:2: contract: expected CONSTANT=number, found \"=x\"; the line is: "
                        "//@ variant NAME | NAME=1 NAME=0");
    assert_string_equal(message("//@ kernel lin\n//@ variant head A=1\n"),
                        "templates/t.cu:2: contract: expected |, found \"A=1\"; the line is: "
                        "//@ variant NAME | NAME=1 NAME=0");
    assert_string_equal(
        message(TWINS "//@ heads: rank 1\n"),
        "templates/t.cu:4: contract: there is no variant heads; the line is: //@ VARIANT, VARIANT: ...");
    assert_string_equal(message(TWINS "//@ plain, tail: rank 1\n"),
                        "templates/t.cu:4: contract: there is no variant tail; the line is: //@ VARIANT, VARIANT: ...");
    assert_string_equal(
        message("//@ kernel lin\n//@ variant plain | A=0\n//@ variant plainer | A=1\n"
                "//@ plainer: rank 2\n//@ plain: rank 1\n//@ args x[M] -> y\n//@ match y = scale(x)\n" LAUNCH),
        "");
    assert_string_equal(
        message("//@ plain: kernel lin\n"),
        "templates/t.cu:1: contract: there is no variant plain; the line is: //@ VARIANT, VARIANT: ...");
    assert_string_equal(
        message(TWINS "//@ plain, rank 1\n"),
        "templates/t.cu:4: contract: expected \":\" after the variants, found \" rank 1\"; the line is: "
        "//@ keyword ...");
    assert_string_equal(message(TWINS "//@ head: variant tail\n"),
                        "templates/t.cu:4: contract: a variant line belongs to no variant");
    assert_string_equal(message(TWINS "//@ head: kernel b\n"),
                        "templates/t.cu:4: contract: a kernel line belongs to no variant");
    assert_string_equal(
        message(TWINS "//@ text int x;\n"),
        "templates/t.cu:4: contract: a text line belongs to a variant of a template: //@ NAME: text ...");
    assert_string_equal(message(NORM LAUNCH "//@ head: rank 2\n"),
                        "templates/t.cu:7: contract: there is no variant head; the line is: //@ VARIANT, VARIANT: ...");
    assert_string_equal(message(TWINS "//@ args x[M] -> y\n//@ match y = scale(x)\n" LAUNCH "//@ rank 1\n"),
                        "templates/t.cu:3: contract: lin_head has rank 1, which lin has too (templates/t.cu:2): give "
                        "each its own");
    assert_string_equal(message(TWINS "//@ args x[M] -> y\n//@ match y = scale(x)\n" LAUNCH "//@ plain: rank 1\n"),
                        "templates/t.cu:3: contract: lin_head has no rank line");
    assert_string_equal(
        message(TWINS "//@ plain: rank 1\n//@ args x -> y\n//@ match y = scale(x)\n//@ launch grid 1 block 1\n"
                      "//@ head: consts LAST: 2\n"),
        "templates/t.cu:3: contract: constant LAST is given twice");
    assert_string_equal(message("//@ kernel lin\n//@ variant head | A=1 A=2\n"),
                        "templates/t.cu:2: contract: constant A is given twice");
    assert_string_equal(
        message(TWINS "//@ args x[M] -> y\n//@ plain: rank 1\n//@ head: rank 2\n//@ match y = scale(x)\n" LAUNCH
                      "//@ fits WIDE\n"),
        "templates/t.cu:9: contract: expression \"WIDE\": unknown name \"WIDE\" at \"end\"");
}

/* Two variants of a file: lines of both, lines of each, and numbers that are no constants of the instance. */
static void variants(void **state)
{
    Bench t =
        bench_open(TWINS "//@ plain: rank 7\n//@ head: rank 5\n"
                         "//@ plain: args x[M,K] w[N,K] -> y[M,N]\n//@ head: args w[N,K] x[T,K] -> y[S,N]\n"
                         "//@ plain: match y = linear(x, w)\n//@ head: match y = linear(select_last(x), w) | NORM=1\n"
                         "//@ consts N: LAST ? 2 * N : N  X: type(x)\n//@ head: consts TWO: 2\n"
                         "//@ plain, head: fits K == 12 && T_MAX > LAST\n//@ launch grid N block 32 * (LAST + 1)\n"
                         "//@ flops (LAST ? S : T) * N\n//@ head: text int x;\n");
    const Contract *head = t.c.at[0], *plain = t.c.at[1];
    const char *reason = "";
    Binding b;
    Fitted fit;

    (void)state;
    assert_int_equal(t.c.n, 2);
    assert_string_equal(head->family, "lin_head");
    assert_string_equal(plain->family, "lin");
    assert_int_equal(head->loc.line, 3);
    assert_int_equal(head->matches.n, 1);
    assert_string_equal(head->args.at[0].name, "w");
    assert_string_equal(plain->args.at[0].name, "x");
    assert_true(match_at(&t.f, t.uses, head, &head->matches.at[0], 0, 10, 0, &b, &reason, t.keep));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(fit.instance->n_consts, 4);
    assert_int_equal(constant(fit.instance, "N")->i, 20);
    assert_int_equal(constant(fit.instance, "TWO")->i, 2);
    assert_int_equal(constant(fit.instance, "NORM")->i, 1);
    assert_int_equal(fit.instance->block, 64);
    assert_int_equal(fit.instance->n_fixed, 2);
    assert_string_equal(fit.instance->variant, "head");
    assert_true(fit.flops == 4 * 20);
    assert_true(match_at(&t.f, t.uses, plain, &plain->matches.at[0], 0, 7, 0, &b, &reason, t.keep));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(fit.instance->n_consts, 2);
    assert_int_equal(constant(fit.instance, "N")->i, 12);
    assert_int_equal(fit.instance->block, 32);
    assert_true(fit.flops == 16 * 12);
    t.f.t_max = 0;
    assert_false(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_string_equal(reason, "templates/t.cu:12: fits K == 12 && T_MAX > LAST (K = 12, T_MAX = 0, LAST = 0)");
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_variants), cmocka_unit_test(variants)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
