/* fake_cublaslt.c - a cuBLASLt that computes nothing: shapes and pointers are written down. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fake_parts.h"
#include "runtime/device/cuda/cublaslt_table.h"

typedef struct FakeDesc { /* in the opaque description */
    int compute, transposed_a, epilogue, bias_type;
    CUdeviceptr bias;
} FakeDesc;

typedef struct FakePreference {
    uint64_t workspace;
    uint32_t split; /* reduction schemes that are allowed */
} FakePreference;

typedef struct FakeLayout {
    int type;
    uint64_t rows, columns;
    int64_t ld;
} FakeLayout;

#undef MAY_FAIL /* these return cuBLASLt's statuses */
#define MAY_FAIL \
    do { \
        if (fake_fails(__func__)) \
            return CUBLAS_STATUS_INTERNAL_ERROR; \
    } while (0)

static cublasStatus_t fake_create(cublasLtHandle_t *h)
{
    MAY_FAIL;
    *h = (cublasLtHandle_t)&fake.handles; /* not from malloc: nobody gets it back from a GPU that hangs */
    fake.handles++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_destroy(cublasLtHandle_t h)
{
    fake.handles -= h == (cublasLtHandle_t)&fake.handles;
    return CUBLAS_STATUS_SUCCESS;
}

static size_t fake_version(void)
{
    return 130000;
}

static const char *fake_text(cublasStatus_t r)
{
    return r == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INTERNAL_ERROR";
}

static cublasStatus_t fake_desc(cublasLtMatmulDesc_t d, size_t bytes, cublasComputeType_t compute, cudaDataType_t scale)
{
    const FakeDesc f = {.compute = (int)compute};

    MAY_FAIL;
    if (bytes < sizeof f || scale != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(d, &f, sizeof f);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *p, size_t bytes)
{
    FakeDesc f;
    int v = 0;

    MAY_FAIL;
    memcpy(&f, d, sizeof f);
    memcpy(&v, p, bytes < sizeof v ? bytes : sizeof v);
    switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA: f.transposed_a = v == CUBLAS_OP_T; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: f.epilogue = v; break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: f.bias_type = v; break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&f.bias, p, sizeof f.bias); break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(d, &f, sizeof f);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_layout(cublasLtMatrixLayout_t l, size_t bytes, cudaDataType t, uint64_t rows, uint64_t cols,
                                  int64_t ld)
{
    const FakeLayout f = {(int)t, rows, cols, ld};

    MAY_FAIL;
    if (bytes < sizeof f)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(l, &f, sizeof f);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference(cublasLtMatmulPreference_t p, size_t bytes)
{
    const FakePreference f = {.split = ~0u};

    MAY_FAIL;
    if (bytes < sizeof f)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(p, &f, sizeof f);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_prefer(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *v,
                                  size_t bytes)
{
    FakePreference f;

    MAY_FAIL;
    memcpy(&f, p, sizeof f);
    if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        memcpy(&f.workspace, v, bytes);
    if (a == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&f.split, v, bytes);
    memcpy(p, &f, sizeof f);
    return CUBLAS_STATUS_SUCCESS;
}

static FakeLayout layout(cublasLtMatrixLayout_t l)
{
    FakeLayout f;

    memcpy(&f, l, sizeof f);
    return f;
}

/* An algorithm: the number of columns it was asked for, the workspace it needs (more for fewer columns), its place among the
 * library's, and its id; the second takes less time, the third more. Made of attributes: 1000 + id, and all of them. */
static cublasStatus_t fake_heuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y,
                                     cublasLtMatmulPreference_t p, int most, cublasLtMatmulHeuristicResult_t *out,
                                     int *n)
{
    const uint64_t columns = layout(b).columns, needed = 4096 * (1 + 256 / columns);
    FakePreference f;

    (void)h, (void)d, (void)a, (void)c, (void)y;
    MAY_FAIL;
    memcpy(&f, p, sizeof f);
    if (f.split != CUBLASLT_REDUCTION_SCHEME_NONE)
        return CUBLAS_STATUS_INVALID_VALUE;
    *n = layout(b).rows == 13 ? 0 : most < 4 ? most : 4; /* K = 13: there is none */
    for (int i = 0; i < *n; i++) {
        memset(&out[i], 0, sizeof *out);
        out[i].algo.data[0] = columns;
        out[i].workspaceSize = out[i].algo.data[1] = needed < f.workspace ? needed : f.workspace;
        out[i].algo.data[2] = (uint64_t)i;
        out[i].algo.data[3] = 66;
        out[i].state = i == 3 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_algo(cublasLtHandle_t h, cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a,
                                cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                                cublasLtMatmulAlgo_t *algo)
{
    (void)h;
    MAY_FAIL;
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F || a != b || c != d)
        abort();
    *algo = (cublasLtMatmulAlgo_t){{1000 + (uint64_t)id, 4096, 0, (uint64_t)id}};
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_set_attribute(cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t a,
                                         const void *p, size_t bytes)
{
    uint32_t value = 0;

    MAY_FAIL;
    if (bytes != (a >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&value, p, bytes);
    if (a == CUBLASLT_ALGO_CONFIG_TILE_ID)
        algo->data[2] = value - 1;
    algo->data[4] = algo->data[4] * 100 + value; /* all of them, in their order */
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_get_attribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t a,
                                         void *p, size_t bytes, size_t *written)
{
    const uint32_t of[] = {
        (uint32_t)algo->data[3], (uint32_t)algo->data[2] + 1, 1, 0, 4, 5, (uint32_t)algo->data[0] / 64, 7, 8};

    MAY_FAIL;
    if (bytes != (a >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(p, &of[a], bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* Id 13 is not supported; 14 wants more memory than there is. */
static cublasStatus_t fake_check(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y,
                                 const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *out)
{
    (void)h, (void)d, (void)a, (void)b, (void)c, (void)y;
    MAY_FAIL;
    if (algo->data[3] == 13)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = (cublasLtMatmulHeuristicResult_t){.algo = *algo,
                                             .workspaceSize = algo->data[3] == 14 ? (size_t)33 << 20 : algo->data[1]};
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                                  cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                                  const void *c, cublasLtMatrixLayout_t lc, void *y, cublasLtMatrixLayout_t ly,
                                  const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream)
{
    FakeDesc f;
    FakeLaunch l = {.kernel = "lt", .n_params = 5};

    (void)h, (void)alpha, (void)lc;
    MAY_FAIL;
    memcpy(&f, d, sizeof f);
    if (!f.transposed_a || layout(la).columns != layout(ly).rows || layout(la).rows != layout(lb).rows ||
        layout(lb).columns != layout(ly).columns || layout(la).ld != (int64_t)layout(la).rows ||
        bytes < algo->data[1] || !fake_holds((CUdeviceptr)(uintptr_t)workspace, bytes))
        abort();
    if (fake.picky && algo->data[0] != layout(lb).columns)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    fake.clock_ms += algo->data[2] == 1 ? -0.001 : 0.001 * (double)algo->data[2];
    l.algo = (long long)algo->data[0];
    l.m = (long long)layout(lb).columns;
    l.n = (long long)layout(la).columns;
    l.k = (long long)layout(la).rows;
    l.beta = *(const float *)beta;
    l.epilogue = f.epilogue;
    l.param[0] = (CUdeviceptr)(uintptr_t)b;
    l.param[1] = (CUdeviceptr)(uintptr_t)a;
    l.param[2] = f.bias;
    l.param[3] = (CUdeviceptr)(uintptr_t)c;
    l.param[4] = (CUdeviceptr)(uintptr_t)y;
    fake_record((CUstream)stream, &l);
    return CUBLAS_STATUS_SUCCESS;
}

static const CublasLtTable table = {
    .cublasLtCreate = fake_create,
    .cublasLtDestroy = fake_destroy,
    .cublasLtGetVersion = fake_version,
    .cublasLtGetStatusString = fake_text,
    .cublasLtMatmul = fake_matmul,
    .cublasLtMatmulAlgoGetHeuristic = fake_heuristic,
    .cublasLtMatmulDescInit_internal = fake_desc,
    .cublasLtMatmulDescSetAttribute = fake_set,
    .cublasLtMatrixLayoutInit_internal = fake_layout,
    .cublasLtMatmulPreferenceInit_internal = fake_preference,
    .cublasLtMatmulPreferenceSetAttribute = fake_prefer,
    .cublasLtMatmulAlgoInit = fake_algo,
    .cublasLtMatmulAlgoCheck = fake_check,
    .cublasLtMatmulAlgoConfigSetAttribute = fake_set_attribute,
    .cublasLtMatmulAlgoConfigGetAttribute = fake_get_attribute,
};

void fake_install_cublaslt(void)
{
    cublaslt_replace(&table);
}
