/* lora.c - the tensors of an adapter, each to the weight that it changes.
 *
 *   base_model.model.MODULE.lora_A.weight, .lora_B.weight               a product, added to MODULE.weight
 *                          .lora_B.bias                                 added to MODULE.bias
 *                          .lora_embedding_A, .lora_embedding_B         a product, added to an embedding
 *                          .lora_magnitude_vector                       DoRA's norms of MODULE.weight
 *                          .base_layer.NAME, .modules_to_save.NAME      stands for MODULE.NAME
 *                          .NAME                                        the same
 *
 * merge.c does the arithmetic when the weights are packed. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "adapter.h"

typedef enum Role {
    ROLE_A,
    ROLE_B,
    ROLE_EMBEDDING_A,
    ROLE_EMBEDDING_B,
    ROLE_ADDED,
    ROLE_MAGNITUDE,
    ROLE_STANDS,
    ROLES
} Role;

static const struct {
    const char *end, *target; /* the end of a tensor's name, and of the name of the weight */
    Role role;
} endings[] = {
    {".lora_A.weight", ".weight", ROLE_A},
    {".lora_B.weight", ".weight", ROLE_B},
    {".lora_B.bias", ".bias", ROLE_ADDED},
    {".lora_embedding_A", ".weight", ROLE_EMBEDDING_A},
    {".lora_embedding_B", ".weight", ROLE_EMBEDDING_B},
    {".lora_magnitude_vector", ".weight", ROLE_MAGNITUDE},
    {".lora_magnitude_vector.weight", ".weight", ROLE_MAGNITUDE},
};

typedef struct Named { /* a tensor and what it is for */
    const char *target, *module;
    Role role;
    const Tensor *tensor;
} Named;

typedef struct Change { /* what the adapter has for one weight */
    const char *name, *module;
    const Tensor *has[ROLES];
    bool used;
} Change;

typedef struct Lora {
    const Adapter *adapter;
    const Spec *spec;
    Arena *keep;
    TensorList tensors; /* of the adapter */
    Change *targets;    /* sorted by name */
    size_t n;
    Checkpoint names;    /* the names of the targets as tensors, so that they are found like those of a checkpoint */
    int64_t least, most; /* ranks */
    size_t matrices, replaced;
    const char *kinds; /* "q_proj, v_proj" */
    Diag *d;
} Lora;

static Loc in_file(const Lora *l)
{
    return (Loc){l->adapter->path, 0};
}

/* --- names ----------------------------------------------------------------------------------- */

static bool cut_end(const char *name, const char *end, size_t *n)
{
    const size_t have = strlen(name), m = strlen(end);

    if (have <= m || strcmp(name + have - m, end) != 0)
        return false;
    *n = have - m;
    return true;
}

/* NAME of a tensor that stands for another: without a part ".base_layer" or ".modules_to_save" before its last one. */
static const char *without_wrapper(const char *name, Arena *keep)
{
    static const char *const wrappers[] = {".base_layer", ".modules_to_save"};
    const char *last = strrchr(name, '.');

    for (size_t i = 0; last && i < LEN(wrappers); i++) {
        const size_t n = strlen(wrappers[i]);

        if ((size_t)(last - name) > n && strncmp(last - n, wrappers[i], n) == 0)
            return arena_printf(keep, "%.*s%s", (int)(last - name - (ptrdiff_t)n), name, last);
    }
    return name;
}

static bool name_tensor(const Lora *l, const Tensor *t, Named *out)
{
    static const char prefix[] = "base_model.model.";
    const char *name = t->name;
    size_t n;

    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return diag_error(l->d, in_file(l), "tensor \"%.200s\": names of an adapter begin with %s", name, prefix);
    name += strlen(prefix);
    *out = (Named){.role = ROLE_STANDS, .tensor = t, .target = without_wrapper(name, l->keep)};
    for (size_t i = 0; i < LEN(endings); i++)
        if (cut_end(name, endings[i].end, &n)) {
            out->role = endings[i].role;
            out->module = arena_strndup(l->keep, name, n);
            out->target = arena_printf(l->keep, "%s%s", out->module, endings[i].target);
        }
    if (out->role == ROLE_STANDS && strstr(name, ".lora_"))
        return diag_error(l->d, in_file(l), "tensor \"%.200s\" is of a kind that ftxc does not read", t->name);
    if (t->type == DT_NONE)
        return diag_error(l->d, in_file(l), "tensor \"%.200s\" is stored as %s; F32, F16 and BF16 can be read", t->name,
                          t->stored);
    for (uint64_t i = 0; out->role != ROLE_STANDS && i < t->elements; i++)
        if (!isfinite(tensor_element(t, i)))
            return diag_error(l->d, in_file(l), "tensor \"%.200s\": element %" PRIu64 " is not a finite number",
                              t->name, i);
    return true;
}

static int by_target(const void *a, const void *b)
{
    const Named *x = a, *y = b;
    const int order = strcmp(x->target, y->target);

    return order ? order : (int)x->role - (int)y->role;
}

static bool collect(Lora *l)
{
    Named *all = arena_array(l->keep, Named, l->tensors.n);

    l->targets = arena_array(l->keep, Change, l->tensors.n);
    for (size_t i = 0; i < l->tensors.n; i++)
        if (!name_tensor(l, &l->tensors.at[i], &all[i]))
            return false;
    if (l->tensors.n)
        qsort(all, l->tensors.n, sizeof *all, by_target);
    for (size_t i = 0; i < l->tensors.n; i++) {
        Change *t;

        if (!l->n || strcmp(l->targets[l->n - 1].name, all[i].target) != 0) {
            l->targets[l->n++].name = all[i].target;
            arena_push(l->keep, l->names.tensors)->name = all[i].target;
        }
        t = &l->targets[l->n - 1];
        if (t->has[all[i].role])
            return diag_error(l->d, in_file(l), "tensors \"%.200s\" and \"%.200s\" are for the same thing",
                              t->has[all[i].role]->name, all[i].tensor->name);
        t->has[all[i].role] = all[i].tensor;
        t->module = all[i].module ? all[i].module : t->module;
    }
    return true;
}

/* --- one weight ------------------------------------------------------------------------------ */

static bool is_matrix(const Tensor *t, int64_t rows, int64_t columns)
{
    return t->rank == 2 && t->dim[0] == rows && t->dim[1] == columns;
}

/* Whether the graph reads a weight of this name as its transpose alone: then it is stored inputs first. */
static bool is_transposed(const Graph *g, const char *name)
{
    bool transposed = false;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);

        for (int i = 0; i < IR_MAX_ARGS; i++) {
            const Value *a = v->args[i] ? ir_value(g, v->args[i]) : NULL;

            if (!a || a->op != OP_WEIGHT || strcmp(ir_word(a, "name"), name) != 0)
                continue;
            if (v->op != OP_TRANSPOSE)
                return false;
            transposed = true;
        }
    }
    return transposed;
}

/* Whether a weight is an embedding and the matrix of the head. */
static bool is_tied(const Graph *g, const char *name)
{
    bool embeds = false, more = false;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);

        for (int i = 0; i < IR_MAX_ARGS; i++) {
            const Value *a = v->args[i] ? ir_value(g, v->args[i]) : NULL;

            if (a && a->op == OP_WEIGHT && strcmp(ir_word(a, "name"), name) == 0) {
                embeds |= v->op == OP_EMBED;
                more |= v->op != OP_EMBED;
            }
        }
    }
    return embeds && more;
}

/* A tensor that the spec leaves unused because it is tied to another, and that has the same bytes as `t`. */
static Change *same_as(Lora *l, const Tensor *t)
{
    for (size_t i = 0; i < l->n; i++) {
        const Tensor *other = l->targets[i].has[ROLE_STANDS];

        if (other && other != t && checkpoint_ignores(l->spec, l->targets[i].name) && other->type == t->type &&
            other->bytes == t->bytes && memcmp(other->at, t->at, t->bytes) == 0)
            return &l->targets[i];
    }
    return NULL;
}

static bool replace(Lora *l, Merge *m, Change *t, const Value *v)
{
    const Tensor *by = t->has[ROLE_STANDS];
    Change *tied;

    if (!tensor_has_shape(by, &v->shape))
        return diag_error(l->d, in_file(l), "tensor \"%.200s\" is %s; weight \"%s\" of the model is %s", by->name,
                          tensor_shape(by, l->keep), m->weight, ir_shape_text(l->keep, v->shape));
    if (m->replaced || m->deltas.n)
        return diag_error(
            l->d, in_file(l),
            "tensor \"%.200s\" stands for weight \"%s\", which an earlier adapter changed: the two cannot "
            "be merged into one model",
            by->name, m->weight);
    if (is_tied(l->spec->graph, m->weight)) {
        tied = same_as(l, by);
        if (!tied)
            return diag_error(
                l->d, in_file(l),
                "tensor \"%.200s\" stands for weight \"%s\", which is the matrix of the head, too, and the "
                "adapter has no equal tensor for that: if it has one for each, compile with "
                "-D graph.tie_embeddings=false; else train with ensure_weight_tying",
                by->name, m->weight);
        tied->used = true;
    }
    m->replaced = by;
    l->replaced++;
    return true;
}

static bool check_product(Lora *l, const Delta *p, const char *weight, const Value *v)
{
    const bool matrix = v->shape.rank == 2;
    const int64_t first = v->shape.dim[0].n, second = matrix ? v->shape.dim[1].n : 0;
    const int64_t N = p->inputs_first ? second : first, K = p->inputs_first ? first : second;

    if (!matrix || !is_matrix(p->a, p->rank, K) || !is_matrix(p->b, N, p->rank))
        return diag_error(l->d, in_file(l),
                          "tensors \"%.200s\" %s and \"%.200s\" %s do not fit weight \"%s\" %s and the rank %" PRId64
                          " of adapter_config.json",
                          p->a->name, tensor_shape(p->a, l->keep), p->b->name, tensor_shape(p->b, l->keep), weight,
                          ir_shape_text(l->keep, v->shape), p->rank);
    if (p->magnitude && p->magnitude->elements != (uint64_t)N)
        return diag_error(l->d, in_file(l), "tensor \"%.200s\" is %s; weight \"%s\" has %" PRId64 " outputs",
                          p->magnitude->name, tensor_shape(p->magnitude, l->keep), weight, N);
    return true;
}

/* "model.layers.0.self_attn.q_proj" to "q_proj", noted once. */
static void note_kind(Lora *l, const char *module)
{
    const char *kind = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
    const size_t n = strlen(kind);

    for (const char *at = l->kinds; (at = strstr(at, kind)); at += n)
        if ((at == l->kinds || at[-1] == ' ') && (at[n] == ',' || !at[n]))
            return;
    l->kinds = arena_printf(l->keep, "%s%s%s", l->kinds, *l->kinds ? ", " : "", kind);
}

static bool add_product(Lora *l, Merge *m, const Change *t, const Value *v)
{
    const bool embedding = t->has[ROLE_EMBEDDING_A] || t->has[ROLE_EMBEDDING_B];
    Delta p = {.a = t->has[embedding ? ROLE_EMBEDDING_A : ROLE_A],
               .b = t->has[embedding ? ROLE_EMBEDDING_B : ROLE_B],
               .magnitude = t->has[ROLE_MAGNITUDE],
               .inputs_first = embedding || is_transposed(l->spec->graph, m->weight)};
    const char *missing = !p.a                               ? "lora_A"
                          : !p.b                             ? "lora_B"
                          : l->adapter->dora && !p.magnitude ? "lora_magnitude_vector"
                                                             : NULL;
    double scale;

    if (missing)
        return diag_error(l->d, in_file(l), "module \"%.200s\" has no %s", t->module, missing);
    if (embedding && (t->has[ROLE_A] || t->has[ROLE_B]))
        return diag_error(l->d, in_file(l), "module \"%.200s\" has both lora_A or lora_B and lora_embedding_A",
                          t->module);
    if (p.magnitude && !l->adapter->dora)
        return diag_error(l->d, in_file(l), "tensor \"%.200s\" is there, but \"use_dora\" is not set in %s",
                          p.magnitude->name, l->adapter->config_path);
    if (is_tied(l->spec->graph, m->weight))
        return diag_error(
            l->d, in_file(l),
            "tensor \"%.200s\" changes weight \"%s\", which is the matrix of the head, too: in the trained "
            "model only the embedding is changed, merged both would be. Train with modules_to_save",
            p.a->name, m->weight);
    if (p.magnitude && m->deltas.n)
        return diag_error(
            l->d, in_file(l),
            "tensor \"%.200s\" is DoRA's, but an earlier adapter changed weight \"%s\": a merge would not "
            "be the model with both; give this adapter first, or alone",
            p.magnitude->name, m->weight);
    if (!adapter_scale(l->adapter, t->module, &p.rank, &scale, l->d) || !check_product(l, &p, m->weight, v))
        return false;
    p.scale = (float)scale;
    *arena_push(l->keep, m->deltas) = p;
    l->least = l->matrices && l->least < p.rank ? l->least : p.rank;
    l->most = l->most > p.rank ? l->most : p.rank;
    l->matrices++;
    note_kind(l, t->module);
    return true;
}

/* lora_B.bias: its module's scale, added to the bias. */
static bool add_bias(Lora *l, Merge *m, const Change *t, const Value *v)
{
    Delta p = {.b = t->has[ROLE_ADDED], .rank = 1};
    double scale;
    int64_t rank;

    if (!tensor_has_shape(p.b, &v->shape) || p.b->rank != 1)
        return diag_error(l->d, in_file(l), "tensor \"%.200s\" is %s; weight \"%s\" of the model is %s", p.b->name,
                          tensor_shape(p.b, l->keep), m->weight, ir_shape_text(l->keep, v->shape));
    if (!adapter_scale(l->adapter, t->module, &rank, &scale, l->d))
        return false;
    p.scale = (float)scale;
    *arena_push(l->keep, m->deltas) = p;
    return true;
}

/* --- all weights ----------------------------------------------------------------------------- */

/* The merge of a weight, made if there is none yet. The list stays sorted. */
static Merge *merge_of(Checkpoint *c, const char *weight, Arena *keep)
{
    const Merge *have = checkpoint_merge(c, weight);
    size_t i = c->merges.n;

    if (have)
        return &c->merges.at[have - c->merges.at];
    arena_push(keep, c->merges);
    for (; i > 0 && strcmp(c->merges.at[i - 1].weight, weight) > 0; i--)
        c->merges.at[i] = c->merges.at[i - 1];
    c->merges.at[i] = (Merge){.weight = weight};
    return &c->merges.at[i];
}

static bool apply(Lora *l, Checkpoint *c, const Value *v)
{
    const char *weight = ir_word(v, "name");
    const Tensor *found = checkpoint_find(&l->names, l->spec, weight);
    Change *t = found ? &l->targets[found - l->names.tensors.at] : NULL;
    Merge *m;

    if (!t || t->used) /* used: the graph has the weight twice */
        return true;
    t->used = true;
    m = merge_of(c, weight, l->keep);
    if (t->has[ROLE_STANDS] && !replace(l, m, t, v))
        return false;
    if (t->has[ROLE_ADDED])
        return add_bias(l, m, t, v);
    for (int i = 0; i < ROLES; i++)
        if (i != ROLE_STANDS && t->has[i])
            return add_product(l, m, t, v);
    return true;
}

/* Every tensor of the adapter must be for a weight of the graph. */
static bool check_used(const Lora *l)
{
    const Change *first = NULL;
    const Tensor *tensor = NULL;
    size_t more = 0;

    for (size_t i = 0; i < l->n; i++)
        if (!l->targets[i].used) {
            more += first != NULL;
            first = first ? first : &l->targets[i];
        }
    for (int i = 0; first && !tensor && i < ROLES; i++)
        tensor = first->has[i];
    if (!tensor)
        return true;
    return diag_error(l->d, in_file(l), "tensor \"%.200s\"%s: %s has no weight \"%.200s\"%s", tensor->name,
                      more ? arena_printf(l->keep, " and those of %zu more weights", more) : "", l->spec->name,
                      first->name,
                      checkpoint_ignores(l->spec, first->name)
                          ? ", as it is tied to the embedding; -D graph.tie_embeddings=false keeps them apart if the "
                            "adapter has all of both"
                          : "; is the adapter of this model, and \"architectures\" in its config.json of the head that "
                            "was trained?");
}

static const char *describe(const Lora *l)
{
    const char *ranks = l->least == l->most ? arena_printf(l->keep, "%" PRId64, l->least)
                                            : arena_printf(l->keep, "%" PRId64 " to %" PRId64, l->least, l->most);
    const char *s = arena_printf(l->keep, "lora %s:", l->adapter->name);

    if (l->matrices)
        s = arena_printf(l->keep, "%s %s of rank %s, %zu matri%s (%s)", s, l->adapter->dora ? "DoRA" : "LoRA", ranks,
                         l->matrices, l->matrices == 1 ? "x" : "ces", l->kinds);
    if (l->replaced)
        s = arena_printf(l->keep, "%s%s %zu tensor%s replaced", s, l->matrices ? "," : "", l->replaced,
                         l->replaced == 1 ? "" : "s");
    return arena_printf(l->keep, "%s\n", s);
}

static bool adapt(Lora *l, Checkpoint *c, Diag *d)
{
    FileMap *map = arena_push(l->keep, c->maps);
    FtxError err;

    if (file_map(l->adapter->path, map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    if (!safetensors_read(l->adapter->path, map, l->keep, &l->tensors, d))
        return false;
    if (!l->tensors.n)
        return diag_error(d, in_file(l), "has no tensors");
    if (!collect(l))
        return false;
    for (Id id = 1; id < l->spec->graph->values.n; id++)
        if (ir_value(l->spec->graph, id)->op == OP_WEIGHT && !apply(l, c, ir_value(l->spec->graph, id)))
            return false;
    if (!check_used(l))
        return false;
    c->adapters = arena_printf(l->keep, "%s%s", c->adapters ? c->adapters : "", describe(l));
    return true;
}

bool checkpoint_adapt(Checkpoint *c, const Spec *spec, const char *folder, Arena *keep, Diag *d)
{
    Adapter adapter;
    Lora l = {.adapter = &adapter, .spec = spec, .keep = keep, .kinds = "", .d = d};
    bool ok;

    if (!adapter_read(folder, keep, &adapter, d))
        return false;
    ok = adapt(&l, c, d);
    adapter_drop(&adapter);
    return ok;
}

const char *checkpoint_adapters(const Checkpoint *c)
{
    return c->adapters ? c->adapters : "";
}
