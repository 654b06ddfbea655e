/* plain_weights.h - the packed weights of an artifact by name, widened to fp32: rounded to the type that
 * they are stored in, and no further. */
#ifndef FTX_TEST_PLAIN_WEIGHTS_H
#define FTX_TEST_PLAIN_WEIGHTS_H

#include "kernels/ref/ref.h"
#include "runtime/device/random.h"

typedef struct PlainWeights {
    Artifact artifact;
    uint64_t seed;    /* of an artifact without weights, what they are drawn from */
    float *wide[512]; /* by weight; NULL: nobody has asked for it */
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

/* As a device keeps it in memory. DT_FP32: as it is. */
static inline void plain_round(DType type, float *x, int n)
{
    for (int i = 0; i < n && type != DT_FP32; i++) {
        uint32_t room;

        dtype_store(&room, 0, type, x[i]);
        x[i] = dtype_load(&room, 0, type);
    }
}

/* That the artifact's first plan computes in. */
static inline DType plain_type(const PlainWeights *m)
{
    return (DType)m->artifact.plans[0].head->compute_type;
}

/* The weight of that name; absent where `must` is not set. */
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
