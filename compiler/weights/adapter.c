/* adapter.c - adapter_config.json of a folder that PEFT wrote: rank and scale of each module, and what is refused.
 *
 * Which modules were changed (target_modules and its kin) is not read here: the tensors name them. A field that is not
 * known is refused unless it is empty, as later versions of PEFT may change the result by it. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <string.h>
#include <sys/stat.h>

#include "adapter.h"

enum { MAX_BYTES = 16 << 20, MATCH_STEPS = 1000000 };

#define MERGE_IT "merge the adapter in Python (peft's merge_and_unload, then save_pretrained) and compile that folder"

/* Fields that may be there. why NULL: any value, as it changes nothing or is read elsewhere. Else the value must be
 * empty: null, false, "", [] or {}. */
static const struct {
    const char *name, *why;
} fields[] = {
    {"alora_invocation_tokens", "the adapter acts behind these tokens alone, and merged weights act on all"},
    {"alpha_pattern", NULL},
    {"arrow_config", "the adapter is chosen for each token, and merged weights are the same for all"},
    {"auto_mapping", NULL},
    {"base_model_name_or_path", NULL},
    {"bias", NULL},
    {"corda_config", NULL},
    {"ensure_weight_tying", NULL},
    {"eva_config", NULL},
    {"exclude_modules", NULL},
    {"fan_in_fan_out", NULL},
    {"inference_mode", NULL},
    {"init_lora_weights", NULL},
    {"kasa_config", "the base model was changed before the training; " MERGE_IT},
    {"layer_replication", "layers of the base model are repeated; " MERGE_IT},
    {"layers_pattern", NULL},
    {"layers_to_transform", NULL},
    {"loftq_config", NULL},
    {"lora_alpha", NULL},
    {"lora_bias", NULL},
    {"lora_dropout", NULL},
    {"lora_ga_config", NULL},
    {"megatron_config", "the modules are Megatron's; " MERGE_IT},
    {"megatron_core", NULL},
    {"modules_to_save", NULL},
    {"monteclora_config", "its tensors are not read; " MERGE_IT},
    {"peft_type", NULL},
    {"peft_version", NULL},
    {"qalora_group_size", NULL},
    {"r", NULL},
    {"rank_pattern", NULL},
    {"revision", NULL},
    {"runtime_config", NULL},
    {"target_modules", NULL},
    {"target_parameters", "its tensors are not read; " MERGE_IT},
    {"task_type", NULL},
    {"trainable_token_indices", "single rows of an embedding are not read; " MERGE_IT},
    {"use_bdlora", "its tensors are not read; " MERGE_IT},
    {"use_dora", NULL},
    {"use_qalora", "the base model is quantised; train on the original one"},
    {"use_rslora", NULL},
    {"velora_config", NULL},
};

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) || (json_is_string(v) && !json_string_length(v)) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static bool check_field(const Adapter *a, const char *name, const json_t *value, Diag *d)
{
    const Loc loc = {a->config_path, 0};
    size_t i = 0;

    while (i < LEN(fields) && strcmp(fields[i].name, name) != 0)
        i++;
    if (is_empty(value) || (i < LEN(fields) && !fields[i].why))
        return true;
    if (i == LEN(fields))
        return diag_error(d, loc, "field \"%.100s\" is not known; %s", name, MERGE_IT);
    return diag_error(d, loc, "field \"%s\" is set: %s", name, fields[i].why);
}

/* An initialisation that also changes the base model: without that change the adapter does not fit. PEFT converts such
 * an adapter when it is saved with path_initial_model_for_weight_conversion, and then writes true here. */
static bool check_init(const Adapter *a, Diag *d)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal", "mica"};
    const json_t *v = json_object_get(a->config, "init_lora_weights");

    if (!v || json_is_boolean(v) || json_is_null(v))
        return true;
    for (size_t i = 0; json_is_string(v) && i < LEN(plain); i++)
        if (strcmp(plain[i], json_string_value(v)) == 0)
            return true;
    return diag_error(d, (Loc){a->config_path, 0},
                      "field \"init_lora_weights\" is %s%.60s%s: it changes the base model before the training, so the "
                      "adapter does not fit the original one. Save it with "
                      "path_initial_model_for_weight_conversion, or %s",
                      json_is_string(v) ? "\"" : "", json_is_string(v) ? json_string_value(v) : "not a word",
                      json_is_string(v) ? "\"" : "", MERGE_IT);
}

static bool read_flag(const Adapter *a, const char *name, bool *out, Diag *d)
{
    const json_t *v = json_object_get(a->config, name);

    *out = json_is_true(v);
    if (!v || json_is_boolean(v) || json_is_null(v))
        return true;
    return diag_error(d, (Loc){a->config_path, 0}, "field \"%s\" must be true or false", name);
}

static bool check_fields(Adapter *a, Diag *d)
{
    const json_t *type = json_object_get(a->config, "peft_type");
    const Loc loc = {a->config_path, 0};
    const char *name;
    json_t *value;
    bool flag;

    if (!json_is_string(type))
        return diag_error(d, loc, "field \"peft_type\" is missing: the file is not of an adapter of PEFT");
    if (strcmp(json_string_value(type), "LORA") != 0)
        return diag_error(d, loc, "field \"peft_type\" is \"%.60s\"; \"LORA\" can be read; %s", json_string_value(type),
                          MERGE_IT);
    json_object_foreach(a->config, name, value)
    {
        if (!check_field(a, name, value, d))
            return false;
    }
    return check_init(a, d) && read_flag(a, "use_dora", &a->dora, d) && read_flag(a, "use_rslora", &flag, d);
}

static bool read_config(Adapter *a, Diag *d)
{
    json_error_t why;
    FileMap map;
    FtxError err;
    size_t bytes;
    const char *text;

    if (file_map(a->config_path, &map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    text = file_text(&map, &bytes);
    a->config = bytes <= MAX_BYTES ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why) : NULL;
    file_unmap(&map);
    if (bytes > MAX_BYTES)
        return diag_error(d, (Loc){a->config_path, 0}, "the file is %zu bytes, %d are allowed", bytes, MAX_BYTES);
    if (!a->config)
        return diag_error(d, (Loc){a->config_path, why.line > 0 ? why.line : 1}, "%s", why.text);
    if (!json_is_object(a->config))
        return diag_error(d, (Loc){a->config_path, 1}, "an object was expected: {...}");
    return check_fields(a, d);
}

/* "a/b/" to "b" */
static const char *folder_name(const char *folder, Arena *keep)
{
    size_t n = strlen(folder);
    const char *name;

    while (n > 1 && folder[n - 1] == '/')
        n--;
    name = arena_strndup(keep, folder, n);
    return n > 1 && strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
}

bool adapter_read(const char *folder, Arena *keep, Adapter *out, Diag *d)
{
    const char *slash = *folder && folder[strlen(folder) - 1] == '/' ? "" : "/";
    struct stat st;

    *out = (Adapter){.name = folder_name(folder, keep),
                     .config_path = arena_printf(keep, "%s%sadapter_config.json", folder, slash),
                     .path = arena_printf(keep, "%s%sadapter_model.safetensors", folder, slash)};
    if (stat(folder, &st) || !S_ISDIR(st.st_mode))
        return diag_error(d, (Loc){folder, 0},
                          "no folder there; --lora takes an adapter's folder, with adapter_config.json and "
                          "adapter_model.safetensors");
    if (!file_exists(out->config_path))
        return diag_error(d, (Loc){folder, 0}, "no adapter: it has no adapter_config.json");
    if (!file_exists(out->path))
        return diag_error(d, (Loc){folder, 0}, "has no adapter_model.safetensors%s",
                          file_exists(arena_printf(keep, "%s%sadapter_model.bin", folder, slash))
                              ? "; adapter_model.bin is pickled, which is not read: save the adapter as safetensors"
                              : "");
    if (read_config(out, d))
        return true;
    adapter_drop(out);
    return false;
}

void adapter_drop(Adapter *a)
{
    json_decref(a->config);
    a->config = NULL;
}

/* --- rank and scale of a module -------------------------------------------------------------- */

static bool pattern_fails(const Adapter *a, const char *field, const char *key, int code, Diag *d)
{
    PCRE2_UCHAR text[200];

    pcre2_get_error_message(code, text, sizeof text);
    return diag_error(d, (Loc){a->config_path, 0}, "field \"%s\": the pattern \"%.100s\": %s", field, key,
                      (char *)text);
}

/* As PEFT's get_pattern_key: the pattern matches the module's name, or an end of it behind a dot. */
static bool matches(const Adapter *a, const char *field, const char *key, const char *module, bool *out, Diag *d)
{
    Arena *scratch = arena_open();
    const char *text = arena_printf(scratch, "(.*\\.)?(%s)$", key);
    pcre2_match_context *bounds = pcre2_match_context_create(NULL);
    pcre2_match_data *found;
    PCRE2_SIZE at;
    pcre2_code *code;
    int result;

    code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED | PCRE2_UTF, &result, &at, NULL);
    arena_close(scratch);
    if (!code) {
        pcre2_match_context_free(bounds);
        return pattern_fails(a, field, key, result, d);
    }
    found = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_set_match_limit(bounds, MATCH_STEPS);
    result = pcre2_match(code, (PCRE2_SPTR)module, strlen(module), 0, 0, found, bounds);
    pcre2_match_data_free(found);
    pcre2_match_context_free(bounds);
    pcre2_code_free(code);
    *out = result >= 0;
    return result >= 0 || result == PCRE2_ERROR_NOMATCH || pattern_fails(a, field, key, result, d);
}

/* A number of the config: of the first pattern that matches the module, else of the field. */
static bool read_number(const Adapter *a, const char *pattern_field, const char *field, double without,
                        const char *module, double *out, Diag *d)
{
    json_t *patterns = json_object_get(a->config, pattern_field), *v = json_object_get(a->config, field), *given;
    const char *key, *named = field;
    bool match = false;

    if (patterns && !json_is_null(patterns) && !json_is_object(patterns))
        return diag_error(d, (Loc){a->config_path, 0}, "field \"%s\" must be an object", pattern_field);
    json_object_foreach(patterns, key, given)
    {
        if (match)
            break;
        if (!matches(a, pattern_field, key, module, &match, d))
            return false;
        if (match) {
            named = pattern_field;
            v = given;
        }
    }
    *out = v ? json_number_value(v) : without;
    if (v && !json_is_number(v))
        return diag_error(d, (Loc){a->config_path, 0}, "field \"%s\": a number was expected for %.200s", named, module);
    return true;
}

bool adapter_scale(const Adapter *a, const char *module, int64_t *rank, double *scale, Diag *d)
{
    double r, alpha;

    if (!read_number(a, "rank_pattern", "r", 8, module, &r, d) ||
        !read_number(a, "alpha_pattern", "lora_alpha", 8, module, &alpha, d))
        return false;
    if (!(r >= 1 && r <= 1 << 24 && r == floor(r)))
        return diag_error(d, (Loc){a->config_path, 0}, "field \"r\" gives %.200s the rank %g", module, r);
    *rank = (int64_t)r;
    *scale = json_is_true(json_object_get(a->config, "use_rslora")) ? alpha / sqrt(r) : alpha / r;
    if (!isfinite(*scale) || fabs(*scale) > 1e30)
        return diag_error(d, (Loc){a->config_path, 0}, "field \"lora_alpha\" gives %.200s the scale %g", module,
                          *scale);
    return true;
}
