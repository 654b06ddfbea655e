/* test_checkouts.c - checkouts as they are published: encoders with heads, older names, optional tensors.
 *
 * Each is made from a checkout of tests/models by renaming its tensors and adding some. It must give the graph
 * and the weights of the checkout that it was made from. */
#include <jansson.h>
#include <sys/stat.h>

#include "compiler/weights/tensors.h"
#include "files.h"

enum { HEAD = 64 /* bytes of a tensor that is added without a size */, MORE = 65536 /* of all */ };

typedef struct Recipe {
    const char *from;         /* tests/models/tiny-FROM */
    const char *architecture; /* in config.json */
    const char *prefix;       /* put before each name; "-model.": removed from it */
    bool older;               /* LayerNorm.gamma, LayerNorm.beta */
    const char *without;      /* tensors whose names contain this are left out */
    const char *more;         /* tensors that are added: "cls.a cls.b"; "q.bias=192": of so many zeros in fp32 */
    const char *defines;      /* a -D for the checkout that it is made from, so that the graphs are equal */
    const char *note;         /* a part of the note about heads; NULL: there is none */
} Recipe;

static json_t *read_json(const char *path)
{
    json_t *o = json_load_file(path, 0, NULL);

    assert_non_null(o);
    return o;
}

/* A tensor's new name. False: it is left out. */
static bool rename_tensor(const Recipe *r, const char *name, char *out, size_t bytes)
{
    const char *ends[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};

    if (r->without && strstr(name, r->without))
        return false;
    if (r->prefix && r->prefix[0] == '-' && strncmp(name, r->prefix + 1, strlen(r->prefix + 1)) == 0)
        snprintf(out, bytes, "%s", name + strlen(r->prefix + 1));
    else
        snprintf(out, bytes, "%s%s", r->prefix && r->prefix[0] != '-' ? r->prefix : "", name);
    for (size_t i = 0; i < LEN(ends) && r->older; i++) {
        char *at = strstr(out, ends[i][0]);

        if (at)
            strcpy(at, ends[i][1]);
    }
    return true;
}

/* The bytes of the tensors that stay, one after another, under their new names. */
static void write_weights(const Recipe *r, const char *from, const char *to)
{
    json_t *names, *out = json_object(), *tensor;
    char words[1000], renamed[300], *data, *header;
    const unsigned char *at;
    size_t n = 0;
    uint64_t head;
    const char *name;
    FileMap map;

    assert_int_equal(file_map(from, &map, NULL), FTX_OK);
    memcpy(&head, map.at, sizeof head);
    at = (const unsigned char *)map.at + 8;
    names = json_loadb((const char *)at, head, 0, NULL);
    assert_non_null(names);
    data = calloc(1, map.bytes + MORE);
    assert_non_null(data);
    json_object_foreach(names, name, tensor)
    {
        const json_t *place = json_object_get(tensor, "data_offsets");
        const size_t begin = (size_t)json_integer_value(json_array_get(place, 0));
        const size_t bytes = (size_t)json_integer_value(json_array_get(place, 1)) - begin;

        if (!place || !rename_tensor(r, name, renamed, sizeof renamed))
            continue;
        memcpy(data + n, at + head + begin, bytes);
        json_object_set_new(out, renamed,
                            json_pack("{sO,sO,s[ii]}", "dtype", json_object_get(tensor, "dtype"), "shape",
                                      json_object_get(tensor, "shape"), "data_offsets", (int)n, (int)(n + bytes)));
        n += bytes;
    }
    snprintf(words, sizeof words, "%s", r->more ? r->more : "");
    for (char *save = NULL, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *count = strchr(w, '=');
        const int bytes = count ? 4 * atoi(count + 1) : HEAD;

        if (count)
            *count = '\0';
        json_object_set_new(out, w,
                            json_pack("{ss,s[i],s[ii]}", "dtype", count ? "F32" : "I64", "shape",
                                      count ? bytes / 4 : bytes / 8, "data_offsets", (int)n, (int)n + bytes));
        n += (size_t)bytes;
    }
    header = json_dumps(out, JSON_COMPACT);
    write_safetensors(to, header, data, n);
    free(header);
    free(data);
    json_decref(out);
    json_decref(names);
    file_unmap(&map);
}

/* The folder of temp.h is the checkout. */
static const char *make_checkout(const Recipe *r, Arena *a)
{
    const char *from = arena_printf(a, "tests/models/tiny-%s", r->from);
    json_t *config = read_json(arena_printf(a, "%s/config.json", from));

    json_object_set_new(config, "architectures", json_pack("[s]", r->architecture));
    assert_int_equal(json_dump_file(config, temp_path("config.json"), 0), 0);
    json_decref(config);
    write_weights(r, arena_printf(a, "%s/model.safetensors", from), temp_path("model.safetensors"));
    return temp_folder;
}

typedef struct Read {
    Spec spec;
    Checkpoint *c;
    char *graph; /* as text, without lines of specs */
} Read;

static Read read_checkout(const char *path, const char *define, Arena *a)
{
    const Override o = {define};
    Read r = {0};
    Diag d = {0};
    size_t bytes;
    FILE *f = open_memstream(&r.graph, &bytes);

    if (!spec_read(path, &o, define != NULL, a, &r.spec, &d) || !checkpoint_open(r.spec.weights, a, &r.c, &d) ||
        !checkpoint_check(r.c, &r.spec, &d))
        fail_msg("%s: %s", path, d.text);
    for (Id id = 1; id < r.spec.graph->values.n; id++) {
        const Value *v = ir_value(r.spec.graph, id);

        fprintf(f, "%u %s %u %u %u %s\n", id, ir_op_name(v->op), v->args[0], v->args[1], v->args[2],
                v->op == OP_WEIGHT ? ir_word(v, "name") : "");
    }
    fprintf(f, "pooled %u\n", r.spec.graph->pooled);
    fclose(f);
    return r;
}

static void drop(Read *r)
{
    checkpoint_close(r->c);
    ir_graph_close(r->spec.graph);
    free(r->graph);
}

static void same_weights(const Read *x, const Read *y, Arena *a)
{
    for (Id id = 1; id < x->spec.graph->values.n; id++) {
        float *p, *q = NULL;
        size_t n, m = 0;
        Diag d = {0};

        if (ir_value(x->spec.graph, id)->op != OP_WEIGHT)
            continue;
        if (!weights_value(x->c, &x->spec, id, a, &p, &n, &d) || !weights_value(y->c, &y->spec, id, a, &q, &m, &d))
            fail_msg("%s", d.text);
        assert_int_equal(n, m);
        assert_memory_equal(p, q, n * sizeof *p);
    }
}

/* A head of tokens is left out on demand. */
static bool of_tokens(const Recipe *r)
{
    return strstr(r->architecture, "ForTokenClassification") || strstr(r->architecture, "ForQuestionAnswering");
}

static void test_published(void **state)
{
#define MASKED "cls.predictions.bias cls.predictions.transform.LayerNorm.gamma cls.seq_relationship.weight "
    static const Recipe recipes[] = {
        {"bert", "BertForMaskedLM", "bert.", true, NULL, MASKED "bert.embeddings.position_ids", NULL,
         "3 tensors of its head (\"cls.predictions.bias\" and others) are not used: the model is the encoder alone"},
        {"bert", "BertForPreTraining", "bert.", false, "pooler.", MASKED, "pooling=none", "3 tensors of its head"},
        {"bert", "BertModel", NULL, false, "pooler.", NULL, "pooling=none", NULL},
        {"bert", "BertForTokenClassification", "bert.", false, "pooler.", "classifier.weight classifier.bias",
         "pooling=none", "2 tensors of its head"},
        {"bert", "BertForMultipleChoice", "bert.", true, NULL, "classifier.weight", NULL,
         "1 tensor of its head (\"classifier.weight\") is not used"},
        {"roberta", "RobertaForMaskedLM", "roberta.", false, NULL, "lm_head.bias lm_head.dense.weight", NULL,
         "2 tensors of its head"},
        {"roberta", "XLMRobertaModel", NULL, false, NULL, "embeddings.position_ids", NULL, NULL},
        {"roberta", "XLMRobertaForTokenClassification", "roberta.", false, "pooler.", "classifier.bias", "pooling=none",
         "1 tensor of its head"},
        {"roberta", "CamembertModel", "roberta.", false, NULL, NULL, NULL, NULL},
        {"distilbert", "DistilBertForMaskedLM", "distilbert.", false, NULL, "vocab_projector.bias vocab_transform.bias",
         NULL, "2 tensors of its head"},
        {"distilbert", "DistilBertForQuestionAnswering", "distilbert.", false, NULL, "qa_outputs.bias", NULL,
         "1 tensor of its head"},
        {"bart", "BartModel", "-model.", false, NULL, NULL, NULL, NULL},
        {"bart", "BartModel", "-model.", false, "final_logits_bias", NULL, "graph.logits_bias=none", NULL},
    };
    (void)state;

    for (size_t i = 0; i < LEN(recipes); i++) {
        const Recipe *r = &recipes[i];
        Arena *a = arena_open();
        Read plain = read_checkout(arena_printf(a, "tests/models/tiny-%s", r->from), r->defines, a);
        Read made = read_checkout(make_checkout(r, a), of_tokens(r) ? "pooling=none" : NULL, a);
        const char *note = checkpoint_note(made.c, &made.spec, a);

        print_message("%s\n", r->architecture);
        assert_string_equal(made.graph, plain.graph);
        same_weights(&plain, &made, a);
        assert_int_equal(!note, !r->note);
        if (note && !strstr(note, r->note))
            fail_msg("\"%s\" lacks \"%s\"", note, r->note);
        assert_null(checkpoint_note(plain.c, &plain.spec, a));
        drop(&plain);
        drop(&made);
        arena_close(a);
    }
}

/* The kernel of a convolution [N,C,K] is the matrix [N, C * K]; no other shape is. */
static void test_convolution(void **state)
{
    static const struct {
        int64_t N, K;
        bool fits;
    } cases[] = {{2, 6, true}, {3, 4, false}, {1, 6, false}, {6, 2, false}, {2, 12, false}};
    const Tensor t = {.name = "a", .rank = 3, .dim = {2, 2, 3}, .elements = 12};
    const Tensor none = {.name = "a", .rank = 3, .dim = {2, 0, 0}};
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        const Shape s = ir_shape(2, ir_const(cases[i].N), ir_const(cases[i].K), (Dim){0});

        assert_int_equal(tensor_has_shape(&t, &s), cases[i].fits);
        assert_false(tensor_has_shape(&none, &s));
    }
}

/* A decoder that leaves out tensors is no encoder. */
static void test_left_out(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                                 "\"layers.7.x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16,24]},"
                                 "\"vision.y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},"
                                 "\"vision.z\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}";
    static const unsigned char zeros[40];
    Spec spec = {.graph = ir_graph_new("tiny")};
    Arena *keep = arena_open();
    Checkpoint *c;
    Diag d = {0};
    const char *note;
    (void)state;

    spec.graph->logits = add_weight(spec.graph, "a", 2, 2);
    *arena_push(keep, spec.head_names) = "layers.7.";
    write_safetensors(temp_path("left.safetensors"), header, zeros, sizeof zeros);
    assert_true(checkpoint_open(temp_path("left.safetensors"), keep, &c, &d));
    note = checkpoint_note(c, &spec, keep);
    assert_non_null(note);
    assert_string_equal(strchr(note, ':'), ": 1 tensor that its logits do not need (\"layers.7.x\") is not used");
    *arena_push(keep, spec.head_names) = "vision.";
    note = checkpoint_note(c, &spec, keep);
    assert_string_equal(strchr(note, ':'),
                        ": 3 tensors that its logits do not need (layers.7.*, vision.*) are not used");
    checkpoint_close(c);
    ir_graph_close(spec.graph);
    arena_close(keep);
}

/* Tensors of heads may stay unused; any other is a mistake, and so is a classifier whose pooler is missing. */
static void test_refused(void **state)
{
    static const struct {
        Recipe recipe;
        const char *message;
    } cases[] = {
        {{"bert", "BertForMaskedLM", "bert.", false, NULL, "bert.encoder.more", NULL, NULL},
         "tensor \"bert.encoder.more\" [8] is not used by"},
        {{"bert", "BertForSequenceClassification", "bert.", false, "pooler.", NULL, NULL, NULL},
         "/model.safetensors; -D pooling=none, first or mean compiles the model without it"},
        {{"llama-rope3", "LlamaForCausalLM", "", false, NULL, "lm_head.weight", NULL, NULL},
         "tensor \"lm_head.weight\" is not the same as \"model.embed_tokens.weight\", which "},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        Arena *a = arena_open();
        Checkpoint *c;
        Spec spec;
        Diag d = {0};

        assert_true(spec_read(make_checkout(&cases[i].recipe, a), NULL, 0, a, &spec, &d));
        assert_true(checkpoint_open(spec.weights, a, &c, &d));
        assert_false(checkpoint_check(c, &spec, &d));
        if (!strstr(d.text, cases[i].message))
            fail_msg("\"%s\" lacks \"%s\"", d.text, cases[i].message);
        checkpoint_close(c);
        ir_graph_close(spec.graph);
        arena_close(a);
    }
}

/* The block of Lua in docs/specs.md that begins with this line. */
static char *shown_file(const char *first, Arena *a)
{
    const char *at, *end;
    char *text;
    FileMap map;

    assert_int_equal(file_map("docs/specs.md", &map, NULL), FTX_OK);
    text = arena_strndup(a, map.at, map.bytes);
    file_unmap(&map);
    at = strstr(text, arena_printf(a, "```lua\n%s", first));
    assert_non_null(at);
    at += strlen("```lua\n");
    end = strstr(at, "\n```");
    assert_non_null(end);
    return arena_strndup(a, at, (size_t)(end + 1 - at));
}

/* The two files of the port in docs/specs.md read a LLaMA with three more biases a layer. */
static void test_port(void **state)
{
    static const Recipe r = {
        .from = "llama",
        .architecture = "Qwen2ForCausalLM",
        .more = "model.layers.0.self_attn.q_proj.bias=192 model.layers.0.self_attn.k_proj.bias=96 "
                "model.layers.0.self_attn.v_proj.bias=96 model.layers.1.self_attn.q_proj.bias=192 "
                "model.layers.1.self_attn.k_proj.bias=96 model.layers.1.self_attn.v_proj.bias=96",
    };
    Arena *a = arena_open();
    const char *folder = make_checkout(&r, a), *architectures = arena_printf(a, "%s/hf", folder);
    const char *architecture = arena_printf(a, "%s/Qwen2ForCausalLM.lua", architectures);
    Read made;
    (void)state;

    assert_int_equal(mkdir(architectures, 0700), 0);
    write_text(architecture, shown_file("-- Qwen2ForCausalLM.lua - ", a));
    write_text(temp_path("qwen2.lua"), shown_file("-- qwen2.lua - ", a));
    made = read_checkout(folder, NULL, a);
    assert_int_equal(made.spec.layers, 2);
    assert_non_null(strstr(made.graph, "weight 0 0 0 model.layers.1.self_attn.v_proj.bias"));
    drop(&made);
    unlink(architecture);
    rmdir(architectures);
    arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_convolution),
                                       cmocka_unit_test(test_left_out), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_port)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
