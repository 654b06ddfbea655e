/* fake_parts.h - what the files of the fake driver share. */
#ifndef FTX_TEST_FAKE_PARTS_H
#define FTX_TEST_FAKE_PARTS_H

#include "fake_driver.h"

struct CUfunc_st {
    char name[FAKE_NAME_BYTES];
    unsigned n_params;
};

/* What is open. *count is raised until it is dropped; dropping something else ends the test. */
void *fake_keep(void *p, void (*release)(void *p), int *count);
void fake_drop(void *p);

bool fake_fails(const char *function); /* counts a call; whether it is the one to fail */
CUresult fake_error(void);             /* what the failing call returns */
void fake_need_context(void);          /* ends the test without the device's context */

/* Whether p is in memory of the GPU, rather than in the host's that is mapped. */
bool fake_is_device(CUdeviceptr p);

/* Work that a stream has not done yet (fake.late). */
void fake_record(CUstream stream, const FakeLaunch *l);
bool fake_in_flight(const void *p, size_t bytes); /* a copy reads or writes [p, p + bytes) */
void fake_forget_work(void);

void fake_add_streams(CudaDriver *table);
void fake_add_modules(CudaDriver *table);
void fake_install_cublaslt(void);
void fake_install_cupti(void);
void fake_install_nccl(void);

/* What CUPTI records, if it is on. name: kept by the fake driver. kind: of CUpti_ActivityMemcpyKind. */
void fake_cupti_kernel(CUstream s, const char *name);
void fake_cupti_copy(CUstream s, int kind, size_t bytes);
void fake_cupti_clear(CUstream s, size_t bytes);

#define MAY_FAIL \
    do { \
        if (fake_fails(__func__)) \
            return fake_error(); \
    } while (0)
/* A destructor does its work also when it reports an error. */
#define RESULT (fake_fails(__func__) ? fake_error() : CUDA_SUCCESS)

#endif
