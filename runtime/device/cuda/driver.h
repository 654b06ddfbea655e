/* driver.h - the CUDA driver as a table of functions, loaded when first asked for.
 *
 * A field has the name and type that cuda.h gives the function, so `cu->cuMemAlloc(&p, n)` reads
 * as the call would (and calls the version that cuda.h means). Tests put their own table in. */
#ifndef FTX_CUDA_DRIVER_H
#define FTX_CUDA_DRIVER_H

#include "../../base/error.h"

/* Opens a shared library by the first of its names that is found: in the folder of FTX_CUDA, by the system's linker,
 * near the program, in the toolkit's usual place. NULL: not found; *why (if not NULL) is the linker's reason. */
void *cuda_library_open(const char *const *names, size_t n, char *why, size_t why_bytes);

#ifdef FTX_HAVE_CUDA
#include <cuda.h>

enum { CUDA_OLDEST_DRIVER = 12040 }; /* cuFuncGetParamInfo, cuFuncLoad; programmatic edges: 12.3 */

// clang-format off
#define CUDA_FUNCTIONS(F) \
    F(cuInit) F(cuDriverGetVersion) F(cuGetErrorName) F(cuGetErrorString) F(cuDeviceGetCount) F(cuDeviceGet) \
    F(cuDeviceGetName) F(cuDeviceGetAttribute) F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease) \
    F(cuCtxPushCurrent) F(cuCtxPopCurrent) F(cuMemGetInfo) F(cuMemAlloc) F(cuMemFree) F(cuMemHostAlloc) \
    F(cuMemFreeHost) F(cuMemHostGetDevicePointer) F(cuMemcpyHtoDAsync) F(cuMemcpyDtoH) F(cuMemcpyDtoHAsync) F(cuMemcpyDtoDAsync) \
    F(cuMemsetD8Async) F(cuPointerGetAttribute) F(cuDeviceCanAccessPeer) F(cuCtxEnablePeerAccess) F(cuCtxSynchronize) F(cuStreamWaitEvent) \
    F(cuStreamCreate) F(cuStreamDestroy) F(cuStreamQuery) F(cuStreamBeginCapture) F(cuStreamEndCapture) \
    F(cuEventCreate) F(cuEventDestroy) F(cuEventRecord) F(cuEventQuery) F(cuEventElapsedTime) F(cuModuleLoadDataEx) \
    F(cuModuleUnload) F(cuModuleGetFunction) F(cuFuncLoad) F(cuFuncGetAttribute) F(cuFuncSetAttribute) \
    F(cuFuncGetParamInfo) F(cuTensorMapEncodeTiled) F(cuLaunchKernelEx) F(cuGraphInstantiate) F(cuGraphUpload) F(cuGraphLaunch) \
    F(cuGraphExecDestroy) F(cuGraphDestroy)
// clang-format on

typedef struct CudaDriver {
#define F(name) __typeof__(&name) name;
    CUDA_FUNCTIONS(F)
#undef F
} CudaDriver;

/* The driver's table; FTX_ENODEVICE with the reason if there is no driver or it is too old. */
FtxStatus cuda_driver(const CudaDriver **out, FtxError *err);

/* For tests: the table that cuda_driver returns from now on; NULL: the machine's driver again. */
void cuda_driver_replace(const CudaDriver *table);

/* Puts "what: CUDA_ERROR_X (text)" into err, if r is an error; FTX_OK otherwise. */
FtxStatus cuda_check(const CudaDriver *cu, CUresult r, FtxError *err, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
#endif

#endif
