/* compressed.c - matrices of compressed-tensors, row-major.
 *
 *   pack-quantized   weight_packed I32 [N, K/p], p = 32 / bits: code i of word [n,r] is k = p r + i; weight_shape I64 [N,K];
 *                    weight_zero_point I32 [N/p, G]: zero i of word [r,g] is n = p r + i. Both are stored as q + 2^(bits-1)
 *   int-quantized    weight I8 [N,K], weight_zero_point I8 [N,G]
 *   float-quantized  weight F8_E4M3 [N,K]
 *
 * weight_scale is [N,G], of floats also [N/128, K/128]; G = 1: a scale for a row; [1]: one for all. What a matrix has, its
 * tensors say; the configuration is compared with them. */
#include "stored.h"

static void packed_row(const StoredCodes *m, int64_t n, uint8_t *codes)
{
    const int per = 32 / m->bits;
    const uint32_t mask = (1u << m->bits) - 1;

    for (int64_t k = 0; k < m->columns; k++)
        codes[k] = (uint8_t)(stored_u32(m->codes, n * (m->columns / per) + k / per) >> (k % per * m->bits) & mask);
}

static uint32_t packed_zero_at(const StoredCodes *m, int64_t n, int64_t g)
{
    const int per = 32 / m->bits;
    const uint32_t word = stored_u32(m->zeros, n / per * (m->columns / m->group) + g);

    return word >> (n % per * m->bits) & ((1u << m->bits) - 1);
}

static void int8_row(const StoredCodes *m, int64_t n, uint8_t *codes)
{
    for (int64_t k = 0; k < m->columns; k++)
        codes[k] = m->codes->at[n * m->columns + k] ^ 0x80;
}

static uint32_t int8_zero(const StoredCodes *m, int64_t n, int64_t g)
{
    return m->zeros->at[n * (m->columns / m->group) + g] ^ 0x80;
}

/* The only group of the configuration that quantises weights; NULL: there are none or several. */
static const json_t *only_scheme(const Stored *s)
{
    json_t *groups = json_object_get(s->config, "config_groups"), *group;
    const json_t *found = NULL;
    const char *name;
    size_t n = 0;

    json_object_foreach(groups, name, group)
    {
        const json_t *weights = json_object_get(group, "weights");

        if (json_is_object(weights)) {
            found = weights;
            n++;
        }
    }
    return n == 1 ? found : NULL;
}

/* Compares a matrix with the configuration. */
static bool check_scheme(const Stored *s, const StoredCodes *m, const char *type)
{
    const json_t *scheme = only_scheme(s);
    int64_t bits, group;
    bool symmetric;
    const char *kind;

    if (!scheme)
        return true;
    if (!stored_int(s, scheme, "num_bits", m->bits, &bits) || !stored_int(s, scheme, "group_size", 0, &group) ||
        !stored_flag(s, scheme, "symmetric", !m->zeros, &symmetric) || !stored_word(s, scheme, "type", type, &kind))
        return false;
    if (bits != m->bits || strcmp(kind, type) != 0)
        return stored_wrong(s, m->codes, "has values of %d bits (%s), quantization_config says %lld (%.20s)", m->bits,
                            type, (long long)bits, kind);
    if (group > 0 && m->group && group != m->group)
        return stored_wrong(s, m->codes, "has groups of %lld elements, quantization_config says %lld",
                            (long long)m->group, (long long)group);
    if (symmetric != !m->zeros)
        return stored_wrong(s, m->codes, "%s zeros, quantization_config says symmetric=%s", m->zeros ? "has" : "has no",
                            symmetric ? "true" : "false");
    return true;
}

/* The scales of a matrix of codes, and with them its group. */
static bool take_scales(Stored *s, const char *module, StoredCodes *m)
{
    int64_t groups;

    m->scales_by_row = true;
    m->scales = stored_need(s, m->codes, module, ".weight_scale", "F16 BF16 F32");
    if (!m->scales)
        return false;
    groups = m->scales->rank == 2 ? m->scales->dim[1] : 1;
    if (groups < 1 || !m->columns || m->columns % groups) {
        stored_wrong(s, m->scales, "has %lld groups, which do not divide the %lld elements of a row", (long long)groups,
                     (long long)m->columns);
        return false;
    }
    m->group = m->columns / groups;
    if (m->scales->elements == 1 || (m->scales->rank == 1 && m->scales->dim[0] == m->rows))
        return true;
    return stored_matrix(s, m->scales, m->rows, groups);
}

/* The order of a row's elements. actorder "group" ("dynamic" and true mean the same) always comes with weight_g_idx. */
static bool check_order(Stored *s, const char *module, const StoredCodes *m)
{
    const Tensor *t = stored_take(s, module, ".weight_g_idx");
    const json_t *order = json_object_get(only_scheme(s), "actorder");
    const char *word = json_is_true(order) ? "group" : json_string_value(order);

    if (t)
        return stored_order(s, t, m, "actorder", "actorder=weight or without");
    return !word || (strcmp(word, "group") != 0 && strcmp(word, "dynamic") != 0) || m->group == m->columns ||
           stored_wrong(s, m->codes, "has no \"%.200s.weight_g_idx\" beside it, which actorder asks for", module);
}

static int64_t stored_i64(const Tensor *t, int64_t i)
{
    return (int64_t)((uint64_t)stored_u32(t, 2 * i) | (uint64_t)stored_u32(t, 2 * i + 1) << 32);
}

static bool add_packed(Stored *s, const char *module, const Tensor *t)
{
    StoredCodes m = {.codes = t, .row = packed_row, .zero = packed_zero_at};
    const Tensor *shape = stored_need(s, t, module, ".weight_shape", "I64 I32");
    const bool wide = shape && strcmp(shape->stored, "I64") == 0;

    if (!shape || !stored_type(s, t, "I32"))
        return false;
    if (t->rank != 2 || !t->elements || shape->elements != 2)
        return stored_wrong(s, t, "and \"%.200s\" are not a matrix and its shape", shape->name);
    m.rows = wide ? stored_i64(shape, 0) : (int32_t)stored_u32(shape, 0);
    m.columns = wide ? stored_i64(shape, 1) : (int32_t)stored_u32(shape, 1);
    if (m.rows != t->dim[0] || m.columns < 1 || (m.columns != 8 * t->dim[1] && m.columns != 4 * t->dim[1]))
        return stored_wrong(s, t, "is [%lld,%lld], which is not %lld rows of %lld codes of 4 or 8 bits",
                            (long long)t->dim[0], (long long)t->dim[1], (long long)m.rows, (long long)m.columns);
    m.bits = m.columns == 8 * t->dim[1] ? 4 : 8;
    if (!take_scales(s, module, &m) || !check_order(s, module, &m))
        return false;
    m.zeros = stored_take(s, module, ".weight_zero_point");
    if (m.zeros && (!stored_type(s, m.zeros, "I32") ||
                    !stored_matrix(s, m.zeros, (m.rows * m.bits + 31) / 32, m.columns / m.group)))
        return false;
    return check_scheme(s, &m, "int") && stored_codes(s, module, &m);
}

static bool add_int8(Stored *s, const char *module, const Tensor *t)
{
    StoredCodes m = {.codes = t, .bits = 8, .row = int8_row, .zero = int8_zero};

    if (t->rank != 2 || !t->elements)
        return stored_wrong(s, t, "is not a matrix");
    m.rows = t->dim[0];
    m.columns = t->dim[1];
    if (!take_scales(s, module, &m))
        return false;
    m.zeros = stored_take(s, module, ".weight_zero_point");
    if (m.zeros && (!stored_type(s, m.zeros, "I8") || !stored_matrix(s, m.zeros, m.rows, m.columns / m.group)))
        return false;
    return check_scheme(s, &m, "int") && stored_codes(s, module, &m);
}

static bool add_float8(Stored *s, const char *module, const Tensor *t)
{
    const Tensor *scales = stored_need(s, t, module, ".weight_scale", "F16 BF16 F32");
    const json_t *scheme = only_scheme(s), *block = json_object_get(scheme, "block_structure");
    int64_t rows = 1, columns = INT32_MAX;
    const char *strategy;

    if (!scales || !stored_word(s, scheme, "strategy", "channel", &strategy) ||
        !check_scheme(s, &(StoredCodes){.codes = t, .bits = 8}, "float"))
        return false;
    if (strcmp(strategy, "block") == 0) {
        rows = json_integer_value(json_array_get(block, 0));
        columns = json_integer_value(json_array_get(block, 1));
        if (rows < 1 || columns < 1 || rows > INT32_MAX || columns > INT32_MAX)
            return stored_refuse(s, "\"block_structure\" must be two sizes, as in [128, 128]");
    } else if (scales->elements == 1) {
        rows = INT32_MAX;
    } else if (scales->rank == 2 && scales->dim[1] > 1 && t->rank == 2 && t->dim[1] % scales->dim[1] == 0) {
        columns = t->dim[1] / scales->dim[1];
    }
    return float8_add(s, module, t, scales, rows, columns);
}

/* The formats of the configuration and of its groups. */
static bool check_format(const Stored *s, const json_t *of)
{
    static const char *const formats[] = {"pack-quantized",  "int-quantized",   "float-quantized",
                                          "naive-quantized", "mixed-precision", "dense"};
    const char *format;
    size_t i = 0;

    if (!stored_word(s, of, "format", "dense", &format))
        return false;
    while (i < LEN(formats) && strcmp(formats[i], format) != 0)
        i++;
    return i < LEN(formats) ||
           stored_refuse(s,
                         "the format \"%.100s\" of compressed-tensors is not read, only pack-quantized, int-quantized "
                         "and float-quantized" STORED_ORIGINAL,
                         format);
}

bool compressed_read(Stored *s)
{
    json_t *groups = json_object_get(s->config, "config_groups"), *group;
    const char *name, *sparsity;

    if (!check_format(s, s->config))
        return false;
    if (json_object_size(json_object_get(s->config, "transform_config")))
        return stored_refuse(s, "\"transform_config\" rotates matrices, which is not read" STORED_ORIGINAL);
    if (!stored_word(s, json_object_get(s->config, "sparsity_config"), "format", "dense", &sparsity))
        return false;
    if (strcmp(sparsity, "dense") != 0)
        return stored_refuse(
            s, "\"sparsity_config\" has the format \"%.100s\", which is not read, only dense" STORED_ORIGINAL,
            sparsity);
    json_object_foreach(groups, name, group) if (!check_format(s, group)) return false;
    stored_skip(s);
    for (size_t i = 0; i < s->c->tensors.n; i++) {
        const Tensor *t = &s->c->tensors.at[i];
        const char *packed = stored_module(s, t, ".weight_packed"), *plain = stored_module(s, t, ".weight");
        const char *module = packed ? packed : plain;
        const bool bytes = plain && strcmp(t->stored, "I8") == 0, floats = plain && strncmp(t->stored, "F8_", 3) == 0;

        if (!packed && !bytes && !floats)
            continue;
        s->taken[i] = true;
        if (stored_named(s, "ignore", module))
            return stored_wrong(s, t, "is quantised, yet \"ignore\" of quantization_config names its module");
        if (packed  ? !add_packed(s, module, t)
            : bytes ? !add_int8(s, module, t)
                    : !stored_type(s, t, "F8_E4M3") || !add_float8(s, module, t))
            return false;
    }
    return true;
}
