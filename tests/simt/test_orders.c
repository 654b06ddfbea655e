/* test_orders.c - the order in which attention adds keys, on the host: with precision.sums = "fixed" the bits of a token's
 * result depend on its position and on what it sees alone.
 *
 *   sequences of random queries, keys and values -> steps that cut them into chunks, put other rows beside them and run on
 *   GPUs of several sizes, in programs of several sizes -> the first result of each token is kept, all others must equal it
 *
 * Kernels of a case whose `sums` lines say the same must give the same bits. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/instantiate/instantiate.h"

enum { SEQUENCES = 3, SLOTS = 8, LENGTH = 720, PAGE = 8, PAGES = LENGTH / PAGE, VARIANTS = 4, ROWS = 8, TOKENS = 512 };

typedef enum Kind { PROMPT, GENERATED, TEXT, SOURCE } Kind; /* what a row brings */

typedef struct Variant { /* a kernel that may compute the case, in a program of so many tokens */
    const char *family;
    int bucket; /* 0: any */
    TunedConst use[2];
} Variant;

typedef struct Attention {
    Kind kind;
    DType t;
    int H, G, E, window;
    const char *target;
    bool free; /* precision.sums is "free": some bits must differ */
    Variant variant[VARIANTS];
} Attention;

typedef struct Kernel {
    ProgramFacts facts;
    Binding b;
    Fitted fit;
} Kernel;

typedef struct World {
    const Attention *a;
    Arena *keep;
    Graph *g;
    Build *build;
    Kernel kernel[VARIANTS];
    int kernels;
    char *cache[2];                 /* keys, values: pages, or sources */
    char *known[SEQUENCES][LENGTH]; /* the first result of each token; NULL: none yet */
    int compared, differ;
} World;

typedef struct Step {
    FtxStep step;
    FtxRow row[ROWS];
    int sequence[ROWS];
} Step;

static uint64_t dice;

static int below(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

/* --- data ------------------------------------------------------------------------------------------- */

/* Element i of what token `at` of a sequence has: query, key or value. */
static float element(int sequence, int at, char what, int i)
{
    uint64_t x = ((uint64_t)sequence << 40 ^ (uint64_t)at << 20 ^ (uint64_t)i) * 0x9e3779b97f4a7c15u + (uint64_t)what;

    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    return (float)((double)(x >> 40) * 0x1p-23 - 1.0) * (what == 'q' ? 4.0f : 1.0f);
}

static size_t row_bytes(const World *w)
{
    return (size_t)(w->a->E) * dtype_size(w->a->t);
}

/* Page p of sequence s; of a sequence's pages each second one lies at the end. */
static int page_of(int s, int p)
{
    return p % 2 ? SEQUENCES * PAGES - 1 - (s * PAGES + p) / 2 : (s * PAGES + p) / 2;
}

/* Keys and values of all tokens: [page][G][PAGE][E], or of sources [s][G][LENGTH][E]. */
static void make_caches(World *w)
{
    const Attention *a = w->a;
    const size_t bytes = (size_t)(SEQUENCES * LENGTH * a->G) * row_bytes(w);

    for (int v = 0; v < 2; v++) {
        w->cache[v] = malloc(bytes);
        for (int s = 0; s < SEQUENCES; s++)
            for (int at = 0; at < LENGTH; at++)
                for (int g = 0; g < a->G; g++) {
                    const size_t row = a->kind == SOURCE
                                           ? (size_t)((s * a->G + g) * LENGTH + at)
                                           : (size_t)((page_of(s, at / PAGE) * a->G + g) * PAGE + at % PAGE);

                    for (int e = 0; e < a->E; e++)
                        dtype_store(w->cache[v], row * (size_t)a->E + (size_t)e, a->t,
                                    element(s, at, v ? 'v' : 'k', g * a->E + e));
                }
    }
}

static void *give(const void *from, size_t bytes, const char *name)
{
    void *p = simt_alloc(bytes, name);

    simt_write(p, from, bytes);
    return p;
}

/* What the step's tokens bring: queries, and in texts keys and values beside them. */
static void *make_input(const World *w, const Step *s, size_t *bytes)
{
    const Attention *a = w->a;
    const int q = a->H * a->E, kv = a->kind == TEXT ? a->G * a->E : 0, n = q + 2 * kv;
    char *host = calloc((size_t)(s->step.tokens * n), dtype_size(a->t));
    void *device;

    for (int r = 0; r < s->step.rows; r++)
        for (int k = 0; k < s->row[r].q_len; k++) {
            const int at = s->row[r].kv_len - s->row[r].q_len + k;
            const size_t to = (size_t)(s->row[r].q_start + k) * (size_t)n;

            for (int i = 0; i < n; i++)
                dtype_store(host, to + (size_t)i, a->t,
                            element(s->sequence[r], at,
                                    i < q        ? 'q'
                                    : i < q + kv ? 'k'
                                                 : 'v',
                                    i < q ? i : (i - q) % (kv ? kv : 1)));
        }
    *bytes = (size_t)(s->step.tokens * n) * dtype_size(a->t);
    device = give(host, *bytes, "queries");
    free(host);
    return device;
}

static void *make_pages(void)
{
    int32_t pages[SLOTS][PAGES] = {{0}};

    for (int s = 0; s < SEQUENCES; s++)
        for (int p = 0; p < PAGES; p++)
            pages[s][p] = page_of(s, p);
    return give(pages, sizeof pages, "pages");
}

static void *make_tokens(const Step *s)
{
    FtxToken token[TOKENS] = {{0}};

    for (int r = 0; r < s->step.rows; r++)
        for (int k = 0; k < s->row[r].q_len; k++)
            token[s->row[r].q_start + k] =
                (FtxToken){.pos = s->row[r].kv_len - s->row[r].q_len + k, .row = r, .slot = s->row[r].slot};
    return give(token, sizeof token, "tokens");
}

/* --- a launch --------------------------------------------------------------------------------------- */

/* Argument i as the kernel takes it: an address, or a TMA descriptor. */
static void *tiled(const World *w, const Kernel *k, const Step *s, size_t i, void *at)
{
    const int64_t rows = contract_arg_tiled(&k->b, &k->fit, i);
    const bool paged = k->b.contract->args.at[i].named >= 0;
    const Attention *a = w->a;
    const SimtMap map = {.matrix = at,
                         .tile_rows = (unsigned)rows,
                         .columns = (unsigned)(paged ? a->E : (a->H + 2 * a->G) * a->E),
                         .rows = (unsigned)(paged ? SEQUENCES * LENGTH * a->G : s->step.tokens)};

    return rows ? give(&map, sizeof map, "map") : at;
}

/* Runs the kernel; y: what it writes. */
static void launch(const World *w, const Kernel *k, const Step *s, int sms, char *y, size_t y_bytes)
{
    const Contract *c = k->b.contract;
    const Instance *in = k->fit.instance;
    const size_t cache_bytes = (size_t)(SEQUENCES * LENGTH * w->a->G) * row_bytes(w);
    const int64_t variables[VAR_COUNT] = {[VAR_T] = k->facts.bucket ? k->facts.bucket : s->step.tokens,
                                          [VAR_S] = k->facts.bucket ? k->facts.s_max : s->step.rows,
                                          [VAR_SMS] = sms};
    FtxRow rows[TOKENS] = {{0}};
    void *args[32] = {0}, *out = NULL;
    SimtLaunch l = {.kernel = build_kernel(w->build, in->entry),
                    .args = args,
                    .block = in->block,
                    .smem = in->smem,
                    .overlap = in->overlap};
    size_t n = c->operands, input_bytes;
    FtxError err;

    memcpy(rows, s->row, sizeof s->row);
    for (size_t i = 0; i < c->operands; i++) {
        const ContractArg *arg = &c->args.at[i];
        const bool value = arg->named == FTX_NAMED_v || arg->named == FTX_NAMED_cross_v;

        if (arg->named == FTX_NAMED_step)
            args[i] = give(&s->step, sizeof s->step, "step");
        else if (arg->named == FTX_NAMED_rows)
            args[i] = give(rows, sizeof rows, "rows");
        else if (arg->named == FTX_NAMED_token)
            args[i] = make_tokens(s);
        else if (arg->named == FTX_NAMED_pages)
            args[i] = make_pages();
        else if (value || arg->named == FTX_NAMED_k || arg->named == FTX_NAMED_cross_k)
            args[i] = tiled(w, k, s, i, give(w->cache[value], cache_bytes, value ? "values" : "keys"));
        else if (arg->out)
            args[i] = out = simt_alloc(y_bytes, "y");
        else if (i == 0)
            args[i] = tiled(w, k, s, i, make_input(w, s, &input_bytes));
    }
    for (size_t i = 0; i < c->scratch.n; i++)
        args[n++] = simt_alloc((size_t)k->fit.scratch[i], c->scratch.at[i].name);
    for (size_t i = 0; i < c->zeroed.n; i++) {
        args[n] = simt_alloc((size_t)k->fit.zeroed[i], c->zeroed.at[i].name);
        simt_fill(args[n++], 0, (size_t)k->fit.zeroed[i]);
    }
    assert_int_equal(l.kernel->args_bytes, n * sizeof *args);
    for (int i = 0; i < 3; i++) {
        int64_t size = 1;

        assert_true(!in->grid[i].n ||
                    expr_run(in->grid[i].words, in->grid[i].n, variables, VAR_COUNT, &size, &err) == FTX_OK);
        l.grid[i] = (unsigned)size;
    }
    simt_schedule((SimtSchedule)below(SIMT_SCHEDULES), (uint64_t)below(1000));
    simt_in_front();
    if (!simt_launch(&l)) {
        for (size_t i = 0; i < simt_reports(); i++)
            print_message("  %s\n", simt_report(i)->text);
        fail_msg("%s: %zu findings", in->entry, simt_reports());
    }
    memcpy(y, out, y_bytes);
    simt_free_all();
}

/* --- steps ------------------------------------------------------------------------------------------ */

/* Adds the tokens [from, to) of a sequence. */
static void bring(const World *w, Step *s, int sequence, int from, int to)
{
    const int r = s->step.rows++;

    assert_true(r < ROWS && s->step.tokens + to - from <= TOKENS);
    s->sequence[r] = sequence;
    s->row[r] = (FtxRow){.q_start = s->step.tokens,
                         .q_len = to - from,
                         .kv_len = to,
                         .slot = sequence,
                         .prompt = w->a->kind == GENERATED ? 1 : LENGTH,
                         .src_len = LENGTH - 100 * sequence - 3,
                         .src_slot = sequence,
                         .group = r,
                         .lane = -1};
    s->step.tokens += to - from;
    s->step.decode_rows += w->a->kind == GENERATED;
}

/* A step that the program can take. */
static void run(World *w, const Kernel *k, const Step *s, int sms)
{
    const size_t bytes = (size_t)(w->a->H) * row_bytes(w), room = bytes * (size_t)(k->facts.t_max);
    char *y;

    if (s->step.tokens > k->facts.t_max)
        return;
    y = malloc(room);
    launch(w, k, s, sms, y, room);
    for (int r = 0; r < s->step.rows; r++)
        for (int i = 0; i < s->row[r].q_len; i++) {
            const char *got = y + (size_t)(s->row[r].q_start + i) * bytes;
            char **known = &w->known[s->sequence[r]][s->row[r].kv_len - s->row[r].q_len + i];

            if (!*known) {
                *known = memcpy(malloc(bytes), got, bytes);
                continue;
            }
            w->compared++;
            w->differ += memcmp(*known, got, bytes) != 0;
        }
    free(y);
}

static int some_length(const World *w, int sequence)
{
    return (const int[]){w->a->kind == GENERATED ? LENGTH - 9 : 150, 71, 33}[sequence];
}

/* A prompt whole, then in chunks of any size, one token among them, beside chunks of the others. */
static void run_prompts(World *w, const Kernel *k)
{
    const int most = k->facts.t_max < 300 ? (int)k->facts.t_max / SEQUENCES : 60; /* of a chunk */

    for (int s = 0; s < SEQUENCES; s++) {
        Step whole = {0};

        bring(w, &whole, s, 0, some_length(w, s));
        run(w, k, &whole, 1 + s);
    }
    for (int turn = 0; turn < 4; turn++) {
        Step step = {0};

        for (int s = turn % 2; s < SEQUENCES; s++) {
            const int from = below(some_length(w, s)), n = turn == 3 ? 1 : 1 + below(some_length(w, s) - from);

            bring(w, &step, s, from, from + (n < most ? n : most));
        }
        run(w, k, &step, 1 + turn);
    }
}

/* Generated tokens alone, then beside others. */
static void run_generated(World *w, const Kernel *k)
{
    for (int turn = 0; turn < 5; turn++) {
        const int at[SEQUENCES] = {some_length(w, 0) - 17 * turn, some_length(w, 1) - 17 * turn, 1 + 6 * turn};
        Step all = {0};

        for (int s = 0; s < SEQUENCES; s++) {
            Step one = {0};

            bring(w, &one, s, at[s] - 1, at[s]);
            run(w, k, &one, 7);
            bring(w, &all, (s + turn) % SEQUENCES, at[(s + turn) % SEQUENCES] - 1, at[(s + turn) % SEQUENCES]);
        }
        run(w, k, &all, turn % 2 ? 5 : 1);
    }
}

/* Texts, or tokens over their sources, alone and beside others in any order. */
static void run_texts(World *w, const Kernel *k)
{
    for (int turn = 0; turn < 3; turn++) {
        Step step = {0};

        for (int i = 0; i < SEQUENCES - turn % 2; i++) {
            const int s = (turn + i) % SEQUENCES, n = w->a->kind == TEXT ? some_length(w, s) : 2;

            bring(w, &step, s, 0, n);
        }
        run(w, k, &step, 1 + 2 * turn);
    }
}

/* --- cases ------------------------------------------------------------------------------------------ */

static const char *graph_of(const Attention *a, Arena *keep)
{
    const char *t = dtype_name(a->t), *tail;
    const int q = a->H * a->E, kv = a->G * a->E;

    if (a->kind == TEXT)
        tail = arena_printf(
            keep,
            "%%2 = weight {name=\"e\"} : [50,%d] %s\n%%3 = embed %%1 %%2 : [T,%d] %s\n"
            "%%4 = attend_packed %%3 {heads=%d kv_heads=%d head_dim=%d scale=0.2} : [T,%d] %s\noutput %%4\n",
            q + 2 * kv, t, q + 2 * kv, t, a->H, a->G, a->E, q, t);
    else if (a->kind == SOURCE)
        tail =
            arena_printf(keep,
                         "%%2 = weight {name=\"e\"} : [50,%d] %s\n%%3 = embed %%1 %%2 : [T,%d] %s\n"
                         "%%4 = weight {name=\"f\"} : [50,%d] %s\n%%5 = embed %%1 %%4 : [T,%d] %s\n"
                         "%%6 = cross_append %%5 {layer=0 kv_heads=%d head_dim=%d} : [T,%d,%d] %s\n"
                         "%%7 = attend_cross %%3 %%6 {layer=0 heads=%d kv_heads=%d head_dim=%d scale=0.2} : [T,%d] %s\n"
                         "output %%7\n",
                         q, t, q, t, 2 * kv, t, 2 * kv, t, a->G, a->E, a->G, a->E, t, a->H, a->G, a->E, q, t);
    else
        tail = arena_printf(keep,
                            "%%2 = weight {name=\"e\"} : [50,%d] %s\n%%3 = embed %%1 %%2 : [T,%d] %s\n"
                            "%%4 = append %%3 - {layer=0 heads=%d kv_heads=%d head_dim=%d} : [T,%d,%d] %s\n"
                            "%%5 = attend_paged %%4 {layer=0 kv_heads=%d scale=0.2 window=%d softcap=0} : [T,%d] %s\n"
                            "output %%5\n",
                            q + 2 * kv, t, q + 2 * kv, t, a->H, a->G, a->E, a->H, a->E, t, a->G, a->window, q, t);
    return arena_printf(keep,
                        "graph \"case\"\nlimits sequences=%d context=%d tokens=%d kv_block=%d kv_pages=%d logit_bias=4 "
                        "end_ids=4 source=%d sources=%d\nkind %s\n%%1 = ids : [T] i32\n%s",
                        SLOTS, LENGTH, TOKENS, PAGE, SEQUENCES * PAGES, a->kind == SOURCE ? LENGTH : 0,
                        a->kind == SOURCE ? SEQUENCES : 0, a->kind == SOURCE ? "seq2seq" : "decoder", tail);
}

static void add_kernel(World *w, const Catalog *catalog, const Variant *f)
{
    Kernel *k = &w->kernel[w->kernels++];
    const int most = f->bucket ? f->bucket : TOKENS;
    const bool decode = w->a->kind == GENERATED;
    int64_t *params = arena_array(w->keep, int64_t, w->g->values.n * CONTRACT_MAX_FORMS);
    const char *reason = "it does not match";
    Target target;
    Diag d = {0};

    if (!target_parse(w->a->target, &target, &d))
        fail_msg("%s", d.text);
    for (Id v = 1; v < w->g->values.n; v++)
        params[v * CONTRACT_MAX_FORMS] = 1;
    k->facts = (ProgramFacts){.g = w->g,
                              .decode = decode,
                              .encode = w->a->kind == TEXT,
                              .fixed = !w->a->free,
                              .bucket = f->bucket,
                              .t_max = most,
                              .s_max = most < SLOTS ? most : SLOTS,
                              .target = target_facts(target),
                              .kv = w->a->t,
                              .cross_kv = w->a->t,
                              .compute = w->a->t,
                              .params = params};
    for (size_t i = 0; i < catalog->n; i++) {
        const Contract *c = catalog->at[i];

        for (size_t m = 0; m < c->matches.n && strcmp(c->family, f->family) == 0; m++)
            if (match_at(&k->facts, ir_uses(w->g), c, &c->matches.at[m], 0, w->g->output, 0, &k->b, NULL, w->keep) &&
                contract_fit_with(&k->facts, &k->b, f->use, (size_t)(f->use[0].name != NULL) + (f->use[1].name != NULL),
                                  w->keep, w->keep, &k->fit, &reason)) {
                build_add(w->build, k->fit.instance->entry, instantiate_text(k->fit.instance, target, w->keep));
                return;
            }
    }
    fail_msg("%s in a program of %d: %s", f->family, f->bucket, reason);
}

static void open_world(World *w, const Attention *a, Build *build)
{
    Catalog catalog;
    Diag d = {0};

    *w = (World){.a = a, .keep = arena_open(), .build = build};
    w->g = ir_parse("case", graph_of(a, w->keep), &d);
    if (!w->g || !ir_verify(w->g, &d) || !catalog_open(w->keep, &catalog, &d))
        fail_msg("%s", d.text);
    make_caches(w);
    for (int i = 0; i < VARIANTS && a->variant[i].family; i++)
        add_kernel(w, &catalog, &a->variant[i]);
}

static void close_world(World *w)
{
    for (int s = 0; s < SEQUENCES; s++)
        for (int i = 0; i < LENGTH; i++)
            free(w->known[s][i]);
    free(w->cache[0]);
    free(w->cache[1]);
    ir_graph_close(w->g);
    arena_close(w->keep);
}

static void orders(void **state)
{
    static const Attention some[] = {
        {PROMPT,
         DT_BF16,
         2,
         1,
         64,
         0,
         "sm_90a",
         false,
         {{"attend_prefill_hopper", 0, {{0}}}, {"attend_prefill_hopper", 64, {{0}}}}},
        {PROMPT, DT_FP16, 2, 1, 128, 50, "sm_90a", false, {{"attend_prefill_hopper", 0, {{0}}}}},
        {PROMPT, DT_FP16, 2, 1, 128, 50, "sm_90a", true, {{"attend_prefill_hopper", 0, {{0}}}}},
        {PROMPT, DT_BF16, 3, 1, 40, 0, "sm_80", false, {{"attend_prefill", 0, {{0}}}, {"attend_prefill", 64, {{0}}}}},
        {PROMPT, DT_FP16, 2, 1, 64, 37, "sm_80", false, {{"attend_prefill", 0, {{0}}}}},
        {PROMPT, DT_FP16, 2, 1, 64, 37, "sm_80", true, {{"attend_prefill", 0, {{0}}}}},
        {PROMPT, DT_FP32, 2, 1, 24, 90, "sm_90a", false, {{"attend_prefill", 0, {{0}}}}},
        {GENERATED, DT_BF16, 4, 1, 64, 0, "sm_90a", false, {{"attend_decode", 1, {{0}}}, {"attend_decode", 8, {{0}}}}},
        {GENERATED, DT_FP32, 4, 4, 16, 0, "sm_90a", false, {{"attend_decode", 8, {{"CHUNK", 128}}}}},
        {GENERATED, DT_BF16, 4, 1, 64, 0, "sm_90a", false, {{"attend_decode", 8, {{"WARPS", 1}}}}},
        {GENERATED,
         DT_BF16,
         2,
         2,
         16,
         0,
         "sm_90a",
         false,
         {{"attend_decode", 8, {{"CHUNK", 128}}},
          {"attend_decode", 8, {{"CHUNK", 128}, {"SPREAD", 1}}},
          {"attend_decode", 8, {{"CHUNK", 128}, {"SPREAD", 2}}}}},
        {GENERATED,
         DT_FP16,
         4,
         1,
         64,
         0,
         "sm_90a",
         false,
         {{"attend_decode", 8, {{"WARPS", 1}}}, {"attend_decode", 8, {{"WARPS", 1}, {"SPREAD", 1}}}}},
        {GENERATED, DT_FP16, 2, 2, 16, 70, "sm_90a", false, {{"attend_decode", 8, {{0}}}}},
        {GENERATED, DT_FP32, 2, 1, 24, 0, "sm_90a", false, {{"attend_decode", 2, {{0}}}, {"attend_decode", 8, {{0}}}}},
        {GENERATED,
         DT_BF16,
         8,
         8,
         16,
         0,
         "sm_90a",
         false,
         {{"attend_brief", 8, {{0}}}, {"attend_brief", 256, {{"WARPS", 4}}}}},
        {GENERATED, DT_BF16, 8, 8, 16, 0, "sm_90a", true, {{"attend_brief", 8, {{0}}}, {"attend_brief", 256, {{0}}}}},
        {TEXT, DT_BF16, 2, 1, 64, 0, "sm_90a", false, {{"attend_hopper", 0, {{0}}}, {"attend_hopper", 128, {{0}}}}},
        {TEXT, DT_FP16, 2, 1, 40, 0, "sm_80", false, {{"attend_packed", 0, {{0}}}, {"attend_packed", 256, {{0}}}}},
        {SOURCE,
         DT_FP16,
         8,
         2,
         64,
         0,
         "sm_90a",
         false,
         {{"attend_cross", 8, {{0}}}, {"attend_cross", 0, {{"THREADS", 128}}}}},
        {SOURCE, DT_FP16, 8, 2, 64, 0, "sm_90a", true, {{"attend_cross", 8, {{0}}}, {"attend_cross", 0, {{0}}}}},
        {SOURCE, DT_FP32, 2, 2, 24, 0, "sm_80", false, {{"attend_cross", 8, {{0}}}, {"attend_cross", 0, {{0}}}}},
    };
    enum { CASES = sizeof some / sizeof *some };
    static World world[CASES];
    Build *build[2]; /* names of attend_hopper stand in attend_prefill_hopper, too */
    char dir[600];

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "%s/simt-orders%d", getenv("FTX_BUILD"), i);
        build[i] = build_open(dir);
    }
    for (int i = 0; i < CASES; i++)
        open_world(&world[i], &some[i], build[some[i].kind == TEXT]);
    build_run(build[0]);
    build_run(build[1]);
    for (int i = 0; i < CASES; i++) {
        World *w = &world[i];

        dice = (uint64_t)i * 977;
        for (int k = 1; k < w->kernels; k++)
            assert_int_equal(strcmp(w->kernel[k].fit.sums[0], w->kernel[0].fit.sums[0]) != 0, w->a->free);
        for (int k = 0; k < w->kernels; k++)
            if (w->a->kind == PROMPT)
                run_prompts(w, &w->kernel[k]);
            else if (w->a->kind == GENERATED)
                run_generated(w, &w->kernel[k]);
            else
                run_texts(w, &w->kernel[k]);
        print_message("%s, %s, window %d: %d results again, %d differ\n", w->a->variant[0].family, dtype_name(w->a->t),
                      w->a->window, w->compared, w->differ);
        assert_true(w->compared > 0);
        assert_int_equal(w->differ > 0, w->a->free);
        close_world(w);
    }
    build_close(build[0]);
    build_close(build[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
