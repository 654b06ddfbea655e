/* test_gates.c - compiles every CUDA kernel of every spec of the tree for every target and checks the machine code:
 * no spills, resources within the target's limits, weights read 16 bytes at a time, and matrix instructions in
 * 16-bit kernels. No GPU is needed.
 *
 * The results for each text are kept in kernels.txt (table.h). A run compiles the texts that are new, and of the
 * known ones 1 in SHARE (key % SHARE == FTX_TURN % SHARE), whose results must equal the table's. FTX_GATES=update
 * adds new texts to the table. In CI (CI is set) a text that is missing from the table, or a line without a kernel,
 * is an error. FTX_GATES=remake compiles every text and writes the whole table.
 *
 * A kernel that several models share is checked once for each target. The tiny checkouts of the tests, and fable in
 * fp16, are compiled for one target of each kind only. FTX_GATES=all compiles everything for every GPU, and adds
 * fp16 and fp32 weights for every model and models of odd shapes; spills in the latter are listed but are no error.
 * FTX_GATES=list prints every kernel. Plans for a PTX target are compiled for the first GPU that can run that PTX,
 * because the instructions of a GPU are known only after its assembler has run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compiler/instantiate/parts.h"
#include "compiler/spec/spec.h"
#include "runtime/base/file.h"
#include "table.h"
#include "tests/models/odd.h"
#include "tests/skip.h"

/* The targets that a model is compiled for: every GPU and PTX; every GPU; one GPU of each kind. */
typedef enum Reach { TEXTS, EVERYWHERE, SOME } Reach;

typedef struct GateModel {
    const char *path, *override; /* override: a spec setting to change, or two with a blank between; NULL: none */
    const char *only;            /* the target that it is for; NULL: any */
    Spec spec;
    Reach reach;
    bool odd;
} GateModel;

typedef struct Gate {
    Arena *keep;
    Catalog catalog;
    struct {
        GateModel *at;
        size_t n, cap;
    } models;
    Table table;
    bool all, list, update, remake, ci;
    uint64_t turn;
} Gate;

static const char table_path[] = "tests/gates/kernels.txt";
enum { SHARE = 16 };

typedef struct Kernel {
    Instance *instance;
    const GateModel *model; /* the first that needs it */
    size_t users;
    Row row;       /* resources of its machine code */
    bool known;    /* the table has a line for its text */
    bool compiled; /* in this run */
} Kernel;

typedef struct Kernels {
    Kernel *at;
    size_t n, cap;
} Kernels;

/* Limits of one block, the same on all targets. MOST_REGISTERS: per thread. FILE_REGISTERS: 32-bit registers of a
 * multiprocessor. */
enum { MOST_REGISTERS = 255, MOST_BARRIERS = 16, MOST_THREADS = 1024, FILE_REGISTERS = 65536 };

static int64_t constant(const Instance *i, const char *name, int64_t none)
{
    for (size_t c = 0; c < i->n_consts; c++)
        if (strcmp(i->consts[c].name, name) == 0)
            return i->consts[c].i;
    return none;
}

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* --- checks of one kernel's code --------------------------------------------------------------- */

static int wrong; /* failed checks of the current target */

static const char *ran[16]; /* targets whose kernels have been checked */
static size_t n_ran;

#define GATE(holds, ...) \
    do { \
        if (!(holds)) { \
            print_message("  %s %s: ", t.name, i->entry); \
            print_message(__VA_ARGS__); \
            print_message(" (%s%s%s)\n", k->model->path, k->model->override ? " " : "", \
                          k->model->override ? k->model->override : ""); \
            wrong++; \
        } \
    } while (0)

static void check_limits(const Kernel *k, Target t, const Resources *r)
{
    const Instance *i = k->instance;
    const uint32_t warps = (i->block + 31) / 32, smem = r->static_smem + i->smem;

    GATE(r->instructions > 0, "no code");
    GATE(r->registers > 0 && r->registers <= MOST_REGISTERS, "%u registers", r->registers);
    GATE(i->block > 0 && i->block <= MOST_THREADS, "%u threads", i->block);
    /* registers are allocated per warp, in units of 8 a thread, for a multiple of 4 warps */
    GATE((r->registers + 7) / 8 * 8 * 32 * ((warps + 3) / 4 * 4) <= FILE_REGISTERS, "%u registers of %u threads",
         r->registers, i->block);
    GATE(smem <= target_facts(t)->smem, "%u + %u bytes of shared memory, %lld there are", r->static_smem, i->smem,
         (long long)target_facts(t)->smem);
    GATE(r->barriers <= MOST_BARRIERS, "%u barriers", r->barriers);
}

/* No stack, spills or local memory: a value that was meant for a register must not go through memory. */
static void check_spills(const Kernel *k, Target t, const Resources *r)
{
    const Instance *i = k->instance;

    GATE(r->stack_bytes == 0 && r->spill_bytes == 0 && r->code[CODE_LOCAL] == 0,
         "%u bytes of stack, %u bytes moved in local memory", r->stack_bytes, r->spill_bytes);
}

/* Weights are read 16 bytes at a time or by bulk copies, in every type; narrower copies are only for rows that are
 * no multiple of a vector. 16-bit types are multiplied by matrix instructions. Their operands must be in uniform
 * registers beforehand: moved there between the products, a step of 64 k took 0.17 us instead of 0.12. */
static void check_classes(const Kernel *k, Target t, const Resources *r)
{
    const Instance *i = k->instance;
    const bool linear = begins(i->family, "linear"), attend = begins(i->family, "attend_");
    const int64_t type = constant(i, "X", DT_NONE), kv = constant(i, "KV", type);
    const bool halves = (type == DT_BF16 || type == DT_FP16) && kv == type;
    const uint32_t wide = r->code[CODE_LOAD16] + r->code[CODE_ASYNC16] + r->code[CODE_BULK];

    if (!linear && !attend)
        return;
    if (linear && constant(i, "K", 0) % 8 == 0) {
        GATE(wide > 0, "no reads of 16 bytes");
        GATE(r->code[CODE_ASYNC] == 0, "%u narrow copies", r->code[CODE_ASYNC]);
    }
    if (attend)
        GATE(wide > 0, "no reads of 16 bytes");
    if (linear && halves) /* operands that each lane computes need three or more moves a product */
        GATE(r->operand_moves < 2 * r->code[CODE_MATRIX],
             "%u operands of %u products are moved to uniform registers between them: the compiler does not see that "
             "they are the same in all lanes",
             r->operand_moves, r->code[CODE_MATRIX]);
    if (halves)
        GATE(r->code[CODE_MATRIX] > 0, "no matrix instruction");
    else
        GATE(r->code[CODE_MATRIX] == 0, "a matrix instruction in fp32");
}

/* --- one target -------------------------------------------------------------------------------- */

static Kernel *known(Kernels *all, const char *entry)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->at[i].instance->entry, entry) == 0)
            return &all->at[i];
    return NULL;
}

/* Collects the instances of all models, each once. The name of an entry determines its text. */
static void collect(Gate *g, Target t, Reach reach, Kernels *all)
{
    for (size_t m = 0; m < g->models.n; m++) {
        GateModel *model = &g->models.at[m];
        Packing packing = {0};
        Plan plan;
        Diag d = {0};

        if (model->reach > reach || (model->only && strcmp(model->only, t.name) != 0))
            continue;
        if (!passes_run_target(model->spec.graph, &g->catalog, t, &model->spec.precision, &packing, &plan, NULL, &d))
            fail_msg("%s on %s: %s", model->path, t.name, d.text);
        for (size_t i = 0; i < plan.instances.n; i++) {
            Instance *instance = plan.instances.at[i];
            Kernel *k = known(all, instance->entry);

            if (instance->device != KD_CUDA)
                continue;
            if (!k) {
                k = arena_push(g->keep, *all);
                *k = (Kernel){.instance = instance, .model = model};
            } else if (strcmp(text_body(k->instance, g->keep), text_body(instance, g->keep)) != 0) {
                fail_msg("%s is the name of two kernels", instance->entry);
            }
            k->users++;
        }
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool same_resources(const Resources *a, const Resources *b)
{
    return memcmp(a, b, sizeof *a) == 0; /* all members are 32-bit numbers, so there is no padding */
}

/* Looks the kernels of a target up in the table. Those that must be compiled are added to `plan`; the others take
 * their resources from the table. */
static void look_up(Gate *g, Target t, Target as, Kernels *all, Plan *plan)
{
    KeyMaker keys = {.keep = g->keep};

    for (size_t i = 0; i < all->n; i++) {
        Kernel *k = &all->at[i];
        Row *row = table_find(&g->table, t.name, k->instance->entry);
        const char *text;

        k->row = (Row){t.name, k->instance->entry, key_make(&keys, k->instance, as, &text).low, {0}, true};
        k->known = row && row->key == k->row.key && !g->all && !g->table.other;
        k->compiled = !k->known || g->remake || k->row.key % SHARE == g->turn % SHARE;
        if (row)
            row->used = true;
        if (k->known)
            k->row.r = row->r;
        if (k->compiled)
            *arena_push(g->keep, plan->instances) = k->instance;
    }
}

/* Compiles the plan of look_up and compares the results with the table. Returns the number of new texts. */
static size_t take_code(Gate *g, Target t, Kernels *all, Plan *plan, Code *code)
{
    Diag d = {0};
    size_t at = 0, fresh = 0;

    if (plan->instances.n && !instantiate_compile(plan, g->keep, code, NULL, NULL, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < all->n; i++) {
        Kernel *k = &all->at[i];
        Resources r;

        if (!k->compiled)
            continue;
        const Bytes image = {(const char *)code->cubin + code->images[at].at, code->images[at].bytes};
        assert_true(cubin_resources(image, k->instance->entry, &r));
        at++;
        if (k->known && !same_resources(&r, &k->row.r)) {
            print_message("  %s %s: %s has other figures for the same text\n", t.name, k->instance->entry, table_path);
            wrong += !g->remake;
        }
        k->row.r = r;
        if (g->update)
            table_put(&g->table, &k->row);
        fresh += !k->known;
    }
    return fresh;
}

static size_t unused_lines(const Gate *g, Target t)
{
    size_t n = 0;

    for (size_t i = 0; i < g->table.rows.n; i++)
        n += !g->table.rows.at[i].used && strcmp(g->table.rows.at[i].target, t.name) == 0;
    return n;
}

/* The table should hold every kernel and nothing else. In CI a difference is an error, elsewhere it is printed. */
static void check_table(const Gate *g, Target t, size_t fresh)
{
    const size_t unused = unused_lines(g, t);

    if (g->update || g->all || g->table.other || fresh + unused == 0)
        return;
    print_message("  %s: %zu kernels are not in %s, %zu of its lines have no kernel: "
                  "FTX_GATES=update build/tests/gates/test_gates\n",
                  t.name, fresh, table_path, unused);
    wrong += g->ci;
}

/* Checks every kernel of the plans for t, compiled as code for `as`. */
static void check_target(Gate *g, Target t, Target as, Reach reach)
{
    Kernels all = {0};
    Plan plan = {.target = as};
    Code code = {0};
    uint32_t registers = 0, barriers = 0, smem = 0;
    uint64_t counts[CODE_COUNT] = {0};
    const double start = seconds();

    collect(g, t, reach, &all);
    look_up(g, t, as, &all, &plan);
    wrong = 0;
    const size_t fresh = take_code(g, t, &all, &plan, &code);
    check_table(g, t, fresh);
    for (size_t i = 0; i < all.n; i++) {
        const Kernel *k = &all.at[i];
        const Instance *instance = k->instance;
        const Resources *r = &k->row.r;
        const int before = wrong;

        if (g->list)
            print_message(
                "  %-60s %3u registers %2u barriers %6u + %6u smem, matrix %u, bulk %u, 16-byte copies %u, loads %u\n",
                instance->entry, r->registers, r->barriers, r->static_smem, instance->smem, r->code[CODE_MATRIX],
                r->code[CODE_BULK], r->code[CODE_ASYNC16], r->code[CODE_LOAD16]);
        check_limits(k, t, r);
        check_classes(k, t, r);
        if (!k->model->odd)
            check_spills(k, t, r);
        else if (r->spill_bytes || r->stack_bytes)
            print_message("  spills: %s\n", instance->entry);
        for (int c = 0; c < CODE_COUNT; c++)
            counts[c] += r->code[c];
        registers = r->registers > registers ? r->registers : registers;
        barriers = r->barriers > barriers ? r->barriers : barriers;
        smem = r->static_smem + instance->smem > smem ? r->static_smem + instance->smem : smem;
        if (wrong > before && g->list)
            print_message("%s\n", text_body(instance, g->keep));
    }
    print_message("%-10s %4zu kernels, %zu of them compiled, %zu new; at most %u registers, %u barriers, %u bytes of "
                  "shared memory; %.1f s\n",
                  t.name, all.n, plan.instances.n, fresh, registers, barriers, smem, seconds() - start);
    print_message("          ");
    for (int c = 0; c < CODE_COUNT; c++)
        print_message(" %s %llu", code_class_name((CodeClass)c), (unsigned long long)counts[c]);
    print_message("\n");
    if (wrong)
        fail_msg("%d of the gates are not held on %s", wrong, t.name);
    ran[n_ran++] = t.name;
}

static Target target(const char *name)
{
    Target t;
    Diag d = {0};

    if (!target_parse(name, &t, &d))
        fail_msg("%s", d.text);
    return t;
}

static void need_nvrtc(void)
{
    if (nvrtc_version())
        return;
#if FTX_REQUIRE_NVRTC
    fail_msg("%s", nvrtc_missing());
#else
    SKIP("%s", nvrtc_missing());
#endif
}

static void check_named(Gate *g, const char *name, Reach reach)
{
    need_nvrtc();
    check_target(g, target(name), target(name), g->all ? SOME : reach);
}

static void sm_80(void **state)
{
    check_named(*state, "sm_80", SOME);
}

static void sm_86(void **state)
{
    check_named(*state, "sm_86", EVERYWHERE);
}

static void sm_89(void **state)
{
    check_named(*state, "sm_89", EVERYWHERE);
}

static void sm_90a(void **state)
{
    check_named(*state, "sm_90a", SOME);
}

static void sm_100a(void **state)
{
    check_named(*state, "sm_100a", EVERYWHERE);
}

static void sm_120a(void **state)
{
    check_named(*state, "sm_120a", SOME);
}

/* Checks the plan compiled for `gpu`, the first GPU that can run this PTX, and that one kernel's PTX is made. */
static void check_ptx(Gate *g, const char *name, Target gpu)
{
    const Target t = target(name);
    Kernels all = {0};
    Plan plan = {.target = t};
    Code code;
    Diag d = {0};

    need_nvrtc();
    check_target(g, t, gpu, TEXTS);
    collect(g, t, TEXTS, &all);
    *arena_push(g->keep, plan.instances) = all.at[0].instance;
    if (!instantiate_compile(&plan, g->keep, &code, NULL, NULL, &d))
        fail_msg("%s", d.text);
    const char *text = code.cubin;
    assert_true(code.images[0].bytes > 0 && text[code.images[0].bytes - 1] == '\0');
    assert_non_null(strstr(text, arena_printf(g->keep, ".target sm_%u", t.id / 10)));
    assert_non_null(strstr(text, all.at[0].instance->entry));
}

static void compute_80(void **state)
{
    check_ptx(*state, "compute_80", target("sm_80"));
}

static void compute_90(void **state)
{
    check_ptx(*state, "compute_90", (Target){.id = 900, .name = "sm_90"});
}

/* --- models ------------------------------------------------------------------------------------ */

static void add(Gate *g, const char *path, const char *override, Reach reach, bool odd)
{
    GateModel *m = arena_push(g->keep, g->models);
    Diag d = {0};
    const char *blank = override ? strchr(override, ' ') : NULL;
    const Override overrides[] = {
        {blank ? arena_printf(g->keep, "%.*s", (int)(blank - override), override) : override},
        {blank ? blank + 1 : NULL},
    };

    *m = (GateModel){.path = arena_strdup(g->keep, path), .override = override, .reach = reach, .odd = odd};
    if (!spec_read(m->path, overrides, blank ? 2 : override != NULL, g->keep, &m->spec, &d) ||
        !passes_run_graph(m->spec.graph, &m->spec.precision, NULL, &d))
        fail_msg("%s: %s", path, d.text);
}

/* Adds the model specs and the checkouts (folders with a config.json) of a folder. */
static void add_folder(Gate *g, const char *folder)
{
    struct dirent **list;
    const int n = scandir(folder, &list, NULL, alphasort);

    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name, *path = arena_printf(g->keep, "%s/%s", folder, name),
                   *lua = strrchr(name, '.');
        bool model = file_exists(arena_printf(g->keep, "%s/config.json", path)) && strcmp(name, "fable") != 0;

        if (lua && strcmp(lua, ".lua") == 0) { /* specs without ftx.model are model families, not models */
            FileMap m;

            assert_int_equal(file_map(path, &m, NULL), 0);
            model = memmem(m.at, m.bytes, "ftx.model", 9) != NULL;
            file_unmap(&m);
        }
        if (model) {
            const bool fable = strcmp(path, "specs/fable.lua") == 0;

            add(g, path, NULL, fable ? TEXTS : lua ? EVERYWHERE : SOME, false);
            if (g->all || fable) {
                add(g, path, "precision.weights=fp16", SOME, false);
                add(g, path, "precision.weights=fp32", fable ? TEXTS : SOME, false);
            }
        }
        free(list[i]);
    }
    free(list);
}

static void add_odd(Gate *g, bool gpt2, int number)
{
    const OddShape s = odd_shape(gpt2, number);
    const char *path = arena_printf(g->keep, "%s/gates-%s-%d.lua", getenv("FTX_BUILD") ? getenv("FTX_BUILD") : "/tmp",
                                    gpt2 ? "gpt2" : "llama", number);
    char text[2000];
    FtxError err;

    odd_spec(&s, NULL, text, sizeof text);
    if (file_write_whole(path, text, strlen(text), &err))
        fail_msg("%s", err.text);
    add(g, path, NULL, SOME, true);
    remove(path);
}

static int open_all(void **state)
{
    static Gate gate;
    const char *gates = getenv("FTX_GATES");
    Diag d = {0};

    gates = gates ? gates : "";
    gate = (Gate){.keep = arena_open(),
                  .all = strcmp(gates, "all") == 0,
                  .list = strcmp(gates, "list") == 0,
                  .remake = strcmp(gates, "remake") == 0,
                  .ci = getenv("CI") != NULL,
                  .turn = getenv("FTX_TURN") ? strtoull(getenv("FTX_TURN"), NULL, 10) : 0};
    gate.update = gate.remake || strcmp(gates, "update") == 0;
    if (nvrtc_version())
        table_read(&gate.table, table_path, gate.keep);
    if (!catalog_open(gate.keep, &gate.catalog, &d))
        fail_msg("%s", d.text);
    add_folder(&gate, "specs");
    add_folder(&gate, "tests/models");
    add(&gate, "specs/llama-3.2-1b.lua", "limits.sequences=512", SOME, false); /* linear_batch */
    add(&gate, "specs/fable.lua", "limits.masks=true", TEXTS, false);
    add(&gate, "specs/fable.lua", "precision.weights=int4", SOME, false);
    add(&gate, "specs/fable.lua", "precision.weights=int8", SOME, false);
    add(&gate, "specs/fable.lua", "precision.weights=fp8", SOME, false);
    add(&gate, "specs/fable.lua", "precision.weights=fp8 precision.activations=fp8", SOME, false);
    gate.models.at[gate.models.n - 1].only = "sm_90a";
    add(&gate, "specs/fable.lua", "precision.kv=int8", SOME, false);
    add(&gate, "tests/models/inside/wide.lua", NULL, EVERYWHERE, false);
    add(&gate, "tests/models/recurrent/wide.lua", NULL, EVERYWHERE, false);
    for (int i = 0; i < 35 && gate.all; i++) { /* as many as tests/models/test_odd.c runs */
        add_odd(&gate, false, i);
        if (i < 10)
            add_odd(&gate, true, i);
    }
    *state = &gate;
    return 0;
}

static bool has_run(const char *target)
{
    for (size_t i = 0; i < n_ran; i++)
        if (strcmp(ran[i], target) == 0)
            return true;
    return false;
}

static int close_all(void **state)
{
    Gate *g = *state;

    if (g->update && n_ran)
        table_write(&g->table, table_path, has_run);
    for (size_t i = 0; i < g->models.n; i++)
        ir_graph_close(g->models.at[i].spec.graph);
    arena_close(g->keep);
    return 0;
}

/* test_gates [TARGET]: checks only this target */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sm_80),      cmocka_unit_test(sm_86),      cmocka_unit_test(sm_89),
        cmocka_unit_test(sm_90a),     cmocka_unit_test(sm_100a),    cmocka_unit_test(sm_120a),
        cmocka_unit_test(compute_80), cmocka_unit_test(compute_90),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
