/* test_catalog.c - contracts: those of the tree are read, mistakes are reported with their line, trees match the graph
 * and constants are chosen. */
#include "bench.h"

#include <stdio.h>

static void tree(void **state)
{
    Arena *keep = arena_open();
    Catalog c = {0};
    Diag d = {0};

    (void)state;
    if (!catalog_open(keep, &c, &d))
        fail_msg("%s", d.text);
    assert_true(c.n >= 10);
    arena_close(keep);
}

static void mistakes(void **state)
{
    (void)state;
    assert_string_equal(message(NORM LAUNCH), "");
    assert_string_equal(message(NORM "//@ launch grid M, (C /^ VEC), 1 block VEC * 32 smem C * sizeof(X)\n"), "");
    assert_string_equal(message("//@ args x -> y\n"),
                        "templates/t.cu:1: contract: the first line must be: //@ kernel NAME");
    assert_string_equal(message(NORM), "templates/t.cu:1: contract: norm has no launch line with grid and block");
    assert_string_equal(message(NORM LAUNCH "//@ fits C % VEK == 0\n"),
                        "templates/t.cu:7: contract: expression \"C % VEK == 0\": unknown name \"VEK\" at \"== 0\"");
    assert_string_equal(message(NORM LAUNCH "//@ fits EPS > 0\n"),
                        "templates/t.cu:7: contract: expression \"EPS > 0\": unknown name \"EPS\" at \"> 0\"");
    assert_string_equal(
        message(NORM LAUNCH "//@ consts TEAMS: min(SMS, 4)\n"),
        "templates/t.cu:7: contract: expression \"min(SMS, 4)\": T, S and SMS are known only at a launch");
    assert_string_equal(message(NORM LAUNCH "//@ fits T > 8\n"),
                        "templates/t.cu:7: contract: expression \"T > 8\": T, S and SMS are known only at a launch");
    assert_string_equal(message(NORM LAUNCH "//@ scratch sums 4 * S * SMS\n"),
                        "templates/t.cu:7: contract: expression \"4 * S * SMS\": SMS is known only at a launch");
    assert_string_equal(message(NORM "//@ launch grid M block T\n"),
                        "templates/t.cu:6: contract: expression \"T\": T, S and SMS are known only at a launch");
    assert_string_equal(message("//@ kernel a\n//@ args x -> y\n//@ match y = scale(x) | A=S\n//@ rank 1\n" LAUNCH),
                        "templates/t.cu:3: contract: expression \"S\": T, S and SMS are known only at a launch");
    assert_string_equal(message(NORM LAUNCH "//@ consts A: 2 * B  B: 4\n"),
                        "templates/t.cu:7: contract: expression \"2 * B\": unknown name \"B\" at \"end\"");
    assert_string_equal(message("//@ kernel a\n//@ args x $tokens -> y\n"),
                        "templates/t.cu:2: contract: runtime/artifact/named.def has no buffer $tokens");
    assert_string_equal(message("//@ kernel a\n//@ args x -> y\n//@ match y = norm(x)\n"),
                        "templates/t.cu:3: contract: there is no op norm; `ftxc ops` lists them");
    assert_string_equal(message("//@ kernel a\n//@ args x -> y\n//@ match y = rmsnorm(x)\n"),
                        "templates/t.cu:3: contract: rmsnorm: g is missing");
    assert_string_equal(message("//@ kernel a\n//@ args x -> y\n//@ match y = scale(z)\n"),
                        "templates/t.cu:3: contract: z is not an argument that a match line can bind");
    assert_string_equal(
        message(
            "//@ kernel a\n//@ args x -> y\n//@ match y = append(x)\n//@ consts L: append.layer\n//@ rank 1\n" LAUNCH),
        "templates/t.cu:4: contract: L: the layer cannot be a constant; $k and $v are those of the layer");
    assert_string_equal(message("//@ kernel a\n//@ args x -> y\n//@ match y = scale(x)\n//@ consts L: scale.bye\n"),
                        "templates/t.cu:4: contract: scale.bye is not an attribute of an op; `ftxc ops` lists them");
    assert_non_null(strstr(message(NORM LAUNCH "//@ consts L: scales.by\n"), "scales.by is not an attribute of an op"));
    assert_non_null(strstr(message("//@ kernel a\n//@ args 8x -> y\n"), "expected argument, found \"8x -> y\""));
    assert_string_equal(message("//@ kernel a\n//@ grids 1\n"),
                        "templates/t.cu:2: contract: there is no line \"grids\"; docs/contracts.md lists them");
    assert_string_equal(
        message(NORM LAUNCH "//@ tiled z 64\n"),
        "templates/t.cu:7: contract: tiled: z is neither an argument with two or more sizes nor $k or $v");
    assert_string_equal(message(NORM LAUNCH "//@ rate fast\n"),
                        "templates/t.cu:7: contract: expected whole number from 1 to 100, found \"fast\"; the line is: "
                        "//@ rate percent");
    assert_string_equal(
        message(NORM LAUNCH "//@ rank 0\n"),
        "templates/t.cu:7: contract: expected whole number from 1 to 1000000, found \"0\"; the line is: "
        "//@ rank N");
    assert_string_equal(
        message(NORM LAUNCH "//@ rank 20 30\n"),
        "templates/t.cu:7: contract: expected whole number from 1 to 1000000, found \"20 30\"; the line is: "
        "//@ rank N");
    assert_string_equal(message(NORM LAUNCH "//@ kernel b\n//@ args x -> y\n//@ match y = scale(x)\n" LAUNCH),
                        "templates/t.cu:7: contract: b has no rank line");
    assert_string_equal(
        message(NORM LAUNCH "//@ kernel b\n//@ rank 1\n//@ args x[M] -> y\n//@ match y = scale(x)\n" LAUNCH),
        "templates/t.cu:1: contract: norm has rank 1, which b has too (templates/t.cu:7): give each its own");
    assert_string_equal(message(NORM LAUNCH "//@ device cuda\n"),
                        "templates/t.cu:7: contract: expected matmul, found \"cuda\"; the line is: //@ device matmul");
    assert_string_equal(message(NORM "//@ consts C: 5\n"), "templates/t.cu:6: contract: constant C is given twice");
    assert_string_equal(message("//@ kernel a\n//@ args x xs:row_stats(z) -> y\n"),
                        "templates/t.cu:2: contract: row_stats(z): no such argument on the same side of ->");
    assert_string_equal(message("//@ kernel a\n//@ args x -> y ys:row_stats(x)\n"),
                        "templates/t.cu:2: contract: row_stats(x): no such argument on the same side of ->");
    assert_string_equal(message(NORM LAUNCH "//@ folded x g y c\n"),
                        "templates/t.cu:7: contract: folded: y is an argument already");
    assert_string_equal(message(NORM LAUNCH "//@ folded x w g c\n"),
                        "templates/t.cu:7: contract: folded: w is not an argument");
    assert_string_equal(message(NORM LAUNCH "//@ fits param(z)\n"),
                        "templates/t.cu:7: contract: expression \"param(z)\": unknown name \"param(z)\" at \"end\"");
}

/* Capabilities: their names, and what a target without one says. */
static void needs(void **state)
{
    Bench t = bench_open(
        "//@ kernel up\n//@ rank 1\n//@ args x[M,C] -> y\n//@ match y = rmsnorm(x, x)\n"
        "//@ needs TMA WGMMA\n//@ consts A: 2 * WGMMA + TMA  B: SM_SMEM - SMEM\n"
        "//@ prefer other if C < 12\n//@ prefer other if C == 12\n//@ launch grid 1 block 1\n//@ moves SMS\n");
    const char *reason = "";
    Binding b;
    Fitted fit;

    (void)state;
    assert_string_equal(
        message(NORM LAUNCH "//@ needs TMA MMU\n"),
        "templates/t.cu:7: contract: expected capability of compiler/targets.def, found \"\"; the line is: "
        "//@ needs NAME NAME");
    assert_string_equal(
        message(NORM LAUNCH "//@ needs\n"),
        "templates/t.cu:7: contract: expected capability of compiler/targets.def, found \"\"; the line is: "
        "//@ needs NAME NAME");
    assert_string_equal(message(NORM LAUNCH "//@ prefer others\n"),
                        "templates/t.cu:7: contract: expected NAME=value or if expression, found \"\"; the line is: "
                        "//@ prefer NAME=8 NAME=4 if expression");
    assert_string_equal(message(NORM LAUNCH "//@ prefer other if\n"),
                        "templates/t.cu:7: contract: expected if expression, found \"if\"; the line is: "
                        "//@ prefer NAME=8 NAME=4 if expression");
    assert_string_equal(message(NORM LAUNCH "//@ prefer other if D\n"),
                        "templates/t.cu:7: contract: expression \"D\": unknown name \"D\" at \"end\"");
    ir_value(t.g, 5)->args[1] = 3;
    assert_true(matches(&t, 0, 0, 5, &b, &reason));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(constant(fit.instance, "A")->i, 3);
    assert_int_equal(constant(fit.instance, "B")->i, 1024);
    assert_true(fit.moves == 132);
    assert_non_null(fit.avoided);
    assert_int_equal(fit.avoided->loc.line, 8);
    t.f.target = target_facts((Target){.id = 1001});
    assert_false(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_string_equal(reason, "templates/t.cu:5: needs WGMMA, which sm_100a lacks");
    bench_close(&t);
}

/* Lines at their bounds: as many as there may be, and one more. */
static void bounds(void **state)
{
    static const EmbeddedFile two[] = {{"t.cu", NORM LAUNCH}, {"cpu/t.c", NORM}};
    char text[2000] = NORM LAUNCH "//@ consts";
    Arena *keep = arena_open();
    Catalog c = {0};
    Diag d = {0};

    (void)state;
    assert_non_null(strstr(message(NORM LAUNCH "//@ fits append.layer < 4\n"), "unknown name \"append.layer\""));
    assert_non_null(strstr(message(NORM LAUNCH "//@ fits abcdefghijklmnopqrstuvwx.y < 4\n"), "unknown name \"abcdef"));
    assert_non_null(strstr(
        message("//@ kernel a\n//@ rank 1\n//@ args x[A] -> y\n//@ match y = scale(x)\n" LAUNCH "//@ tiled x 64\n"),
        "tiled: x is neither an argument with two or more sizes nor $k or $v"));
    assert_non_null(
        strstr(message("//@ kernel a\n//@ rank 1\n//@ args x[A,B] $step -> y\n//@ match y = scale(x)\n" LAUNCH
                       "//@ tiled step 8\n"),
               "tiled: step is neither an argument"));
    assert_non_null(strstr(message("//@ kernel a\n//@ args x[A,B,C,D,E] -> y\n"), "expected ], found \"E]"));
    assert_non_null(strstr(message("//@ kernel a\n//@ args x x -> y\n"), "argument x is given twice"));
    for (int n = CONTRACT_MAX_ARGS; n <= CONTRACT_MAX_ARGS + 1; n++) {
        char list[1000] = "//@ kernel a\n//@ rank 1\n//@ args";

        for (int i = 0; i < n; i++)
            sprintf(list + strlen(list), " a%d", i);
        strcat(list, "\n//@ match $x = scale(a1)\n//@ launch grid 1 block 1\n");
        assert_string_equal(message(list),
                            n == CONTRACT_MAX_ARGS
                                ? ""
                                : "templates/t.cu:3: contract: argument a64 is given twice, or there are "
                                  "more than 64");
    }
    assert_non_null(strstr(message("//@ kernel a\n//@ args x -> y\n//@ match y = "
                                   "scale(scale(scale(scale(scale(scale(scale(scale(scale(x)))))))))\n"),
                           "expected op or argument"));
    assert_non_null(strstr(message("//@ kernel a\n//@ args x xs:row_stats(x) -> y\n//@ match y = scale(xs)\n"),
                           "xs is not an argument that a match line can bind"));
    assert_non_null(strstr(message("//@ kernel a\n//@ args x -> y\n//@ consts C: 5\n//@ match y = scale(x) | C=1\n"),
                           "constant C is given twice"));
    assert_non_null(strstr(message(NORM LAUNCH "//@ consts A: 8 bf16\n"), "contract: expression \"8 bf16\""));
    assert_string_equal(message("//@ kernel a\n//@ rank 1\n//@ args x[blocks,C] -> y\n//@ match y = scale(x)\n"
                                "//@ launch grid 2 * blocks block 4\n"),
                        "");
    assert_non_null(strstr(message(NORM "//@ launch grid 1, 2, 3, 4 block 5\n"), "one to three expressions"));
    for (int i = 0; i < 44; i++) /* with those of NORM 48 */
        snprintf(text + strlen(text), 16, " A%d: 1", i);
    assert_string_equal(message(text), "");
    strcat(text, " B: 1");
    assert_non_null(strstr(message(text), "norm has 49 constants, at most 48 are allowed"));
    if (!catalog_read(keep, two, 2, &c, &d)) /* contracts of the CPU have ranks of their own */
        fail_msg("%s", d.text);
    arena_close(keep);
}

/* --- matching a graph --------------------------------------------------------------------------- */

static void fused(void **state)
{
    Bench t = bench_open(
        "//@ kernel lin\n//@ rank 1\n//@ args x[M,K] w[N,K] g[K]:fp32 b[N]:fp32 r[M,N] -> y[M,N]\n"
        "//@ match y = linear(x, w, b?)\n"
        "//@ match y = add(r, linear(rmsnorm(x, g), w, b?)) | NORM=1 RES=has(r)\n"
        "//@ consts X: type(x) N: N K: K EPS: rmsnorm.eps\n//@ tune TILE: 32 8 4 2\n//@ consts BIAS: has(b) S1: "
        "rows(x)\n"
        "//@ fits K % TILE == 0 && M_MAX <= 64\n"
        "//@ launch grid N / TILE, M, SMS * 2 block 32 * TILE smem K * 2\n"
        "//@ scratch part 4 * M * N\n//@ moves N * K * sizeof(w) + M * 4\n//@ tiled w 2 * TILE\n//@ rate 50\n");
    Binding b;
    Fitted fit;
    const char *reason = "";
    const int64_t variables[] = {5, 3, 132};
    int64_t value;
    FtxError err;

    (void)state;
    assert_int_equal(match_ways(&t.c.at[0]->matches.at[0]), 1);
    assert_int_equal(match_ways(&t.c.at[0]->matches.at[1]), 2);
    assert_true(matches(&t, 1, 0, 8, &b, &reason));
    assert_int_equal(b.n_covered, 3);
    assert_int_equal(b.arg[0], 3);
    assert_int_equal(b.arg[4], 3);
    assert_int_equal(b.arg[5], 8);
    assert_false(matches(&t, 1, 1, 8, &b, &reason));
    assert_string_equal(reason, "%3 is the result of embed, not of linear");

    assert_true(matches(&t, 1, 0, 8, &b, &reason));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(constant(fit.instance, "TILE")->i, 4);
    assert_int_equal(constant(fit.instance, "NORM")->i, 1);
    assert_int_equal(constant(fit.instance, "RES")->i, 1);
    assert_int_equal(constant(fit.instance, "BIAS")->i, 0);
    assert_int_equal(constant(fit.instance, "S1")->i, 0);
    assert_true(constant(fit.instance, "EPS")->f == 0.001);
    assert_int_equal(constant(fit.instance, "X")->i, DT_BF16);
    assert_string_equal(fit.instance->consts[0].name, "X");
    assert_string_equal(fit.instance->consts[fit.instance->n_consts - 1].name, "RES");
    assert_int_equal(fit.instance->block, 128);
    assert_int_equal(fit.instance->smem, 24);
    assert_int_equal(fit.scratch[0], 4 * 16 * 12);
    assert_int_equal(contract_arg_tiled(&b, &fit, 1), 8);
    assert_int_equal(contract_arg_tiled(&b, &fit, 0), 0);
    assert_int_equal(t.c.at[0]->rate, 50);
    assert_true(fit.moves == 12 * 12 * 2 + 16 * 4);
    assert_int_equal(expr_run(fit.instance->grid[1].words, fit.instance->grid[1].n, variables, 3, &value, &err), 0);
    assert_int_equal(value, 5);
    assert_int_equal(expr_run(fit.instance->grid[2].words, fit.instance->grid[2].n, variables, 3, &value, &err), 0);
    assert_int_equal(value, 264);

    /* the LM head: M is S */
    assert_true(matches(&t, 0, 0, 10, &b, &reason));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(constant(fit.instance, "S1")->i, 1);
    assert_int_equal(constant(fit.instance, "NORM")->i, 0);
    assert_int_equal(fit.scratch[0], 4 * 4 * 10);
    assert_int_equal(expr_run(fit.instance->grid[1].words, fit.instance->grid[1].n, variables, 3, &value, &err), 0);
    assert_int_equal(value, 3);

    t.f.t_max = 100;
    assert_true(matches(&t, 0, 0, 7, &b, &reason));
    assert_false(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_string_equal(reason, "templates/t.cu:9: fits K % TILE == 0 && M_MAX <= 64 (K = 12, TILE = 2, M_MAX = 100)");
    bench_close(&t);
}

static const char statistics_contract[] =
    "//@ kernel lin\n//@ rank 1\n//@ args xs:row_stats(x) x[M,K] w[N,K] b[N] -> ys:row_stats(y) y\n"
    "//@ folded w b g c\n//@ gives y as row_stats has(ys) ? 4 * P : 9\n"
    "//@ match y = linear(layernorm(x:row_stats, g, c), w, b?)\n//@ match y = linear(x, w, b?)\n"
    "//@ consts P: param(xs) F: has(g) S: has(xs)\n//@ launch grid 1 block 1\n";

/* A value in a form other than plain: of an input what its writer says, of an output if it is asked for; its companions. */
static void forms(void **state)
{
    Bench t = bench_open(statistics_contract);
    const Contract *c = t.c.at[0];
    int64_t params[12 * CONTRACT_MAX_FORMS] = {0};
    int64_t *of_x = &params[3 * CONTRACT_MAX_FORMS + 1];
    Binding b;
    Fitted fit;
    Fold fold;
    const char *reason = "";

    (void)state;
    assert_string_equal(t.c.forms[1].name, "row_stats");
    assert_true(contract_gives(c, 0) && contract_gives(c, 1) && !contract_gives(c, 2));
    for (Id v = 0; v < 12; v++)
        params[v * CONTRACT_MAX_FORMS] = 1;
    t.f.params = params;
    ir_value(t.g, 5)->op = OP_LAYERNORM;
    ir_value(t.g, 5)->args[2] = 4;
    assert_int_equal(c->operands, 6);
    assert_int_equal(c->args.n, 8);
    assert_false(matches(&t, 0, 0, 7, &b, &reason));
    assert_string_equal(reason, "%3 is not written as row_stats");
    *of_x = 6;
    assert_false(matches(&t, 0, 0, 7, &b, &reason));
    assert_string_equal(reason, "b is not a weight: the norm cannot be folded"); /* there is none */
    ir_value(t.g, 7)->args[2] = 4;
    assert_true(matches(&t, 0, 0, 7, &b, &reason));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(fit.instance->n_operands, 6);
    assert_int_equal(b.arg[0], 3);
    assert_int_equal(b.form[1], 1);
    assert_int_equal(b.arg[4], 0); /* the result is plain */
    assert_int_equal(constant(fit.instance, "P")->i, 6);
    assert_int_equal(constant(fit.instance, "F")->i, 1);
    assert_int_equal(constant(fit.instance, "S")->i, 1);
    assert_int_equal(fit.param, 1);
    fold = contract_arg_fold(&b, 2);
    assert_true(fold.gain == 4 && !fold.matrix && !fold.shift);
    fold = contract_arg_fold(&b, 3);
    assert_true(!fold.gain && fold.matrix == 6 && fold.shift == 4);

    assert_true(matches_as(&t, 0, 1, 7, &b, &reason));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(b.arg[4], 7);
    assert_int_equal(fit.param, 24);
    assert_true(matches_as(&t, 1, 1, 10, &b, &reason)); /* x is read plain: its statistics are not bound */
    assert_false(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_string_equal(reason, "templates/t.cu:5: gives: has(ys) ? 4 * P : 9 is 0");
    assert_true(matches(&t, 1, 0, 10, &b, &reason));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(b.arg[0], 0);
    assert_int_equal(constant(fit.instance, "P")->i, 0);
    fold = contract_arg_fold(&b, 2);
    assert_true(!fold.gain && !fold.matrix && !fold.shift);
    bench_close(&t);
}

#define FORM_LINE "//@ kernel k\n//@ rank 1\n//@ args x[M,C] xs:row_stats(x) -> y\n"

static void form_mistakes(void **state)
{
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"//@ form row_stats\n", "templates/t.cu:1: contract: form row_stats is given twice"},
        {"//@ form plain\n", "templates/t.cu:1: contract: form plain is given twice"},
        {"//@ form a\n//@ instead 0\n", "expected 1 to 16 bytes, or so many times PARAM, found \"0\""},
        {"//@ form a\n//@ instead 17\n", "expected 1 to 16 bytes, or so many times PARAM, found \"17\""},
        {"//@ form a\n//@ instead 4 x\n", "expected 1 to 16 bytes, or so many times PARAM, found \"4 x\""},
        {"//@ form a\n//@ companion s ROWS * WIDTH\n", "unknown name \"WIDTH\""},
        {"//@ form a\n//@ companion $nothing\n", "runtime/artifact/named.def has no buffer $nothing"},
        {"//@ form\n", "expected name of the form"},
        {FORM_LINE "//@ form late\n", "templates/t.cu:4: contract: forms stand before the first kernel line"},
        {FORM_LINE "//@ companion s ROWS\n", "the line belongs to a form: //@ form NAME"},
        {FORM_LINE "//@ instead 4\n", "the line belongs to a form: //@ form NAME"},
        {FORM_LINE "//@ gives y as shadow 1\n", "compiler/ir/forms.def has no form shadow"},
        {FORM_LINE "//@ gives y as plain 1\n", "expected as FORM"},
        {FORM_LINE "//@ gives x as row_stats 1\n", "expected output"},
        {FORM_LINE "//@ gives y as row_stats\n", "expected number of the form"},
        {FORM_LINE "//@ gives y as row_stats 1\n//@ gives y as row_stats 2\n", "y is given twice as row_stats"},
        {FORM_LINE "//@ match y = act(x:shadow)\n", "compiler/ir/forms.def has no form shadow"},
        {FORM_LINE "//@ match y = act(xs)\n", "xs is not an argument that a match line can bind"},
        {FORM_LINE "//@ match z = x\n", "a conversion writes its result to an output"},
        {"//@ kernel k\n//@ args x xs:row_stats.sums(x) -> y ys:row_stats.more(y)\n",
         "the form row_stats has no companion more in the workspace"},
        {"//@ kernel k\n//@ args x xs:segments(x) -> y\n", "the form segments has no companion in the workspace"},
        {"//@ kernel k\n//@ args x xs:shadow(x) -> y\n", "compiler/ir/forms.def has no form shadow"},
        {"//@ kernel k\n//@ args x xs:row_stats(x) xt:row_stats(xs) -> y\n",
         "row_stats(xs): no such argument on the same side of ->"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++)
        if (!strstr(message(cases[i].text), cases[i].what))
            fail_msg("%s: expected %s, got %s", cases[i].text, cases[i].what, message(cases[i].text));
}

/* A type that a contract names is required of an activation and given to a weight; inner values have no other readers. */
static void types(void **state)
{
    Bench t = bench_open("//@ kernel n\n//@ rank 1\n//@ args x[M,C] r[M,2*H]:bf16 g[C]:type(y) -> y:fp32\n"
                         "//@ match y = rmsnorm(x, g)\n//@ match y = select_last(add(x, r))\n"
                         "//@ match y = linear(rmsnorm(x, g), r)\n"
                         "//@ launch grid 1 block 1\n");
    Binding b;
    const char *reason = "";

    (void)state;
    assert_false(matches(&t, 0, 0, 5, &b, &reason));
    assert_string_equal(reason, "y is bf16, it must be fp32");
    ir_value(t.g, 5)->type = DT_FP32;
    assert_true(matches(&t, 0, 0, 5, &b, &reason));
    assert_int_equal(contract_arg_type(&t.f, &b, 2), DT_FP32);
    ir_value(t.g, 9)->type = DT_FP32;
    assert_false(matches(&t, 1, 0, 9, &b, &reason)); /* no argument binds H, so 2*H is unknown */
    assert_string_equal(reason, "r is [T,12], its size 2*H differs from the other arguments");
    assert_false(matches(&t, 2, 0, 8, &b, &reason));
    t.uses[5] = 2;
    assert_false(matches(&t, 2, 0, 7, &b, &reason));
    assert_string_equal(reason, "%5 = rmsnorm has other readers");
    bench_close(&t);
}

/* What ftxc says of a template with these lines when it starts, beside its mistakes. */
static const char *untyped(const char *name, const char *lines)
{
    static Diag d;
    char text[600];
    const EmbeddedFile files[] = {{"forms.def", catalog_text("forms.def")}, {name, text}};
    Arena *keep = arena_open();
    Catalog c = {0};

    d = (Diag){0};
    snprintf(text, sizeof text, "//@ kernel k\n//@ rank 1\n%s//@ launch grid 1 block 32\n", lines);
    if (catalog_read(keep, files, LEN(files), &c, &d) && catalog_check_types(&c, &d) != !*d.text)
        fail_msg("the answer is not that of the diagnostic");
    arena_close(keep);
    return d.text;
}

#define NO_TYPE(line, x) \
    "templates/t.cu:" line ": contract: k: " x " has no type; give it one, as " x ":TYPE or " x \
    ":type(OTHER), or a constant type(" x ")"

/* A kernel is told the type of all that it reads and writes: of outputs, inputs and weights, on each match line. */
static void known_types(void **state)
{
    static const struct {
        const char *lines, *what;
    } cases[] = {
        {"//@ args a[M,C] b[M,C]:type(a) -> y:type(a)\n//@ match y = add(a, b)\n//@ consts X: type(a)\n", ""},
        {"//@ args a[M,C] b[M,C]:type(a) -> y\n//@ match y = add(a, b)\n//@ consts X: type(a)\n", NO_TYPE("3", "y")},
        {"//@ args a[M,C] b[M,C] -> y:type(a)\n//@ match y = add(a, b)\n//@ consts X: type(a)\n", NO_TYPE("3", "b")},
        {"//@ args a[M,C] b[M,C]:type(a) -> y:type(a)\n//@ match y = add(a, b)\n", NO_TYPE("3", "a")},
        {"//@ args a[M,C]:bf16 b[M,C]:type(a) -> y\n//@ match y = add(a, b)\n//@ consts Y: type(y)\n", ""},
        {"//@ args x[M,C] xs:row_stats(x) $step -> y ys:row_stats(y)\n//@ match y = scale(x)\n"
         "//@ consts X: type(x) Y: type(y)\n",
         ""},
        /* not a constant that holds the type, and the type of another argument whose name begins so */
        {"//@ args x[M,C] -> y:type(x)\n//@ match y = scale(x)\n//@ consts X: type(x) == bf16\n", NO_TYPE("3", "x")},
        {"//@ args x[M,C] -> y:type(x)\n//@ match y = scale(x)\n//@ fits type(x) == bf16\n", NO_TYPE("3", "x")},
        {"//@ args xx[M,C]:bf16 x[M,C]:bf16 -> y\n//@ match y = add(x, xx)\n//@ consts X: type(xx) Z: type(x)\n",
         NO_TYPE("3", "y")},
        {"//@ args x[M,C] xx:bf16 -> y:bf16\n//@ match y = add(x, xx)\n//@ consts X: type(xx)\n", NO_TYPE("3", "x")},
        /* each match line for what it binds: a constant of one line is none of another */
        {"//@ args w[V,D] p[P,D] -> y:bf16\n//@ match y = embed(ids(), w) | P=fp32 W=type(w)\n"
         "//@ match y = add(embed(ids(), w), positions(p)) | P=type(p) W=type(w)\n",
         ""},
        {"//@ args w[V,D] p[P,D] -> y:bf16\n//@ match y = add(embed(ids(), w), positions(p)) | P=type(p) W=type(w)\n"
         "//@ match y = add(scale(embed(ids(), w)), positions(p)) | P=fp32 W=type(w)\n",
         NO_TYPE("3", "p")},
        {"//@ args x:bf16 b:bf16 w -> y:bf16\n//@ match y = linear(x, w:m16k16, b?)\n", ""}, /* the form says it */
        {"//@ args x:bf16 b:bf16 w -> y:bf16\n//@ match y = linear(x, w, b?)\n", NO_TYPE("3", "w")},
        {"//@ args x y -> z\n//@ match none\n", ""},
        {"//@ args x r:type(y) -> y:type(x)\n//@ match y = add(x, r)\n",
         "templates/t.cu:3: contract: type(y): y itself has the type of another argument, x"},
        {"//@ args x r:type(z) -> y:type(x)\n//@ match y = add(x, r)\n",
         "templates/t.cu:3: contract: type(z): the kernel has no such argument"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++)
        assert_string_equal(untyped("t.cu", cases[i].lines), cases[i].what);
    assert_string_equal(untyped("cpu/t.c", cases[1].lines), ""); /* activations of the CPU are fp32 */
}

/* "add(add(x, x), add(x, x))" and so on. */
static void put_sums(char *text, int depth)
{
    strcat(text, depth ? "add(" : "x");
    for (int i = 0; depth && i < 2; i++) {
        put_sums(text, depth - 1);
        strcat(text, i ? ")" : ", ");
    }
}

static Id sums(Graph *g, int depth)
{
    Id two[IR_MAX_ARGS] = {3};

    if (!depth)
        return 3;
    for (int i = 0; i < 2; i++)
        two[i] = sums(g, depth - 1);
    return ir_value_add(g, OP_ADD, two, ir_value(g, 3)->shape, DT_BF16, (Loc){0});
}

/* A match covers 16 ops, not 17. */
static void covered(void **state)
{
    char text[600] = "//@ kernel a\n//@ rank 1\n//@ args x -> y\n//@ match y = add(x, ";
    const char *reason = "";
    Binding b;
    Bench t;
    Id two[IR_MAX_ARGS] = {3};

    (void)state;
    put_sums(text, 4);
    strcat(text, ")\n//@ match y = add(x, add(x, ");
    put_sums(text, 4);
    strcat(text, "))\n//@ launch grid 1 block 1\n");
    t = bench_open(text);
    for (int i = 0; i < 2; i++) {
        two[1] = i ? two[1] : sums(t.g, 4);
        two[1] = ir_value_add(t.g, OP_ADD, two, ir_value(t.g, 3)->shape, DT_BF16, (Loc){0});
        t.uses = ir_uses(t.g);
        assert_int_equal(matches(&t, (uint32_t)i, 0, two[1], &b, &reason), i == 0);
        if (i == 0)
            assert_int_equal(b.n_covered, 16);
    }
    bench_close(&t);
}

/* Each sum of a tree may be swapped, for itself; a contract has as many names of sizes as it needs. */
static void swapped(void **state)
{
    Bench t = bench_open("//@ kernel a\n//@ rank 1\n//@ args r[P,Q] s[P,Q] x[M,C] g[C] w[N,K] -> y[A,B]\n"
                         "//@ match y = add(r, add(s, rmsnorm(x, g)))\n//@ match y = add(r, linear(x, w))\n"
                         "//@ match y = rmsnorm(x, g)\n//@ tiled r 8\n"
                         "//@ launch grid M block 1 smem 300000\n");
    const Id inner[IR_MAX_ARGS] = {3, 5};
    Id outer[IR_MAX_ARGS] = {0, 7};
    const char *reason = "";
    TargetFacts roomy;
    Binding b;
    Fitted fit;
    Id root;

    (void)state;
    outer[0] = ir_value_add(t.g, OP_ADD, inner, ir_value(t.g, 3)->shape, DT_BF16, (Loc){0});
    root = ir_value_add(t.g, OP_ADD, outer, ir_value(t.g, 3)->shape, DT_BF16, (Loc){0});
    t.uses = ir_uses(t.g);
    t.uses[5] = t.uses[7] = 1;
    for (uint32_t way = 0; way < 4; way++)
        assert_int_equal(matches(&t, 0, way, root, &b, &reason), way == 1);
    assert_true(matches(&t, 1, 0, 8, &b, &reason)); /* P Q M C N K A B */
    assert_true(b.n_dims == 7 || b.n_dims == 8);

    assert_true(matches(&t, 2, 0, 5, &b, &reason));
    assert_false(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_non_null(strstr(reason, "smem is 300000, it must be 0 to 232448"));
    roomy = *t.f.target;
    roomy.smem = 300000;
    t.f.target = &roomy;
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_int_equal(contract_arg_tiled(&b, &fit, 0), 0); /* r is not bound */
    ir_value(t.g, 4)->shape.dim[0].n = 7;
    assert_false(matches(&t, 2, 0, 5, &b, &reason));
    assert_string_equal(reason, "g is [7], its size C differs from the other arguments");
    ir_value(t.g, 4)->shape.dim[0].n = 12;
    ir_value(t.g, 3)->shape.dim[0].n = ir_value(t.g, 5)->shape.dim[0].n = 2; /* [2*T,12]: no size of a launch */
    assert_true(matches(&t, 2, 0, 5, &b, &reason));
    assert_false(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    bench_close(&t);
}

/* Logits that the host may read stay in no kernel without a place for them; constants stand where `A: A` puts them. */
static void places(void **state)
{
    static const char *const outputs[] = {"$out", "$logits $out"};
    const char *reason = "";
    Binding b;
    Fitted fit;

    (void)state;
    for (size_t i = 0; i < LEN(outputs); i++) {
        char text[300];
        Bench t;

        snprintf(text, sizeof text,
                 "//@ kernel a\n//@ rank 1\n//@ args x[M,K] w[N,K] -> %s\n//@ match $out = sample(linear(x, w)) | A=1\n"
                 "//@ consts B: 2 A: A C: 3\n//@ launch grid 1 block 1\n",
                 outputs[i]);
        t = bench_open(text);
        assert_int_equal(matches(&t, 0, 0, 11, &b, &reason), i == 1);
        if (i == 1) {
            assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
            assert_string_equal(fit.instance->consts[1].name, "A");
        }
        bench_close(&t);
    }
}

/* Contract text with bytes changed at random: read and matched, or refused; never a crash. */
static void mangled(void **state)
{
    static const char text[] =
        "//@ kernel lin\n//@ rank 1\n//@ args x[M,K] w[N,K]:fp32 b[N]:type(w) r[M,2*H] $k -> y[M,N] ys:row_stats(y)\n"
        "//@ folded w b g c\n//@ gives y as row_stats N\n"
        "//@ match y = add(r, linear(rmsnorm(x:plain, b), w, b?)) | NORM=1 RES=has(r)\n"
        "//@ consts X: type(x) N: N K: K EPS: rmsnorm.eps\n//@ tune TILE: 32 8 4 2\n"
        "//@ rows all\n//@ fits K % TILE == 0 && M_MAX <= 64 ? 1 : 0\n"
        "//@ launch grid N / TILE, M, SMS * 2 block 32 * TILE smem K * 2\n"
        "//@ scratch part 4 * M * N\n//@ zeroed z 4\n//@ tiled w TILE\n//@ moves N * K * sizeof(w)\n";
    Bench t = bench_open(NORM LAUNCH);
    uint64_t seed = 5;
    int read = 0;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        char copy[sizeof text];
        const EmbeddedFile files[] = {{"forms.def", catalog_text("forms.def")}, {"t.cu", copy}};
        Arena *a = arena_open();
        Catalog c = {0};
        Diag d = {0};
        bool ok;

        memcpy(copy, text, sizeof text);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            copy[(seed >> 33) % (sizeof text - 1)] = (char)(9 + (seed >> 20) % 118);
        }
        ok = catalog_read(a, files, LEN(files), &c, &d);
        assert_true(ok != d.failed);
        read += ok;
        for (size_t k = 0; ok && k < c.n; k++)
            for (size_t line = 0; line < c.at[k]->matches.n; line++)
                for (uint32_t way = 0; way < match_ways(&c.at[k]->matches.at[line]); way++)
                    for (Id v = 1; v < t.g->values.n; v++) {
                        const char *reason = NULL;
                        Binding b;
                        Fitted fit;

                        if (match_at(&t.f, t.uses, c.at[k], &c.at[k]->matches.at[line], way, v, (uint32_t)(i % 3), &b,
                                     &reason, a))
                            contract_fit(&t.f, &b, a, a, &fit, &reason);
                    }
        arena_close(a);
    }
    assert_true(read > 100);
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree),   cmocka_unit_test(needs),         cmocka_unit_test(mistakes),
        cmocka_unit_test(fused),  cmocka_unit_test(types),         cmocka_unit_test(known_types),
        cmocka_unit_test(forms),  cmocka_unit_test(form_mistakes), cmocka_unit_test(mangled),
        cmocka_unit_test(bounds), cmocka_unit_test(covered),       cmocka_unit_test(swapped),
        cmocka_unit_test(places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
