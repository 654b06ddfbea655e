/* facts.h - the checks of an artifact's facts. */
#ifndef FTX_ARTIFACT_FACTS_H
#define FTX_ARTIFACT_FACTS_H

#include "artifact.h"

/* An offset is inside the strings, whose section ends in a NUL. */
static inline bool artifact_has_string(const Artifact *a, uint32_t str)
{
    return str < a->strings_bytes;
}

/* Checks the facts and the bad words; the artifact's strings are set. */
FtxStatus facts_check(const Artifact *a, FtxError *err);

#endif
