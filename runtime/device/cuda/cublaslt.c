/* cublaslt.c - large matrix products by cuBLASLt, which is loaded when first needed.
 *
 * cuBLASLt thinks in columns. Row-major y[M,N] is column-major y'[N,M]; with w'[K,N] and x'[K,M]
 *
 *     y' = w'^T x'        A = w' (transposed), B = x', C = r', D = y'
 *
 * so its m is our N, its n our M, and the bias runs along N, as its bias epilogue does.
 * Algorithms that split K over blocks are not taken: their sums would depend on M. */
#include "cublaslt.h"

#ifdef FTX_HAVE_CUDA
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cublaslt_table.h"

enum { ROWS_STEP = 64, OLDEST_VERSION = 120400 };

struct LtMatmul {
    Memory memory;
    size_t bytes;
    const CublasLtTable *lt;
    cublasLtHandle_t handle;
    LtShape shape;
    cublasLtMatmulDescOpaque_t desc; /* without the bias's address */
    int64_t n_algos;
    uint32_t ignored;
    size_t workspace;            /* bytes that the largest of them needs */
    cublasLtMatmulAlgo_t algo[]; /* [i]: for rows up to (i + 1) * ROWS_STEP */
};

static struct {
    pthread_mutex_t lock;
    const CublasLtTable *replaced;
    bool tried;
    FtxError why; /* status FTX_OK: the table is whole */
    CublasLtTable table;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- the library ---------------------------------------------------------------------------------
 */

static FtxStatus load(CublasLtTable *lt, FtxError *err)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    const char *missing = NULL;
    char why[700];
    void *handle = cuda_library_open(names, sizeof names / sizeof *names, why, sizeof why);

    if (!handle)
        return ftx_fail(err, FTX_EDEVICE,
                        "this artifact's large matrix products need cuBLASLt (part of the CUDA "
                        "toolkit; FTX_CUDA "
                        "names its folder): %s",
                        why);
#define F(name) \
    *(void **)&lt->name = dlsym(handle, #name); \
    if (!lt->name) \
        missing = #name;
    CUBLASLT_FUNCTIONS(F)
#undef F
    const size_t version = lt->cublasLtGetVersion ? lt->cublasLtGetVersion() : 0;
    if (!missing && version >= OLDEST_VERSION)
        return FTX_OK; /* it stays loaded until the process ends */
    dlclose(handle);
    return ftx_fail(err, FTX_EDEVICE, "cuBLASLt is too old: version %zu.%zu, needed is 12.4 or newer", version / 10000,
                    version / 100 % 100);
}

static FtxStatus table(const CublasLtTable **out, FtxError *err)
{
    FtxStatus s = FTX_OK;

    pthread_mutex_lock(&library.lock);
    *out = library.replaced;
    if (!*out) {
        if (!library.tried)
            library.why.status = load(&library.table, &library.why);
        library.tried = true;
        s = library.why.status;
        if (s && err)
            *err = library.why;
        *out = s ? NULL : &library.table;
    }
    pthread_mutex_unlock(&library.lock);
    return s;
}

void cublaslt_replace(const CublasLtTable *t)
{
    pthread_mutex_lock(&library.lock);
    library.replaced = t;
    pthread_mutex_unlock(&library.lock);
}

static FtxStatus check(const CublasLtTable *lt, cublasStatus_t r, FtxError *err, const LtShape *s, const char *what)
{
    if (r == CUBLAS_STATUS_SUCCESS)
        return FTX_OK;
    return ftx_fail(err, FTX_EDEVICE, "%s for [M,%lld] x [%lld,%lld]^T in %s: %s", what, (long long)s->k,
                    (long long)s->n, (long long)s->k, dtype_name(s->x), lt->cublasLtGetStatusString(r));
}

FtxStatus lt_version(size_t *version, FtxError *err)
{
    const CublasLtTable *lt;
    const FtxStatus s = table(&lt, err);

    if (!s)
        *version = lt->cublasLtGetVersion();
    return s;
}

FtxStatus lt_start(void **handle, FtxError *err)
{
    const CublasLtTable *lt;
    cublasLtHandle_t h = NULL;
    FtxStatus s = table(&lt, err);

    *handle = NULL;
    if (s)
        return s;
    const cublasStatus_t r = lt->cublasLtCreate(&h);
    if (r)
        return ftx_fail(err, FTX_EDEVICE, "cuBLASLt does not start: %s", lt->cublasLtGetStatusString(r));
    *handle = h;
    return FTX_OK;
}

void lt_stop(void *handle)
{
    const CublasLtTable *lt;

    if (handle && !table(&lt, NULL))
        lt->cublasLtDestroy(handle);
}

/* --- what to compute ------------------------------------------------------------------------------ */

static cudaDataType_t cuda_type(DType t)
{
    return t == DT_BF16 ? CUDA_R_16BF : t == DT_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

static FtxStatus check_shape(const LtShape *s, FtxError *err)
{
    const bool known =
        (s->x == DT_FP32 || s->x == DT_FP16 || s->x == DT_BF16) && s->w == s->x && (s->y == s->x || s->y == DT_FP32);

    if (!known)
        return ftx_fail(err, FTX_EFORMAT, "no matrix product of %s and %s into %s", dtype_name(s->x), dtype_name(s->w),
                        dtype_name(s->y));
    if (s->rows < 1 || s->n < 1 || s->k < 1 || s->rows > INT32_MAX || s->n > INT32_MAX || s->k > INT32_MAX)
        return ftx_fail(err, FTX_EFORMAT, "a matrix product of [%lld,%lld] and [%lld,%lld]", (long long)s->rows,
                        (long long)s->k, (long long)s->n, (long long)s->k);
    if (s->act != FTX_ACT_NONE && s->act != FTX_ACT_RELU && s->act != FTX_ACT_GELU_TANH)
        return ftx_fail(err, FTX_EFORMAT, "cuBLASLt has no activation %d", (int)s->act);
    if (s->act != FTX_ACT_NONE && s->residual)
        return ftx_fail(err, FTX_EFORMAT, "cuBLASLt activates after it adds: no activation with a residual");
    return FTX_OK;
}

static cublasLtEpilogue_t epilogue(const LtShape *s)
{
    switch (s->act) {
    case FTX_ACT_RELU: return s->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case FTX_ACT_GELU_TANH: return s->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default: return s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static FtxStatus describe(LtMatmul *l, FtxError *err)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t e = epilogue(&l->shape);
    const cudaDataType_t bias_type = cuda_type(l->shape.y);
    const CublasLtTable *lt = l->lt;
    cublasStatus_t r = lt->cublasLtMatmulDescInit_internal(&l->desc, sizeof l->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    if (!r)
        r = lt->cublasLtMatmulDescSetAttribute(&l->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (!r)
        r = lt->cublasLtMatmulDescSetAttribute(&l->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);
    if (!r && l->shape.bias)
        r = lt->cublasLtMatmulDescSetAttribute(&l->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                               sizeof bias_type);
    return check(lt, r, err, &l->shape, "cuBLASLt's description");
}

typedef struct Layouts {
    cublasLtMatrixLayoutOpaque_t a, b, d; /* w', x', y' (and r') */
} Layouts;

static cublasStatus_t lay_out(const LtMatmul *l, int64_t rows, Layouts *o)
{
    const LtShape *s = &l->shape;
    const uint64_t n = (uint64_t)s->n, k = (uint64_t)s->k, m = (uint64_t)rows;
    const CublasLtTable *lt = l->lt;
    cublasStatus_t r = lt->cublasLtMatrixLayoutInit_internal(&o->a, sizeof o->a, cuda_type(s->w), k, n, s->k);

    if (!r)
        r = lt->cublasLtMatrixLayoutInit_internal(&o->b, sizeof o->b, cuda_type(s->x), k, m, s->k);
    if (!r)
        r = lt->cublasLtMatrixLayoutInit_internal(&o->d, sizeof o->d, cuda_type(s->y), n, m, s->n);
    return r;
}

/* --- which algorithm ------------------------------------------------------------------------------ */

static cublasStatus_t prefer(const CublasLtTable *lt, uint64_t workspace, cublasLtMatmulPreferenceOpaque_t *p)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = 16;
    cublasStatus_t r = lt->cublasLtMatmulPreferenceInit_internal(p, sizeof *p);

    if (!r)
        r = lt->cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                     sizeof workspace);
    if (!r)
        r = lt->cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                                                     sizeof no_split);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments && !r; i++)
        r = lt->cublasLtMatmulPreferenceSetAttribute(p, alignments[i], &alignment, sizeof alignment);
    return r;
}

static cublasStatus_t find_algo(const LtMatmul *l, const cublasLtMatmulPreferenceOpaque_t *preference, int64_t rows,
                                cublasLtMatmulAlgo_t *algo, size_t *workspace)
{
    cublasLtMatmulHeuristicResult_t found;
    cublasLtMatmulPreferenceOpaque_t p = *preference;
    cublasLtMatmulDescOpaque_t desc = l->desc;
    Layouts o;
    int n = 0;
    cublasStatus_t r = lay_out(l, rows, &o);

    if (!r)
        r = l->lt->cublasLtMatmulAlgoGetHeuristic(l->handle, &desc, &o.a, &o.b, &o.d, &o.d, &p, 1, &found, &n);
    if (!r && (n < 1 || found.state != CUBLAS_STATUS_SUCCESS))
        r = n < 1 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state;
    if (r)
        return r;
    *algo = found.algo;
    *workspace = found.workspaceSize > *workspace ? found.workspaceSize : *workspace;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- measured algorithms --------------------------------------------------------------------------- */

/* The attributes are numbered from 0; the last two have 16 bits. */
_Static_assert(CUBLASLT_ALGO_CONFIG_ID == 0 && CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID == FTX_MM_ATTRIBUTES - 1,
               "a record has an algorithm's attributes in their order");

static size_t attribute_bytes(int attribute)
{
    return attribute >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? sizeof(uint16_t) : sizeof(uint32_t);
}

static cublasStatus_t read_attributes(const CublasLtTable *lt, const cublasLtMatmulAlgo_t *algo, int64_t *attribute)
{
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;

    for (int i = 0; i < FTX_MM_ATTRIBUTES && !r; i++) {
        uint32_t value = 0; /* little-endian: also of 16 bits */
        size_t written;

        r = lt->cublasLtMatmulAlgoConfigGetAttribute(algo, (cublasLtMatmulAlgoConfigAttributes_t)i, &value,
                                                     attribute_bytes(i), &written);
        attribute[i] = value;
    }
    return r;
}

/* The algorithm with these attributes, if the library takes it for so many rows; sums over parts of K are not taken. */
static cublasStatus_t make_algo(const LtMatmul *l, const int64_t *attribute, int64_t rows, cublasLtMatmulAlgo_t *algo,
                                size_t *workspace)
{
    const cudaDataType_t x = cuda_type(l->shape.x), w = cuda_type(l->shape.w), y = cuda_type(l->shape.y);
    cublasLtMatmulHeuristicResult_t found = {0};
    cublasLtMatmulDescOpaque_t desc = l->desc;
    Layouts o;
    cublasStatus_t r = lay_out(l, rows, &o);

    if (!r)
        r = l->lt->cublasLtMatmulAlgoInit(l->handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, w, x, y, y,
                                          (int)attribute[CUBLASLT_ALGO_CONFIG_ID], algo);
    for (int i = CUBLASLT_ALGO_CONFIG_ID + 1; i < FTX_MM_ATTRIBUTES && !r; i++) {
        const uint32_t value = (uint32_t)attribute[i];

        r = l->lt->cublasLtMatmulAlgoConfigSetAttribute(algo, (cublasLtMatmulAlgoConfigAttributes_t)i, &value,
                                                        attribute_bytes(i));
    }
    if (!r)
        r = l->lt->cublasLtMatmulAlgoCheck(l->handle, &desc, &o.a, &o.b, &o.d, &o.d, algo, &found);
    if (!r && (found.state || found.workspaceSize > LT_WORKSPACE_MOST ||
               attribute[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] != CUBLASLT_REDUCTION_SCHEME_NONE))
        r = CUBLAS_STATUS_NOT_SUPPORTED;
    if (!r && found.workspaceSize > *workspace)
        *workspace = found.workspaceSize;
    return r;
}

/* Takes a record for the steps of 64 rows that end within its range; false: it is not one for this library. */
static bool take_record(LtMatmul *l, const int64_t *record, bool *taken)
{
    bool used = false;

    for (int64_t i = 0; i < l->n_algos; i++) {
        const int64_t end = (i + 1) * ROWS_STEP, last = end < l->shape.rows ? end : l->shape.rows;

        if (end < record[FTX_MM_FROM] || end > record[FTX_MM_TO] || taken[i])
            continue;
        taken[i] = make_algo(l, record + FTX_MM_ALGO, last, &l->algo[i], &l->workspace) == CUBLAS_STATUS_SUCCESS;
        if (!taken[i])
            return false;
        used = true;
    }
    return used;
}

static FtxStatus choose(LtMatmul *l, FtxError *err)
{
    enum { MOST_STEPS = 4096 };
    const bool same = l->shape.n_measured && (int64_t)l->lt->cublasLtGetVersion() == l->shape.version;
    bool taken[MOST_STEPS] = {false};
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasStatus_t r = prefer(l->lt, LT_WORKSPACE_MOST, &preference);

    for (uint32_t i = 0; i < l->shape.n_measured; i++)
        l->ignored +=
            !same || l->n_algos > MOST_STEPS || !take_record(l, l->shape.measured + (size_t)i * FTX_MM_RECORD, taken);
    for (int64_t i = 0; i < l->n_algos && !r; i++) {
        const int64_t last = (i + 1) * ROWS_STEP;

        if (i >= MOST_STEPS || !taken[i])
            r = find_algo(l, &preference, last < l->shape.rows ? last : l->shape.rows, &l->algo[i], &l->workspace);
    }
    return check(l->lt, r, err, &l->shape, "cuBLASLt has no algorithm");
}

uint32_t lt_ignored(const LtMatmul *l)
{
    return l->ignored;
}

uint32_t lt_measured(const LtMatmul *l)
{
    return l->shape.n_measured;
}

FtxStatus lt_list(const LtMatmul *l, int64_t rows, LtChoice *out, size_t most, size_t *n, FtxError *err)
{
    enum { MOST = 16 };
    cublasLtMatmulHeuristicResult_t found[MOST];
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulDescOpaque_t desc = l->desc;
    Layouts o;
    int count = 0;
    cublasStatus_t r = prefer(l->lt, l->workspace, &preference);

    *n = 0;
    if (!r)
        r = lay_out(l, rows, &o);
    if (!r)
        r = l->lt->cublasLtMatmulAlgoGetHeuristic(l->handle, &desc, &o.a, &o.b, &o.d, &o.d, &preference,
                                                  (int)(most < MOST ? most : MOST), found, &count);
    for (int i = 0; i < count && !r; i++) {
        if (found[i].state)
            continue;
        memcpy(out[*n].opaque, &found[i].algo, sizeof out->opaque);
        r = read_attributes(l->lt, &found[i].algo, out[*n].attribute);
        ++*n;
    }
    return check(l->lt, r, err, &l->shape, "cuBLASLt's list of algorithms");
}

FtxStatus lt_open(const Memory *m, void *handle, const LtShape *shape, LtMatmul **out, FtxError *err)
{
    const CublasLtTable *lt;
    FtxStatus s = check_shape(shape, err);

    *out = NULL;
    if (!s)
        s = table(&lt, err);
    if (s)
        return s;
    const int64_t n_algos = (shape->rows + ROWS_STEP - 1) / ROWS_STEP;
    const size_t bytes = sizeof(LtMatmul) + (size_t)n_algos * sizeof(cublasLtMatmulAlgo_t);
    LtMatmul *l = memory_alloc(m, bytes, 64);
    if (!l)
        return memory_fail(err, "a matrix product", bytes);
    l->memory = *m;
    l->bytes = bytes;
    l->lt = lt;
    l->handle = handle;
    l->shape = *shape;
    l->n_algos = n_algos;
    s = describe(l, err);
    if (!s)
        s = choose(l, err);
    if (s) {
        lt_close(l);
        return s;
    }
    *out = l;
    return FTX_OK;
}

void lt_close(LtMatmul *l)
{
    if (!l)
        return;

    const Memory m = l->memory;

    memory_free(&m, l, l->bytes);
}

bool lt_equal(const LtMatmul *l, const LtShape *s)
{
    const LtShape *o = &l->shape;

    return o->rows == s->rows && o->n == s->n && o->k == s->k && o->x == s->x && o->w == s->w && o->y == s->y &&
           o->act == s->act && o->bias == s->bias && o->residual == s->residual && o->measured == s->measured;
}

/* --- running -------------------------------------------------------------------------------------- */

static const void *address(CUdeviceptr p)
{
    return (const void *)(uintptr_t)p;
}

static cublasStatus_t multiply(const LtMatmul *l, const cublasLtMatmulAlgo_t *algo, Layouts *o, const LtPointers *p,
                               CUdeviceptr workspace, CUstream stream)
{
    const float one = 1.0f, zero = 0.0f;
    const CublasLtTable *lt = l->lt;
    cublasLtMatmulDescOpaque_t desc = l->desc;
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;

    if (l->shape.bias)
        r = lt->cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->b, sizeof p->b);
    if (r)
        return r;
    return lt->cublasLtMatmul(l->handle, &desc, &one, address(p->w), &o->a, address(p->x), &o->b,
                              l->shape.residual ? &one : &zero, address(l->shape.residual ? p->r : p->y), &o->d,
                              (void *)(uintptr_t)p->y, &o->d, algo, (void *)(uintptr_t)workspace, l->workspace,
                              (cudaStream_t)stream);
}

/* cuBLASLt says that an algorithm serves all row counts of its step, except a few of odd widths: those are asked for
 * by their exact count. */
static FtxStatus run_with(const LtMatmul *l, const cublasLtMatmulAlgo_t *algo, int64_t rows, const LtPointers *p,
                          CUdeviceptr workspace, CUstream stream, FtxError *err)
{
    cublasLtMatmulAlgo_t exact;
    Layouts o;
    cublasStatus_t r = lay_out(l, rows, &o);

    if (!r)
        r = multiply(l, algo, &o, p, workspace, stream);
    if (r == CUBLAS_STATUS_NOT_SUPPORTED || r == CUBLAS_STATUS_INVALID_VALUE) {
        cublasLtMatmulPreferenceOpaque_t preference;
        size_t needed = 0;

        r = prefer(l->lt, l->workspace, &preference);
        if (!r)
            r = find_algo(l, &preference, rows, &exact, &needed);
        if (!r)
            r = multiply(l, &exact, &o, p, workspace, stream);
    }
    return check(l->lt, r, err, &l->shape, "cuBLASLt");
}

size_t lt_workspace(const LtMatmul *l)
{
    return l->workspace;
}

FtxStatus lt_run(const LtMatmul *l, int64_t rows, const LtPointers *p, CUdeviceptr workspace, CUstream stream,
                 FtxError *err)
{
    if (rows < 1 || rows > l->shape.rows)
        return ftx_fail(err, FTX_EINVAL, "%lld rows in a matrix product planned for at most %lld", (long long)rows,
                        (long long)l->shape.rows);
    return run_with(l, &l->algo[(rows - 1) / ROWS_STEP], rows, p, workspace, stream, err);
}

FtxStatus lt_try(const LtMatmul *l, const LtChoice *c, int64_t rows, const LtPointers *p, CUdeviceptr workspace,
                 CUstream stream, FtxError *err)
{
    cublasLtMatmulAlgo_t algo;
    Layouts o;
    cublasStatus_t r = lay_out(l, rows, &o);

    memcpy(&algo, c->opaque, sizeof algo);
    if (!r)
        r = multiply(l, &algo, &o, p, workspace, stream);
    return check(l->lt, r, err, &l->shape, "cuBLASLt");
}

FtxStatus lt_warm(const LtMatmul *l, const LtPointers *p, CUdeviceptr workspace, CUstream stream, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (int64_t i = 0; i < l->n_algos && !s; i++) {
        const int64_t last = (i + 1) * ROWS_STEP;
        bool seen = false;

        for (int64_t j = 0; j < i && !seen; j++)
            seen = !memcmp(&l->algo[i], &l->algo[j], sizeof *l->algo);
        if (!seen)
            s = run_with(l, &l->algo[i], last < l->shape.rows ? last : l->shape.rows, p, workspace, stream, err);
    }
    return s;
}
#endif
