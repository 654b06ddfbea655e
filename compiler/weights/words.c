/* words.c - matrices of GPTQ and AWQ: codes of 4 or 8 bits in words of 32, K-major: a row of ours is a column of theirs.
 *
 *   GPTQ   qweight [K/p, N]   code i of word [r,n] is k = p r + i, from the lowest bits
 *          qzeros  [G, N/p]   zero i of word [g,r] is n = p r + i; format gptq stores zero - 1, modulo 2^bits, gptq_v2 the zero
 *          scales  [G, N]     g_idx [K]: the group of each k
 *   AWQ    qweight [K, N/8]   nibble i of word [k,r] is n = 8 r + {0,2,4,6,1,3,5,7}[i]
 *          qzeros  [G, N/8]   in the same order; scales [G, N]
 *
 * p = 32 / bits. w[n,k] = scales[g,n] (code - zero). g_idx must be k / group: with another order (desc_act) the elements of a
 * group do not stand side by side. */
#include <strings.h>

#include "stored.h"

static void gptq_row(const StoredCodes *m, int64_t n, uint8_t *codes)
{
    const int per = 32 / m->bits;
    const uint32_t mask = (1u << m->bits) - 1;

    for (int64_t k = 0; k < m->columns; k += per) {
        const uint32_t word = stored_u32(m->codes, k / per * m->rows + n);

        for (int i = 0; i < per; i++)
            codes[k + i] = (uint8_t)(word >> (i * m->bits) & mask);
    }
}

static uint32_t gptq_zero(const StoredCodes *m, int64_t n, int64_t g)
{
    const int per = 32 / m->bits;
    const uint32_t word = stored_u32(m->zeros, g * (m->rows / per) + n / per);

    return word >> (n % per * m->bits) & ((1u << m->bits) - 1);
}

static uint32_t gptq_v1_zero(const StoredCodes *m, int64_t n, int64_t g)
{
    return (gptq_zero(m, n, g) + 1) & ((1u << m->bits) - 1);
}

/* The place of column n in its word. */
static int awq_shift(int64_t n)
{
    static const int places[] = {0, 4, 1, 5, 2, 6, 3, 7};

    return 4 * places[n % 8];
}

static void awq_row(const StoredCodes *m, int64_t n, uint8_t *codes)
{
    const int shift = awq_shift(n);

    for (int64_t k = 0; k < m->columns; k++)
        codes[k] = stored_u32(m->codes, k * (m->rows / 8) + n / 8) >> shift & 15;
}

static uint32_t awq_zero(const StoredCodes *m, int64_t n, int64_t g)
{
    return stored_u32(m->zeros, g * (m->rows / 8) + n / 8) >> awq_shift(n) & 15;
}

/* The scales and zeros of a matrix, and the elements of a group. given: group_size of the configuration, -1: a row. */
static bool take_groups(Stored *s, const char *module, int64_t given, StoredCodes *m)
{
    const int per = 32 / m->bits;

    m->scales = stored_need(s, m->codes, module, ".scales", "F16 BF16 F32");
    m->zeros = m->scales ? stored_need(s, m->codes, module, ".qzeros", "I32") : NULL;
    m->group = given > 0 ? given : m->columns;
    if (!m->zeros)
        return false;
    if (!m->columns || m->columns % m->group || m->rows % per)
        return stored_wrong(s, m->codes,
                            "is a matrix of %lld rows of %lld elements: group_size %lld must divide a row, %d the rows",
                            (long long)m->rows, (long long)m->columns, (long long)m->group, per);
    return stored_matrix(s, m->scales, m->columns / m->group, m->rows) &&
           stored_matrix(s, m->zeros, m->columns / m->group, m->rows / per);
}

/* g_idx, which may be missing where k / group is meant. */
static bool check_order(Stored *s, const char *module, const StoredCodes *m)
{
    const Tensor *t = stored_take(s, module, ".g_idx");
    bool ordered, fixed;

    if (!stored_flag(s, s->config, "desc_act", false, &ordered) ||
        !stored_flag(s, s->config, "static_groups", false, &fixed))
        return false;
    if (!t)
        return !ordered || fixed || m->group == m->columns ||
               stored_wrong(s, m->codes, "has no \"%.200s.g_idx\" beside it, which desc_act asks for", module);
    return stored_order(s, t, m, "desc_act", "desc_act=false or static_groups=true");
}

/* dynamic: modules with settings of their own. Those of a pattern "-:..." have none: they are not quantised. */
static bool check_dynamic(const Stored *s)
{
    json_t *dynamic = json_object_get(s->config, "dynamic"), *of;
    const char *pattern;

    json_object_foreach(dynamic, pattern, of)
    {
        if (strncmp(pattern, "-:", 2) != 0)
            return stored_refuse(s,
                                 "\"dynamic\" gives modules that match \"%.100s\" bits and groups of their own, which "
                                 "is not read" STORED_ORIGINAL,
                                 pattern);
    }
    return true;
}

bool gptq_read(Stored *s)
{
    const char *format, *method;
    int64_t bits, group;

    if (!stored_word(s, s->config, "quant_method", "gptq", &method) || !stored_int(s, s->config, "bits", 4, &bits) ||
        !stored_int(s, s->config, "group_size", 128, &group) || !stored_word(s, s->config, "format", "gptq", &format) ||
        !stored_word(s, s->config, "checkpoint_format", format, &format))
        return false;
    if (bits != 4 && bits != 8)
        return stored_refuse(s, "GPTQ with bits %lld is not read, only 4 and 8" STORED_ORIGINAL, (long long)bits);
    if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return stored_refuse(s,
                             "GPTQ's format \"%.100s\" is not read, only gptq and gptq_v2: its codes are ordered for "
                             "one kernel. Save the model with format gptq",
                             format);
    if (!check_dynamic(s))
        return false;
    for (size_t i = 0; i < s->c->tensors.n; i++) {
        const Tensor *t = &s->c->tensors.at[i];
        const char *module = stored_module(s, t, ".qweight");
        StoredCodes m = {.codes = t,
                         .bits = (int)bits,
                         .row = gptq_row,
                         .zero = strcmp(format, "gptq") == 0 ? gptq_v1_zero : gptq_zero};

        if (!module)
            continue;
        if (!stored_type(s, t, "I32"))
            return false;
        if (t->rank != 2 || !t->elements)
            return stored_wrong(s, t, "is not a matrix");
        s->taken[i] = true;
        m.rows = t->dim[1];
        m.columns = t->dim[0] * (32 / bits);
        if (!take_groups(s, module, group, &m) || !check_order(s, module, &m) || !stored_codes(s, module, &m))
            return false;
    }
    return true;
}

/* Whether a part of a module's name stands in modules_to_not_convert. */
static const char *is_left_out(const Stored *s, const char *module)
{
    const json_t *list = json_object_get(s->config, "modules_to_not_convert");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));

        if (text && *text && strstr(module, text))
            return text;
    }
    return NULL;
}

bool awq_read(Stored *s)
{
    const char *version;
    int64_t bits, group;

    if (!stored_int(s, s->config, "w_bit", 4, &bits) || !stored_int(s, s->config, "bits", bits, &bits) ||
        !stored_int(s, s->config, "q_group_size", 128, &group) ||
        !stored_int(s, s->config, "group_size", group, &group) ||
        !stored_word(s, s->config, "version", "gemm", &version))
        return false;
    if (bits != 4)
        return stored_refuse(s, "AWQ with bits %lld is not read, only 4" STORED_ORIGINAL, (long long)bits);
    if (strcasecmp(version, "gemm") != 0)
        return stored_refuse(s, "AWQ's version \"%.100s\" is not read, only gemm: save the model with version gemm",
                             version);
    for (size_t i = 0; i < s->c->tensors.n; i++) {
        const Tensor *t = &s->c->tensors.at[i];
        const char *module = stored_module(s, t, ".qweight");
        StoredCodes m = {.codes = t, .bits = 4, .row = awq_row, .zero = awq_zero};

        if (!module)
            continue;
        if (is_left_out(s, module))
            return stored_wrong(s, t, "has codes, yet modules_to_not_convert names \"%.100s\"", is_left_out(s, module));
        if (!stored_type(s, t, "I32"))
            return false;
        if (t->rank != 2 || !t->elements)
            return stored_wrong(s, t, "is not a matrix");
        s->taken[i] = true;
        m.rows = t->dim[1] * 8;
        m.columns = t->dim[0];
        if (!take_groups(s, module, group, &m) || !stored_codes(s, module, &m))
            return false;
    }
    return true;
}
