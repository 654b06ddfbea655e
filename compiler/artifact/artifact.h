/* artifact.h - everything into one .ftx file. The reader is runtime/artifact/artifact.h. */
#ifndef FTXC_ARTIFACT_H
#define FTXC_ARTIFACT_H

#include "../instantiate/instantiate.h"
#include "../passes/pass.h"
#include "../spec/spec.h"
#include "../weights/weights.h"

typedef struct ArtifactParts {
    const Spec *spec;
    const Packing *packing;
    const Plan *plans;
    const Code *codes; /* one a plan; empty for the CPU */
    size_t n_plans;
    const Checkpoint *checkpoint; /* NULL: no weights stored (random at open) */
    const void *tokenizer;        /* compiled tables; NULL: none */
    size_t tokenizer_bytes;
    const void *chat; /* compiled chat templates; NULL: none */
    size_t chat_bytes;
    const char *build;   /* text of FTX_SEC_BUILD */
    bool sidecar;        /* weights into FILE.ftxw */
    const void *program; /* goes before the artifact, and makes the file executable; NULL: none */
    size_t program_bytes;
} ArtifactParts;

/* The same parts give the same bytes. The file is written under another name, synced and renamed. */
bool artifact_write(const char *path, const ArtifactParts *parts,
                    void (*progress)(void *user, uint64_t done, uint64_t all), void *user, Diag *d);

#endif
