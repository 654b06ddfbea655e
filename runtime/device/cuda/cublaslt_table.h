/* cublaslt_table.h - the functions of cuBLASLt that cublaslt.c calls. Beside it only the tests
 * include this: they put their own table in. */
#ifndef FTX_CUBLASLT_TABLE_H
#define FTX_CUBLASLT_TABLE_H

#include <cublasLt.h>

// clang-format off
#define CUBLASLT_FUNCTIONS(F) \
    F(cublasLtCreate) F(cublasLtDestroy) F(cublasLtGetVersion) F(cublasLtGetStatusString) F(cublasLtMatmul) \
    F(cublasLtMatmulAlgoGetHeuristic) F(cublasLtMatmulDescInit_internal) F(cublasLtMatmulDescSetAttribute) \
    F(cublasLtMatrixLayoutInit_internal) F(cublasLtMatmulPreferenceInit_internal) \
    F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtMatmulAlgoInit) F(cublasLtMatmulAlgoCheck) \
    F(cublasLtMatmulAlgoConfigSetAttribute) F(cublasLtMatmulAlgoConfigGetAttribute)
// clang-format on

struct CublasLtTable {
#define F(name) __typeof__(&name) name;
    CUBLASLT_FUNCTIONS(F)
#undef F
};

#endif
