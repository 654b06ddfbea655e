/* fp8_rows.c - activations of a scene as rows of fp8 (form e4m3_rows): those that a kernel reads, and what a kernel wrote, compared
 * with kernels/ref. */
#include "scene.h"

#include <math.h>
#include <string.h>

static int64_t columns_of(const Unit *u, Id id)
{
    const Value *v = ir_value(u->g, id);

    return v->shape.dim[v->shape.rank - 1].n;
}

/* Where the code of row m, k stands, by the words of compiler/ir/forms.def. */
static int64_t place(int64_t rows, int64_t m, int64_t k)
{
    const int64_t unit = k % 128 / 16, within = k % 16, byte = within % 8 / 2 * 4 + within / 8 * 2 + within % 2;

    return (k / 128 * rows + m) * 128 + (unit ^ (m & 7)) * 16 + byte;
}

size_t scene_fp8_bytes(const Unit *u, Id id)
{
    return (size_t)(u->facts.t_max * columns_of(u, id));
}

void *scene_make_fp8(Scene *s, Id id, RefTensor x)
{
    const Unit *u = s->u;
    const int64_t K = columns_of(u, id), T = s->T;
    const size_t room = scene_fp8_bytes(u, id);
    float *plain = arena_array(s->keep, float, (size_t)(T * K)), *values = arena_array(s->keep, float, (size_t)(T * K));
    uint8_t *codes = arena_array(s->keep, uint8_t, (size_t)(T * K)), *to = arena_array(s->keep, uint8_t, room);
    uint8_t *p = simt_alloc(room, "rows of fp8");

    s->fp8_scales = arena_array(s->keep, float, (size_t)T);
    for (int64_t i = 0; i < T * K; i++)
        plain[i] = (float)ref_at(x, i);
    ref_quantise_e4m3(plain, T, K, codes, s->fp8_scales);
    memset(to, 0x7f, room); /* rows that are not live: left from an earlier step */
    for (int64_t i = 0; i < T * K; i++) {
        to[place(u->facts.t_max, i / K, i % K)] = codes[i];
        values[i] = s->fp8_scales[i / K] * (float)ref_e4m3(codes[i]);
    }
    simt_write(p, to, room);
    s->input[id] = (RefTensor){values, DT_FP32};
    return p;
}

float *scene_make_fp8_scales(Scene *s, bool out)
{
    float *p = simt_alloc((size_t)s->u->facts.t_max * sizeof *p, "scales of rows");

    if (out)
        return s->fp8_scales = p;
    simt_write(p, s->fp8_scales, (size_t)s->T * sizeof *p);
    return p;
}

/* Codes of x as it lies in memory must be equal; those of what the kernel computes itself may round to either neighbour. */
void scene_check_fp8(const Scene *s, RefTensor x, bool exact)
{
    const Unit *u = s->u;
    const int64_t K = columns_of(u, u->b.root), T = s->T, rows = u->facts.t_max;
    float *plain = arena_array(s->keep, float, (size_t)(T * K)), *scales = arena_array(s->keep, float, (size_t)T);
    uint8_t *codes = arena_array(s->keep, uint8_t, (size_t)(T * K));
    const uint8_t *y = s->y;

    for (int64_t i = 0; i < T * K; i++)
        plain[i] = (float)ref_at(x, i);
    ref_quantise_e4m3(plain, T, K, codes, scales);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t k = 0; k < K; k++) {
            const uint8_t *at = y + place(rows, m, k);

            if (m < T ? !simt_written(at, 1) : !simt_untouched(at, 1)) {
                scene_wrong("%s: the code of row %lld, k %lld was %s", u->name, (long long)m, (long long)k,
                            m < T ? "not written" : "written, though the row is not live");
                return;
            }
            if (m >= T)
                continue;

            const float scale = s->fp8_scales[m], want = plain[m * K + k], got = scale * (float)ref_e4m3(*at);
            const bool right = exact ? *at == codes[m * K + k] && memcmp(&scale, &scales[m], sizeof scale) == 0
                                     : fabsf(scale - scales[m]) <= 1e-5f * scales[m] &&
                                           fabsf(got - want) <= 0.0626f * fabsf(want) + scale * 0x1.02p-10f;

            if (!right) {
                scene_wrong("%s: row %lld, k %lld is code %d with scale %g, should be %d with %g (%g)", u->name,
                            (long long)m, (long long)k, *at, (double)scale, codes[m * K + k], (double)scales[m],
                            (double)want);
                return;
            }
        }
}
