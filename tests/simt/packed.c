/* packed.c - quantised weights of a scene: random codes, scales and zeros in the tiles that kernels read, their values for the
 * reference; and the check of a kernel that writes these values. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "runtime/base/packed.h"

/* Where code [r,k] of a tile stands, by the words of compiler/ir/forms.def: its byte, and the bits below it. */
static int64_t place(DType type, int64_t K, int64_t r, int64_t k, int *shift)
{
    const int64_t span = type == DT_INT4 ? 64 : 32, block = k / span,
                  words = (K - block * span < span ? K % span : span) / 16;
    const int64_t lane = 4 * (r % 8) + k % 8 / 2, number = r / 8 + 2 * (k % 16 / 8), odd = k % 2; /* of the register */

    if (type == DT_INT4) {
        *shift = (int)(4 * number + 16 * odd) % 8;
        return block * 512 + (lane * words + k % span / 16) * 4 + (4 * number + 16 * odd) / 8;
    }
    *shift = 0;
    return block * 512 + ((lane * words + k % span / 16) * 2 + number / 2) * 4 + number % 2 + 2 * odd;
}

void *scene_make_packed(Scene *s, Id id)
{
    const Value *v = ir_value(s->u->g, id);
    const DType type = v->type;
    const int64_t N = v->shape.dim[0].n, K = v->shape.dim[1].n, group = ir_int(v, "group");
    const PackedScales kind = (PackedScales)ir_int(v, "scales");
    const uint64_t bytes = packed_tile(type, (uint64_t)K, (uint64_t)group, kind),
                   room = bytes * packed_tiles((uint64_t)N);
    const int64_t scale_bytes = (int64_t)packed_scale(kind), zero_bytes = (int64_t)packed_zeros(kind);
    float *values = arena_array(s->keep, float, (size_t)(N * K)), scale = 0, offset = 0;
    uint8_t *p = simt_alloc(room, "codes");

    simt_fill(p, 0, room);
    for (int64_t i = 0; i < N * K; i++) {
        const int64_t n = i / K, k = i % K, at = k / group * PACKED_ROWS + n % PACKED_ROWS;
        uint8_t *tile = p + (uint64_t)(n / PACKED_ROWS) * bytes, *scales = tile + packed_codes(type, (uint64_t)K);
        uint8_t *zeros = scales + scale_bytes * PACKED_ROWS * (K / group);
        const int any =
            scene_below(type == DT_INT4 ? 16 : 256); /* of fp8 also those of NaN, as 480 where codes become numbers */
        const int code = s->u->facts.fp8_rows && any % 128 == 127 ? any - 1 : any;
        int shift;

        if (k % group == 0) {
            const float rms = type == DT_FP8 ? 187.0f : (float)packed_zero(type);
            const uint16_t half = fp16_from_float(scene_uniform() * 1.7f / sqrtf((float)K) / rms);
            const uint8_t zero = (uint8_t)scene_below(type == DT_INT4 ? 16 : 256);

            scale = fp16_to_float(half) * (scale_bytes == 4 ? 1.0001f : 1.0f);
            offset = zero_bytes == 4 ? scale * 7.3f : zero_bytes ? (float)zero : (float)packed_zero(type);
            memcpy(scales + at * scale_bytes, scale_bytes == 4 ? (const void *)&scale : &half, (size_t)scale_bytes);
            memcpy(zeros + at * zero_bytes, zero_bytes == 4 ? (const void *)&offset : &zero, (size_t)zero_bytes);
        }
        uint8_t *to = tile + place(type, K, n % PACKED_ROWS, k, &shift);

        *to = (uint8_t)(*to | code << shift);
        values[i] = type == DT_FP8    ? scale * (float)ref_e4m3(code)
                    : zero_bytes == 4 ? scale * (float)code - offset
                                      : scale * ((float)code - offset);
    }
    simt_protect(p, room);
    s->input[id] = (RefTensor){values, DT_FP32};
    return p;
}

/* Each value is rounded once, from fp32. */
void scene_check_unpacked(const Scene *s)
{
    const Value *v = ir_value(s->u->g, s->u->b.root);
    const DType type = s->u->facts.compute;
    const int64_t n = ir_shape_elements(v->shape, 0, 0);
    const float *want = s->input[s->u->b.root].p, part = type == DT_BF16   ? 0x1p-8f
                                                         : type == DT_FP16 ? 0x1p-11f
                                                                           : 0x1p-22f;

    if (!simt_written(s->y, (size_t)n * dtype_size(type)))
        scene_wrong("%s: some values were not written", s->u->name);
    for (int64_t i = 0; i < n; i++) {
        const float y = dtype_load(s->y, (size_t)i, type);

        if (!(fabsf(y - want[i]) <= 1.01f * part * fabsf(want[i]) + 1e-7f)) {
            scene_wrong("%s: value %lld is %g, should be %g", s->u->name, (long long)i, (double)y, (double)want[i]);
            return;
        }
    }
}
