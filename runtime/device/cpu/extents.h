/* extents.h - checks of a plan's launches before they run on the CPU. */
#ifndef FTX_DEVICE_CPU_EXTENTS_H
#define FTX_DEVICE_CPU_EXTENTS_H

#include "../../artifact/artifact.h"

/* Refuses, with FTX_EFORMAT and the launch's label, a plan with a launch that could read or write outside of its
 * operands: whatever is in the artifact, the kernels' indices stay inside. */
FtxStatus extents_check(const Artifact *a, const ArtifactPlan *plan, FtxError *err);

#endif
