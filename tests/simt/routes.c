/* routes.c - routes as inputs of the experts' kernels, and the check of what the router's kernel writes; parts of their sums. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

static RefRoute route_of(const Graph *g, const Value *v)
{
    return (RefRoute){.experts = (int)ir_value(g, v->args[0])->shape.dim[1].n,
                      .k = (int)ir_int(v, "k"),
                      .groups = (int)ir_int(v, "groups"),
                      .groups_kept = (int)ir_int(v, "groups_kept"),
                      .sigmoid = ir_int(v, "sigmoid") != 0,
                      .chosen = ir_int(v, "chosen") != 0,
                      .renorm = ir_int(v, "renorm") != 0,
                      .near = ir_float(v, "near"),
                      .best_two = ir_int(v, "best_two") != 0,
                      .scale = ir_float(v, "scale")};
}

static int rows_of(const Scene *s, const Value *v)
{
    return v->shape.dim[0].kind == DIM_S ? s->S : s->T;
}

void scene_make_routes(const Scene *s, const Value *v, int32_t *y)
{
    const RefRoute r = route_of(s->u->g, v);
    const int M = rows_of(s, v);
    float *logits = arena_array(s->keep, float, (size_t)(M * r.experts));

    for (int i = 0; i < M * r.experts; i++)
        logits[i] = 4.0f * scene_uniform() - 3.0f * (float)(i % 3); /* two of three experts are rarely hit */
    ref_route((RefTensor){logits, DT_FP32}, (RefTensor){0}, &r, M, y);
}

/* Whether argument i is the companion `starts`, not `rows`. */
static bool is_starts(const Unit *u, size_t i)
{
    return u->b.contract->args.at[i].companion == 0;
}

size_t scene_by_expert_bytes(const Scene *s, size_t i, bool live)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, u->b.arg[i]);
    const RefRoute r = route_of(u->g, v);
    const int64_t room = v->shape.dim[0].kind == DIM_S ? u->facts.s_max : u->facts.t_max;

    return 4 * (size_t)(is_starts(u, i) ? r.experts + 1 : (live ? rows_of(s, v) : room) * r.k);
}

int32_t *scene_make_by_expert(Scene *s, size_t i)
{
    const Unit *u = s->u;
    const Id id = u->b.arg[i];
    const RefRoute r = route_of(u->g, ir_value(u->g, id));
    const int M = rows_of(s, ir_value(u->g, id));
    const int32_t *y = s->input[id].p;
    const size_t bytes = scene_by_expert_bytes(s, i, false);
    int32_t *p = simt_alloc(bytes, is_starts(u, i) ? "starts" : "rows"), n = 0;
    int32_t *made = arena_array(s->keep, int32_t, (size_t)(M * r.k) + (size_t)r.experts + 1);

    if (u->b.contract->args.at[i].out)
        return *(is_starts(u, i) ? &s->starts : &s->sorted) = p;
    simt_fill(p, 0xff, bytes);
    for (int e = 0; e <= r.experts; e++) {
        if (is_starts(u, i))
            made[e] = n;
        for (int pair = M * r.k - 1; pair >= 0 && e < r.experts; pair--) /* any order will do */
            if (y[pair / r.k * 2 * r.k + pair % r.k] == e) {
                if (!is_starts(u, i))
                    made[n] = pair;
                n++;
            }
    }
    simt_write(p, made, scene_by_expert_bytes(s, i, true));
    return p;
}

void scene_check_routes(const Scene *s, RefTensor logits, RefTensor bias)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, u->b.root);
    const RefRoute r = route_of(u->g, v);
    const int M = rows_of(s, v), k = r.k;
    int32_t *want = arena_array(s->keep, int32_t, (size_t)(M * 2 * k));
    const int32_t *y = s->y;
    bool *seen = arena_array(s->keep, bool, (size_t)(M * k) + 1);

    ref_route(logits, bias, &r, M, want);
    assert_true(simt_written(y, sizeof *y * (size_t)(M * 2 * k)));
    for (int i = 0; i < M * 2 * k; i++) {
        float got, weight;

        memcpy(&got, &y[i], sizeof got);
        memcpy(&weight, &want[i], sizeof weight);
        if (i / k % 2 ? !(fabsf(got - weight) <= 4e-6f * fmaxf(1.0f, fabsf(weight))) : y[i] != want[i]) {
            scene_wrong("%s: %s: row %d: %d is %d (%g), should be %d (%g)", u->name, u->fit.instance->entry,
                        i / (2 * k), i % (2 * k), y[i], (double)got, want[i], (double)weight);
            return;
        }
    }
    if (!s->starts)
        return;
    assert_true(simt_written(s->starts, sizeof *y * (size_t)(r.experts + 1)) &&
                simt_written(s->sorted, sizeof *y * (size_t)(M * k)));
    assert_int_equal(s->starts[0], 0);
    assert_int_equal(s->starts[r.experts], M * k);
    for (int e = 0; e < r.experts; e++)
        for (int i = s->starts[e]; i < s->starts[e + 1]; i++) {
            const int pair = s->sorted[i];

            if (pair < 0 || pair >= M * k || seen[pair] || y[pair / k * 2 * k + pair % k] != e) {
                scene_wrong("%s: %s: pair %d stands at %d, expert %d", u->name, u->fit.instance->entry, pair, i, e);
                return;
            }
            seen[pair] = true;
        }
}

/* Parts of a row: those that the value is made of, or that the kernel writes. */
static int64_t parts_of(const Unit *u, Id id)
{
    return u->b.gives == u->parts ? u->fit.param : facts_param(&u->facts, id, u->parts);
}

size_t scene_parts_bytes(const Scene *s, Id id, bool live)
{
    const Value *v = ir_value(s->u->g, id);

    return (size_t)((live ? s->T : s->u->facts.t_max) * parts_of(s->u, id) * v->shape.dim[1].n) * dtype_size(v->type);
}

void *scene_make_parts(Scene *s, Id id)
{
    const Value *v = ir_value(s->u->g, id);
    const int64_t R = parts_of(s->u, id), N = v->shape.dim[1].n;
    const size_t room = scene_parts_bytes(s, id, false);
    float *sums = arena_array(s->keep, float, (size_t)(s->T * N));
    char *parts = arena_alloc(s->keep, room), *p = simt_alloc(room, "parts");

    memset(parts, 0xff, room); /* NaN beyond the live rows */
    for (int64_t m = 0; m < s->T; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;

            for (int64_t i = 0; i < R; i++) {
                dtype_store(parts, (size_t)((m * R + i) * N + n), v->type, scene_uniform());
                sum += ref_at((RefTensor){parts, v->type}, (m * R + i) * N + n);
            }
            sums[m * N + n] = (float)sum;
        }
    simt_write(p, parts, room);
    s->input[id] = (RefTensor){sums, DT_FP32};
    return p;
}

float *scene_expected_parts(const Scene *s)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, u->b.root);
    const RefTensor w = s->input[v->args[2]], b = v->args[3] ? s->input[v->args[3]] : (RefTensor){0};
    const Shape of = ir_value(u->g, v->args[2])->shape;
    const int R = (int)u->fit.param, N = (int)v->shape.dim[1].n;
    const int32_t *routes = s->input[v->args[1]].p;
    int32_t *one = arena_array(s->keep, int32_t, (size_t)(2 * s->T * R)); /* each pair as a row with one expert */
    float *y = arena_array(s->keep, float, (size_t)(s->T * R * N));

    for (int pair = 0; pair < s->T * R; pair++) {
        one[2 * pair] = routes[pair / R * 2 * R + pair % R];
        one[2 * pair + 1] = routes[pair / R * 2 * R + R + pair % R];
    }
    ref_expert_sum(s->input[v->args[0]], one, w, b, s->T * R, 1, N, (int)of.dim[1].n, y);
    return y;
}
