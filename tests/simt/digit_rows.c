/* digit_rows.c - activations of a scene as rows of digits (form digit_rows): those that a kernel reads, and what a kernel wrote,
 * compared with kernels/ref. */
#include "scene.h"

#include <math.h>
#include <string.h>

static int64_t columns_of(const Unit *u, Id id)
{
    const Value *v = ir_value(u->g, id);

    return v->shape.dim[v->shape.rank - 1].n;
}

/* Rows of a value: those that there are room for, and the live ones. */
static int64_t rows_of(const Unit *u, Id id)
{
    return ir_shape_elements(ir_value(u->g, id)->shape, u->facts.t_max, u->facts.s_max) / columns_of(u, id);
}
static int64_t live_of(const Scene *s, Id id)
{
    return ir_shape_elements(ir_value(s->u->g, id)->shape, s->T, s->S) / columns_of(s->u, id);
}

/* Where a digit of row m, k stands, by the words of compiler/ir/forms.def. */
static int64_t place(int64_t rows, int64_t m, int64_t k, bool low)
{
    const int64_t unit = k % 128 / 16, within = k % 16, byte = within % 8 / 2 * 4 + within % 2 * 2 + within / 8;

    return ((k / 128 * 2 + low) * rows + m) * 128 + (unit ^ (m & 7)) * 16 + byte;
}

size_t scene_digit_bytes(const Unit *u, Id id)
{
    return (size_t)(2 * rows_of(u, id) * columns_of(u, id));
}

size_t scene_unit_bytes(const Unit *u, Id id)
{
    return sizeof(float) * (size_t)(rows_of(u, id) * (columns_of(u, id) / 128));
}

void *scene_make_digits(Scene *s, Id id, RefTensor x)
{
    const Unit *u = s->u;
    const int64_t K = columns_of(u, id), T = live_of(s, id), rows = rows_of(u, id);
    const size_t room = scene_digit_bytes(u, id);
    float *plain = arena_array(s->keep, float, (size_t)(T * K)), *values = arena_array(s->keep, float, (size_t)(T * K));
    float *units = arena_array(s->keep, float, (size_t)(T * K / 128));
    int8_t *digits = arena_array(s->keep, int8_t, (size_t)(2 * T * K)), *low = digits + T * K,
           *to = arena_array(s->keep, int8_t, room);
    void *p = simt_alloc(room, "digits");

    s->units = arena_array(s->keep, float, scene_unit_bytes(u, id) / sizeof *s->units);
    for (int64_t i = 0; i < T * K; i++)
        plain[i] = (float)ref_at(x, i);
    ref_digits(plain, T, K, digits, low, units);
    memset(to, 0x7f, room); /* rows that are not live: left from an earlier step */
    for (int64_t i = 0; i < rows * K / 128; i++)
        s->units[i] = NAN;
    for (int64_t i = 0; i < T * K; i++) {
        to[place(rows, i / K, i % K, false)] = digits[i];
        to[place(rows, i / K, i % K, true)] = low[i];
        s->units[i % K / 128 * rows + i / K] = units[i / 128];
        values[i] = units[i / 128] * (float)(256 * digits[i] + low[i]);
    }
    simt_write(p, to, room);
    s->input[id] = (RefTensor){values, DT_FP32};
    return p;
}

float *scene_make_units(Scene *s, Id id, bool out)
{
    const size_t room = scene_unit_bytes(s->u, id);
    float *p = simt_alloc(room, "units of digits");

    if (out)
        return s->units = p;
    simt_write(p, s->units, room);
    return p;
}

/* Digits of x as it lies in memory must be equal; those of what the kernel computes itself may differ by its rounding. */
void scene_check_digits(const Scene *s, RefTensor x, bool exact)
{
    const Unit *u = s->u;
    const Id id = u->b.root;
    const int64_t K = columns_of(u, id), T = live_of(s, id), rows = rows_of(u, id);
    float *plain = arena_array(s->keep, float, (size_t)(T * K)),
          *units = arena_array(s->keep, float, (size_t)(T * K / 128));
    int8_t *digits = arena_array(s->keep, int8_t, (size_t)(2 * T * K)), *low = digits + T * K;
    const int8_t *y = s->y;

    for (int64_t i = 0; i < T * K; i++)
        plain[i] = (float)ref_at(x, i);
    ref_digits(plain, T, K, digits, low, units);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t k = 0; k < K; k++) {
            const int8_t *a = y + place(rows, m, k, false), *b = y + place(rows, m, k, true);
            const bool written = simt_written(a, 1) && simt_written(b, 1),
                       untouched = simt_untouched(a, 1) && simt_untouched(b, 1);

            if (m < T ? !written : !untouched) {
                scene_wrong("%s: the digits of row %lld, k %lld were %s", u->name, (long long)m, (long long)k,
                            m < T ? "not written" : "written, though the row is not live");
                return;
            }
            if (m >= T)
                continue;

            const float unit = s->units[k / 128 * rows + m], want = plain[m * K + k],
                        got = unit * (float)(256 * *a + *b);
            const bool right = exact
                                   ? *a == digits[m * K + k] && *b == low[m * K + k] && unit == units[(m * K + k) / 128]
                                   : unit >= 0.5f * units[(m * K + k) / 128] && unit <= 2 * units[(m * K + k) / 128] &&
                                         fabsf(got - want) <= 0.6f * unit + 2e-5f * fabsf(want);

            if (!right) {
                scene_wrong("%s: row %lld, k %lld is %d, %d with unit %g, should be %d, %d with %g (%g)", u->name,
                            (long long)m, (long long)k, *a, *b, (double)unit, digits[m * K + k], low[m * K + k],
                            (double)units[(m * K + k) / 128], (double)want);
                return;
            }
        }
}
