/* fuzz_config.c - any text as the config.json of a checkout; with a byte 0 in it, what follows is
 * its generation_config.json. Or choices: the config.json of a model, with other values for some of its keys. */
#include "choices.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/spec/spec.h"

static char folder[32], config[64], generation[64];

static void remove_folder(void)
{
    unlink(config);
    unlink(generation);
    rmdir(folder);
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/ftx-config-XXXXXX");
    if (!mkdtemp(folder))
        fuzz_bug("no folder");
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(generation, sizeof generation, "%s/generation_config.json", folder);
    atexit(remove_folder);
}

static void put(const char *path, const void *p, size_t bytes)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(p, 1, bytes, f) != bytes || fclose(f))
        fuzz_bug("%s cannot be written", path);
}

static void attempt(void)
{
    Arena *keep = arena_open();
    Spec spec;
    Diag d = {0};

    if (spec_read(folder, NULL, 0, keep, &spec, &d)) {
        if (!ir_verify(spec.graph, &d))
            fuzz_bug("the graph of a checkout: %s", d.text);
        ir_graph_close(spec.graph);
    } else if (!*d.text) {
        fuzz_bug("refused without a reason");
    }
    arena_close(keep);
}

/* --- files from choices --------------------------------------------------------------------------- */

static const char *const bases[] = {"llama",   "llama-rope3", "mistral", "gpt2", "bert",
                                    "roberta", "distilbert",  "marian",  "bart"};
static const char *const architectures[] = {"LlamaForCausalLM",
                                            "MistralForCausalLM",
                                            "GPT2LMHeadModel",
                                            "BertModel",
                                            "BertForSequenceClassification",
                                            "RobertaModel",
                                            "RobertaForSequenceClassification",
                                            "DistilBertModel",
                                            "DistilBertForSequenceClassification",
                                            "MarianMTModel",
                                            "BartModel",
                                            "BartForConditionalGeneration",
                                            "XLMRobertaForMaskedLM",
                                            "Qwen2ForCausalLM",
                                            "GraniteForCausalLM",
                                            "StableLmForCausalLM",
                                            "OtherModel"};
static const char *const words[] = {"gelu",
                                    "gelu_new",
                                    "silu",
                                    "relu",
                                    "tanh",
                                    "quick_gelu",
                                    "default",
                                    "linear",
                                    "llama3",
                                    "yarn",
                                    "absolute",
                                    "relative_key",
                                    "regression",
                                    "single_label_classification",
                                    "multi_label_classification",
                                    "float16",
                                    "float32",
                                    "sliding_attention",
                                    "full_attention",
                                    ""};
/* Keys that are read and that not every base has. */
static const char *const config_keys[] = {"activation",
                                          "attention_bias",
                                          "decoder_vocab_size",
                                          "final_logits_bias",
                                          "head_dim",
                                          "id2label",
                                          "layer_types",
                                          "mlp_bias",
                                          "num_key_value_heads",
                                          "num_labels",
                                          "pad_token_id",
                                          "position_embedding_type",
                                          "problem_type",
                                          "quantization_config",
                                          "rope_parameters",
                                          "rope_scaling",
                                          "rope_theta",
                                          "sliding_window",
                                          "dtype",
                                          "torch_dtype",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "normalize_before",
                                          "scale_embedding",
                                          "share_encoder_decoder_embeddings",
                                          "tie_word_embeddings",
                                          "type_vocab_size",
                                          "partial_rotary_factor",
                                          "eos_token_id",
                                          "forced_bos_token_id"};
static const char *const generation_keys[] = {"eos_token_id",
                                              "bos_token_id",
                                              "pad_token_id",
                                              "decoder_start_token_id",
                                              "bad_words_ids",
                                              "temperature",
                                              "top_k",
                                              "top_p",
                                              "min_p",
                                              "do_sample",
                                              "repetition_penalty",
                                              "no_repeat_ngram_size",
                                              "num_beams",
                                              "length_penalty",
                                              "early_stopping",
                                              "forced_bos_token_id",
                                              "forced_eos_token_id",
                                              "max_length",
                                              "max_new_tokens",
                                              "min_new_tokens",
                                              "min_length",
                                              "typical_p",
                                              "diversity_penalty",
                                              "num_beam_groups",
                                              "num_return_sequences",
                                              "encoder_repetition_penalty",
                                              "guidance_scale",
                                              "suppress_tokens",
                                              "sequence_bias",
                                              "stop_strings",
                                              "renormalize_logits"};
static const char *const rope_keys[] = {"rope_type",        "type",
                                        "factor",           "low_freq_factor",
                                        "high_freq_factor", "original_max_position_embeddings",
                                        "rope_theta",       "partial_rotary_factor"};

static json_t *value(Choices *c, const json_t *was, int deep)
{
    json_t *v;

    switch (choose(c, 10)) {
    case 0: return json_integer((json_int_t)choose(c, 40));
    case 1: return json_integer((json_int_t)choose_value(c, (uint64_t)json_integer_value(was)));
    case 2: return json_real((double)choose(c, 200) / 32 - 2);
    case 3: return json_boolean(choose(c, 2));
    case 4: return json_null();
    case 5: return json_string(words[choose(c, LEN(words))]);
    case 6: return json_real(json_number_value(was) * (choose(c, 2) ? 1e30 : -1));
    case 7: return json_integer((json_int_t)1 << choose(c, 40));
    case 8:
        v = json_array();
        for (uint32_t n = deep < 3 ? choose(c, 10) : 0; n > 0; n--)
            json_array_append_new(v, value(c, was, deep + 1));
        return v;
    default:
        v = json_object();
        for (uint32_t n = deep < 3 ? choose(c, 6) : 0; n > 0; n--) {
            char number[12];

            snprintf(number, sizeof number, "%u", n - 1); /* as in id2label */
            json_object_set_new(v, choose(c, 3) ? rope_keys[choose(c, LEN(rope_keys))] : number,
                                value(c, was, deep + 1));
        }
        return v;
    }
}

/* Another value for a key that the object has, or for one of `keys`; or the key goes. */
static void edit(json_t *o, Choices *c, const char *const *keys, uint32_t n_keys)
{
    const uint32_t at = choose(c, (uint32_t)json_object_size(o) + n_keys);
    const char *key = at < n_keys ? keys[at] : NULL, *name;
    uint32_t k = n_keys;
    json_t *v;

    json_object_foreach(o, name, v) if (k++ == at) key = name;
    v = json_object_get(o, key);
    if (json_is_object(v) && choose(c, 4))
        edit(v, c, rope_keys, LEN(rope_keys));
    else if (choose(c, 8) == 7)
        json_object_del(o, key);
    else
        json_object_set_new(o, key, value(c, v, 0));
}

static void put_json(const char *path, json_t *o)
{
    char *text = json_dumps(o, 0);

    if (!text)
        fuzz_bug("%s: no JSON", path);
    put(path, text, strlen(text));
    free(text);
    json_decref(o);
}

static void from_choices(Choices *c)
{
    static json_t *base[LEN(bases)]; /* for the whole run */
    json_t *o, *more = json_object();
    const uint32_t k = choose(c, LEN(bases)), other = choose(c, 2 * LEN(architectures));
    char path[100];

    snprintf(path, sizeof path, "tests/fuzz/seeds/config/%s.json", bases[k]);
    if (!base[k])
        base[k] = json_load_file(path, 0, NULL);
    if (!base[k])
        fuzz_bug("%s cannot be read", path);
    o = json_deep_copy(base[k]);
    if (other > LEN(architectures))
        json_object_set_new(o, "architectures", json_pack("[s]", architectures[other - LEN(architectures)]));
    for (int edits = 0; c->left && edits < 12; edits++)
        if (choose(c, 3))
            edit(o, c, config_keys, LEN(config_keys));
        else
            edit(more, c, generation_keys, LEN(generation_keys));
    put_json(config, o);
    put_json(generation, more);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *middle = size ? memchr(data, 0, size) : NULL;
    const size_t first = middle ? (size_t)(middle - data) : size;
    Choices c;

    if (!*folder)
        make_folder();
    if (choices_begin(&c, data, size)) {
        from_choices(&c);
    } else {
        put(config, data, first);
        if (middle)
            put(generation, middle + 1, size - first - 1);
    }
    attempt();
    unlink(generation);
    return 0;
}

void fuzz_seeds(void)
{
    static char deep[40000];

    memset(deep, '[', sizeof deep);
    fuzz_seed("deep-lists", deep, sizeof deep);
    for (size_t i = 0; i + 5 <= sizeof deep; i += 5)
        memcpy(deep + i, "{\"a\":", 5);
    fuzz_seed("deep-objects", deep, sizeof deep);
    memset(deep, '[', 2000);
    memset(deep + 2000, ']', 2000);
    fuzz_seed("deep-and-closed", deep, 4000);
    FUZZ_SEED("two-files", "{\"architectures\":[\"LlamaForCausalLM\"]}\0{\"eos_token_id\":[[1]]}");
    fuzz_seed("empty", "", 0);
    for (uint8_t k = 0; k < LEN(bases); k++)
        for (uint8_t key = 0; key < 40; key++) {
            const uint8_t seed[] = {CHOICES, k, 0, 1, key, 1, 1, 7, key}; /* one key of each at a border */
            char name[40];

            snprintf(name, sizeof name, "choices-%s-%u", bases[k], key);
            fuzz_seed(name, seed, sizeof seed);
        }
}
