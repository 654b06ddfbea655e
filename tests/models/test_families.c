/* test_families.c - small random models of the classes in specs/hf/decoders.lua, encoders.lua and seq2seqs.lua against
 * Hugging Face transformers: logits and vectors within 1e-4 of the largest, greedy tokens and beams equal. So are those of
 * specs that were written with docs/specs.md alone (written/). Every field of their config.json counts: with another value
 * the graph is another one, or the field is refused. On GPUs every op of every class has a kernel, in 16 bits, too.
 * `test_families short gemma` runs those whose names begin so. */
#include <dirent.h>
#include <math.h>

#include "compiler/spec/spec.h"
#include "golden.h"
#include "families/twin.h"
#include "runtime/base/arena.h"
#include "tests/temp.h"
#include "tests/turn.h"

enum { MAX_CASES = 512, MAX_PROMPT = 32, MORE = 12, MAX_VALUES = 4096, COPIES = 3 };

typedef struct Case {
    char name[64], folder[600];  /* the checkout that is made of it */
    char spec[64], options[640]; /* what is compiled in its place; "": the checkout */
    json_t *golden;
} Case;

static Case cases[MAX_CASES];
static size_t n_cases;
static const char *only = ""; /* how the names of the cases begin that are run */

static void write_checkout(Case *c)
{
    const char *build = getenv("FTX_BUILD");

    snprintf(c->folder, sizeof c->folder, "%.500s/family-%.63s", build ? build : "/tmp", c->name);
    twin_write(c->golden, c->folder);
}

static int read_cases(void **state)
{
    DIR *d = opendir("tests/models/families");
    struct dirent *e;

    (void)state;
    if (!d)
        return -1;
    while ((e = readdir(d))) {
        const size_t n = strlen(e->d_name);
        Case *c = &cases[n_cases];
        char path[400];

        if (n < 6 || n >= sizeof c->name || strcmp(e->d_name + n - 5, ".json") != 0 ||
            strncmp(e->d_name, only, strlen(only)) != 0)
            continue;
        assert_true(n_cases < MAX_CASES);
        snprintf(path, sizeof path, "tests/models/families/%s", e->d_name);
        snprintf(c->name, sizeof c->name, "%.*s", (int)(n - 5), e->d_name);
        c->golden = twin_read(path);
        assert_non_null(c->golden);
        n_cases++;
    }
    closedir(d);
    return n_cases ? 0 : -1;
}

static int drop_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_cases; i++)
        json_decref(cases[i].golden);
    return 0;
}

/* --- kernels ------------------------------------------------------------------------------------------- */

/* Checkouts are planned for two GPUs, a quarter of them in each turn. Nothing is compiled or run. */
static void planned(void **state)
{
    static const char *const targets[] = {"sm_80", "sm_90a"};
    static const Override overrides[] = {{"precision.weights=bf16"}, {"weights="}};
    Arena *keep = arena_open();
    Catalog catalog;
    Diag d = {0};

    (void)state;
    if (!catalog_open(keep, &catalog, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < n_cases; i++) {
        Arena *own;
        Packing packing = {0};
        Spec spec = {0};
        Target t;
        Plan plan;

        if (!*only && !in_turn(i, 4))
            continue;
        own = arena_open();
        write_checkout(&cases[i]);
        if (!spec_read(cases[i].folder, overrides, 2, own, &spec, &d) ||
            !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d))
            fail_msg("%s: %s", cases[i].name, d.text);
        for (size_t k = 0; k < sizeof targets / sizeof *targets; k++) {
            assert_true(target_parse(targets[k], &t, &d));
            if (!passes_run_target(spec.graph, &catalog, t, &spec.precision, &packing, &plan, NULL, &d))
                fail_msg("%s, %s: %s", cases[i].name, targets[k], d.text);
        }
        ir_graph_close(spec.graph);
        arena_close(own);
    }
    arena_close(keep);
}

/* --- logits and tokens --------------------------------------------------------------------------------- */

static FtxModel *open_case(const Case *c)
{
    return golden_open(*c->spec ? c->spec : c->folder, c->name, c->options);
}

static double tolerance(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t ? atof(t) : 1e-4;
}

/* In 16 bits twice what the class itself loses, where make.py or seq2seqs.py notes that and it is more, but not more than half of the largest
 * logit: numbers that have nothing to do with each other must differ. */
static double bound(const json_t *prompt)
{
    const char *define = getenv("FTX_TEST_DEFINE");
    double own = 0.0;

    if (!define || !getenv("FTX_TEST_TOLERANCE"))
        return tolerance();
    if (strstr(define, "=bf16"))
        own = json_number_value(json_object_get(prompt, "bf16"));
    else if (strstr(define, "=fp16"))
        own = json_number_value(json_object_get(prompt, "fp16"));
    return fmax(tolerance(), fmin(2.0 * own, 0.5));
}

static double largest_of(const json_t *numbers)
{
    double largest = 0.0;

    for (size_t i = 0; i < json_array_size(numbers); i++)
        largest = fmax(largest, fabs(json_number_value(json_array_get(numbers, i))));
    return largest;
}

/* share: of the largest number, which a difference may be */
static void check_numbers(const Case *c, const float *got, const json_t *want, double largest, double share)
{
    double worst = 0.0;

    assert_non_null(got);
    for (size_t i = 0; i < json_array_size(want); i++)
        worst = fmax(worst, fabs(json_number_value(json_array_get(want, i)) - (double)got[i]));
    if (getenv("FTX_TEST_TOLERANCE"))
        print_message("%s: a part of %.2g away, may be %.2g\n", c->name, worst / largest, share);
    if (!(worst <= share * largest))
        fail_msg("%s: a number differs by %g, the largest is %g", c->name, worst, largest);
}

/* All tokens are equal. With a tolerance of its own a test may part where the margin is small. */
static void check_tokens(const Case *c, const GoldenAnswer *answer, const json_t *prompt)
{
    const json_t *want = json_object_get(prompt, "greedy"), *margins = json_object_get(prompt, "margins");
    const double least = getenv("FTX_TEST_TOLERANCE") ? 10.0 * tolerance() : 0.0;

    assert_int_equal(answer->n, json_array_size(want));
    for (size_t i = 0; i < answer->n; i++) {
        if (answer->ids[i] == json_integer_value(json_array_get(want, i)))
            continue;
        if (json_number_value(json_array_get(margins, i)) > least)
            fail_msg("%s: token %zu is %d, expected %lld", c->name, i, answer->ids[i],
                     json_integer_value(json_array_get(want, i)));
        return;
    }
}

/* A search as generation_config.json says it; other: with another language and another last token. Without tolerance its hypotheses are equal, the best first. */
static void check_beams(const Case *c, const FtxModel *model, FtxEngine *engine, const json_t *prompt, bool other)
{
    const json_t *beams = json_object_get(prompt, other ? "other" : "beams"), *want;
    static GoldenAnswer answer;
    FtxRequest r = ftx_request_default(model);
    int32_t ids[MAX_PROMPT];
    const FtxHypothesis *h;
    uint64_t id;
    size_t n, b;

    if (!beams)
        return;
    answer = (GoldenAnswer){0};
    r.ids = ids;
    r.ids_count = golden_ids(json_object_get(prompt, "ids"), ids, MAX_PROMPT);
    r.max_new = MORE;
    if (other)
        r.forced_bos = 71, r.forced_eos = 5;
    r.user = &answer;
    id = golden_submit(engine, &r);
    golden_finish(engine);
    h = ftx_engine_hypotheses(engine, id, &n);
    assert_non_null(h);
    assert_int_equal(n, json_array_size(beams));
    json_array_foreach(beams, b, want)
    {
        const json_t *expected = json_object_get(want, "ids");
        const double score = json_number_value(json_object_get(want, "score"));

        if (getenv("FTX_TEST_TOLERANCE"))
            continue;
        if (!(fabs((double)h[b].score - score) <= 1e-4 * fabs(score)) || h[b].count != json_array_size(expected))
            fail_msg("%s: hypothesis %zu has %zu ids and score %g, expected %zu and %g", c->name, b, h[b].count,
                     (double)h[b].score, json_array_size(expected), score);
        for (size_t i = 0; i < h[b].count; i++)
            if (h[b].ids[i] != json_integer_value(json_array_get(expected, i)))
                fail_msg("%s: hypothesis %zu: token %zu is %d", c->name, b, i, h[b].ids[i]);
    }
}

static void check_case(const Case *c)
{
    static GoldenAnswer answer;
    FtxModel *model = open_case(c);
    FtxEngine *engine = golden_engine(model);
    json_t *prompt;
    size_t i;

    json_array_foreach(json_object_get(c->golden, "prompts"), i, prompt)
    {
        FtxRequest r = ftx_request_default(model);
        int32_t ids[MAX_PROMPT];
        uint64_t id;

        answer = (GoldenAnswer){0};
        r.ids = ids;
        r.ids_count = golden_ids(json_object_get(prompt, "ids"), ids, MAX_PROMPT);
        r.temperature = 0.0f;
        r.beams = 1;
        r.max_new = (int)json_array_size(json_object_get(prompt, "greedy"));
        r.ignore_eos = true;
        r.logits = true;
        r.user = &answer;
        id = golden_submit(engine, &r);
        golden_finish(engine);
        check_numbers(c, ftx_engine_logits(engine, id), json_object_get(prompt, "logits"),
                      largest_of(json_object_get(prompt, "logits")), bound(prompt));
        check_tokens(c, &answer, prompt);
        check_beams(c, model, engine, prompt, false);
        check_beams(c, model, engine, prompt, true);
    }
    assert_true(i >= 2);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* All texts several times in one batch: the vectors of each are those of the text alone. */
static void check_texts(const Case *c)
{
    static float hidden[COPIES * MAX_VALUES], pooled[COPIES * MAX_VALUES];
    const json_t *texts = json_object_get(c->golden, "texts");
    const size_t n = json_array_size(texts);
    FtxModel *model = open_case(c);
    FtxEngine *engine = golden_engine(model);
    int32_t ids[COPIES * MAX_PROMPT * 2], lengths[COPIES * 2];
    FtxModelInfo info;
    FtxError err;
    size_t tokens = 0;

    ftx_model_info(model, &info);
    assert_int_equal(n, 2);
    assert_int_equal(info.pooled != 0, json_object_get(json_array_get(texts, 0), "pooled") != NULL);
    for (size_t i = 0; i < COPIES * n; i++) {
        lengths[i] =
            (int32_t)golden_ids(json_object_get(json_array_get(texts, i % n), "ids"), ids + tokens, MAX_PROMPT);
        tokens += (size_t)lengths[i];
    }
    assert_true(tokens * (size_t)info.hidden <= COPIES * MAX_VALUES);
    if (ftx_engine_encode(engine,
                          &(FtxEncode){.size = sizeof(FtxEncode),
                                       .count = COPIES * n,
                                       .ids = ids,
                                       .lengths = lengths,
                                       .hidden = hidden,
                                       .hidden_rows = tokens,
                                       .pooled = info.pooled ? pooled : NULL},
                          &err))
        fail_msg("%s: %s", c->name, err.text);
    tokens = 0;
    for (size_t i = 0; i < COPIES * n; tokens += (size_t)lengths[i++]) {
        const json_t *text = json_array_get(texts, i % n), *states = json_object_get(text, "hidden");
        const json_t *other = json_array_get(texts, (i + 1) % n); /* the one score of a text may be near 0 */

        assert_int_equal(json_array_size(states), lengths[i] * info.hidden);
        check_numbers(c, hidden + tokens * (size_t)info.hidden, states, largest_of(states), bound(text));
        if (info.pooled) {
            const json_t *scores = json_object_get(text, "pooled");

            assert_int_equal(json_array_size(scores), info.pooled);
            check_numbers(c, pooled + i * (size_t)info.pooled, scores,
                          fmax(largest_of(scores), largest_of(json_object_get(other, "pooled"))), bound(text));
        }
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void check_results(const Case *c)
{
    if (json_object_get(c->golden, "texts"))
        check_texts(c);
    else
        check_case(c);
}

static void results(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_cases; i++) {
        write_checkout(&cases[i]);
        check_results(&cases[i]);
    }
}

/* --- the states of a decoder's last layer ------------------------------------------------------------------ */

/* A checkout that generates text, with -D pooling=last: the states of all tokens and the last one's, as transformers has them of
 * the same weights without the head. */
static void states_of_decoders(void **state)
{
    static const struct {
        const char *name, *architecture;
    } some[] = {{"llama-encoder", "LlamaForCausalLM"},
                {"mistral-encoder", "MistralForCausalLM"},
                {"qwen3-encoder", "Qwen3ForCausalLM"},
                {"gpt2-encoder", "GPT2LMHeadModel"}};

    (void)state;
    for (size_t i = 0; i < n_cases; i++)
        for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
            Case c = cases[i];
            json_t *config;

            if (strcmp(c.name, some[k].name) != 0)
                continue;
            c.golden = json_deep_copy(c.golden);
            config = json_object_get(c.golden, "config");
            json_object_set_new(config, "architectures", json_pack("[s]", some[k].architecture));
            snprintf(c.name, sizeof c.name, "%s-states", some[k].name);
            snprintf(c.options, sizeof c.options, "-D pooling=last");
            write_checkout(&c);
            check_texts(&c);
            json_decref(c.golden);
        }
}

/* A classifier over a decoder, with -D pooling=none: the states of its tokens alone. */
static void heads_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_cases; i++) {
        Case c = cases[i];
        json_t *text;
        size_t k;

        if (strcmp(c.name, "llama-head") != 0)
            continue;
        c.golden = json_deep_copy(c.golden);
        json_array_foreach(json_object_get(c.golden, "texts"), k, text) json_object_del(text, "pooled");
        write_checkout(&c);
        snprintf(c.name, sizeof c.name, "llama-head-none");
        snprintf(c.options, sizeof c.options, "-D pooling=none");
        check_texts(&c);
        json_decref(c.golden);
    }
}

/* The vector of each prompt, with -D pooling=last, times the matrix of the head: the logits that transformers has. */
static void check_head(const Case *c, const char *head)
{
    const json_t *shape = json_object_get(json_object_get(c->golden, "tensors"), head), *prompt;
    const size_t V = (size_t)json_integer_value(json_array_get(shape, 0)),
                 D = (size_t)json_integer_value(json_array_get(shape, 1));
    FtxModel *model = open_case(c);
    FtxEngine *engine = golden_engine(model);
    size_t i;

    assert_true(V > 0 && V <= MAX_VALUES && D > 0 && D <= MAX_VALUES);
    json_array_foreach(json_object_get(c->golden, "prompts"), i, prompt)
    {
        float vector[MAX_VALUES], logits[MAX_VALUES];
        int32_t ids[MAX_PROMPT];
        const int32_t n = (int32_t)golden_ids(json_object_get(prompt, "ids"), ids, MAX_PROMPT);
        FtxError err;

        if (ftx_engine_encode(
                engine,
                &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .ids = ids, .lengths = &n, .pooled = vector}, &err))
            fail_msg("%s: %s", c->name, err.text);
        for (size_t v = 0; v < V; v++) {
            double sum = 0.0;

            for (size_t d = 0; d < D; d++)
                sum += (double)twin_element(head, 2, v * D + d) * (double)vector[d];
            logits[v] = (float)sum;
        }
        check_numbers(c, logits, json_object_get(prompt, "logits"), largest_of(json_object_get(prompt, "logits")),
                      bound(prompt));
    }
    assert_true(i >= 2);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* Decoders with attention of their own give vectors, too. */
static void states_of_heads(void **state)
{
    static const struct {
        const char *name, *head;
    } some[] = {{"chatglm2", "transformer.output_layer.weight"},
                {"deepseek-v2", "lm_head.weight"},
                {"deepseek-v3", "lm_head.weight"},
                {"falcon-rw", "transformer.word_embeddings.weight"},
                {"gemma4-shared", "model.embed_tokens.weight"},
                {"gpt-oss", "lm_head.weight"},
                {"llama4", "lm_head.weight"},
                {"qwen3-moe", "lm_head.weight"}};

    size_t checked = 0;

    (void)state;
    for (size_t i = 0; i < n_cases; i++)
        for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
            Case c = cases[i];

            if (strcmp(c.name, some[k].name) != 0)
                continue;
            checked++;
            write_checkout(&c);
            snprintf(c.name, sizeof c.name, "%s-vectors", some[k].name);
            snprintf(c.options, sizeof c.options, "-D pooling=last");
            check_head(&c, some[k].head);
        }
    assert_true(*only || checked == sizeof some / sizeof *some);
}

/* --- specs of people who read docs/specs.md -------------------------------------------------------------- */

/* Fewer than 60 lines, and only nn.* and ftx.*: no family and no helper of specs/. */
static void check_plain(const char *path)
{
    char line[400];
    int lines = 0;
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    for (; fgets(line, sizeof line, f); lines++)
        if (strstr(line, "require") && !strstr(line, "= require \"nn\"") && !strstr(line, "= require \"ftx\""))
            fail_msg("%s: %s", path, line);
    fclose(f);
    if (lines >= 60)
        fail_msg("%s: %d lines, expected less than 60", path, lines);
}

/* The same results from several ranks. The vocabulary of 101 ids is no multiple of them. */
static void sharded(void **state)
{
    static const struct {
        const char *name;
        int ranks;
    } some[] = {
        {"bloom-untied", 4}, {"chatglm2", 2},          {"exaone4", 2},
        {"falcon-11b", 2},   {"gemma3-both", 4},       {"gpt-oss", 2},
        {"llama4", 2},       {"llama4-several", 2},    {"mixtral", 2},
        {"glm4-moe", 2},     {"mpt-old", 4},           {"olmo2-bias", 2},
        {"phi", 2},          {"qwen3-moe", 2},         {"stablelm", 2},
        {"t5-old", 2},       {"flan-t5", 4},           {"falcon-40b", 2},
        {"gemma4", 2},       {"gemma3n-plain", 2},     {"baichuan2-13b", 2},
        {"cohere2-moe", 2},  {"granite-swa-plain", 4}, {"lfm2", 2},
        {"qwen3-next", 2},   {"qwen3.5", 2},           {"mamba2", 2},
        {"mamba", 2},
    };

    (void)state;
    if (getenv("FTX_TEST_DEVICE") && strcmp(getenv("FTX_TEST_DEVICE"), "cpu") != 0)
        return; /* as many GPUs would be needed; tests/gpu/check.sh has a part for that */
    for (size_t i = 0; i < n_cases; i++)
        for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
            Case c = cases[i];

            if (strcmp(c.name, some[k].name) != 0)
                continue;
            write_checkout(&c);
            snprintf(c.name, sizeof c.name, "%s-%d", some[k].name, some[k].ranks);
            snprintf(c.options, sizeof c.options, "-D parallel=%d", some[k].ranks);
            check_case(&c);
        }
}

/* Latent attention whose cache holds keys and values of all heads; results() has the form that the reader takes. */
static void plain_forms(void **state)
{
    size_t found = 0;

    (void)state;
    for (size_t i = 0; i < n_cases; i++) {
        Case own = cases[i];

        if (strncmp(own.name, "deepseek-v2", 11) != 0 && strncmp(own.name, "deepseek-v3", 11) != 0)
            continue;
        found++;
        write_checkout(&own);
        snprintf(own.name, sizeof own.name, "%.50s-form", cases[i].name);
        snprintf(own.options, sizeof own.options, "-D graph.absorbed=false");
        check_case(&own);
    }
    assert_true(*only || found == 6);
}

/* Prompts of 13 tokens in steps of five: layers that keep a state go on where the step before ended. */
static void in_pieces(void **state)
{
    static const char *const names[] = {"lfm2",  "lfm2-plain",   "qwen3-next", "qwen3.5",     "granite4-h",
                                        "bamba", "falcon-h1",    "nemotron-h", "olmo-hybrid", "mamba2",
                                        "mamba", "falcon-mamba", "jamba"};
    size_t found = 0;

    (void)state;
    for (size_t i = 0; i < n_cases; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            Case own = cases[i];

            if (strcmp(own.name, names[k]) != 0)
                continue;
            found++;
            write_checkout(&own);
            snprintf(own.name, sizeof own.name, "%s-pieces", names[k]);
            snprintf(own.options, sizeof own.options, "-D limits.tokens=5 -D limits.sequences=2");
            check_case(&own);
        }
    assert_true(*only || found == sizeof names / sizeof *names);
}

/* The specs in tests/models/written, with the weights of the twin of the same name, give what the class gives. */
static void written(void **state)
{
    static const char *const names[] = {"qwen3", "bloom", "mixtral", "t5", "modernbert", "gemma4", "qwen3.5-text"};
    size_t found = 0;
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < n_cases; k++) {
            Case own = cases[k];

            if (strcmp(own.name, names[i]) != 0)
                continue;
            found++;
            snprintf(own.spec, sizeof own.spec, "tests/models/written/%s.lua", names[i]);
            snprintf(own.name, sizeof own.name, "written-%s", names[i]);
            snprintf(own.options, sizeof own.options, "-D weights=%s", own.folder);
            check_plain(own.spec);
            check_results(&own);
        }
    assert_true(*only || found == sizeof names / sizeof *names);
}

/* --- config.json ----------------------------------------------------------------------------------------- */

/* The graph of this config.json as text; NULL: it is refused, and `why` says so. */
static char *graph_of(json_t *config, char *why, size_t bytes)
{
    Arena *a = arena_open();
    Spec spec;
    Diag d = {0};
    char *text = NULL;
    size_t n;
    FILE *f;

    assert_int_equal(json_dump_file(config, temp_path("config.json"), 0), 0);
    if (spec_read(temp_folder, &(Override){"weights="}, 1, a, &spec, &d)) {
        f = open_memstream(&text, &n);
        ir_print(spec.graph, f);
        fclose(f);
        ir_graph_close(spec.graph);
    } else {
        snprintf(why, bytes, "%s", d.text);
    }
    arena_close(a);
    return text;
}

/* Fields that change no graph: those of training, of the tokens' meaning, and what bounds the context. */
static bool is_harmless(const char *key)
{
    static const char *const keys[] = {
        "_pad_token_id",
        "activation_dropout",
        "attention_dropout",
        "attn_pdrop",
        "boi_token_index",
        "bos_token_id",
        "classif_dropout",
        "classifier_dropout",
        "decoder_layerdrop",
        "decoder_start_token_id",
        "cls_token_id",
        "decoder_bias",
        "deterministic_flash_attn",
        "dropout",
        "dropout_rate",
        "embd_pdrop",
        "embedding_dropout",
        "eoi_token_index",
        "encoder_layerdrop",
        "eos_token_id",
        "extra_pos_embeddings",
        "force_bos_token_to_be_generated",
        "forced_eos_token_id",
        "hidden_dropout",
        "id2label",
        "image_token_index",
        "init_std",
        "initializer_factor",
        "initializer_cutoff_factor",
        "initializer_range",
        "label2id",
        "layerdrop",
        "mlp_dropout",
        "mm_tokens_per_image",
        "multimodal_projector_bias",
        "original_max_position_embeddings",
        "output_past",
        "output_router_logits",
        "pad_token_id",
        "projector_hidden_act",
        "reorder_and_upcast_attn",
        "resid_pdrop",
        "residual_dropout",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "sep_token_id",
        "sparse_pred_ignore_index",
        "sparse_prediction",
        "spatial_merge_size",
        "transformers_version",
        "use_cache",
        "dtype",
        "torch_dtype",
        "model_type",
        "max_position_embeddings",
        "n_positions",
        "is_decoder",
        "vision_config",
        "vision_feature_layer",
        "vision_feature_layers",
        "audio_config",
        "encoder_config",
        "perceiver_config",
        "projector_config",
        "vq_config",
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* Another value of a field. */
static json_t *changed(const json_t *v)
{
    if (json_is_boolean(v))
        return json_boolean(json_is_false(v));
    if (json_is_integer(v))
        return json_integer(2 * json_integer_value(v) + 2);
    if (json_is_real(v))
        return json_real(json_real_value(v) * 0.5);
    if (json_is_string(v))
        return json_string("mish");
    return json_integer(2); /* of null */
}

static bool is_idle(const Case *c, const char *key)
{
    json_t *v;
    size_t i;

    json_array_foreach(json_object_get(c->golden, "idle"), i,
                       v) if (strcmp(json_string_value(v), key) == 0) return true;
    return false;
}

/* With another value of the field `key` in `at`, a part of `config`, the graph is another one or the field is refused.
 * An idle field is one that another field turns off. */
static size_t check_field(const Case *c, json_t *config, json_t *at, const char *key, const char *graph)
{
    json_t *before = json_incref(json_object_get(at, key));
    char why[2000] = "", *other;

    json_object_set_new(at, key, changed(before));
    other = graph_of(config, why, sizeof why);
    if (is_idle(c, key) ? !other || strcmp(graph, other) != 0 : other ? strcmp(graph, other) == 0 : !*why)
        fail_msg("%s: another %s changes %s: %s", c->name, key, is_idle(c, key) ? "the graph" : "nothing", why);
    free(other);
    json_object_set_new(at, key, before);
    return !is_idle(c, key);
}

/* The fields of the object `at`, a part of `config`, and of the objects in it. */
static size_t check_fields(const Case *c, json_t *config, json_t *at, const char *graph)
{
    json_t *keys = json_copy(at), *v;
    const char *key;
    size_t checked = 0;

    json_object_foreach(keys, key, v)
    {
        if (is_harmless(key))
            continue;
        checked += json_is_object(v) ? check_fields(c, config, v, graph) : check_field(c, config, at, key, graph);
    }
    json_decref(keys);
    return checked;
}

static void fields(void **state)
{
    size_t checked = 0;
    (void)state;

    for (size_t i = 0; i < n_cases; i++) {
        json_t *config = json_deep_copy(json_object_get(cases[i].golden, "config"));
        char why[2000] = "", *graph = graph_of(config, why, sizeof why), *other;

        if (!graph)
            fail_msg("%s: %s", cases[i].name, why);
        checked += check_fields(&cases[i], config, config, graph);
        json_object_set_new(config, "surprise", json_real(2.0));
        other = graph_of(config, why, sizeof why);
        assert_null(other);
        assert_non_null(strstr(why, "config.json: surprise is not known; it may change the result"));
        json_decref(config);
        free(graph);
    }
    assert_true(checked >= (*only ? 1 : 10 * n_cases));
}

/* So have the classes with files of their own. */
static void other_fields(void **state)
{
    static const char *const names[] = {"llama", "llama-rope3", "mistral", "gpt2", "bert", "roberta", "distilbert"};
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[100], why[2000] = "", *graph, *other;
        json_t *config;

        snprintf(path, sizeof path, "tests/models/tiny-%s/config.json", names[i]);
        config = golden_json(path);
        graph = graph_of(config, why, sizeof why);
        if (!graph)
            fail_msg("%s: %s", names[i], why);
        json_object_set_new(config, "surprise", json_real(2.0));
        other = graph_of(config, why, sizeof why);
        if (other || !strstr(why, "config.json: surprise is not known; it may change the result"))
            fail_msg("%s: a field that is not known is taken: %s", names[i], why);
        json_decref(config);
        free(graph);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planned),         cmocka_unit_test(results),
                                       cmocka_unit_test(heads_left_out),  cmocka_unit_test(states_of_decoders),
                                       cmocka_unit_test(states_of_heads), cmocka_unit_test(sharded),
                                       cmocka_unit_test(plain_forms),     cmocka_unit_test(in_pieces),
                                       cmocka_unit_test(written),         cmocka_unit_test(fields),
                                       cmocka_unit_test(other_fields)};

    if (argc > 2)
        only = argv[2];
    return cmocka_run_group_tests(tests, read_cases, drop_cases);
}
