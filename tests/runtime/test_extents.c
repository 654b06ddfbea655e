/* test_extents.c - plans whose constants or operands lie do not open on the CPU, whatever their checksums say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/consts.h"
#include "kernels/cpu/cpu.h"
#include "runtime/device/cpu/extents.h"
#include "runtime/device/device.h"
#include "tests/temp.h"

static const char *const models[] = {"tiny-llama", "tiny-gpt2", "tiny-bert", "tiny-marian",
                                     "tiny-marian -D decode.width=2"};

/* Constants that are sizes or types: a thousand times as large they fit nothing. */
static const char sizes[] = " H G E ROT BLOCK PAGES KV N K W C D WT V F CONTEXT LENGTH SEQUENCES SOURCE SPANS ";

/* A plan whose arrays may be changed. */
typedef struct Lying {
    Artifact artifact;
    ArtifactPlan plan;
    FtxKernel *kernel;
    FtxOperand *operand;
    int64_t *consts;
} Lying;

static void *copy_of(const void *p, size_t bytes)
{
    void *q = malloc(bytes + 1);

    assert_non_null(q);
    return memcpy(q, p, bytes);
}

static void open_lying(Lying *l, const char *model)
{
    const char *path = temp_path("model.ftx");
    char command[600];
    FtxError err;

    snprintf(command, sizeof command, "%s compile tests/models/%s -t cpu -q -o %s", getenv("FTXC"), model, path);
    assert_int_equal(system(command), 0);
    if (artifact_open(path, &l->artifact, &err))
        fail_msg("%s", err.text);
    l->plan = *artifact_plan(&l->artifact, FTX_TARGET_CPU, "");
    l->plan.kernels = l->kernel = copy_of(l->plan.kernels, l->plan.n_kernels * sizeof *l->kernel);
    l->plan.operands = l->operand = copy_of(l->plan.operands, l->plan.n_operands * sizeof *l->operand);
    l->plan.consts = l->consts = copy_of(l->plan.consts, l->plan.n_consts * sizeof *l->consts);
}

static void close_lying(Lying *l)
{
    free(l->kernel);
    free(l->operand);
    free(l->consts);
    artifact_close(&l->artifact);
}

static const FtxOptions random_weights = {.size = sizeof random_weights, .random_weights = 1};

static void opens(const Lying *l)
{
    FtxError err;
    Device *d;

    if (device_cpu.open(&l->artifact, &l->plan, &random_weights, &d, &err))
        fail_msg("%s", err.text);
    device_cpu.close(d);
}

static void refused_for(const Lying *l, uint32_t launch, const char *what, const char *reason)
{
    const FtxKernel *k = &l->plan.kernels[l->plan.launches[launch].kernel];
    FtxError err = {0};
    Device *d = NULL;

    if (device_cpu.open(&l->artifact, &l->plan, &random_weights, &d, &err) != FTX_EFORMAT)
        fail_msg("launch %u, %s: %s was not refused: %s", launch, artifact_string(&l->artifact, k->family), what,
                 err.text);
    assert_non_null(strstr(err.text, "plan: launch "));
    if (!strstr(err.text, reason))
        fail_msg("launch %u: '%s' is not in '%s'", launch, reason, err.text);
    assert_null(d);
}

static void refused(const Lying *l, uint32_t launch, const char *what)
{
    refused_for(l, launch, what, "");
}

/* Whether what follows stands in the list, between spaces. */
static bool is_size(const char *name, size_t n)
{
    char word[40];

    snprintf(word, sizeof word, " %.*s ", (int)n, name);
    return strstr(sizes, word) != NULL;
}

static void lie_of_constants(Lying *l, uint32_t launch)
{
    const FtxKernel *k = &l->plan.kernels[l->plan.launches[launch].kernel];
    const char *name = cpu_extents(artifact_string(&l->artifact, k->family))->constants;

    for (uint32_t i = 0; i < k->n_consts; i++) {
        int64_t *c = &l->consts[k->first_const + i];
        const int64_t true_value = *c;
        const size_t n = strcspn(name, " ");

        if (*name != '~') {
            *c = -1;
            refused(l, launch, "a negative constant");
            *c = INT64_C(1) << 40;
            refused(l, launch, "a large constant");
        }
        if (true_value && is_size(name, n)) { /* others are bits of a float */
            *c = true_value * 1000;
            refused(l, launch, name);
        }
        *c = true_value;
        name += n + (name[n] == ' ');
    }
}

static void lie_of_operands(Lying *l, uint32_t launch)
{
    FtxKernel *k = &l->kernel[l->plan.launches[launch].kernel];
    const char *family = artifact_string(&l->artifact, k->family);
    FtxOperand *o = &l->operand[l->plan.launches[launch].first_operand];
    const FtxPlan *head = l->plan.head;

    for (uint32_t i = 0; i < k->n_operands; i++) {
        const FtxOperand whole = o[i];

        /* attend_cross only names the source, cross_append has no result: they touch nothing there */
        if (!whole.space || (strcmp(family, "attend_cross") == 0 && i == 1) ||
            (strcmp(family, "cross_append") == 0 && i == 5))
            continue;
        o[i].offset = head->space_bytes[whole.space] / 4 * 4 - 4;
        refused(l, launch, "an operand at the end of its space");
        o[i].offset = whole.offset + 4;
        if (whole.space == FTX_SPACE_IO)
            refused(l, launch, "an operand inside a named buffer");
        o[i] = whole;
    }

    const FtxOperand first = o[0], last = o[k->n_operands - 1];

    o[0].space = FTX_SPACE_NULL;
    refused(l, launch, "no first operand");
    o[0] = first;
    if (last.space && strcmp(family, "cross_append") != 0) {
        o[k->n_operands - 1] = (FtxOperand){.space = FTX_SPACE_WEIGHTS};
        refused(l, launch, "a result over the weights");
        o[k->n_operands - 1] = (FtxOperand){.space = FTX_SPACE_IO};
        refused(l, launch, "a result over the step's rows");
        o[k->n_operands - 1] = (FtxOperand){.space = FTX_SPACE_STATE, .offset = head->named[FTX_NAMED_pages]};
        if (head->named_bytes[FTX_NAMED_pages])
            refused(l, launch, "a result over the page table");
        o[k->n_operands - 1] = last;
    }
    if (strcmp(family, "append") == 0) {
        const FtxOperand keys = o[4];

        o[4].offset = head->named[FTX_NAMED_k] + head->named_bytes[FTX_NAMED_k] - 4;
        refused_for(l, launch, "keys that end behind the cache", "it is not inside $k");
        o[4] = keys;
    }
    k->n_operands++;
    refused_for(l, launch, "an operand too many", "operands, not");
    k->n_operands--;
    k->n_consts++;
    refused(l, launch, "a constant too many");
    k->n_consts--;
}

static const FtxProgram *program_of(const Lying *l, uint32_t launch)
{
    const FtxProgram *p = l->plan.programs;

    while (launch < p->first_launch || launch >= p->first_launch + p->n_launches)
        p++;
    return p;
}

typedef struct Seen { /* lies told */
    uint32_t launches, overlaps, counters, values, named;
} Seen;

/* What is written over another operand, or over its last element. */
static void lie_of_overlaps(Lying *l, uint32_t launch, uint32_t i, const Extent *e, Seen *seen)
{
    const FtxKernel *k = &l->kernel[l->plan.launches[launch].kernel];
    FtxOperand *o = &l->operand[l->plan.launches[launch].first_operand];
    const FtxOperand whole = o[i];

    for (uint32_t n = 0; n < k->n_operands; n++) {
        if (n == i || !e[n].bytes || o[n].space == FTX_SPACE_IO || o[n].space == FTX_SPACE_OUT)
            continue;
        o[i] = o[n];
        refused(l, launch, "a result over another operand");
        o[i].offset = o[n].offset + e[n].bytes - 4;
        refused(l, launch, "a result over the end of another operand");
        o[i] = whole;
        seen->overlaps++;
    }
}

/* A place in WORK that no operand of the launch has; the end of WORK: there is none. */
static uint64_t free_work(const Lying *l, uint32_t launch, const Extent *e, uint64_t bytes)
{
    const FtxKernel *k = &l->kernel[l->plan.launches[launch].kernel];
    const FtxOperand *o = &l->operand[l->plan.launches[launch].first_operand];
    const uint64_t all = l->plan.head->space_bytes[FTX_SPACE_WORK];
    uint64_t at = 0;

    for (uint32_t n = 0; n < k->n_operands && at + bytes <= all; n++)
        if (o[n].space == FTX_SPACE_WORK && o[n].offset < at + bytes && at < o[n].offset + e[n].bytes) {
            at = (o[n].offset + e[n].bytes + 15) / 16 * 16;
            n = UINT32_MAX; /* look at all again */
        }
    return at + bytes <= all ? at : all;
}

/* Counters among values, values among counters or over named buffers that hold none. */
static void lie_of_places(Lying *l, uint32_t launch, uint32_t i, const Extent *e, Seen *seen)
{
    static const int values[] = {FTX_NAMED_logits, FTX_NAMED_hidden, FTX_NAMED_pooled, FTX_NAMED_input};
    static const uint32_t space[] = {
#define NAMED(name, space, bytes, what) FTX_SPACE_##space,
#include "runtime/artifact/named.def"
#undef NAMED
    };
    const FtxPlan *head = l->plan.head;
    FtxOperand *o = &l->operand[l->plan.launches[launch].first_operand];
    const FtxOperand whole = o[i];
    const uint64_t work = free_work(l, launch, e, e[i].bytes), state = head->space_bytes[FTX_SPACE_STATE];
    uint64_t counters = 0; /* they stand behind the last named buffer */

    for (int n = 0; n < FTX_NAMED_COUNT; n++) {
        bool of_values = false;

        if (space[n] != FTX_SPACE_STATE)
            continue;
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            of_values |= n == values[k];
        if (head->named[n] + head->named_bytes[n] > counters)
            counters = head->named[n] + head->named_bytes[n];
        if (of_values || head->named_bytes[n] < e[i].bytes)
            continue;
        o[i] = (FtxOperand){.space = FTX_SPACE_STATE, .offset = head->named[n]};
        refused_for(l, launch, "a result over a named buffer", e[i].zeroed ? "it may not lie at" : "");
        seen->named++;
    }
    if (e[i].zeroed && work < head->space_bytes[FTX_SPACE_WORK]) {
        o[i] = (FtxOperand){.space = FTX_SPACE_WORK, .offset = work};
        refused_for(l, launch, "counters among values", "it may not lie at");
        seen->counters++;
    } else if (!e[i].zeroed && e[i].bytes <= state - (counters + 15) / 16 * 16) {
        o[i] = (FtxOperand){.space = FTX_SPACE_STATE, .offset = (counters + 15) / 16 * 16};
        refused_for(l, launch, "values among counters", "it may not lie at");
        seen->values++;
    }
    o[i] = whole;
}

static void lie_of_results(Lying *l, uint32_t launch, Seen *seen)
{
    const FtxKernel *k = &l->kernel[l->plan.launches[launch].kernel];
    Extent e[EXTENT_OPERANDS];
    FtxError err;

    if (extents_of(&l->artifact, &l->plan, program_of(l, launch), &l->plan.launches[launch], e, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < k->n_operands; i++)
        if (e[i].written && e[i].named < 0 && e[i].bytes) {
            lie_of_overlaps(l, launch, i, e, seen);
            lie_of_places(l, launch, i, e, seen);
        }
}

/* The first launch of each kernel, and that of each program. */
static void test_lies(void **state)
{
    Seen seen = {0};

    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        Lying l;

        open_lying(&l, models[m]);
        opens(&l);
        for (uint32_t k = 0; k < l.plan.n_kernels; k++)
            for (uint32_t i = 0; i < l.plan.n_launches; i++)
                if (l.plan.launches[i].kernel == k) {
                    lie_of_constants(&l, i);
                    lie_of_operands(&l, i);
                    lie_of_results(&l, i, &seen);
                    seen.launches++;
                    break;
                }
        opens(&l); /* all lies have been taken back */
        close_lying(&l);
    }
    assert_true(seen.launches > 30 && seen.overlaps > 100 && seen.counters > 6 && seen.values > 10 && seen.named > 30);
}

/* The first launch of a kernel. */
static uint32_t launch_of(const Lying *l, const char *family)
{
    uint32_t i = 0;

    while (i < l->plan.n_launches &&
           strcmp(artifact_string(&l->artifact, l->plan.kernels[l->plan.launches[i].kernel].family), family) != 0)
        i++;
    assert_true(i < l->plan.n_launches);
    return i;
}

/* The rows of each expert are two buffers, which are there together. */
static void test_half_a_form(void **state)
{
    Lying l;
    FtxOperand *o;
    uint32_t launch;

    (void)state;
    open_lying(&l, "../runtime/touched/decoder.lua --no-weights");
    opens(&l);
    launch = launch_of(&l, "route");
    o = &l.operand[l.plan.launches[launch].first_operand];
    for (int i = 3; i < 5; i++) {
        const FtxOperand whole = o[i];

        assert_int_not_equal(whole.space, FTX_SPACE_NULL);
        o[i].space = FTX_SPACE_NULL;
        refused_for(&l, launch, "one of starts and rows", "its constants do not fit");
        o[i] = whole;
    }
    opens(&l);
    close_lying(&l);
}

/* The encoder of a translator turns heads by positions of the source, which may be longer than the context. */
static void test_long_source(void **state)
{
    enum { CONTEXT = 32, SOURCE = 40, ROT = 16 };
    Lying l;
    FtxOperand *table;
    uint32_t launch;
    uint64_t all;

    (void)state;
    open_lying(&l, "../runtime/touched/translator.lua --no-weights -D limits.source=40");
    assert_int_equal(l.artifact.facts->context, CONTEXT);
    assert_int_equal(l.artifact.facts->source_context, SOURCE);
    launch = launch_of(&l, "rope");
    assert_int_equal(program_of(&l, launch)->kind, FTX_PROG_ENCODE);
    table = &l.operand[l.plan.launches[launch].first_operand + 1];
    all = l.plan.head->space_bytes[table->space];
    table->offset = all - sizeof(float[SOURCE][ROT]);
    opens(&l);
    table->offset = all - sizeof(float[CONTEXT][ROT]);
    refused_for(&l, launch, "a table as long as the context", "operand 1");
    close_lying(&l);
}

/* A table of biases has as many distances forwards as backwards: those of an even number would end behind it. */
static void test_even_table(void **state)
{
    static const struct {
        const char *family;
        uint32_t span;
    } kernels[] = {{"attend", ATTEND_SPAN}, {"attend_texts", ATTEND_TEXTS_SPAN}};
    Lying l;

    (void)state;
    open_lying(&l, "../runtime/touched/translator.lua --no-weights");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const uint32_t launch = launch_of(&l, kernels[i].family);
        int64_t *c = &l.consts[l.plan.kernels[l.plan.launches[launch].kernel].first_const + kernels[i].span];

        assert_int_equal(*c, 7);
        *c = 6;
        refused_for(&l, launch, "a table of six distances", "its constants do not fit");
        *c = 7;
    }
    opens(&l);
    close_lying(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lies), cmocka_unit_test(test_half_a_form),
                                       cmocka_unit_test(test_even_table), cmocka_unit_test(test_long_source)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
