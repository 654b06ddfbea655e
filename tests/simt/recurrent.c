/* recurrent.c - recurrent states of a launch: what stands in $recurrent before it, and what must stand there after it. */
#include <stdlib.h>
#include <string.h>

#include "scene.h"

size_t unit_recurrent(const Unit *u)
{
    for (uint32_t i = 0; i < u->b.n_covered; i++) {
        const Value *v = ir_value(u->g, u->b.covered[i]);

        if (v->op == OP_RECUR) /* [H,K,V] */
            return (size_t)(ir_value(u->g, v->args[0])->shape.dim[2].n * v->shape.dim[1].n * v->shape.dim[2].n);
        if (v->op == OP_CONVOLVE)
            return (size_t)((ir_value(u->g, v->args[1])->shape.dim[1].n - 1) * v->shape.dim[1].n);
    }
    return 0;
}

void scene_make_recurrent(Scene *s)
{
    const size_t of = unit_recurrent(s->u), n = of * (size_t)s->u->g->limits.sequences;

    if (!n)
        return;
    s->recurrent = arena_array(s->keep, float, n);
    for (size_t i = 0; i < n; i++)
        s->recurrent[i] = scene_uniform();
    for (int r = 0; r < s->S; r++) /* what another sequence left is read by nobody */
        if (s->rows[r].kv_len == s->rows[r].q_len)
            memset(s->recurrent + (size_t)s->rows[r].slot * of, 0xff, of * sizeof *s->recurrent);
    s->device[FTX_NAMED_recurrent] = simt_alloc(n * sizeof *s->recurrent, "recurrent");
    simt_write(s->device[FTX_NAMED_recurrent], s->recurrent, n * sizeof *s->recurrent);
}

float *scene_copy_recurrent(const Scene *s)
{
    const size_t n = unit_recurrent(s->u) * (size_t)s->u->g->limits.sequences;

    return n ? memcpy(arena_array(s->keep, float, n), s->recurrent, n * sizeof(float)) : NULL;
}

void scene_check_recurrent(const Scene *s, const float *want)
{
    const size_t of = unit_recurrent(s->u);
    const float *got = s->device[FTX_NAMED_recurrent];

    for (int slot = 0; slot < (int)s->u->g->limits.sequences && of; slot++) {
        const float *now = got + (size_t)slot * of;
        bool live = false;

        for (int r = 0; r < s->S; r++)
            live = live || s->rows[r].slot == slot;
        if (live)
            scene_compare(s, "the recurrent state", now, DT_FP32, want + (size_t)slot * of, (int64_t)of, 0);
        else if (memcmp(now, s->recurrent + (size_t)slot * of, of * sizeof *now) != 0)
            scene_wrong("%s: the state of slot %d changed, which is of no row", s->u->name, slot);
    }
}
