/* weights.h - the checks of an artifact's weights. */
#ifndef FTX_ARTIFACT_WEIGHTS_H
#define FTX_ARTIFACT_WEIGHTS_H

#include "artifact.h"

enum { ARTIFACT_RANK_ALIGN = 4096 }; /* of a rank's block in a sidecar */

/* Checks the index and where the blocks lie, maps the sidecar, and chooses rank 0. After the facts. */
FtxStatus weights_check(Artifact *a, const char *path, FtxError *err);

/* The section of a rank's weights or tables; NULL: there is none. */
const FtxSection *artifact_block(const Artifact *a, uint32_t kind, uint32_t rank);

#endif
