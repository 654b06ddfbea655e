/* stored.c - quantization_config of a checkpoint: which reader its method has, and what readers share. */
#include "stored.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The methods. why: those that are refused. */
static const struct {
    const char *name;
    bool (*read)(Stored *s);
    const char *why;
} methods[] = {
    {"gptq", gptq_read, NULL},
    {"awq", awq_read, NULL},
    {"compressed-tensors", compressed_read, NULL},
    {"fp8", fp8_read, NULL},
    {"mxfp4", mxfp4_read, NULL},
    {"bitnet", bitnet_read, NULL},
    {"aqlm", NULL, "codes are those of additive codebooks" STORED_ORIGINAL},
    {"auto-round", NULL, "export the model with format auto_gptq or auto_awq, and compile that"},
    {"autoround", NULL, "export the model with format auto_gptq or auto_awq, and compile that"},
    {"bitsandbytes", NULL, "its values are indices of a table of 16 numbers" STORED_ORIGINAL},
    {"eetq", NULL, "its rows are ordered for one kernel" STORED_ORIGINAL},
    {"exl2", NULL, "each row has bits of its own" STORED_ORIGINAL},
    {"exl3", NULL, "codes are paths of a trellis" STORED_ORIGINAL},
    {"fbgemm_fp8", NULL, "save the model with quant_method fp8 or compressed-tensors" STORED_ORIGINAL},
    {"fp_quant", NULL, "its matrices are rotated" STORED_ORIGINAL},
    {"higgs", NULL, "its matrices are rotated" STORED_ORIGINAL},
    {"hqq", NULL, "zeros are fractions in an order of its own" STORED_ORIGINAL},
    {"marlin", NULL, "codes are ordered for one kernel; compile the checkpoint of GPTQ that it was made from"},
    {"modelopt", NULL, "save the model with quant_method fp8 or compressed-tensors" STORED_ORIGINAL},
    {"quanto", NULL, "its tensors are pickled classes" STORED_ORIGINAL},
    {"quark", NULL, "save the model with quant_method fp8 or compressed-tensors" STORED_ORIGINAL},
    {"quip", NULL, "its matrices are rotated" STORED_ORIGINAL},
    {"sinq", NULL, "its columns have scales, too" STORED_ORIGINAL},
    {"spqr", NULL, "outliers are a sparse matrix" STORED_ORIGINAL},
    {"torchao", NULL, "its tensors are pickled classes" STORED_ORIGINAL},
    {"vptq", NULL, "codes are those of vector codebooks" STORED_ORIGINAL},
};

/* --- the configuration ------------------------------------------------------------------------------------- */

bool stored_refuse(const Stored *s, const char *format, ...)
{
    va_list ap;
    char text[400];

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return diag_error(s->d, (Loc){s->path, 0}, "quantization_config: %s", text);
}

bool stored_wrong(const Stored *s, const Tensor *t, const char *format, ...)
{
    va_list ap;
    char text[400];

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return diag_error(s->d, (Loc){t->path, 0}, "tensor \"%.200s\" %s", t->name, text);
}

static const json_t *field(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);

    return json_is_null(v) ? NULL : v;
}

bool stored_int(const Stored *s, const json_t *o, const char *name, int64_t or, int64_t *out)
{
    const json_t *v = field(o, name);

    *out = v ? json_integer_value(v) : or ;
    return !v || json_is_integer(v) || stored_refuse(s, "\"%s\" must be a whole number", name);
}

bool stored_word(const Stored *s, const json_t *o, const char *name, const char * or, const char **out)
{
    const json_t *v = field(o, name);

    *out = v ? json_string_value(v) : or ;
    return !v || json_is_string(v) || stored_refuse(s, "\"%s\" must be a text", name);
}

bool stored_flag(const Stored *s, const json_t *o, const char *name, bool or, bool *out)
{
    const json_t *v = field(o, name);

    *out = v ? json_is_true(v) : or ;
    return !v || json_is_boolean(v) || stored_refuse(s, "\"%s\" must be true or false", name);
}

bool stored_named(const Stored *s, const char *name, const char *module)
{
    const json_t *list = field(s->config, name);

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));

        if (text && strcmp(text, module) == 0)
            return true;
    }
    return false;
}

/* --- tensors ------------------------------------------------------------------------------------------------ */

const char *stored_module(const Stored *s, const Tensor *t, const char *end)
{
    const size_t n = strlen(t->name), m = strlen(end);

    return n > m && strcmp(t->name + n - m, end) == 0 ? arena_strndup(s->keep, t->name, n - m) : NULL;
}

const Tensor *stored_take(Stored *s, const char *module, const char *end)
{
    const Tensor *t = checkpoint_named(s->c, arena_printf(s->keep, "%s%s", module, end));

    if (t)
        s->taken[t - s->c->tensors.at] = true;
    return t;
}

bool stored_type(const Stored *s, const Tensor *t, const char *types)
{
    for (const char *at = types; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == strlen(t->stored) && strncmp(at, t->stored, strlen(t->stored)) == 0)
            return true;
    return stored_wrong(s, t, "is stored as %s, expected %s", t->stored, types);
}

const Tensor *stored_need(Stored *s, const Tensor *of, const char *module, const char *end, const char *types)
{
    const Tensor *t = stored_take(s, module, end);

    if (!t) {
        stored_wrong(s, of, "has no \"%.200s%s\" beside it", module, end);
        return NULL;
    }
    return stored_type(s, t, types) ? t : NULL;
}

void stored_skip(Stored *s)
{
    enum { OF_CACHES = 4 }; /* the first of the list */
    static const char *const ends[] = {".k_scale",     ".v_scale",          ".kv_scale",           ".q_scale",
                                       ".input_scale", ".input_zero_point", ".input_global_scale", ".activation_scale",
                                       ".output_scale"};

    for (size_t i = 0; i < s->c->tensors.n; i++)
        for (size_t k = 0; k < LEN(ends); k++)
            if (stored_module(s, &s->c->tensors.at[i], ends[k])) {
                s->taken[i] = true;
                s->cache |= k < OF_CACHES;
            }
}

bool stored_matrix(const Stored *s, const Tensor *t, int64_t rows, int64_t columns)
{
    Arena *a;

    if (t->rank == 2 && t->dim[0] == rows && t->dim[1] == columns)
        return true;
    a = arena_open();
    stored_wrong(s, t, "is %s, expected [%lld,%lld]", tensor_shape(t, a), (long long)rows, (long long)columns);
    arena_close(a);
    return false;
}

bool stored_order(const Stored *s, const Tensor *t, const StoredCodes *m, const char *cause, const char *way)
{
    if (!stored_type(s, t, "I32"))
        return false;
    if (t->rank != 1 || t->dim[0] != m->columns)
        return stored_wrong(s, t, "does not have %lld elements", (long long)m->columns);
    for (int64_t k = 0; k < m->columns; k++)
        if (stored_u32(t, k) != (uint32_t)(k / m->group))
            return stored_wrong(s, t,
                                "has group %u at element %lld: the elements of a group do not stand side by side "
                                "(%s). Quantise the model with %s",
                                stored_u32(t, k), (long long)k, cause, way);
    return true;
}

Tensor *stored_add(Stored *s, const Tensor *like, const char *name, int64_t stack, int64_t rows, int64_t columns,
                   const Coded *coded)
{
    Tensor *t = arena_push(s->keep, s->made);
    Coded *own = arena_new(s->keep, Coded);

    *own = *coded;
    *t = (Tensor){.name = name,
                  .stored = like->stored,
                  .type = DT_FP32,
                  .rank = stack ? 3 : 2,
                  .elements = (uint64_t)(rows * columns) * (uint64_t)(stack ? stack : 1),
                  .path = like->path,
                  .file = like->file,
                  .coded = own};
    if (stack)
        t->dim[0] = stack;
    t->dim[t->rank - 2] = rows;
    t->dim[t->rank - 1] = columns;
    return t;
}

/* --- matrices of integer codes ------------------------------------------------------------------------------ */

static float scale_at(const StoredCodes *m, int64_t n, int64_t g)
{
    const int64_t groups = m->columns / m->group;

    if (m->scales->elements == 1)
        return m->inverse ? 1.0f / tensor_element(m->scales, 0) : tensor_element(m->scales, 0);
    return tensor_element(m->scales, (uint64_t)(m->scales_by_row ? n * groups + g : g * m->rows + n));
}

static void read_codes(const Tensor *t, int64_t row, const CodedRow *to)
{
    const Coded *c = t->coded;
    const StoredCodes *m = c->parts;

    for (int64_t g = 0; g < m->columns / c->form.group; g++) {
        const int64_t of = g * c->form.group / m->group;

        to->scales[g] = scale_at(m, row, of);
        if (c->form.scales == PACKED_FP16_ZEROS)
            to->offsets[g] = (float)m->zero(m, row, of);
        else if (c->form.scales == PACKED_FP32_MINIMA)
            to->offsets[g] = to->scales[g] * (float)m->zero(m, row, of);
    }
    m->row(m, row, to->codes);
}

/* Whether a zero is another than that of symmetric codes. */
static bool has_zeros(const StoredCodes *m)
{
    for (int64_t g = 0; m->zeros && g < m->columns / m->group; g++)
        for (int64_t n = 0; n < m->rows; n++)
            if (m->zero(m, n, g) != 1u << (m->bits - 1))
                return true;
    return false;
}

bool stored_codes(Stored *s, const char *module, const StoredCodes *m)
{
    StoredCodes *own = arena_new(s->keep, StoredCodes);
    const bool zeros = has_zeros(m), half = m->scales->type == DT_FP16 && !m->inverse;
    Coded c = {.form = {.type = m->bits == 4 ? DT_INT4 : DT_INT8,
                        .scales = half    ? zeros ? PACKED_FP16_ZEROS : PACKED_FP16
                                  : zeros ? PACKED_FP32_MINIMA
                                          : PACKED_FP32,
                        .group = 128},
               .codes = read_codes,
               .parts = own};

    while (c.form.group > 16 && m->group % c.form.group)
        c.form.group /= 2;
    if (m->group % c.form.group)
        return stored_wrong(s, m->codes, "has groups of %lld elements; 16 must divide a group", (long long)m->group);
    *own = *m;
    stored_add(s, m->codes, arena_printf(s->keep, "%s.weight", module), 0, m->rows, m->columns, &c);
    return true;
}

/* --- reading ------------------------------------------------------------------------------------------------ */

/* A list with the new tensors in the place of those that were taken, to which the new ones point. */
static bool replace(Stored *s)
{
    const TensorList *old = &s->c->tensors;
    TensorList list = {0};

    for (size_t i = 0; i < old->n; i++)
        if (!s->taken[i])
            *arena_push(s->keep, list) = old->at[i];
    for (size_t i = 0; i < s->made.n; i++)
        *arena_push(s->keep, list) = s->made.at[i];
    s->c->tensors = list;
    return checkpoint_sort(s->c, s->d);
}

/* Whether activations are quantised by those who made the checkpoint. */
static bool has_activations(const json_t *config, const char *method)
{
    json_t *groups = json_object_get(config, "config_groups"), *group;
    const char *name;
    bool any = json_is_string(json_object_get(config, "activation_scheme")) || strcmp(method, "bitnet") == 0;

    json_object_foreach(groups, name, group) any |= json_is_object(json_object_get(group, "input_activations"));
    return any;
}

static const char *describe(const Stored *s, const char *method)
{
    size_t numbers = 0, codes = s->made.n;
    const char *line = arena_printf(s->keep, "%s: quantised by %s:", s->c->path, method);

    for (size_t i = 0; i < s->made.n; i++)
        numbers += !s->made.at[i].coded->form.type;
    codes -= numbers;
    if (codes)
        line = arena_printf(s->keep, "%s %zu matrices are codes with scales", line, codes);
    if (numbers)
        line = arena_printf(s->keep, "%s%s %zu become numbers of the type of the other weights", line, codes ? "," : "",
                            numbers);
    if (!codes && !numbers)
        line = arena_printf(s->keep, "%s no matrix is", line);
    if (has_activations(s->config, method))
        line = arena_printf(s->keep, "%s; its scheme for activations is not used: see precision.activations", line);
    if (s->cache || json_is_object(json_object_get(s->config, "kv_cache_scheme")))
        line = arena_printf(s->keep, "%s; its scales for the KV cache are not used: see precision.kv", line);
    return line;
}

bool stored_apply(Checkpoint *c, const json_t *config, const char *path, Arena *keep, Diag *d)
{
    Stored s = {.c = c, .keep = keep, .d = d, .path = path, .config = config};
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    size_t i = 0;

    if (!method)
        return stored_refuse(&s, "has no \"quant_method\"");
    while (i < LEN(methods) && strcmp(methods[i].name, method) != 0)
        i++;
    if (i == LEN(methods))
        return stored_refuse(&s, "the method \"%.100s\" is not read" STORED_ORIGINAL, method);
    if (methods[i].why)
        return stored_refuse(&s, "%s is not read: %s", method, methods[i].why);
    s.taken = arena_array(keep, bool, c->tensors.n + 1);
    if (!methods[i].read(&s) || !replace(&s))
        return false;
    c->stored = describe(&s, method);
    return true;
}

/* The object `name` of a JSON file, or with `name` NULL the file's; a new reference. NULL: there is none. */
static json_t *read_config(const char *path, const char *name, Diag *d)
{
    json_error_t why;
    json_t *root, *o;
    FileMap map;
    FtxError err;
    const char *text;
    size_t bytes;

    if (!file_exists(path))
        return NULL;
    if (file_map(path, &map, &err)) {
        diag_error(d, (Loc){0}, "%s", err.text);
        return NULL;
    }
    text = file_text(&map, &bytes);
    root = json_loadb(text, bytes, 0, &why);
    file_unmap(&map);
    if (!root) {
        diag_error(d, (Loc){path, why.line > 0 ? (uint32_t)why.line : 0}, "is not JSON");
        return NULL;
    }
    o = name ? json_object_get(root, name) : root;
    o = json_is_object(o) ? json_incref(o) : NULL;
    json_decref(root);
    return o;
}

bool stored_read(Checkpoint *c, Arena *keep, Diag *d)
{
    /* Older files of GPTQ and AWQ have no quant_method: each has a name of its own. */
    static const struct {
        const char *file, *object, *method;
    } places[] = {
        {"config.json", "quantization_config", NULL}, {"config.json", "compression_config", NULL},
        {"quantize_config.json", NULL, "gptq"},       {"quant_config.json", NULL, "awq"},
        {"hf_quant_config.json", NULL, "modelopt"},
    };
    const char *slash = strrchr(c->path, '/');
    bool ok = true, found = false;

    for (size_t i = 0; ok && !found && i < LEN(places); i++) {
        const char *path =
            slash ? arena_printf(keep, "%.*s/%s", (int)(slash - c->path), c->path, places[i].file) : places[i].file;
        json_t *config = read_config(path, places[i].object, d);

        ok = config || !d->failed;
        found = config != NULL;
        if (config && places[i].method && !json_object_get(config, "quant_method"))
            json_object_set_new(config, "quant_method", json_string(places[i].method));
        if (config)
            ok = stored_apply(c, config, path, keep, d);
        json_decref(config);
    }
    return ok;
}
