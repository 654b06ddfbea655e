/* test_results.c - results (hidden states, pooled vectors, logits, states of decoders) that end in any op: small specs in bf16
 * and fp16 with their CUDA kernels on the host, against the same spec in fp32 on the CPU. Results are fp32 whatever op makes
 * them and whatever else reads it, and most kernels write the type that they read. All are planned for sm_80, too. Where
 * tests take turns, each ending has one of the types. */
#include "driver.h"

#ifdef FTX_HAVE_CUDA
#include <math.h>

#include "steps.h"
#include "tests/models/families/twin.h"
#include "tests/turn.h"

enum { VOCAB = 67, D = 48, TOKENS = 21, TEXTS = 3, MOST = TOKENS * 2 * D, NEW = 3 };

/* A layer; h is its sum, which a norm would follow. */
static const char beginning[] =
    "local nn, ftx = require 'nn', require 'ftx'\n"
    "nn.checkpoint { unused = { 'w1', 'w2', 'head', 'head2', 'gain' } }\n"
    "local function lin(x, name, n) return nn.linear(x, nn.weight(name, { n or 48, nn.width(x) })) end\n"
    "local function norm(x) return nn.rmsnorm(x, nn.weight('gain', { 48 }), 1e-5) end\n"
    "local x = nn.embed(nn.ids(), nn.weight('embed', { 67, 48 }))\n"
    "local k = nn.split_heads(lin(x, 'wk'), 2)\n"
    "x = x + lin(nn.join_heads(%s), 'wo')\n"
    "local h = x + lin(nn.act(lin(x, 'up', 96), 'silu'), 'down')\n";

typedef struct Ending {
    const char *name, *graph; /* what `graph` is, after `return` */
    const char *before;       /* lines before it, or "" */
} Ending;

static const Ending encoders[] = {
    {"sum", "nn.vectors(h)", ""},
    {"sum-linear", "nn.vectors(h, nn.pool_mean(lin(h, 'w1')))", ""},
    {"norm-linear", "nn.vectors(y, nn.pool_mean(lin(y, 'w1')))", "local y = norm(h)\n"},
    {"norm-sum", "nn.vectors(y, nn.select_first(y + h))", "local y = norm(h)\n"},
    {"product", "nn.vectors(norm(h) * h, nn.select_first(h))", ""},
    {"act", "nn.vectors(nn.act(h, 'tanh'), nn.act(nn.select_first(h), 'tanh'))", ""},
    {"act-linear", "nn.vectors(nn.act(lin(h, 'w1'), 'tanh'))", ""},
    {"slice", "nn.vectors(nn.slice(h, 8, 32), nn.slice(nn.pool_mean(h), 4, 40))", ""},
    {"join", "nn.vectors(nn.join(h, lin(h, 'w1')), nn.join(p, lin(p, 'w2')))", "local p = nn.select_first(h)\n"},
    {"clamp", "nn.vectors(nn.clamp(h, -1, 1), nn.clamp(nn.pool_mean(h), -1, 1))", ""},
    {"scale", "nn.vectors(0.5 * h, 3 * nn.pool_mean(h))", ""},
    {"glu", "nn.vectors(nn.glu(lin(h, 'w1'), lin(h, 'w2'), 'silu'), nn.glu(lin(p, 'w1'), lin(p, 'w2'), 'silu'))",
     "local p = nn.select_first(h)\n"},
    {"linear", "nn.vectors(y, nn.pool_mean(lin(y, 'w2')))", "local y = lin(h, 'w1')\n"},
    {"attention", "nn.vectors(2 * nn.join_heads(nn.attend_full(q, q, q)))",
     "local q = nn.split_heads(lin(h, 'w1'), 2)\n"},
    {"heads-sum", "nn.vectors(norm(h), lin(p, 'w1') + lin(p, 'w2'))", "local p = nn.select_first(norm(h))\n"},
    {"heads-rest", "nn.vectors(norm(h), lin(p, 'w1') + p)", "local p = nn.select_first(norm(h))\n"},
    {"heads-product", "nn.vectors(norm(h), nn.act(lin(p, 'w1'), 'tanh') * lin(p, 'w2'))",
     "local p = nn.select_first(norm(h))\n"},
    {"heads-length", "nn.vectors(norm(h), nn.normalize(lin(p, 'w1') + p))", "local p = nn.pool_mean(norm(h))\n"},
};

/* Their logits, and where what the head reads is given for each token, those states. */
static const Ending decoders[] = {
    {"logits-sum", "lin(p, 'head', 67) + lin(p, 'head2', 67)", ""},
    {"logits-product", "lin(p, 'head', 67) * nn.act(lin(p, 'head2', 67), 'sigmoid')", ""},
    {"logits-capped", "3 * nn.act(lin(p, 'head', 67) * (1 / 3), 'tanh')", ""},
    {"logits-slice", "nn.slice(lin(p, 'head', 67), 3, 64)", ""},
    {"logits-join", "nn.join(lin(p, 'head', 67), lin(p, 'head2', 67))", ""},
    {"logits-clamp", "nn.clamp(lin(p, 'head', 67), -0.5, 0.5)", ""},
    {"states-norm", "lin(norm(p), 'head', 67)", ""},
    {"states-sum", "lin(p, 'head', 67)", ""},
    {"states-act", "lin(nn.act(p, 'tanh'), 'head', 67)", ""},
};

/* The spec's path; all its weights lie in one file. */
static void write_spec(const Ending *e, bool decoder, char path[700])
{
    FILE *f;

    snprintf(path, 700, "%s/results-%s.lua", getenv("FTX_BUILD"), e->name);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, beginning, decoder ? "nn.attend(k, nn.cache(k, k))" : "nn.attend_full(k, k, k)");
    fputs(e->before, f);
    if (decoder)
        fprintf(f, "local p = nn.select_last(h)\nlocal y = nn.sample(%s)\n", e->graph);
    else
        fprintf(f, "local y = %s\n", e->graph);
    fprintf(f,
            "return ftx.model { name = 'results', graph = y, weights = 'results.safetensors', %s\n"
            "  limits = { sequences = 4, context = 64, tokens = 64 } }\n",
            !decoder                             ? ""
            : strncmp(e->name, "states", 6) == 0 ? "states = true, decode = ftx.greedy {}, kv = { block_size = 8 },"
                                                 : "decode = ftx.greedy {}, kv = { block_size = 8 },");
    fclose(f);
}

static void write_weights(void)
{
    json_t *tensors = json_pack("{s[ii]s[ii]s[ii]s[ii]s[ii]s[ii]s[ii]s[ii]s[ii]s[i]}", "embed", VOCAB, D, "wk", D, D,
                                "wo", D, D, "up", 2 * D, D, "down", D, 2 * D, "w1", D, D, "w2", D, D, "head", VOCAB, D,
                                "head2", VOCAB, D, "gain", D);
    char path[700];

    snprintf(path, sizeof path, "%s/results.safetensors", getenv("FTX_BUILD"));
    adapter_write_tensors(tensors, "F32", twin_element, path);
    json_decref(tensors);
}

/* The plan for a GPU without the instructions of sm_90a. */
static void plan_for_sm_80(const Model *m)
{
    Arena *keep = arena_open();
    Spec spec = {0};
    Catalog catalog;
    Packing packing = {0};
    Plan plan;
    Target t;
    Diag d = {0};

    if (!target_parse("sm_80", &t, &d) || !spec_read(m->checkout, m->overrides, m->n_overrides, keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d) || !catalog_open(keep, &catalog, &d) ||
        !passes_run_target(spec.graph, &catalog, t, &spec.precision, &packing, &plan, &(Dump){0}, &d))
        fail_msg("%s: %s", m->checkout, d.text);
    ir_graph_close(spec.graph);
    arena_close(keep);
}

/* --- results ------------------------------------------------------------------------------------------- */

typedef struct Results {
    float at[2][MOST]; /* hidden states and pooled vectors; logits and states */
    size_t n[2];
} Results;

static void encode(FtxModel *model, FtxEngine *engine, Results *r)
{
    static const int32_t lengths[TEXTS] = {9, 1, TOKENS - 10};
    int32_t ids[TOKENS];
    FtxModelInfo info;
    FtxError err;

    ftx_model_info(model, &info);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * i + 3 * i + 5) % VOCAB;
    const FtxEncode job = {.size = sizeof(FtxEncode),
                           .count = TEXTS,
                           .ids = ids,
                           .lengths = lengths,
                           .hidden = r->at[0],
                           .hidden_rows = TOKENS,
                           .pooled = info.pooled ? r->at[1] : NULL};

    r->n[0] = TOKENS * (size_t)info.hidden;
    r->n[1] = TEXTS * (size_t)info.pooled;
    assert_true(r->n[0] <= MOST && r->n[1] <= MOST);
    if (ftx_engine_encode(engine, &job, &err))
        fail_msg("%s", err.text);
}

/* Logits of the prompt's last token, and the states of all its tokens. */
static void generate(FtxModel *model, FtxEngine *engine, Results *r)
{
    FtxRequest q = ftx_request_default(model);
    FtxEvent events[8] = {FTX_EVENT_INIT};
    int32_t ids[TOKENS];
    FtxModelInfo info;
    FtxError err;
    uint64_t id;
    size_t n;

    ftx_model_info(model, &info);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * i + 3 * i + 5) % VOCAB;
    q.ids = ids;
    q.ids_count = TOKENS;
    q.max_new = 1;
    q.ignore_eos = q.logits = true;
    q.states = info.states ? FTX_STATES_TOKENS : FTX_STATES_NONE;
    id = golden_submit(engine, &q);
    *r = (Results){0};
    while (ftx_engine_busy(engine)) {
        if (ftx_engine_step(engine, events, 8, &n, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < n && info.states; k++) {
            const size_t most = events[k].states_count * info.states;

            if (!most)
                continue;
            assert_true(r->n[1] + most <= MOST);
            memcpy(r->at[1] + r->n[1], events[k].states, most * sizeof(float));
            r->n[1] += most;
        }
        if (ftx_engine_logits(engine, id)) {
            r->n[0] = info.vocab;
            memcpy(r->at[0], ftx_engine_logits(engine, id), r->n[0] * sizeof(float));
        }
    }
    assert_true(r->n[0] > 0 && r->n[1] == TOKENS * info.states);
}

static void run(FtxModel *model, bool decoder, Results *r)
{
    FtxEngine *engine = golden_engine(model);

    if (decoder)
        generate(model, engine, r);
    else
        encode(model, engine, r);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* Rounding moves a number by a part of the largest. */
static void compare(const char *name, const char *type, const Results *got, const Results *want)
{
    const double share = strcmp(type, "bf16") == 0 ? 0.03 : 0.005;

    for (int k = 0; k < 2; k++) {
        double worst = 0.0, largest = 0.0;

        assert_int_equal(got->n[k], want->n[k]);
        for (size_t i = 0; i < want->n[k]; i++) {
            worst = fmax(worst, fabs((double)got->at[k][i] - (double)want->at[k][i]));
            largest = fmax(largest, fabs((double)want->at[k][i]));
        }
        if (!(worst <= share * largest))
            fail_msg("%s, %s, result %d: a number differs by %g, the largest is %g", name, type, k, worst, largest);
    }
}

static bool is_left_out(size_t ending, const char *type)
{
    return !in_turn(ending + (strcmp(type, "fp16") == 0), 2);
}

/* All endings in one type: their kernels are compiled together. */
static void all(const Ending *endings, size_t n, bool decoder, const char *type)
{
    char dir[600], weights[60];
    Override overrides[] = {{weights}};
    Build *build;

    write_weights();
    snprintf(weights, sizeof weights, "precision.weights=%s", type);
    snprintf(dir, sizeof dir, "%s/simt-results-%s-%d", getenv("FTX_BUILD"), type, decoder);
    build = build_open(dir);
    for (size_t i = 0; i < n; i++) {
        char spec[700], path[800];

        if (is_left_out(i, type))
            continue;
        write_spec(&endings[i], decoder, spec);
        snprintf(path, sizeof path, "%s.%s.ftx", spec, type);
        compile_for_host(&(Model){spec, overrides, 1}, path, build);
        plan_for_sm_80(&(Model){spec, overrides, 1});
    }
    build_run(build);
    for (size_t i = 0; i < n; i++) {
        static Results got, want;
        FtxOptions options = {.size = sizeof(FtxOptions), .device = FTX_DEVICE_CUDA};
        char spec[700], path[800];
        FtxModel *model;
        FtxError err;

        if (is_left_out(i, type))
            continue;
        write_spec(&endings[i], decoder, spec);
        snprintf(path, sizeof path, "%s.%s.ftx", spec, type);
        driver_install(build, 4);
        if (ftx_model_open(path, &options, &model, &err))
            fail_msg("%s: %s", path, err.text);
        run(model, decoder, &got);
        assert_int_equal(driver_counts.failed, 0);
        assert_int_equal(driver_counts.open, 0);
        driver_remove();
        run(golden_open(spec, endings[i].name, "-D precision.weights=fp32"), decoder, &want);
        compare(endings[i].name, type, &got, &want);
    }
    build_close(build);
}

static void vectors(void **state)
{
    (void)state;
    if (SIMT_SANITIZED)
        return;
    all(encoders, LEN(encoders), false, "bf16");
    all(encoders, LEN(encoders), false, "fp16");
}

static void logits_and_states(void **state)
{
    (void)state;
    if (SIMT_SANITIZED)
        return;
    all(decoders, LEN(decoders), true, "bf16");
    all(decoders, LEN(decoders), true, "fp16");
}

int main(int n, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(logits_and_states)};

    if (n > 2)
        cmocka_set_test_filter(words[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
