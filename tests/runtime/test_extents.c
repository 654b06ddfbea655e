/* test_extents.c - plans whose constants or operands lie do not open on the CPU, whatever their checksums say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "runtime/device/device.h"
#include "tests/temp.h"

static const char *const models[] = {"tiny-llama", "tiny-gpt2", "tiny-bert", "tiny-marian"};

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
    l->plan = *artifact_plan(&l->artifact, FTX_TARGET_CPU);
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

static void opens(const Lying *l)
{
    FtxError err;
    Device *d;

    if (device_cpu.open(&l->artifact, &l->plan, NULL, &d, &err))
        fail_msg("%s", err.text);
    device_cpu.close(d);
}

static void refused(const Lying *l, uint32_t launch, const char *what)
{
    const FtxKernel *k = &l->plan.kernels[l->plan.launches[launch].kernel];
    FtxError err = {0};
    Device *d = NULL;

    if (device_cpu.open(&l->artifact, &l->plan, NULL, &d, &err) != FTX_EFORMAT)
        fail_msg("launch %u, %s: %s was not refused: %s", launch, artifact_string(&l->artifact, k->family), what,
                 err.text);
    assert_non_null(strstr(err.text, "plan: launch "));
    assert_null(d);
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
        refused(l, launch, "keys that end behind the cache");
        o[4] = keys;
    }
    k->n_operands++;
    refused(l, launch, "an operand too many");
    k->n_operands--;
    k->n_consts++;
    refused(l, launch, "a constant too many");
    k->n_consts--;
}

/* The first launch of each kernel, and that of each program. */
static void test_lies(void **state)
{
    uint32_t tried = 0;

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
                    tried++;
                    break;
                }
        opens(&l); /* all lies have been taken back */
        close_lying(&l);
    }
    assert_true(tried > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lies)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
