/* sizes.c - the bytes of named buffers, by the expressions of named.def, and of caches. */
#include "sizes.h"

#include <string.h>

#include "../base/dtype.h"
#include "../base/expr.h"

static bool size_value(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    const Sizes *s = user;
    const struct {
        const char *name;
        int64_t value;
    } names[] = {
#define SIZE(name, what) {#name, s->name},
        SIZES(SIZE)
#undef SIZE
    };

    *kind = EXPR_CONSTANT;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) {
            *value = names[i].value;
            return true;
        }
    return false;
}

FtxStatus sizes_named(const Sizes *s, int named, uint64_t *bytes, FtxError *err)
{
    static const struct {
        const char *name, *bytes;
    } rows[] = {
#define NAMED(name, space, bytes, what) {#name, bytes},
#include "named.def"
#undef NAMED
    };
    Sizes sizes = *s;
    Expr e;
    int64_t n = 0;
    FtxStatus status = expr_parse(rows[named].bytes, size_value, &sizes, &e, err);

    if (!status)
        status = expr_run(e.words, e.n, NULL, 0, &n, err);
    if (status)
        return ftx_context(err, FTX_EFORMAT, "the size of $%s", rows[named].name);
    if (n < 0 || (uint64_t)n > MAX_SPACE)
        return ftx_fail(err, FTX_EFORMAT, "$%s would need %lld bytes", rows[named].name, (long long)n);
    *bytes = (uint64_t)n;
    return FTX_OK;
}

uint64_t sizes_row(DType type, uint32_t dim)
{
    const bool number = type == DT_FP32 || type == DT_FP16 || type == DT_BF16;

    return number ? dtype_size(type) * dim : dtype_is_code(type) ? dim + sizeof(uint16_t) : 0;
}

bool sizes_cache(const FtxCache *c, int64_t kv_block, uint64_t *keys, uint64_t *values)
{
    const uint64_t rows = c->kv_heads * (c->recurrent ? (uint64_t)c->k_dim /* of 32 bits each */
                                         : c->source  ? c->source
                                                      : (uint64_t)kv_block);
    const uint64_t key = sizes_row((DType)c->type, c->recurrent ? c->v_dim : c->k_dim);
    const uint64_t value = c->inside || c->recurrent ? 0 : sizes_row((DType)c->type, c->v_dim);

    if (__builtin_mul_overflow(rows, key, keys) || __builtin_mul_overflow(rows, value, values) || *keys > MAX_SPACE ||
        *values > MAX_SPACE)
        return false;
    if (c->recurrent) /* the states of the next layer begin where vectors of 16 bytes can be read */
        *keys = (*keys + 15) / 16 * 16;
    return true;
}

FtxStatus sizes_caches(Sizes *s, const FtxCache *caches, size_t n, FtxError *err)
{
    s->KEYS = s->VALUES = s->CROSS_KEYS = s->CROSS_VALUES = s->RECURRENT = 0;
    for (size_t i = 0; i < n; i++) {
        const FtxCache *c = &caches[i];
        int64_t *k = c->recurrent ? &s->RECURRENT : c->source ? &s->CROSS_KEYS : &s->KEYS;
        int64_t *v = c->source ? &s->CROSS_VALUES : &s->VALUES;
        uint64_t keys, values;

        if (!c->kv_heads || !c->k_dim || !c->v_dim || !sizes_row((DType)c->type, 1) || c->window > INT32_MAX ||
            (c->source && c->source != s->SRC))
            return ftx_fail(err, FTX_EFORMAT, "cache %zu: %u kv_heads of %u and %u, type %u, window %u, source %u", i,
                            c->kv_heads, c->k_dim, c->v_dim, c->type, c->window, c->source);
        if (c->recurrent > 1 || (c->recurrent && (c->source || c->inside || c->window || c->type != DT_FP32)))
            return ftx_fail(err, FTX_EFORMAT, "cache %zu: a recurrent state (%u) of type %u, source %u, window %u", i,
                            c->recurrent, c->type, c->source, c->window);
        if (c->inside > 1 || (c->inside && (c->source || c->v_dim > c->k_dim)))
            return ftx_fail(err, FTX_EFORMAT, "cache %zu: values of %u cannot be inside (%u) its keys of %u, source %u",
                            i, c->v_dim, c->inside, c->k_dim, c->source);
        if (!sizes_cache(c, s->B, &keys, &values) || (uint64_t)*k + keys > MAX_SPACE ||
            (uint64_t)*v + values > MAX_SPACE)
            return ftx_fail(err, FTX_EFORMAT, "cache %zu: %u kv_heads of %u and %u are too large", i, c->kv_heads,
                            c->k_dim, c->v_dim);
        *k += (int64_t)keys;
        *v += (int64_t)values;
    }
    return FTX_OK;
}
