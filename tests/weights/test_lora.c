/* test_lora.c - merged adapters against PEFT's merge_and_unload (tests/models/lora), and what is refused. */
#include <jansson.h>
#include <math.h>

#include "files.h"

#include "compiler/weights/tensors.h"
#include "tests/models/lora/adapters.h"

static json_t *golden, *cases;

typedef struct Read {
    Arena *keep;
    Spec spec;
    Checkpoint *base, *c; /* without and with the adapters */
    Diag d;
} Read;

static Read read_model(const char *model, const char *define)
{
    const Override o = {define};
    Read r = {.keep = arena_open()};

    if (!spec_read(model, &o, define != NULL, r.keep, &r.spec, &r.d) ||
        !checkpoint_open(r.spec.weights, r.keep, &r.base, &r.d) || !checkpoint_open(r.spec.weights, r.keep, &r.c, &r.d))
        fail_msg("%s: %s", model, r.d.text);
    return r;
}

static void drop(Read *r)
{
    checkpoint_close(r->base);
    checkpoint_close(r->c);
    ir_graph_close(r->spec.graph);
    arena_close(r->keep);
}

static bool adapt_folder(Read *r, const char *folder)
{
    r->d = (Diag){0};
    return checkpoint_adapt(r->c, &r->spec, folder, r->keep, &r->d);
}

/* temp_folder holds the adapter. */
static bool adapt(Read *r, const json_t *adapter)
{
    temp_path("");
    adapter_write(adapter, temp_folder);
    return adapt_folder(r, temp_folder);
}

static Read read_case(const json_t *test)
{
    Read r = read_model(json_string_value(json_object_get(test, "model")), NULL);
    json_t *adapter;
    size_t i;

    json_array_foreach(json_object_get(test, "adapters"), i, adapter)
    {
        if (!adapt(&r, adapter))
            fail_msg("%s", r.d.text);
    }
    if (!checkpoint_check(r.c, &r.spec, &r.d))
        fail_msg("%s", r.d.text);
    return r;
}

static float *value_of(Read *r, const Checkpoint *c, Id id, size_t *n)
{
    float *f = NULL;

    if (!weights_value(c, &r->spec, id, r->keep, &f, n, &r->d))
        fail_msg("%s", r->d.text);
    return f;
}

/* The golden values of a weight, which may have another prefix there. NULL: it was not changed. */
static const json_t *wanted(const Read *r, const json_t *test, const char *name)
{
    const json_t *changed = json_object_get(test, "changed"), *found = json_object_get(changed, name);

    for (size_t i = 0; !found && i < r->spec.prefixes.n; i++) {
        const char *prefix = r->spec.prefixes.at[i];

        if (strncmp(name, prefix, strlen(prefix)) == 0)
            found = json_object_get(changed, name + strlen(prefix));
        else
            found = json_object_get(changed, arena_printf(r->keep, "%s%s", prefix, name));
    }
    return found;
}

/* Both merges are sums in fp32: they differ by its rounding. */
static void near(const char *test, const char *name, double got, double want, double base)
{
    if (!(fabs(got - want) <= 1e-6 * (fabs(want) + fabs(base)) + 2e-8))
        fail_msg("%s: %s: %.9g, PEFT has %.9g, the base %.9g", test, name, got, want, base);
}

static void check_weight(const char *test, const char *name, const json_t *want, const float *got, const float *base,
                         size_t n)
{
    const json_t *at = json_object_get(want, "at"), *is = json_object_get(want, "is");
    double product = 0, size = 0;

    for (size_t i = 0; i < json_array_size(at); i++) {
        const size_t k = (size_t)json_integer_value(json_array_get(at, i));

        assert_true(k < n);
        near(test, name, (double)got[k], json_number_value(json_array_get(is, i)), (double)base[k]);
    }
    for (size_t i = 0; i < n; i++) {
        product += (double)got[i] * (double)adapter_number("probe", i);
        size += fabs((double)got[i]) + fabs((double)base[i]);
    }
    if (!(fabs(product - json_number_value(json_object_get(want, "product"))) <= 3e-7 * size))
        fail_msg("%s: %s: the product with the probe is %.9g, PEFT has %.9g", test, name, product,
                 json_number_value(json_object_get(want, "product")));
}

static void test_merged(void **state)
{
    const char *name;
    json_t *test;
    (void)state;

    json_object_foreach(cases, name, test)
    {
        Read r = read_case(test);
        size_t changed = 0, n, m;

        for (Id id = 1; id < r.spec.graph->values.n; id++) {
            const Value *v = ir_value(r.spec.graph, id);
            const char *weight = v->op == OP_WEIGHT ? ir_word(v, "name") : NULL;
            const json_t *want = weight ? wanted(&r, test, weight) : NULL;
            const Merge *merge = weight ? checkpoint_merge(r.c, weight) : NULL;
            float *got, *base;

            if (!weight)
                continue;
            got = value_of(&r, r.c, id, &n);
            base = checkpoint_find(r.base, &r.spec, weight) ? value_of(&r, r.base, id, &m) : got;
            if (want)
                check_weight(name, weight, want, got, base, n);
            else if (memcmp(got, base, n * sizeof *got) != 0)
                fail_msg("%s: %s was changed", name, weight);
            assert_true(!want || merge);
            changed += want != NULL;
        }
        if (changed != json_object_size(json_object_get(test, "changed")))
            fail_msg("%s: %zu weights were changed, by PEFT %zu", name, changed,
                     json_object_size(json_object_get(test, "changed")));
        drop(&r);
    }
}

/* Values that are made of merged weights: their rows are read one by one, in pieces by threads, or as columns, and
 * rounded once. */
static void check_packed(Read *r, Id id, DType type)
{
    Packing packing = {0};
    char path[256];
    size_t n;
    float *want = value_of(r, r->c, id, &n);
    uint64_t checksum;
    FileOut *out;
    FtxError err;
    FileMap map;

    *arena_push(r->keep, packing.weights) =
        (PackedWeight){.value = id, .type = type, .kind = FTX_WEIGHT_MATRIX, .bytes = n * dtype_size(type)};
    packing.bytes = n * dtype_size(type);
    strcpy(path, temp_path("block"));
    assert_int_equal(file_create(path, &out, &err), FTX_OK);
    if (!weights_pack(r->c, &r->spec, &packing, 0, out, 0, &checksum, NULL, NULL, &r->d))
        fail_msg("%s", r->d.text);
    assert_int_equal(file_commit(out, &err), FTX_OK);
    assert_int_equal(file_map(path, &map, &err), FTX_OK);
    for (size_t i = 0; i < n; i++)
        assert_true(dtype_load(map.at, i, type) ==
                    (type == DT_FP32 ? want[i] : bf16_to_float(bf16_from_float(want[i]))));
    file_unmap(&map);
}

static void test_packed(void **state)
{
    const char *const some[] = {"fable", "conv1d-dora", "dora", "all-linear"};
    (void)state;

    for (size_t i = 0; i < LEN(some); i++) {
        Read r = read_case(json_object_get(cases, some[i]));
        int turned = 0;

        for (Id id = 1; id < r.spec.graph->values.n; id++) {
            const Value *v = ir_value(r.spec.graph, id);
            size_t n;

            if (v->op == OP_WEIGHT)
                check_packed(&r, id, id % 2 ? DT_BF16 : DT_FP32);
            if (v->op == OP_CONCAT || v->op == OP_INTERLEAVE || v->op == OP_PAIRS || v->op == OP_ROWS)
                check_packed(&r, id, DT_BF16);
            if (v->op != OP_TRANSPOSE || ir_value(r.spec.graph, v->args[0])->op != OP_WEIGHT)
                continue;

            const int64_t rows = v->shape.dim[0].n, columns = v->shape.dim[1].n;
            const float *a = value_of(&r, r.c, id, &n), *b = value_of(&r, r.c, v->args[0], &n);

            for (int64_t y = 0; y < rows; y++)
                for (int64_t x = 0; x < columns; x++)
                    assert_true(a[y * columns + x] == b[x * rows + y]);
            check_packed(&r, id, DT_BF16);
            turned++;
        }
        assert_int_equal(turned > 0, strcmp(some[i], "conv1d-dora") == 0);
        drop(&r);
    }
}

/* Rows of merged weights that other rows stand between. */
static void test_values(void **state)
{
    Read r = read_case(json_object_get(cases, "dora"));
    Graph *g = r.spec.graph;
    Id k = 0, up = 0;
    size_t n;
    (void)state;

    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_WEIGHT) {
            k = strcmp(ir_word(ir_value(g, id), "name"), "model.layers.0.self_attn.k_proj.weight") ? k : id;
            up = strcmp(ir_word(ir_value(g, id), "name"), "model.layers.1.mlp.up_proj.weight") ? up : id;
        }

    const float *a = value_of(&r, r.c, k, &n), *b = value_of(&r, r.c, up, &n), *f;
    const Id both = add_value(g, OP_CONCAT, k, up, 0, 256, 96), rows = add_value(g, OP_ROWS, both, 0, 0, 40, 96);
    const Id turned = add_value(g, OP_TRANSPOSE, both, 0, 0, 96, 256),
             mixed = add_value(g, OP_INTERLEAVE, k, k, 0, 192, 96);

    ir_attr_int(g, rows, "from", 90);
    ir_attr_int(g, rows, "count", 40);
    f = value_of(&r, r.c, rows, &n);
    assert_memory_equal(f, a + 90 * 96, 6 * 96 * sizeof *f);
    assert_memory_equal(f + 6 * 96, b, 34 * 96 * sizeof *f);
    f = value_of(&r, r.c, mixed, &n);
    for (int i = 0; i < 192; i++)
        assert_memory_equal(f + i * 96, a + i / 2 * 96, 96 * sizeof *f);
    f = value_of(&r, r.c, turned, &n);
    for (int i = 0; i < 96; i++)
        for (int j = 0; j < 256; j++)
            assert_true(f[i * 256 + j] == (j < 96 ? a[j * 96 + i] : b[(j - 96) * 96 + i]));
    check_packed(&r, both, DT_BF16);
    drop(&r);
}

/* Rows of Coded.parts, a tensor of numbers. */
static void read_numbers(const Tensor *t, int64_t row, float *to)
{
    const Tensor *numbers = t->coded->parts;

    for (int64_t k = 0; k < t->dim[1]; k++)
        to[k] = tensor_element(numbers, (uint64_t)(row * t->dim[1] + k));
}

/* DoRA's norms of a matrix stored inputs first that only a Coded reads, as one of fp8 is. */
static void test_coded(void **state)
{
    Read plain = read_case(json_object_get(cases, "conv1d-dora")), r = read_case(json_object_get(cases, "conv1d-dora"));
    size_t n, seen = 0;
    (void)state;

    for (Id id = 1; id < r.spec.graph->values.n; id++) {
        const Value *v = ir_value(r.spec.graph, id);
        const Merge *m = v->op == OP_WEIGHT ? checkpoint_merge(r.c, ir_word(v, "name")) : NULL;

        if (!m || !m->deltas.n || !m->deltas.at[0].magnitude)
            continue;

        const Tensor *t = checkpoint_find(r.c, &r.spec, ir_word(v, "name"));
        Tensor *numbers = arena_new(r.keep, Tensor), *coded = &r.c->tensors.at[t - r.c->tensors.at];
        Coded *by = arena_new(r.keep, Coded);

        *numbers = *coded;
        *by = (Coded){.values = read_numbers, .parts = numbers};
        coded->coded = by;
        coded->at = NULL;

        const float *want = value_of(&plain, plain.c, id, &n), *got = value_of(&r, r.c, id, &n);

        assert_memory_equal(got, want, n * sizeof *got);
        by->form.type = DT_INT4;
        seen++;
    }
    assert_true(seen > 0);
    assert_false(checkpoint_check(r.c, &r.spec, &r.d));
    assert_non_null(strstr(r.d.text, "is stored as codes of few bits in "));
    assert_non_null(strstr(r.d.text, ": an adapter is merged into the original checkpoint only"));
    drop(&plain);
    drop(&r);
}

static void test_described(void **state)
{
    Read r = read_case(json_object_get(cases, "all-linear"));
    const char *name = strrchr(temp_folder, '/') + 1;
    (void)state;

    assert_string_equal(checkpoint_adapters(r.base), "");
    assert_string_equal(checkpoint_adapters(r.c),
                        arena_printf(r.keep,
                                     "lora %s: LoRA of rank 2 to 5, 14 matrices (q_proj, k_proj, v_proj, o_proj, "
                                     "gate_proj, up_proj, down_proj), 6 tensors replaced\n",
                                     name));
    drop(&r);
    r = read_case(json_object_get(cases, "two"));
    assert_string_equal(checkpoint_adapters(r.c), arena_printf(r.keep,
                                                               "lora %s: DoRA of rank 4, 2 matrices (q_proj)\n"
                                                               "lora %s: LoRA of rank 2, 2 matrices (q_proj, v_proj)\n",
                                                               name, name));
    drop(&r);
}

/* --- refusals -------------------------------------------------------------------------------- */

#define LAYER "base_model.model.model.layers.0."
#define Q LAYER "self_attn.q_proj."
#define EMBED "base_model.model.model.embed_tokens."

/* One thing of an adapter is changed: a field of its config, or the shape of a tensor. */
typedef struct Wrong {
    const char *of; /* the case of golden.json */
    bool tensor;
    const char *name, *value; /* value: JSON; NULL: the field or tensor goes */
    const char *message;
} Wrong;

static const Wrong wrongs[] = {
    {"list", false, "peft_type", "\"IA3\"",
     "adapter_config.json: field \"peft_type\" is \"IA3\"; \"LORA\" can be read; merge"},
    {"list", false, "peft_type", NULL, "field \"peft_type\" is missing"},
    {"list", false, "init_lora_weights", "\"pissa_niter_16\"",
     "field \"init_lora_weights\" is \"pissa_niter_16\": it changes"},
    {"list", false, "init_lora_weights", "\"olora\"", "field \"init_lora_weights\" is \"olora\""},
    {"list", false, "init_lora_weights", "7", "field \"init_lora_weights\" is not a word"},
    {"list", false, "megatron_config", "{\"a\": 1}",
     "field \"megatron_config\" is set: the modules are Megatron's; merge"},
    {"list", false, "layer_replication", "[[0, 2]]", "field \"layer_replication\" is set"},
    {"list", false, "target_parameters", "[\"w\"]", "field \"target_parameters\" is set"},
    {"list", false, "trainable_token_indices", "[1]", "field \"trainable_token_indices\" is set"},
    {"list", false, "alora_invocation_tokens", "[1]", "field \"alora_invocation_tokens\" is set"},
    {"list", false, "use_qalora", "true", "field \"use_qalora\" is set: the base model is quantised"},
    {"list", false, "from_the_future", "1", "field \"from_the_future\" is not known; merge"},
    {"list", false, "use_rslora", "1", "field \"use_rslora\" must be true or false"},
    {"list", false, "r", "5", "do not fit weight \"model.layers.0.self_attn.q_proj.weight\" [192,96] and the rank 5"},
    {"list", false, "r", "0", "field \"r\" gives model.layers.0.self_attn.q_proj the rank 0"},
    {"list", false, "r", "4.5", "the rank 4.5"},
    {"list", false, "r", "\"4\"", "field \"r\": a number was expected for model.layers.0.self_attn.q_proj"},
    {"list", false, "lora_alpha", "1e300", "field \"lora_alpha\" gives model.layers.0.self_attn.q_proj the scale"},
    {"list", false, "alpha_pattern", "[]", "field \"alpha_pattern\" must be an object"},
    {"list", false, "alpha_pattern", "{\"q_proj\": null}", "field \"alpha_pattern\": a number was expected"},
    {"list", false, "rank_pattern", "{\"(q_proj\": 4}", "field \"rank_pattern\": the pattern \"(q_proj\": missing"},
    {"list", false, "rank_pattern", "{\"((.|.)+)+[!?]\": 4}",
     "field \"rank_pattern\": the pattern \"((.|.)+)+[!?]\": match limit"},
    {"list", false, "use_dora", "true", "module \"model.layers.0.self_attn.q_proj\" has no lora_magnitude_vector"},
    {"dora", false, "use_dora", "false", "lora_magnitude_vector\" is there, but \"use_dora\" is not set"},
    {"list", true, Q "lora_A.weight", NULL, "module \"model.layers.0.self_attn.q_proj\" has no lora_A"},
    {"list", true, Q "lora_B.weight", NULL, "module \"model.layers.0.self_attn.q_proj\" has no lora_B"},
    {"list", true, Q "lora_A.weight", "[4, 95]", "\"" Q "lora_A.weight\" [4,95] and \"" Q "lora_B.weight\" [192,4]"},
    {"list", true, Q "lora_A.weight", "[96, 4]", "\"" Q "lora_A.weight\" [96,4]"},
    {"list", true, Q "lora_B.weight", "[191, 4]", "do not fit weight \"model.layers.0.self_attn.q_proj.weight\""},
    {"list", true, Q "lora_A.weight", "[4, 96, 1]", "do not fit"},
    {"list", true, Q "lora_E.weight", "[4]", "tensor \"" Q "lora_E.weight\" is of a kind that ftxc does not read"},
    {"list", true, Q "lora_A.default.weight", "[4]", "is of a kind that ftxc does not read"},
    {"list", true, Q "lora_embedding_A", "[4]", "has no lora_B"},
    {"list", true, "model.norm.weight", "[96]", "names of an adapter begin with base_model.model."},
    {"list", true, Q "bias", "[192]", "tensor \"" Q "bias\": tiny-llama has no weight"},
    {"list", true, "base_model.model.model.layers.2.mlp.up_proj.lora_A.weight", "[4, 96]",
     "layers.2.mlp.up_proj.lora_A.weight\": tiny-llama has no weight \"model.layers.2.mlp.up_proj.weight\""},
    {"list", true, "base_model.model.model.norm.weight", "[95]",
     "is [95]; weight \"model.norm.weight\" of the model is [96]"},
    {"all-linear", true, "base_model.model.model.norm.modules_to_save.weight", "[96]", "are for the same thing"},
    {"dora", true, Q "base_layer.lora_B.bias", "[1]", "tiny-llama has no weight"},
    {"dora", true, EMBED "lora_magnitude_vector", "[95]",
     "is [95]; weight \"model.embed_tokens.weight\" has 96 outputs"},
    {"dora", true, EMBED "lora_A.weight", "[4, 320]", "has both lora_A or lora_B and lora_embedding_A"},
    {"dora", true, EMBED "lora_embedding_B", "[320, 4]", "do not fit weight \"model.embed_tokens.weight\" [320,96]"},
    {"conv1d", true, "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", "[672, 5]", "do not fit"},
    {"conv1d", true, "base_model.model.transformer.wte.weight", "[320, 112]",
     "stands for weight \"transformer.wte.weight\", which is the matrix of the head, too"},
    {"positions", true, "base_model.model.transformer.wte.lora_embedding_A", "[2, 320]", "wte\" has no lora_B"},
    {"conv1d", true, "base_model.model.lm_head.weight", "[320, 112]",
     "tiny-gpt2 has no weight \"lm_head.weight\", as it is tied to the embedding; -D graph.tie_embeddings=false"},
    {"seq2seq", true, "base_model.model.model.encoder.layers.0.fc1.lora_B.bias", "[1023]",
     "fc1.lora_B.bias\" is [1023]; weight \"encoder.layers.0.fc1.bias\" of the model is [1024]"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(wrongs); i++) {
        const Wrong *w = &wrongs[i];
        const json_t *test = json_object_get(cases, w->of);
        json_t *adapter = json_deep_copy(json_array_get(json_object_get(test, "adapters"), 0));
        json_t *part = json_object_get(adapter, w->tensor ? "tensors" : "config");
        Read r = read_model(json_string_value(json_object_get(test, "model")), NULL);

        if (w->value)
            assert_int_equal(json_object_set_new(part, w->name, json_loads(w->value, JSON_DECODE_ANY, NULL)), 0);
        else
            assert_int_equal(json_object_del(part, w->name), 0);
        if (adapt(&r, adapter))
            fail_msg("%zu: %s %s is accepted", i, w->name, w->value ? w->value : "(missing)");
        if (!strstr(r.d.text, w->message))
            fail_msg("%zu: expected \"%s\" in: %s", i, w->message, r.d.text);
        assert_ptr_equal(strstr(r.d.text, temp_folder), r.d.text);
        drop(&r);
        json_decref(adapter);
    }
}

/* An adapter with the tensors of `text`, an object of names and shapes. */
static json_t *made(const char *text)
{
    json_t *tensors = json_loads(text, 0, NULL);

    assert_non_null(tensors);
    return json_pack("{ss,s{ss,si,si},so}", "dtype", "F32", "config", "peft_type", "LORA", "r", 2, "lora_alpha", 2,
                     "tensors", tensors);
}

static void refused(Read *r, const char *tensors, const char *message)
{
    json_t *adapter = made(tensors);

    if (adapt(r, adapter))
        fail_msg("%s is accepted", tensors);
    if (!strstr(r->d.text, message))
        fail_msg("expected \"%s\" in: %s", message, r->d.text);
    json_decref(adapter);
}

static void test_tied(void **state)
{
    Read r = read_model("tests/models/tiny-gpt2", NULL);
    (void)state;

    refused(&r,
            "{\"base_model.model.transformer.wte.lora_embedding_A\": [2, 320],"
            " \"base_model.model.transformer.wte.lora_embedding_B\": [112, 2]}",
            "is the matrix of the head, too: in the trained model only the embedding is changed");
    refused(
        &r,
        "{\"base_model.model.transformer.wte.weight\": [320, 112], \"base_model.model.lm_head.weight\": [320, 112]}",
        "the adapter has no equal tensor for that");
    drop(&r);

    r = read_model("tests/models/tiny-gpt2", "graph.tie_embeddings=false"); /* lm_head.weight is the adapter's alone */
    json_t *adapter = made(
        "{\"base_model.model.transformer.wte.weight\": [320, 112], \"base_model.model.lm_head.weight\": [320, 112]}");
    assert_true(adapt(&r, adapter));
    if (!checkpoint_check(r.c, &r.spec, &r.d))
        fail_msg("%s", r.d.text);
    assert_false(checkpoint_check(r.base, &r.spec, &r.d));
    json_decref(adapter);
    drop(&r);
}

/* Zeros as both: equal tensors may stand for tied weights. */
static void test_tied_equal(void **state)
{
    const char header[] =
        "{\"base_model.model.transformer.wte.weight\":{\"dtype\":\"BF16\",\"shape\":[320,112],"
        "\"data_offsets\":[0,71680]},\"base_model.model.lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":"
        "[320,112],\"data_offsets\":[71680,143360]}}";
    unsigned char *zeros = calloc(143360, 1);
    Read r = read_model("tests/models/tiny-gpt2", NULL);
    (void)state;

    assert_non_null(zeros);
    temp_path("");
    write_text(temp_path("adapter_config.json"), "{\"peft_type\": \"LORA\"}");
    write_safetensors(temp_path("adapter_model.safetensors"), header, zeros, 143360);
    if (!adapt_folder(&r, temp_folder))
        fail_msg("%s", r.d.text);
    zeros[71680] = 1;
    write_safetensors(temp_path("adapter_model.safetensors"), header, zeros, 143360);
    checkpoint_close(r.c);
    assert_true(checkpoint_open(r.spec.weights, r.keep, &r.c, &r.d));
    assert_false(adapt_folder(&r, temp_folder));
    free(zeros);
    drop(&r);
}

/* Of several tensors that no weight uses one is named; the bias of lora_B needs a scale, too. */
static void test_unused(void **state)
{
    Read r = read_model("tests/models/tiny-gpt2", NULL);
    json_t *bias = made("{\"base_model.model.transformer.h.0.mlp.c_fc.lora_B.bias\": [300]}");
    (void)state;

    refused(
        &r,
        "{\"base_model.model.a.weight\": [1], \"base_model.model.b.weight\": [1], \"base_model.model.c.bias\": [1]}",
        "tensor \"base_model.model.a.weight\" and those of 2 more weights: tiny-gpt2 has no weight \"a.weight\"; is");
    json_object_set_new(json_object_get(bias, "config"), "r", json_integer(0));
    assert_false(adapt(&r, bias));
    if (!strstr(r.d.text, "field \"r\" gives transformer.h.0.mlp.c_fc the rank 0"))
        fail_msg("%s", r.d.text);
    json_decref(bias);
    drop(&r);
}

/* Several adapters that change one weight. */
static void test_several(void **state)
{
    static const char lora[] = "{\"" Q "lora_A.weight\": [2, 96], \"" Q "lora_B.weight\": [192, 2]}";
    Read r = read_model("tests/models/tiny-llama", NULL);
    json_t *first = made(lora), *dora;
    (void)state;

    assert_true(adapt(&r, first));
    refused(&r, "{\"" Q "weight\": [192, 96]}", "which an earlier adapter changed: the two cannot be merged");
    dora = made("{\"" Q "lora_A.weight\": [2, 96], \"" Q "lora_B.weight\": [192, 2],"
                " \"" Q "lora_magnitude_vector\": [192]}");
    json_object_set_new(json_object_get(dora, "config"), "use_dora", json_true());
    assert_false(adapt(&r, dora));
    assert_non_null(strstr(r.d.text, "is DoRA's, but an earlier adapter changed"));
    assert_true(adapt(&r, first));
    assert_int_equal(checkpoint_merge(r.c, "model.layers.0.self_attn.q_proj.weight")->deltas.n, 2);
    json_decref(dora);
    json_decref(first);
    drop(&r);
}

/* What changes nothing may be there: other initialisations, empty fields, a slash at the end of the folder. */
static void test_accepted(void **state)
{
    static const char *const fields[][2] = {
        {"init_lora_weights", "\"gaussian\""},
        {"init_lora_weights", "false"},
        {"init_lora_weights", "\"mica\""},
        {"from_the_future", "{}"},
        {"use_bdlora", "null"},
        {"eva_config", "{\"rho\": 2.0}"},
        {"rank_pattern", "null"},
    };
    const json_t *list = json_array_get(json_object_get(json_object_get(cases, "list"), "adapters"), 0);
    (void)state;

    for (size_t i = 0; i < LEN(fields); i++) {
        json_t *adapter = json_deep_copy(list);
        Read r = read_model("tests/models/tiny-llama", NULL);

        json_object_set_new(json_object_get(adapter, "config"), fields[i][0],
                            json_loads(fields[i][1], JSON_DECODE_ANY, NULL));
        if (!adapt(&r, adapter))
            fail_msg("%s: %s", fields[i][0], r.d.text);
        checkpoint_close(r.c);
        assert_true(checkpoint_open(r.spec.weights, r.keep, &r.c, &r.d));
        assert_true(adapt_folder(&r, arena_printf(r.keep, "%s/", temp_folder)));
        assert_int_equal(strncmp(checkpoint_adapters(r.c), "lora ftx-test-", 14), 0);
        json_decref(adapter);
        drop(&r);
    }
}

/* The first pattern that matches counts; it must match to the end of the name, from its beginning or behind a dot. */
static void test_patterns(void **state)
{
    static const struct {
        const char *alphas;
        float scale;
    } patterns[] = {
        {"{\"q_proj\": 16, \".*_proj\": 1}", 4}, {"{\"proj\": 100, \"q_pro\": 100, \"layers\": 100}", 2},
        {"{\"model.layers.0..*\": 6}", 1.5f},    {"{\"layers.[1-9]..*\": 100, \"k|self_attn.(q|v)_proj\": 12}", 3},
        {"{\"_proj|mlp.q_proj\": 100}", 2},
    };
    json_t *adapter = json_deep_copy(json_array_get(json_object_get(json_object_get(cases, "list"), "adapters"), 0));
    (void)state;

    for (size_t i = 0; i < LEN(patterns); i++) {
        Read r = read_model("tests/models/tiny-llama", NULL);

        json_object_set_new(json_object_get(adapter, "config"), "alpha_pattern",
                            json_loads(patterns[i].alphas, 0, NULL));
        if (!adapt(&r, adapter))
            fail_msg("%s", r.d.text);
        if (checkpoint_merge(r.c, "model.layers.0.self_attn.q_proj.weight")->deltas.at[0].scale != patterns[i].scale)
            fail_msg("%s gives another scale than %g", patterns[i].alphas, (double)patterns[i].scale);
        drop(&r);
    }
    json_decref(adapter);
}

/* A tensor that stands for one of the base is read when the weights are packed. */
static void test_not_finite(void **state)
{
    static const char header[] = "{\"base_model.model.model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[96],"
                                 "\"data_offsets\":[0,384]}}";
    Read r = read_model("tests/models/tiny-llama", NULL);
    float gain[96] = {[7] = NAN}, *f;
    size_t n;
    (void)state;

    temp_path("");
    write_text(temp_path("adapter_config.json"), "{\"peft_type\": \"LORA\"}");
    write_safetensors(temp_path("adapter_model.safetensors"), header, gain, sizeof gain);
    assert_true(adapt_folder(&r, temp_folder));
    for (Id id = 1; id < r.spec.graph->values.n; id++)
        if (ir_value(r.spec.graph, id)->op == OP_WEIGHT &&
            strcmp(ir_word(ir_value(r.spec.graph, id), "name"), "model.norm.weight") == 0)
            assert_false(weights_value(r.c, &r.spec, id, r.keep, &f, &n, &r.d));
    if (!strstr(r.d.text,
                "adapter_model.safetensors: tensor \"base_model.model.model.norm.weight\": element [7] is NaN"))
        fail_msg("%s", r.d.text);
    drop(&r);
}

static void test_files(void **state)
{
    static const struct {
        const char *config, *header, *message;
    } files[] = {
        {"{", "{}", "adapter_config.json:1: "},
        {"[1]", "{}", "adapter_config.json:1: an object was expected"},
        {"{\"peft_type\": \"LORA\", \"r\": 1, \"r\": 2}", "{}", "duplicate"},
        {"{\"peft_type\": \"LORA\"}", "{}", "adapter_model.safetensors: has no tensors"},
        {"{\"peft_type\": \"LORA\"}", "[", "adapter_model.safetensors: its header is not JSON"},
        {"{\"peft_type\": \"LORA\"}",
         "{\"base_model.model.a\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         "is stored as I64; F32, F16 and BF16 can be read"},
        {"{\"peft_type\": \"LORA\"}",
         "{\"base_model.model.a.lora_A.weight\":{\"dtype\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[0,2]}}",
         "lora_A.weight\": element 0 is not a finite number"},
    };
    Read r = read_model("tests/models/tiny-llama", NULL);
    const uint16_t infinity = 0x7f80;
    (void)state;

    temp_path("");
    for (size_t i = 0; i < LEN(files); i++) {
        write_text(temp_path("adapter_config.json"), files[i].config);
        write_safetensors(temp_path("adapter_model.safetensors"), files[i].header, &infinity,
                          strstr(files[i].header, "BF16") ? 2 : 0);
        assert_false(adapt_folder(&r, temp_folder));
        if (!strstr(r.d.text, files[i].message))
            fail_msg("expected \"%s\" in: %s", files[i].message, r.d.text);
    }
    assert_int_equal(truncate(temp_path("adapter_config.json"), 17 << 20), 0);
    assert_false(adapt_folder(&r, temp_folder));
    assert_non_null(strstr(r.d.text, "adapter_config.json: the file is 17825792 bytes, 16777216 are allowed"));
    write_text(temp_path("adapter_config.json"), files[3].config);
    unlink(temp_path("adapter_model.safetensors"));
    assert_false(adapt_folder(&r, temp_folder));
    assert_non_null(strstr(r.d.text, ": has no adapter_model.safetensors"));
    assert_null(strstr(r.d.text, "pickled"));
    write_text(temp_path("adapter_model.bin"), "PK");
    assert_false(adapt_folder(&r, temp_folder));
    assert_non_null(strstr(r.d.text, "adapter_model.bin is pickled, which is not read"));
    assert_int_equal(mkdir(temp_path("adapter_model.safetensors"), 0777), 0); /* which cannot be read */
    assert_false(adapt_folder(&r, temp_folder));
    assert_non_null(strstr(r.d.text, "adapter_model.safetensors"));
    unlink(temp_path("adapter_config.json"));
    assert_int_equal(mkdir(temp_path("adapter_config.json"), 0777), 0);
    assert_false(adapt_folder(&r, temp_folder));
    assert_non_null(strstr(r.d.text, "adapter_config.json"));
    assert_int_equal(rmdir(temp_path("adapter_config.json")), 0);
    assert_int_equal(rmdir(temp_path("adapter_model.safetensors")), 0);
    assert_false(adapt_folder(&r, temp_folder));
    assert_non_null(strstr(r.d.text, ": no adapter: it has no adapter_config.json"));
    assert_false(adapt_folder(&r, "tests/models/lora/nowhere"));
    assert_non_null(strstr(r.d.text, "nowhere: no folder there; --lora takes an adapter's folder"));
    drop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged),  cmocka_unit_test(test_packed),   cmocka_unit_test(test_described),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_tied),     cmocka_unit_test(test_tied_equal),
        cmocka_unit_test(test_several), cmocka_unit_test(test_files),    cmocka_unit_test(test_values),
        cmocka_unit_test(test_coded),   cmocka_unit_test(test_accepted), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_unused),  cmocka_unit_test(test_patterns),
    };
    int failed;

    golden = json_load_file("tests/models/lora/golden.json", 0, NULL);
    cases = json_object_get(golden, "cases");
    failed = cases ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    json_decref(golden);
    return failed;
}
