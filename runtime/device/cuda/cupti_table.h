/* cupti_table.h - the functions of CUPTI, CUDA's interface for profilers, that activity.c calls. Beside it only the
 * tests include this: they put their own table in. */
#ifndef FTX_CUPTI_TABLE_H
#define FTX_CUPTI_TABLE_H

#include <cupti.h>

// clang-format off
#define CUPTI_FUNCTIONS(F) \
    F(cuptiGetVersion) F(cuptiGetResultString) F(cuptiGetTimestamp) F(cuptiGetContextId) F(cuptiGetStreamIdEx) \
    F(cuptiActivityRegisterCallbacks) F(cuptiActivityEnable) F(cuptiActivityDisable) F(cuptiActivityFlushAll) \
    F(cuptiActivityGetNextRecord) F(cuptiActivityGetNumDroppedRecords)
// clang-format on

typedef struct CuptiTable {
#define F(name) __typeof__(&name) name;
    CUPTI_FUNCTIONS(F)
#undef F
} CuptiTable;

#endif
