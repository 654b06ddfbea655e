/* apart.c - why an attention is not computed by the fused kernels: the value that stands in the way of simplify's rules.
 *
 *   layer 1 is computed in parts: %24 = rmsnorm (decoder.lua:93) stands between attend and the linear layer of q
 *
 * It reads the canonical graph: what simplify joined is no longer there. */
#include <string.h>

#include "lower.h"

/* The value between one of q, k and v and its linear layer that simplify does not pass; 0: none. */
static Id in_the_way(const Graph *g, Id id)
{
    bool in_heads = true;

    for (;; id = ir_value(g, id)->args[0]) {
        const Value *v = ir_value(g, id);

        if (v->op == OP_LINEAR && !in_heads)
            return 0;
        if (v->op == OP_SPLIT_HEADS)
            in_heads = false;
        else if (v->op != OP_SCALE && !(in_heads && v->op == OP_ROPE))
            return id;
    }
}

/* What attend has beside q, k and v that no other kernel computes. NULL: nothing. */
static const char *addition(const Value *v)
{
    const bool beside = v->args[2] != 0; /* keys of the same step: attend_hopper_split takes biases and slopes */

    return v->args[3] && !beside     ? "a bias"
           : v->args[4] && !beside   ? "slopes"
           : v->args[5]              ? "sinks"
           : v->args[6]              ? "numbers of queries and keys by distance"
           : ir_int(v, "chunk")      ? "chunks"
           : ir_int(v, "v_dim")      ? "values inside its keys"
           : v->shape.dim[2].n > 256 ? "heads of more than 256"
                                     : NULL;
}

const char *apart_reason(const Graph *g, Id id, Arena *a)
{
    static const char *const names[] = {"q", "k", "v"};
    const Value *v = ir_value(g, id);
    const bool keys = (v->op == OP_ATTEND || v->op == OP_ATTEND_PAGED) && v->args[1];
    const Value *cache = keys ? ir_value(g, v->args[1]) : NULL;
    const bool cached = keys && (cache->op == OP_CACHE || cache->op == OP_CROSS_CACHE);
    const Id from[] = {v->args[0], cached ? cache->args[0] : v->args[1], cached ? cache->args[1] : v->args[2]};

    if (!keys)
        return NULL;
    if (cache->op == OP_APPEND)
        return "it reads the cache that an earlier layer has written";
    if (v->op == OP_ATTEND && addition(v))
        return arena_printf(a, "it has %s, which only the kernel %s computes", addition(v),
                            ir_int(v, "v_dim") ? "keys_attend" : "attend");
    for (int i = 0; i < 3; i++) {
        const Id between = from[i] && (i == 0 || cached || v->args[2]) ? in_the_way(g, from[i]) : 0;
        const Loc loc = ir_value(g, between)->loc;

        if (between)
            return arena_printf(a, "%%%u = %s%s stands between it and the linear layer of %s", between,
                                ir_op_name(ir_value(g, between)->op),
                                loc.file ? arena_printf(a, " (%s:%d)", loc.file, loc.line) : "", names[i]);
    }
    if (cached && ir_uses(g)[v->args[1]] > 1)
        return "the cache that it reads is read by several layers";
    if (v->op == OP_ATTEND)
        return "one product gives q, k and v of attention within texts, k and v of a source, without rotation, bias, "
               "window, soft cap and causal mask only";
    return "one product cannot give q, k and v: they read different values, not all have a bias, differ in their "
           "rotation or "
           "their norm, or have other readers";
}
