/* stub_library.c - a shared library with the functions of the driver, cuBLASLt, CUPTI and NCCL, which do nothing but tell a
 * version.
 *
 * STUB_DRIVER, STUB_BLAS, STUB_CUPTI, STUB_NCCL: the versions. STUB_PARTIAL: a function of the driver, one of CUPTI and one of
 * NCCL are missing. */
#include <string.h>

#include "runtime/device/cuda/cublaslt_table.h"
#include "runtime/device/cuda/cupti_table.h"
#include "runtime/device/cuda/driver.h"
#include "runtime/device/cuda/nccl_table.h"

#ifdef STUB_PARTIAL
#define cuFuncLoad cuFuncLoad_of_a_later_driver
#define ncclSend ncclSend_of_a_later_version
#define cuptiGetTimestamp cuptiGetTimestamp_of_a_later_version
#endif

static long stub(const char *name, int *p)
{
    if (strcmp(name, "cuDriverGetVersion") == 0)
        *p = STUB_DRIVER;
    if (strcmp(name, "cuptiGetVersion") == 0)
        *p = STUB_CUPTI;
    if (strcmp(name, "ncclGetVersion") == 0)
        *p = STUB_NCCL;
    return strcmp(name, "cublasLtGetVersion") == 0 ? STUB_BLAS : 0;
}

#define NAME_OF_(name) #name
#define NAME_OF(name) NAME_OF_(name)
#define F(name) \
    long stub_##name(int *p) __asm__(NAME_OF(name)); \
    long stub_##name(int *p) \
    { \
        return stub(#name, p); \
    }
CUDA_FUNCTIONS(F)
CUBLASLT_FUNCTIONS(F)
CUPTI_FUNCTIONS(F)
#undef F
#define F(name, result, arguments) \
    long stub_##name(int *p) __asm__(NAME_OF(name)); \
    long stub_##name(int *p) \
    { \
        return stub(#name, p); \
    }
NCCL_FUNCTIONS(F)
#undef F
