/* extents.h - the memory that a plan's launches touch on the CPU, checked before they run. */
#ifndef FTX_DEVICE_CPU_EXTENTS_H
#define FTX_DEVICE_CPU_EXTENTS_H

#include "../../artifact/artifact.h"

enum { EXTENT_OPERANDS = 32 }; /* of a CPU kernel at most */

typedef struct Extent { /* what a launch touches of one operand: a row of kernels/cpu/extents.def, computed */
    uint64_t bytes;     /* 0: absent, or not touched */
    int named;          /* it lies in this named buffer; -1: in none, or in one of values */
    bool whole;         /* it is all of the named buffer */
    bool optional, written, zeroed;
} Extent;

/* The operands of one launch. program: its kind and bucket say how many tokens and rows there are at most. */
FtxStatus extents_of(const Artifact *a, const ArtifactPlan *plan, const FtxProgram *program, const FtxLaunch *launch,
                     Extent extent[EXTENT_OPERANDS], FtxError *err);

/* Refuses, with FTX_EFORMAT and the launch's label, a plan with a launch that could read or write outside of its
 * operands, or whose operands lie where they must not: whatever is in the artifact, the kernels' indices stay inside. */
FtxStatus extents_check(const Artifact *a, const ArtifactPlan *plan, FtxError *err);

#endif
