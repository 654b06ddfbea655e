/* test_checkout_files.c - what a checkout says of classes, sentence vectors and tokenizers, and files that are neither a
 * spec nor a checkout. */
#include "folder.h"

#include <sys/stat.h>

/* A classifier's classes and scoring, as in Hugging Face's pipelines. */
static void test_checkout_labels(void **state)
{
    static const struct {
        const char *more, *labels;
        FtxScoring scoring;
    } cases[] = {
        {"", "LABEL_0\nLABEL_1\n", FTX_SCORING_SOFTMAX},
        {", \"id2label\": {\"1\": \"good\", \"0\": \"bad\"}", "bad\ngood\n", FTX_SCORING_SOFTMAX},
        {", \"id2label\": {\"1\": \"Infinity\", \"0\": \"\\\"Infinity\"}", "\"Infinity\nInfinity\n",
         FTX_SCORING_SOFTMAX},
        {", \"num_labels\": 1", "LABEL_0\n", FTX_SCORING_SIGMOID},
        {", \"problem_type\": \"multi_label_classification\"", "LABEL_0\nLABEL_1\n", FTX_SCORING_SIGMOID},
        {", \"problem_type\": \"regression\", \"num_labels\": 1", "LABEL_0\n", FTX_SCORING_NONE},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        char config[500];
        Folder f;
        Reading r;

        snprintf(config, sizeof config, BERT, "SequenceClassification", cases[i].more);
        f = make_folder(config, NULL);
        r = read_good(f.path, NULL);
        assert_string_equal(r.spec.labels, cases[i].labels);
        assert_int_equal(r.spec.scoring, cases[i].scoring);
        assert_int_equal(r.spec.n_labels, r.spec.pooled);
        drop(&r);
        r = read_good(f.path, "pooling=mean"); /* another vector has no classes */
        assert_int_equal(r.spec.n_labels, 0);
        drop(&r);
        remove_folder(&f);
    }
}

static void put_modules(const Folder *f, const char *kind, const char *pooling)
{
    char path[160], text[300];

    snprintf(path, sizeof path, "%s/1_Pooling", f->path);
    mkdir(path, 0700);
    snprintf(text, sizeof text,
             "[{\"type\": \"sentence_transformers.models.Transformer\", \"path\": \"\"}, "
             "{\"type\": \"sentence_transformers.models.Pooling\", \"path\": \"1_Pooling\"}, "
             "{\"type\": \"sentence_transformers.models.%s\", \"path\": \"2\"}]",
             kind);
    put(f, "modules.json", text);
    put(f, "1_Pooling/config.json", pooling);
}

static void refuse_checkout(const Folder *f, const char *why)
{
    Reading r = read_spec(f->path, NULL);

    if (!strstr(r.d.text, why))
        fail_msg("said \"%s\", expected \"%s\"", r.d.text, why);
    drop(&r);
}

/* A linear layer of the pooled vector: folder 2. */
static void test_checkout_dense(void **state)
{
    static const char *const wrong[][2] = {
        {"\"in_features\": 32", "2/config.json: out_features must be a whole number"},
        {"\"in_features\": 32, \"out_features\": 8, \"bias\": 1", "2/config.json: bias must be true or false"},
        {"\"in_features\": 32, \"out_features\": 8, \"activation_function\": \"Tanh\"",
         "2/config.json: activation_function must be one of torch.nn.modules.activation.GELU"},
        {"\"in_features\": 32, \"out_features\": 8, \"module_input_name\": \"token_embeddings\"",
         "2/config.json: module_input_name must be sentence_embedding"},
        {"\"in_features\": 32, \"out_features\": 8, \"surprise\": 1", "2/config.json: surprise is not known"},
    };
    char config[500], path[160];
    Folder f;
    Reading r;

    (void)state;
    snprintf(config, sizeof config, BERT, "SequenceClassification", "");
    f = make_folder(config, NULL);
    put_modules(&f, "Dense", "{\"pooling_mode_mean_tokens\": true}");
    refuse_checkout(&f, "/2/config.json");
    snprintf(path, sizeof path, "%s/2", f.path);
    mkdir(path, 0700);
    for (size_t i = 0; i < LEN(wrong); i++) {
        snprintf(config, sizeof config, "{%s}", wrong[i][0]);
        put(&f, "2/config.json", config);
        refuse_checkout(&f, wrong[i][1]);
    }
    put(&f, "2/config.json", "{\"in_features\": 32, \"out_features\": 8}"); /* with bias and tanh */
    r = read_good(f.path, NULL);
    assert_int_equal(r.spec.pooled, 8);
    assert_int_equal(r.spec.n_labels, 0);
    assert_int_equal(r.spec.folders.n, 1);
    assert_string_equal(r.spec.folders.at[0], "2");
    drop(&r);
    r = read_good(f.path, "pooling=mean"); /* without it */
    assert_int_equal(r.spec.pooled, 32);
    assert_int_equal(r.spec.folders.n, 0);
    drop(&r);
    put(&f, "modules.json",
        "[{\"type\": \"s.Transformer\", \"path\": \"\"}, {\"type\": \"s.Dense\", \"path\": \"2\"}]");
    refuse_checkout(&f, "module 2 is s.Dense");
    put(&f, "modules.json",
        "[{\"type\": \"s.Transformer\", \"path\": \"\"}, {\"type\": \"s.Dense\", \"path\": \"../2\"}]");
    refuse_checkout(&f, "modules.json: the path of module 1 is not the name of a folder");
    remove_file(&f, "2/config.json");
    rmdir(path);
    remove_folder(&f);
}

/* Classes of each token: named as those of a text, and softmax; of answers two numbers. -D pooling= leaves the head out. */
static void test_checkout_tokens(void **state)
{
    static const struct {
        const char *head, *more, *labels;
        FtxScoring scoring;
    } cases[] = {
        {"TokenClassification", ", \"id2label\": {\"1\": \"B\", \"0\": \"O\"}", "O\nB\n", FTX_SCORING_SOFTMAX},
        {"TokenClassification", ", \"num_labels\": 1, \"problem_type\": \"regression\"", "LABEL_0\n",
         FTX_SCORING_SOFTMAX},
        {"QuestionAnswering", ", \"id2label\": {\"1\": \"x\", \"0\": \"y\"}", "start\nend\n", FTX_SCORING_NONE},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        char config[500];
        Folder f;
        Reading r;

        snprintf(config, sizeof config, BERT, cases[i].head, cases[i].more);
        f = make_folder(config, NULL);
        r = read_good(f.path, NULL);
        assert_string_equal(r.spec.labels, cases[i].labels);
        assert_int_equal(r.spec.scoring, cases[i].scoring);
        assert_int_equal(r.spec.n_labels, r.spec.hidden);
        assert_int_equal(r.spec.pooled, 0);
        assert_int_equal(r.spec.input, 32);
        drop(&r);
        r = read_good(f.path, "pooling=none");
        assert_int_equal(r.spec.n_labels, 0);
        assert_int_equal(r.spec.hidden, 32);
        drop(&r);
        remove_folder(&f);
    }
}

/* Heads of tokens have no pooler, and -D pooling= leaves those over a decoder out. */
static void test_checkout_tokens_of_parts(void **state)
{
    Folder f =
        make_folder("{\"architectures\": [\"AlbertForTokenClassification\"], \"vocab_size\": 64, \"hidden_size\": 32, "
                    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 48}",
                    NULL);
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_int_equal(count_ops(r.spec.graph, OP_ACT), 1);
    assert_int_equal(r.spec.hidden, 2);
    drop(&r);
    put(&f, "config.json",
        "{\"architectures\": [\"LlamaForTokenClassification\"], \"vocab_size\": 64, \"hidden_size\": 32, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 48}");
    r = read_good(f.path, NULL);
    assert_int_equal(r.spec.hidden, 2);
    assert_string_equal(r.spec.labels, "LABEL_0\nLABEL_1\n");
    drop(&r);
    r = read_good(f.path, "pooling=none");
    assert_int_equal(r.spec.hidden, 32);
    assert_int_equal(r.spec.n_labels, 0);
    drop(&r);
    put(&f, "config.json", "{\"architectures\": [\"ZambaForSequenceClassification\"]}");
    refuse_checkout(&f, "ZambaForSequenceClassification is not known, and nn.* cannot say it yet: it has a recurrent "
                        "state of another kind");
    put(&f, "config.json", "{\"architectures\": [\"LongformerForSequenceClassification\"]}");
    refuse_checkout(&f, "LongformerForSequenceClassification: a first token that sees all of the text is not computed");
    remove_folder(&f);
}

/* A decoder's checkout with those files is an encoder; is_causal says what its tokens see. */
static void test_checkout_sentences_of_decoder(void **state)
{
    Folder f = make_folder("{" LLAMA HEADS "}", NULL);
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_int_equal(r.spec.graph->kind, FTX_MODEL_DECODER);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode_lasttoken\": true}");
    r = read_good(f.path, NULL);
    assert_int_equal(r.spec.graph->kind, FTX_MODEL_ENCODER);
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_LAST), 1);
    assert_int_equal(count_ops(r.spec.graph, OP_NORMALIZE), 1);
    assert_int_equal(count_ops(r.spec.graph, OP_CACHE), 0);
    assert_int_equal(r.spec.pooled, 32);
    drop(&r);
    put(&f, "config.json", "{" LLAMA HEADS ", \"is_causal\": false}");
    put_modules(&f, "Normalize", "{\"pooling_mode\": \"lasttoken\"}");
    r = read_good(f.path, NULL);
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_LAST), 1);
    assert_int_equal(count_ops(r.spec.graph, OP_POOL_MEAN), 0);
    drop(&r);
    remove_file(&f, "modules.json");
    refuse_checkout(&f, "config.json: is_causal must be true: a token that sees those after it cannot be generated");
    remove_folder(&f);
}

/* The files of sentence-transformers say how the vector of a text is made. */
static void test_checkout_sentences(void **state)
{
    char config[500];
    Folder f;
    Reading r;

    (void)state;
    snprintf(config, sizeof config, BERT, "SequenceClassification", "");
    f = make_folder(config, NULL);
    put_modules(&f, "Normalize", "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": false}");
    r = read_good(f.path, NULL);
    assert_int_equal(count_ops(r.spec.graph, OP_POOL_MEAN), 1);
    assert_int_equal(count_ops(r.spec.graph, OP_NORMALIZE), 1);
    assert_int_equal(r.spec.pooled, 32);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode_cls_token\": true}");
    r = read_good(f.path, "normalize=false");
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_FIRST), 1);
    assert_int_equal(count_ops(r.spec.graph, OP_NORMALIZE), 0);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "one of pooling_mode_cls_token, pooling_mode_mean_tokens and "
                                     "pooling_mode_lasttoken must be true"));
    drop(&r);
    put_modules(&f, "LayerNorm", "{\"pooling_mode_mean_tokens\": true}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "modules.json: module 3 is sentence_transformers.models.LayerNorm; Transformer, "
                                     "Pooling, Dense and Normalize are read, in this order"));
    drop(&r);
    r = read_good(f.path, "pooling=first"); /* -D pooling= works although the module is not supported */
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_FIRST), 1);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode\": \"cls\"}");
    r = read_good(f.path, NULL);
    assert_int_equal(count_ops(r.spec.graph, OP_SELECT_FIRST), 1);
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode\": \"max\"}");
    r = read_spec(f.path, NULL);
    assert_non_null(
        strstr(r.d.text, "1_Pooling/config.json: pooling_mode must be one of cls, lasttoken, mean, got \"max\""));
    drop(&r);
    put_modules(&f, "Normalize", "{\"pooling_mode\": \"weightedmean\"}");
    refuse_checkout(&f,
                    "1_Pooling/config.json: pooling_mode must be one of cls, lasttoken, mean, got \"weightedmean\"");
    put_modules(&f, "Normalize", "{\"pooling_mode_weightedmean_tokens\": true}");
    refuse_checkout(&f, "1_Pooling/config.json: pooling_mode_weightedmean_tokens must be false, got true");
    put_modules(&f, "Normalize", "{\"pooling_mode_mean_tokens\": true, \"include_prompt\": false}");
    refuse_checkout(&f, "1_Pooling/config.json: include_prompt must be true");
    put(&f, "modules.json", "[{\"type\": \"x.Pooling\", \"path\": \"../..\"}]");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "the path of module 0 is not the name of a folder"));
    drop(&r);
    put(&f, "modules.json", "{}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "modules.json:1: a list was expected: [...]"));
    drop(&r);
    remove_folder(&f);
}

/* tokenizer.json, or else tekken.json, Marian's SentencePiece file, tokenizer.model. */
static void test_checkout_tokenizer(void **state)
{
    static const char *const names[] = {"tokenizer.model", "source.spm", "tekken.json", "tokenizer.json"};
    char config[500];
    Folder f;
    Reading r;

    (void)state;
    snprintf(config, sizeof config, BERT, "SequenceClassification", "");
    f = make_folder(config, NULL);
    r = read_good(f.path, NULL);
    assert_null(r.spec.tokenizer);
    drop(&r);
    for (size_t i = 0; i < LEN(names); i++) {
        put(&f, names[i], "x");
        r = read_good(f.path, NULL);
        assert_string_equal(strrchr(r.spec.tokenizer, '/') + 1, names[i]);
        drop(&r);
    }
    remove_folder(&f);
}

/* A checkout without a tokenizer is compiled; a note says which files are there instead. */
static void test_tokenizer_note(void **state)
{
    Folder f = make_folder("{" LLAMA HEADS "}", NULL);
    Reading r = read_good(f.path, NULL);

    (void)state;
    assert_non_null(strstr(r.spec.note, "there is no tokenizer.json, so the model takes token ids and no text; copy"));
    drop(&r);
    put(&f, "vocab.json", "x");
    put(&f, "merges.txt", "x");
    r = read_good(f.path, NULL);
    assert_non_null(strstr(r.spec.note, "To make one from vocab.json, merges.txt: python3 -c '"));
    assert_non_null(strstr(r.spec.note, "save_pretrained"));
    drop(&r);
    r = read_good(f.path, "tokenizer=");
    assert_null(r.spec.note);
    drop(&r);
    put(&f, "tokenizer.json", "x");
    r = read_good(f.path, NULL);
    assert_null(r.spec.note);
    drop(&r);
    remove_file(&f, "vocab.json");
    remove_file(&f, "merges.txt");
    remove_folder(&f);
    r = read_good("specs/llama-3.2-1b.lua", NULL); /* a spec without a tokenizer is meant so */
    assert_null(r.spec.note);
    drop(&r);
}

/* Inputs that are neither a spec nor a checkout: the message says what they are. */
static void test_other_inputs(void **state)
{
    static const struct {
        const char *name, *text, *message;
    } files[] = {
        {"model.gguf", "GGUF\3", "the file is too short for a GGUF header"},
        {"other.gguf", "\xa7(}", "not a GGUF file: its first four bytes are not GGUF"},
        {"config.json", "{}", "a file of a checkout; compile the folder that it is in"},
        {"model.safetensors", "x", "weights alone; compile the folder of the checkout"},
        {"model.safetensors.index.json", "{}", "weights alone; compile the folder of the checkout"},
        {"pytorch_model.bin", "PK\3\4",
         "a pickled checkpoint, which ftxc does not read; save the model as safetensors"},
        {"model.ftx", "FTX1\r\n\x1a\n", "a compiled model; ftxc run and ftxc show take it"},
    };
    Folder f = make_folder("{}", NULL);
    Reading r;

    (void)state;
    for (size_t i = 0; i < LEN(files); i++) {
        char path[160];

        snprintf(path, sizeof path, "%s/%s", f.path, files[i].name);
        put(&f, files[i].name, files[i].text);
        r = read_spec(path, NULL);
        if (!strstr(r.d.text, files[i].message))
            fail_msg("%s", r.d.text);
        assert_ptr_equal(strstr(r.d.text, path), r.d.text);
        drop(&r);
    }
    remove_file(&f, "model.gguf");
    remove_file(&f, "other.gguf");
    remove_file(&f, "model.ftx");
    remove_file(&f, "config.json");
    put(&f, "adapter_config.json", "{\"base_model_name_or_path\": \"meta-llama/Llama-3.2-1B\"}");
    r = read_spec(f.path, NULL);
    assert_non_null(strstr(r.d.text, "/: an adapter of meta-llama/Llama-3.2-1B, not a model; compile its model with "
                                     "the adapter: ftxc compile DIR --lora "));
    drop(&r);
    remove_file(&f, "adapter_config.json");
    remove_folder(&f);
    r = read_spec("meta-llama/Llama-3.2-1B", NULL);
    assert_true(r.d.machine);
    assert_string_equal(r.d.text, "meta-llama/Llama-3.2-1B: there is no such file or folder. If it is a model of the "
                                  "Hugging Face hub, download it first: hf download meta-llama/Llama-3.2-1B "
                                  "--local-dir Llama-3.2-1B, then ftxc compile Llama-3.2-1B");
    drop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkout_labels),    cmocka_unit_test(test_checkout_dense),
        cmocka_unit_test(test_checkout_tokens),    cmocka_unit_test(test_checkout_tokens_of_parts),
        cmocka_unit_test(test_checkout_sentences), cmocka_unit_test(test_checkout_sentences_of_decoder),
        cmocka_unit_test(test_checkout_tokenizer), cmocka_unit_test(test_tokenizer_note),
        cmocka_unit_test(test_other_inputs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
