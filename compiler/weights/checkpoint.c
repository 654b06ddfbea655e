/* checkpoint.c - the files of a checkpoint as one set of named tensors, compared with the weights of a spec. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "stored.h"
#include "../gguf/gguf.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const Tensor *)a)->name, ((const Tensor *)b)->name);
}

bool checkpoint_sort(Checkpoint *c, Diag *d)
{
    if (c->tensors.n)
        qsort(c->tensors.at, c->tensors.n, sizeof *c->tensors.at, by_name);
    for (size_t i = 1; i < c->tensors.n; i++)
        if (by_name(&c->tensors.at[i - 1], &c->tensors.at[i]) == 0)
            return diag_error(d, (Loc){c->path, 0}, "tensor \"%.200s\" is both in %s and in %s", c->tensors.at[i].name,
                              c->tensors.at[i - 1].file, c->tensors.at[i].file);
    return true;
}

static bool add_file(Checkpoint *c, const char *path, Arena *keep, Diag *d)
{
    FileMap *map = arena_push(keep, c->maps);
    FtxError err;

    if (file_map(path, map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    if (gguf_begins(map->at, map->bytes))
        return gguf_tensors(path, map, &c->maps, keep, &c->tensors, d);
    return safetensors_read(path, map, keep, &c->tensors, d);
}

/* Whether a path stays in the folder of the index: not absolute, no "..". */
static bool is_beside(const char *name)
{
    if (!*name || *name == '/')
        return false;
    for (const char *p = name; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || !p[2]))
            return false;
    return true;
}

static const char *beside(const char *path, const char *name, Arena *keep)
{
    const char *slash = strrchr(path, '/');

    return slash ? arena_printf(keep, "%.*s/%s", (int)(slash - path), path, name) : arena_strdup(keep, name);
}

/* {"weight_map": {"tensor": "model-00001-of-00002.safetensors"}} */
static bool add_shards(Checkpoint *c, const json_t *root, Arena *keep, Diag *d)
{
    json_t *map = json_object_get(root, "weight_map"), *v;
    struct {
        const char **at;
        size_t n, cap;
    } files = {0};
    const Loc loc = {c->path, 0};
    const char *name;

    if (!json_is_object(map) || !json_object_size(map))
        return diag_error(d, loc, "has no \"weight_map\"");
    json_object_foreach(map, name, v)
    {
        const char *file = json_string_value(v);
        size_t i = 0;

        if (!file || !is_beside(file))
            return diag_error(
                d, loc, "\"weight_map\" places tensor \"%.200s\" in %s%.200s%s, which is not a file in its folder",
                name, file ? "\"" : "", file ? file : "no text", file ? "\"" : "");
        while (i < files.n && strcmp(files.at[i], file) != 0)
            i++;
        if (i == files.n)
            *arena_push(keep, files) = arena_strdup(keep, file);
    }
    for (size_t i = 0; i < files.n; i++) {
        const size_t first = c->tensors.n;

        if (!add_file(c, beside(c->path, files.at[i], keep), keep, d))
            return false;
        for (size_t k = first; k < c->tensors.n; k++)
            c->tensors.at[k].file = files.at[i];
    }
    if (!checkpoint_sort(c, d))
        return false;
    json_object_foreach(map, name, v)
    {
        const Tensor key = {.name = name};
        const Tensor *t = bsearch(&key, c->tensors.at, c->tensors.n, sizeof key, by_name);

        if (!t || strcmp(t->file, json_string_value(v)) != 0)
            return diag_error(d, loc, "\"weight_map\" says that tensor \"%.200s\" is in \"%.200s\"; it is not", name,
                              json_string_value(v));
    }
    return true;
}

static bool add_index(Checkpoint *c, Arena *keep, Diag *d)
{
    json_error_t why;
    json_t *root;
    FileMap map;
    FtxError err;
    const char *text;
    size_t bytes;
    bool ok;

    if (file_map(c->path, &map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    text = file_text(&map, &bytes);
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    file_unmap(&map);
    if (!root)
        return diag_error(d, (Loc){c->path, 0}, "is not JSON");
    ok = add_shards(c, root, keep, d);
    json_decref(root);
    return ok;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Of a folder: its model.safetensors, or else its index. */
static const char *resolve(const char *path, Arena *keep)
{
    struct stat st;
    const char *one, *index;

    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return arena_strdup(keep, path);
    one = arena_printf(keep, "%s/model.safetensors", path);
    index = arena_printf(keep, "%s/model.safetensors.index.json", path);
    return !file_exists(one) && file_exists(index) ? index : one;
}

bool checkpoint_open(const char *path, Arena *keep, Checkpoint **out, Diag *d)
{
    Checkpoint *c = *out = arena_new(keep, Checkpoint);
    bool ok;

    c->path = resolve(path, keep);
    if (ends_with(c->path, ".json"))
        ok = add_index(c, keep, d);
    else
        ok = add_file(c, c->path, keep, d) && checkpoint_sort(c, d);
    /* a config.json beside a GGUF file is another model's */
    ok = ok && (gguf_begins(c->maps.at[0].at, c->maps.at[0].bytes) || stored_read(c, keep, d));
    if (!ok) {
        checkpoint_close(c);
        *out = NULL;
    }
    return ok;
}

bool checkpoint_add(Checkpoint *c, const Spec *spec, Arena *keep, Diag *d)
{
    for (size_t i = 0; i < spec->folders.n; i++) {
        const char *folder = spec->folders.at[i];
        const size_t first = c->tensors.n;

        if (!is_beside(folder))
            return diag_error(d, (Loc){c->path, 0}, "\"%.200s\" is no folder beside it", folder);
        if (!add_file(c, beside(c->path, arena_printf(keep, "%s/model.safetensors", folder), keep), keep, d))
            return false;
        for (size_t k = first; k < c->tensors.n; k++)
            c->tensors.at[k].name = arena_printf(keep, "%s.%s", folder, c->tensors.at[k].name);
    }
    return true;
}

void checkpoint_calibrate(Checkpoint *c, const Calibration *calibration)
{
    c->calibration = calibration;
}

void checkpoint_close(Checkpoint *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->maps.n; i++)
        file_unmap(&c->maps.at[i]);
    c->maps.n = 0;
}

void checkpoint_forget(const Checkpoint *c)
{
    for (size_t i = 0; i < c->maps.n; i++)
        if (c->maps.at[i].at)
            madvise((void *)(uintptr_t)c->maps.at[i].at, c->maps.at[i].bytes, MADV_DONTNEED);
}

const Tensor *checkpoint_named(const Checkpoint *c, const char *name)
{
    const Tensor key = {.name = name};

    return c->tensors.n ? bsearch(&key, c->tensors.at, c->tensors.n, sizeof key, by_name) : NULL;
}

/* Looks for a name as it is, then without and with each prefix, then with one in place of another. */
static const Tensor *find_prefixed(const Checkpoint *c, const Spec *spec, const char *name)
{
    const Tensor *t = checkpoint_named(c, name);

    for (size_t i = 0; !t && i < spec->prefixes.n; i++) {
        const char *prefix = spec->prefixes.at[i];
        const size_t n = strlen(prefix);
        char longer[1024];

        if (strncmp(name, prefix, n) == 0)
            t = checkpoint_named(c, name + n);
        else if (snprintf(longer, sizeof longer, "%s%s", prefix, name) < (int)sizeof longer)
            t = checkpoint_named(c, longer);
        for (size_t k = 0; !t && strncmp(name, prefix, n) == 0 && k < spec->prefixes.n; k++)
            if (snprintf(longer, sizeof longer, "%s%s", spec->prefixes.at[k], name + n) < (int)sizeof longer)
                t = checkpoint_named(c, longer);
    }
    return t;
}

const Tensor *checkpoint_find(const Checkpoint *c, const Spec *spec, const char *name)
{
    const Tensor *t = find_prefixed(c, spec, name);

    for (size_t i = 0; !t && i + 1 < spec->renamed.n; i += 2) {
        const char *now = spec->renamed.at[i], *older = spec->renamed.at[i + 1];
        char other[1024];

        if (ends_with(name, now) &&
            snprintf(other, sizeof other, "%.*s%s", (int)(strlen(name) - strlen(now)), name, older) < (int)sizeof other)
            t = find_prefixed(c, spec, other);
    }
    return t;
}

/* Whether each expert of a stack has a tensor of its own. */
static bool is_numbered(const Value *weight)
{
    return ir_int(weight, "stack") && strchr(ir_word(weight, "name"), '*');
}

int64_t checkpoint_tensors(const Value *weight)
{
    return is_numbered(weight) ? ir_int(weight, "stack") : 1;
}

const Tensor *checkpoint_tensor(const Checkpoint *c, const Spec *spec, const Value *weight, int64_t i,
                                char name[TENSOR_MAX_NAME])
{
    const char *pattern = ir_word(weight, "name");
    const int front = (int)strcspn(pattern, "*");

    if (!is_numbered(weight))
        snprintf(name, TENSOR_MAX_NAME, "%s", pattern);
    else
        snprintf(name, TENSOR_MAX_NAME, "%.*s%" PRId64 "%s", front, pattern, i, pattern + front + 1);
    return checkpoint_find(c, spec, name);
}

/* The shape of each tensor of a weight. */
static Shape stored_shape(const Value *weight)
{
    const int64_t stack = ir_int(weight, "stack");
    Shape s = weight->shape;

    if (!stack)
        return s;
    s.dim[0].n /= stack;
    return is_numbered(weight) ? s : ir_shape(s.rank + 1, ir_const(stack), s.dim[0], s.dim[1]);
}

/* '*' stands for one or more digits. */
static bool matches(const char *pattern, const char *s)
{
    for (; *pattern; pattern++, s++)
        if (*pattern == '*') {
            if (*s < '0' || *s > '9')
                return false;
            while (s[1] >= '0' && s[1] <= '9')
                s++;
        } else if (*pattern != *s) {
            return false;
        }
    return !*s;
}

bool checkpoint_ignores(const Spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->ignored.n; i++) {
        const char *pattern = spec->ignored.at[i];

        if (matches(pattern, name))
            return true;
        for (size_t k = 0; k < spec->prefixes.n; k++) {
            const char *prefix = spec->prefixes.at[k];
            const size_t n = strlen(prefix);

            if (strncmp(name, prefix, n) == 0 && matches(pattern, name + n))
                return true;
            for (size_t j = 0; strncmp(name, prefix, n) == 0 && j < spec->prefixes.n; j++)
                if (strncmp(pattern, spec->prefixes.at[j], strlen(spec->prefixes.at[j])) == 0 &&
                    matches(pattern + strlen(spec->prefixes.at[j]), name + n))
                    return true;
            if (strncmp(pattern, prefix, n) == 0 && matches(pattern + n, name))
                return true;
        }
    }
    return false;
}

/* How the name of a head's tensor begins; NULL: it is none's. */
static const char *head_of(const Spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->head_names.n; i++)
        if (strncmp(name, spec->head_names.at[i], strlen(spec->head_names.at[i])) == 0)
            return spec->head_names.at[i];
    return NULL;
}

const char *tensor_shape(const Tensor *t, Arena *a)
{
    const char *s = "";

    for (uint32_t i = 0; i < t->rank; i++)
        s = arena_printf(a, "%s%s%" PRId64, s, i ? "," : "", t->dim[i]);
    return arena_printf(a, "[%s]", s);
}

/* A kernel of a convolution [N,C,K], which is the matrix [N, C * K]. */
static bool is_convolution(const Tensor *t, const Shape *s)
{
    return t->rank == 3 && s->rank == 2 && !t->coded && t->dim[0] == s->dim[0].n && t->dim[2] > 0 &&
           s->dim[1].n % t->dim[2] == 0 && t->dim[1] == s->dim[1].n / t->dim[2];
}

bool tensor_has_shape(const Tensor *t, const Shape *s)
{
    if (is_convolution(t, s))
        return true;
    const uint32_t most = t->rank > s->rank ? t->rank : s->rank;

    for (uint32_t i = 1; i <= most; i++) { /* from the last */
        const int64_t have = i <= t->rank ? t->dim[t->rank - i] : 1;
        const Dim *want = i <= s->rank ? &s->dim[s->rank - i] : NULL;

        if (want ? want->kind != DIM_CONST || want->n != have : have != 1)
            return false;
    }
    return true;
}

/* Whether only the vector of a text is made of this weight, which another pooling does without. */
static bool is_pooling(const Graph *g, Id weight, Arena *scratch)
{
    bool *needed = arena_array(scratch, bool, g->values.n);

    needed[g->output] = true;
    for (Id id = g->output; id > 0; id--)
        for (int i = 0; needed[id] && i < IR_MAX_ARGS; i++)
            needed[ir_value(g, id)->args[i]] = true;
    return g->pooled && !needed[weight];
}

/* Checks tensor i of a weight. */
static bool check_weight(const Checkpoint *c, const Spec *spec, Id id, int64_t i, Arena *scratch, bool *used, Diag *d)
{
    const Value *v = ir_value(spec->graph, id);
    const Shape shape = stored_shape(v);
    const Merge *m = checkpoint_merge(c, ir_word(v, "name"));
    char name[TENSOR_MAX_NAME];
    const Tensor *t = checkpoint_tensor(c, spec, v, i, name);

    if (t)
        used[t - c->tensors.at] = true;
    if (m && m->replaced) /* its shape was checked with the adapter's other tensors */
        return true;
    if (!t)
        return diag_error(
            d, v->loc, "weight \"%s\" %s is missing in %s%s", name, ir_shape_text(scratch, shape), c->path,
            is_pooling(spec->graph, id, scratch) ? "; -D pooling=none, first or mean compiles the model without it"
                                                 : "");
    if (!tensor_has_shape(t, &shape))
        return diag_error(d, v->loc, "weight \"%s\": expected %s, found %s as \"%s\" in %s", name,
                          ir_shape_text(scratch, shape), tensor_shape(t, scratch), t->name, c->path);
    if (t->coded && v->shape.rank == 1) /* a row of codes is never cut into elements */
        return diag_error(d, v->loc,
                          "weight \"%s\" is a vector, but \"%s\" in %s is a matrix of %s: only matrices are read "
                          "from it",
                          name, t->name, c->path, t->stored);
    if (m && m->deltas.n && t->coded && t->coded->form.type && t->coded->form.type != DT_FP8 && !t->coded->across)
        return diag_error(d, v->loc,
                          "weight \"%s\" is stored as codes of few bits in %s: an adapter is merged into the original "
                          "checkpoint only",
                          name, c->path);
    if (t->type == DT_NONE)
        return diag_error(d, v->loc,
                          "weight \"%s\" is stored as %s in %s; F32, F16 and BF16 can be read, and of "
                          "GGUF Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K",
                          name, t->stored, c->path);
    return true;
}

/* The first tensor of a weight if all of them are codes of one form; NULL: they are not. */
static const Tensor *coded_tensor(const Checkpoint *c, const Spec *spec, const Value *v)
{
    const Shape shape = stored_shape(v);
    const Tensor *first = NULL;

    for (int64_t i = 0; i < checkpoint_tensors(v); i++) {
        const Tensor *t = checkpoint_tensor(c, spec, v, i, (char[TENSOR_MAX_NAME]){0});
        const CodedForm *f = t && t->coded ? &t->coded->form : NULL;

        if (!f || !f->type || !tensor_has_shape(t, &shape))
            return NULL;
        first = first ? first : t;
        if (f->type != first->coded->form.type || f->scales != first->coded->form.scales ||
            f->group != first->coded->form.group || t->coded->across != first->coded->across)
            return NULL;
    }
    return first;
}

void checkpoint_mark(const Checkpoint *c, const Spec *spec)
{
    Graph *g = spec->graph;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);
        const bool may = v->op == OP_WEIGHT && v->shape.rank == 2 && !checkpoint_merge(c, ir_word(v, "name"));
        const Tensor *t = may ? coded_tensor(c, spec, v) : NULL;

        if (!t)
            continue;
        ir_attr_word(g, id, "codes", dtype_name(t->coded->form.type));
        ir_attr_int(g, id, "group", t->coded->form.group);
        ir_attr_int(g, id, "scales", (int64_t)t->coded->form.scales);
        ir_attr_int(g, id, "across", t->coded->across);
    }
}

/* Checks that each tensor in whose place the model has another one is the same. */
static bool check_copies(const Checkpoint *c, const Spec *spec, Diag *d)
{
    for (size_t i = 0; i + 1 < spec->copies.n; i += 2) {
        const Tensor *t = checkpoint_find(c, spec, spec->copies.at[i]),
                     *own = checkpoint_find(c, spec, spec->copies.at[i + 1]);

        if (t && own && (t->type != own->type || t->bytes != own->bytes || memcmp(t->at, own->at, t->bytes) != 0))
            return diag_error(d, (Loc){c->path, 0},
                              "tensor \"%.200s\" is not the same as \"%.200s\", which %s has in its place; if it is "
                              "right, set tie_word_embeddings in config.json to false",
                              t->name, own->name, spec->name);
    }
    return true;
}

bool checkpoint_check(const Checkpoint *c, const Spec *spec, Diag *d)
{
    Arena *scratch = arena_open();
    bool *used = arena_array(scratch, bool, c->tensors.n + 1), ok = true;
    const Tensor *first = NULL;
    size_t unused = 0;

    for (Id id = 1; ok && id < spec->graph->values.n; id++)
        for (int64_t i = 0;
             ok && ir_value(spec->graph, id)->op == OP_WEIGHT && i < checkpoint_tensors(ir_value(spec->graph, id)); i++)
            ok = check_weight(c, spec, id, i, scratch, used, d);
    for (size_t i = 0; i < c->tensors.n; i++)
        if (!used[i] && !checkpoint_ignores(spec, c->tensors.at[i].name) && !head_of(spec, c->tensors.at[i].name)) {
            first = first ? first : &c->tensors.at[i];
            unused++;
        }
    if (ok && unused == 1)
        ok = diag_error(d, (Loc){c->path, 0}, "tensor \"%.200s\" %s is not used by %s", first->name,
                        tensor_shape(first, scratch), spec->name);
    else if (ok && unused)
        ok = diag_error(d, (Loc){c->path, 0}, "tensor \"%.200s\" %s and %zu more are not used by %s", first->name,
                        tensor_shape(first, scratch), unused - 1, spec->name);
    arena_close(scratch);
    return ok && check_copies(c, spec, d);
}

const char *checkpoint_stored(const Checkpoint *c)
{
    return c->stored;
}

const char *checkpoint_note(const Checkpoint *c, const Spec *spec, Arena *keep)
{
    bool *used = arena_array(keep, bool, c->tensors.n + 1);
    const char *first = NULL, *heads = "", *what, *alone;
    size_t n = 0;

    for (Id id = 1; id < spec->graph->values.n; id++) {
        const Value *v = ir_value(spec->graph, id);
        const Tensor *t = v->op == OP_WEIGHT ? checkpoint_find(c, spec, ir_word(v, "name")) : NULL;

        if (t)
            used[t - c->tensors.at] = true;
    }
    for (size_t i = 0; i < c->tensors.n; i++) {
        const char *head = used[i] ? NULL : head_of(spec, c->tensors.at[i].name);

        if (!head)
            continue;
        first = first ? first : c->tensors.at[i].name;
        if (!strstr(heads, head))
            heads = arena_printf(keep, "%s%s%s*", heads, n ? ", " : "", head);
        n++;
    }
    if (!n)
        return NULL;
    what = spec->graph->logits ? "that its logits do not need" : "of its head";
    alone = spec->graph->logits ? "" : ": the model is the encoder alone";
    if (strchr(heads, ',')) /* of several heads: how the names begin */
        return arena_printf(keep, "%s: %zu tensors %s (%.200s) are not used%s", c->path, n, what, heads, alone);
    return arena_printf(keep, "%s: %zu tensor%s %s (\"%.200s\"%s not used%s", c->path, n, n == 1 ? "" : "s", what,
                        first, n == 1 ? ") is" : " and others) are", alone);
}
