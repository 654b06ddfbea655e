/* group.h - several ranks (devices that share a model) as one device. */
#ifndef FTX_GROUP_H
#define FTX_GROUP_H

#include "../device.h"

/* Opens one device of `inner` for each rank of the artifact, each with its own weights: o->devices has their numbers. The
 * tables of device.h call it with the CPU and with CUDA, tests with devices of their own. */
FtxStatus group_open(const DeviceApi *inner, const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o,
                     Device **out, FtxError *err);

/* What ranks of several processes must have in common: the artifact, and on GPUs the target of their code. */
uint64_t group_artifact(const Artifact *a, const ArtifactPlan *plan);

/* The hash of a step as the host wrote it, without its own fields. */
uint64_t group_step_hash(const void *io, size_t bytes);

#endif
