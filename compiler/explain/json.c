/* json.c - `ftxc show --json`: the content of an artifact as one JSON object. */
#include <jansson.h>

#include "window.h"
#include "../../runtime/base/dtype.h"

static json_t *text(const char *s)
{
    json_t *j = json_string(s);

    return j ? j : json_string("(not UTF-8)");
}

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *facts_json(const Artifact *a)
{
    const FtxFacts *f = a->facts;
    json_t *ends = json_array();

    for (uint32_t i = 0; i < f->n_ends; i++)
        json_array_append_new(ends, json_integer(f->ends[i]));
    return json_pack(
        "{so,so,si,si,si,si,si,si,si,si,si,si,si,si,so,si,so,so,so}", "name", text(artifact_string(a, f->name)),
        "parameters", number(f->parameters), "vocab", (int)f->vocab, "hidden", (int)f->hidden, "layers", (int)f->layers,
        "heads", (int)f->heads, "context", (int)f->context, "sequences", (int)f->sequences, "tokens", (int)f->tokens,
        "kv_block", (int)f->kv_block, "kv_pages", (int)f->kv_pages, "logit_bias", (int)f->logit_bias, "end_ids",
        (int)f->end_ids, "bad_words", (int)(f->bad_words - a->n_bad_words), "ends", ends, "bos", (int)f->bos,
        "weight_bytes", number(f->weight_bytes), "sidecar",
        f->sidecar ? text(artifact_string(a, f->sidecar)) : json_null(), "tokenizer", json_boolean(a->tokenizer));
}

static json_t *decode_json(const FtxDecode *d)
{
    static const char *const early[] = {"false", "true", "never"}; /* FtxEarly */
    json_t *o = json_pack("{si}", "max_top_k", (int)d->max_top_k);

#define JSON_COUNT(v) json_integer(v)
#define JSON_NUMBER(v) json_real((double)(v))
#define JSON_EARLY(v) text(early[v])
#define DECODE(name, type, ...) json_object_set_new(o, #name, JSON_##type(d->name));
#include "../../runtime/decode.def"
#undef DECODE
    return o;
}

static json_t *sections_json(const Artifact *a)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < a->header->sections; i++) {
        const FtxSection *s = &a->sections[i];
        char sum[17];

        snprintf(sum, sizeof sum, "%016llx", (unsigned long long)s->checksum);
        json_array_append_new(list, json_pack("{ss,so,so,so,ss}", "kind", artifact_section_name(s->kind), "target",
                                              text(window_plan(a, s)), "offset", number(s->offset), "bytes",
                                              number(s->bytes), "checksum", sum));
    }
    return list;
}

static json_t *weights_json(const Artifact *a)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < a->n_weights; i++) {
        const FtxWeight *w = &a->weights[i];
        json_t *shape = json_array();

        for (uint32_t k = 0; k < w->rank; k++)
            json_array_append_new(shape, number(w->dim[k]));
        json_array_append_new(list, json_pack("{so,ss,ss,so,so,so,si}", "name", text(artifact_string(a, w->name)),
                                              "type", dtype_name((DType)w->type), "kind", window_weight_kind(w->kind),
                                              "shape", shape, "offset", number(w->offset), "bytes", number(w->bytes),
                                              "group", (int)w->group));
    }
    return list;
}

static json_t *kernels_json(const Artifact *a, const ArtifactPlan *p)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const FtxKernel *k = &p->kernels[i];
        json_t *o = json_pack("{so,so,si,si,si,so,so}", "family", text(artifact_string(a, k->family)), "entry",
                              text(artifact_string(a, k->entry)), "operands", (int)k->n_operands, "block",
                              (int)k->block, "dynamic_smem", (int)k->smem, "overlap",
                              json_boolean(k->flags & FTX_KERNEL_OVERLAP), "code_bytes", number(k->code_bytes));
        json_t *classes = json_object();
        Resources r;

        if (window_resources(a, p, k, &r)) {
            json_object_set_new(o, "registers", number(r.registers));
            json_object_set_new(o, "stack_bytes", number(r.stack_bytes));
            json_object_set_new(o, "spill_bytes", number(r.spill_bytes));
            json_object_set_new(o, "static_smem", number(r.static_smem));
            json_object_set_new(o, "barriers", number(r.barriers));
            json_object_set_new(o, "instructions", number(r.instructions));
            for (int c = 0; c < CODE_COUNT; c++)
                json_object_set_new(classes, code_class_name((CodeClass)c), number(r.code[c]));
            json_object_set(o, "code", classes);
        }
        json_decref(classes);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *programs_json(const Artifact *a, const ArtifactPlan *p)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < p->n_programs; i++) {
        const FtxProgram *g = &p->programs[i];
        json_t *launches = json_array();
        uint32_t at;

        for (uint32_t k = 0; k < g->n_launches; k++) {
            const FtxLaunch *l = &p->launches[g->first_launch + k];

            json_array_append_new(
                launches, json_pack("{so,si}", "label", text(artifact_string(a, l->label)), "kernel", (int)l->kernel));
        }
        json_array_append_new(list, json_pack("{ss,si,so,so,so}", "kind",
                                              g->kind == FTX_PROG_DECODE   ? "decode"
                                              : g->kind == FTX_PROG_ENCODE ? "encode"
                                              : g->kind == FTX_PROG_HIDDEN ? "hidden"
                                                                           : "step",
                                              "bucket", (int)g->bucket, "work_bytes", number(g->work_bytes),
                                              "live_bytes", number(window_live_peak(p, i, &at)), "launches", launches));
    }
    return list;
}

static json_t *buffers_json(const Artifact *a, const ArtifactPlan *p)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const FtxBuffer *b = &p->buffers[i];

        json_array_append_new(list,
                              json_pack("{so,ss,si,si,si,so,so}", "name", text(artifact_string(a, b->name)), "space",
                                        window_space(b->space), "program", (int)b->program, "first", (int)b->first,
                                        "last", (int)b->last, "offset", number(b->offset), "bytes", number(b->bytes)));
    }
    return list;
}

static json_t *caches_json(const ArtifactPlan *p)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < p->n_caches; i++) {
        const FtxCache *c = &p->caches[i];

        json_array_append_new(list, json_pack("{si,si,si,sb,ss,si,si,sb}", "kv_heads", (int)c->kv_heads, "k_dim",
                                              (int)c->k_dim, "v_dim", (int)c->v_dim, "inside", (int)c->inside, "type",
                                              dtype_name((DType)c->type), "window", (int)c->window, "source",
                                              (int)c->source, "recurrent", (int)c->recurrent));
    }
    return list;
}

static json_t *plan_json(const Artifact *a, const ArtifactPlan *p)
{
    json_t *spaces = json_object();

    for (uint32_t s = FTX_SPACE_WEIGHTS; s < FTX_SPACE_COUNT; s++)
        json_object_set_new(spaces, window_space(s), number(p->head->space_bytes[s]));
    return json_pack("{so,ss,ss,so,so,so,so,so,so}", "target", text(artifact_string(a, p->head->name)), "weight_type",
                     dtype_name((DType)p->head->weight_type), "compute_type", dtype_name((DType)p->head->compute_type),
                     "caches", caches_json(p), "bytes", spaces, "lower_bound", number(p->head->lower_bound), "kernels",
                     kernels_json(a, p), "programs", programs_json(a, p), "buffers", buffers_json(a, p));
}

FtxStatus show_json(const Artifact *a, const char *path, bool verified, FILE *out, FtxError *err)
{
    json_t *plans = json_array(), *root;
    int failed;

    for (uint32_t i = 0; i < a->n_plans; i++)
        json_array_append_new(plans, plan_json(a, &a->plans[i]));
    root = json_pack("{so,so,si,si,si,so,so,so,so,so,so,so}", "file", text(path), "bytes", number(a->map.bytes),
                     "format", (int)a->header->format, "version_major", (int)a->header->version_major, "version_minor",
                     (int)a->header->version_minor, "build", text(a->build), "verified", json_boolean(verified),
                     "model", facts_json(a), "decode", decode_json(&a->facts->decode), "sections", sections_json(a),
                     "weights", weights_json(a), "plans", plans);
    failed = !root || json_dumpf(root, out, JSON_INDENT(2)) || fputc('\n', out) == EOF;
    json_decref(root);
    return failed ? ftx_fail(err, FTX_EIO, "%s: the JSON text cannot be written", path) : FTX_OK;
}
