/* plain_weights.h - the packed weights of an artifact by name, widened from their storage type to fp32. */
#ifndef FTX_TEST_PLAIN_WEIGHTS_H
#define FTX_TEST_PLAIN_WEIGHTS_H

#include "kernels/ref/ref.h"
#include "runtime/device/random.h"

typedef struct PlainWeights {
    Artifact artifact;
    uint64_t seed;    /* seed of the random weights of an artifact without weights; else 0 */
    float *wide[512]; /* by index of the weight; NULL: not read yet */
} PlainWeights;

static inline void plain_weights_open(PlainWeights *w, const char *path)
{
    FtxError err;

    *w = (PlainWeights){.wide = {NULL}};
    if (artifact_open(path, &w->artifact, &err))
        fail_msg("%s", err.text);
    assert_true(w->artifact.n_weights <= sizeof w->wide / sizeof *w->wide);
}

static inline void plain_weights_close(PlainWeights *w)
{
    for (size_t i = 0; i < sizeof w->wide / sizeof *w->wide; i++)
        free(w->wide[i]);
    artifact_close(&w->artifact);
}

static inline RefTensor plain_of(const float *p)
{
    return (RefTensor){p, DT_FP32};
}

/* Rounds x to `type`, as a device stores it. DT_FP32 changes nothing. */
static inline void plain_round(DType type, float *x, int n)
{
    for (int i = 0; i < n && type != DT_FP32; i++) {
        uint32_t room;

        dtype_store(&room, 0, type, x[i]);
        x[i] = dtype_load(&room, 0, type);
    }
}

/* Compute type of the artifact's first plan. */
static inline DType plain_type(const PlainWeights *m)
{
    return (DType)m->artifact.plans[0].head->compute_type;
}

/* The weight of that name. If there is none: fails the test with `must`, otherwise returns a null tensor. */
static inline RefTensor plain_weight(PlainWeights *m, bool must, const char *format, int layer)
{
    char name[200];

    snprintf(name, sizeof name, format, layer);
    for (uint32_t i = 0; i < m->artifact.n_weights; i++) {
        const FtxWeight *w = &m->artifact.weights[i];

        if (strcmp(artifact_string(&m->artifact, w->name), name) != 0)
            continue;
        if (!m->wide[i]) {
            const size_t n = w->bytes / dtype_size((DType)w->type);
            void *drawn = m->seed ? malloc(w->bytes) : NULL;
            const void *from = drawn ? drawn : artifact_weight(&m->artifact, i);

            if (drawn)
                random_fill(&m->artifact, i, m->seed, 0, n, drawn);
            m->wide[i] = malloc(n * sizeof(float));
            for (size_t k = 0; k < n; k++)
                m->wide[i][k] = dtype_load(from, k, (DType)w->type);
            free(drawn);
        }
        return plain_of(m->wide[i]);
    }
    if (must)
        fail_msg("the artifact has no weight %s", name);
    return (RefTensor){NULL, DT_FP32};
}

#endif
