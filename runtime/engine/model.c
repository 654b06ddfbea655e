/* model.c - opens an artifact: chooses its device, loads weights and code, opens the tokenizer. */
#include "model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../base/dtype.h"
#include "../base/env.h"
#include "../base/sized.h"

void model_log(const FtxModel *m, int level, const char *format, ...)
{
    char text[700];
    va_list ap;

    if (!m->log)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    m->log(m->log_user, level, text);
}

/* --- one device ---------------------------------------------------------------------------------- */

/* Limits that the engine relies on and artifact_open does not check. */
static FtxStatus check_limits(const FtxFacts *f, FtxError *err)
{
    if (f->vocab == 0 || f->context < 2 || f->sequences == 0 || f->tokens == 0 || f->kv_block == 0 ||
        (f->kv_pages == 0 && f->kind != FTX_MODEL_ENCODER))
        return ftx_fail(err, FTX_EFORMAT,
                        "facts: vocab %u, context %u, sequences %u, tokens %u, kv_block %u, kv_pages %u: none may be 0",
                        f->vocab, f->context, f->sequences, f->tokens, f->kv_block, f->kv_pages);
    if (f->sequences > FTX_MAX_SEQUENCES)
        return ftx_fail(err, FTX_EFORMAT, "facts: %u sequences, at most %d", f->sequences, FTX_MAX_SEQUENCES);
    if (f->tokens < (f->kind == FTX_MODEL_ENCODER ? f->context : f->source_context))
        return ftx_fail(err, FTX_EFORMAT, "facts: a step has %u tokens, and what an encoder reads at once up to %u",
                        f->tokens, f->kind == FTX_MODEL_ENCODER ? f->context : f->source_context);
    if (f->n_ends > FTX_MAX_ENDS || f->n_ends > f->end_ids)
        return ftx_fail(err, FTX_EFORMAT, "facts: %u end ids, room for %u", f->n_ends, f->end_ids);
    return FTX_OK;
}

static FtxStatus fill_model(FtxModel *m, const FtxOptions *o, FtxError *err)
{
    FtxStatus s = check_limits(m->artifact.facts, err);

    if (!s)
        s = m->api->open(&m->artifact, m->plan, o, &m->device, err);
    if (!s && m->artifact.tokenizer)
        s = tokenizer_open(m->artifact.tokenizer, m->artifact.tokenizer_bytes, &m->tokenizer, err);
    if (!s && m->artifact.chat)
        s = chat_open(m->artifact.chat, m->artifact.chat_bytes, &m->chat, err);
    return s;
}

static double gb(uint64_t bytes)
{
    return (double)bytes * 1e-9;
}

/* A line for the log about weights that are not on the device. */
static void tell_weights(const FtxModel *m)
{
    FtxModelInfo info = {.engine_bytes = 0};
    char copies[200] = "no layer";

    if (m->api->tell)
        m->api->tell(m->device, &info);
    if (!info.host_weight_bytes)
        return;
    if (info.host_layers)
        snprintf(copies, sizeof copies,
                 "%" PRIu64 " layers; a step copies %.3f GB of these, about %.1f ms more, by a copy timed at open",
                 info.host_layers, gb(info.copy_bytes), (double)info.copy_us * 1e-3);
    model_log(m, 0, "weights: %.3f GB on the GPU, %.3f GB in host memory, of them %s", gb(info.weight_bytes),
              gb(info.host_weight_bytes), copies);
}

FtxStatus model_on(const DeviceApi *api, Artifact *a, uint32_t plan, const char *reason, const FtxOptions *o,
                   FtxModel **out, FtxError *err)
{
    const Memory memory = memory_of(o);
    FtxModel *m = memory_alloc(&memory, sizeof *m, 64);
    FtxStatus s;

    *out = NULL;
    if (!m) {
        artifact_close(a);
        return memory_fail(err, "the model", sizeof *m);
    }
    m->memory = memory;
    m->artifact = *a;
    memset(a, 0, sizeof *a);
    m->plan = &m->artifact.plans[plan];
    m->api = api;
    m->ordinal = o ? o->ordinal : 0;
    m->log = o ? o->log : NULL;
    m->log_user = o ? o->log_user : NULL;
    snprintf(m->device_reason, sizeof m->device_reason, "%s", reason);
    atomic_init(&m->pages, m->artifact.facts->kv_pages);
    atomic_init(&m->users, 1);
    s = fill_model(m, o, err);
    if (s) {
        model_leave(m);
        return s;
    }
    tell_weights(m);
    *out = m;
    return FTX_OK;
}

void model_leave(FtxModel *m)
{
    if (!m || atomic_fetch_sub(&m->users, 1) > 1)
        return;

    const Memory memory = m->memory;

    tokenizer_close(m->tokenizer);
    if (m->device)
        m->api->close(m->device);
    artifact_close(&m->artifact);
    memory_free(&memory, m, sizeof *m);
}

/* --- the choice ----------------------------------------------------------------------------------- */

static void list_targets(const Artifact *a, char *text, size_t size)
{
    size_t n = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < a->n_plans && n + 20 < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%.17s", i ? ", " : "", artifact_string(a, a->plans[i].head->name));
}

/* The option that says which weights a GPU holds, so that the model is for a GPU; NULL: none is given. */
static const char *gpu_option(const FtxOptions *o)
{
    return o->gpu_memory ? "gpu_memory (--gpu-memory)" : o->gpu_layers ? "gpu_layers (--gpu-layers)" : NULL;
}

/* Looks for a GPU and the nearest plan for it: FTX_OK and its place, or the reason. *target: of the GPU, if there is one. */
static FtxStatus find_cuda(const Artifact *a, int ordinal, uint32_t *target, uint32_t *plan, FtxError *err)
{
    const ArtifactPlan *p;
    char name[256], all[200];
    FtxStatus s = device_cuda_probe(ordinal, target, err);

    if (!s)
        s = device_cuda_name(ordinal, name, sizeof name, err);
    if (s)
        return s;
    p = artifact_plan(a, *target, name);
    if (p) {
        *plan = (uint32_t)(p - a->plans);
        return FTX_OK;
    }
    list_targets(a, all, sizeof all);
    return ftx_fail(err, FTX_ENODEVICE, "the artifact has no code for this GPU (sm_%u%s): it was compiled for %s",
                    *target / 10, *target % 10 ? "a" : "", all);
}

static FtxStatus check_weights_place(const Artifact *a, const FtxOptions *o, FtxError *err)
{
    const char *name = gpu_option(o);

    if (o->gpu_memory && o->gpu_layers)
        return ftx_fail(err, FTX_EINVAL,
                        "gpu_memory (--gpu-memory) and gpu_layers (--gpu-layers) are two ways to say one "
                        "thing: set one of them");
    if (o->gpu_layers < FTX_NO_GPU_LAYERS)
        return ftx_fail(err, FTX_EINVAL, "gpu_layers is %lld: expected a number of layers, or FTX_NO_GPU_LAYERS",
                        (long long)o->gpu_layers);
    if (a->facts->ranks > 1 && name)
        return ftx_fail(err, FTX_EINVAL, "%s: not for an artifact of several ranks", name);
    if (o->device == FTX_DEVICE_CPU && name)
        return ftx_fail(err, FTX_EINVAL, "%s: for a GPU; on the CPU all weights are in host memory, so leave it out",
                        name);
    return FTX_OK;
}

/* A device for each rank of the artifact, and weights of one in host memory. */
static FtxStatus check_devices(const Artifact *a, FtxOptions *o, FtxError *err)
{
    const uint32_t ranks = a->facts->ranks;
    const FtxStatus s = check_weights_place(a, o, err);

    if (s)
        return s;

    if (o->device_count && o->device_count != ranks)
        return ftx_fail(err, FTX_EINVAL,
                        "options.devices has %zu devices, the artifact is for %u: name as many, or compile it with "
                        "-D parallel=%zu",
                        o->device_count, ranks, o->device_count);
    for (size_t i = 0; i < o->device_count; i++) {
        bool wrong = o->devices[i] < 0;

        for (size_t k = 0; k < i; k++)
            wrong |= o->devices[k] == o->devices[i] && !env_on(ENV_FTX_SHARED_GPU);
        if (wrong)
            return ftx_fail(err, FTX_EINVAL, "options.devices[%zu] is %d: numbers of different devices, from 0", i,
                            o->devices[i]);
    }
    if (o->device_count)
        o->ordinal = o->devices[0];
    return FTX_OK;
}

static FtxStatus open_cpu(Artifact *a, const char *reason, const FtxOptions *o, FtxModel **out, FtxError *err)
{
    const ArtifactPlan *p = artifact_plan(a, FTX_TARGET_CPU, "");
    char all[200];

    if (p)
        return model_on(a->facts->ranks > 1 ? &device_group_cpu : &device_cpu, a, (uint32_t)(p - a->plans), reason, o,
                        out, err);
    list_targets(a, all, sizeof all);
    artifact_close(a);
    if (*reason)
        return ftx_fail(err, FTX_ENODEVICE, "the artifact was compiled for %s, not for the CPU; and no GPU: %s", all,
                        reason);
    return ftx_fail(err, FTX_ENODEVICE, "the artifact was compiled for %s, not for the CPU", all);
}

static FtxStatus open_cuda(Artifact *a, const FtxOptions *o, FtxModel **out, FtxError *err)
{
    uint32_t target, plan;
    const FtxStatus s = find_cuda(a, o->ordinal, &target, &plan, err);

    if (s) {
        artifact_close(a);
        return gpu_option(o) ? ftx_context(err, s, "%s", gpu_option(o)) : s;
    }
    return model_on(a->facts->ranks > 1 ? &device_group_cuda : &device_cuda, a, plan, "", o, out, err);
}

/* Takes a GPU if there is one that the artifact has code for, else the CPU. A GPU that fails is reported in the log. */
static FtxStatus open_auto(const char *path, Artifact *a, const FtxOptions *o, FtxModel **out, FtxError *err)
{
    FtxError why = {FTX_OK, ""};
    uint32_t target = FTX_TARGET_CPU, plan;
    bool fell = false;
    FtxStatus s;

    for (uint32_t i = 0; i < a->n_plans; i++)
        fell |= a->plans[i].head->target != FTX_TARGET_CPU;
    if (find_cuda(a, o->ordinal, &target, &plan, &why) == FTX_OK) {
        if (model_on(a->facts->ranks > 1 ? &device_group_cuda : &device_cuda, a, plan, "", o, out, &why) == FTX_OK)
            return FTX_OK;
        s = artifact_open(path, a, err); /* the failed attempt has closed it */
        if (s)
            return s;
    }
    s = open_cpu(a, why.text, o, out, err);
    if (!s && (fell || target != FTX_TARGET_CPU)) /* an artifact for the CPU on a machine without a GPU is no fall */
        model_log(*out, why.status == FTX_ENODEVICE ? 0 : 1, "running on the CPU: %s", why.text);
    return s;
}

FtxStatus options_read(const FtxOptions *options, FtxOptions *o, FtxError *err)
{
    FtxStatus s = FTX_OK;

    *o = (FtxOptions)FTX_OPTIONS_INIT;
    if (options)
        s = sized_read("FtxOptions", options, o, sizeof *o, err);
    return s ? s : memory_check(o, err);
}

FtxStatus ftx_model_open(const char *path, const FtxOptions *options, FtxModel **model, FtxError *err)
{
    FtxOptions o;
    Artifact a;
    FtxStatus s;

    if (!model)
        return ftx_fail(err, FTX_EINVAL, "ftx_model_open: model is NULL");
    *model = NULL;
    if (!path)
        return ftx_fail(err, FTX_EINVAL, "ftx_model_open: path is NULL");
    s = options_read(options, &o, err);
    if (!s)
        s = artifact_open(path, &a, err);
    if (s)
        return s;
    s = check_devices(&a, &o, err);
    if (s) {
        artifact_close(&a);
        return s;
    }
    switch (o.device) {
    case FTX_DEVICE_AUTO: return gpu_option(&o) ? open_cuda(&a, &o, model, err) : open_auto(path, &a, &o, model, err);
    case FTX_DEVICE_CPU: return open_cpu(&a, "", &o, model, err);
    case FTX_DEVICE_CUDA: return open_cuda(&a, &o, model, err);
    }
    artifact_close(&a);
    return ftx_fail(err, FTX_EINVAL, "options.device: no device kind %d", (int)o.device);
}

/* The plan and the device of a rank, as rank 0 chooses them. */
static FtxStatus choose_rank(const Artifact *a, const FtxOptions *o, const DeviceApi **api, const ArtifactPlan **plan,
                             FtxError *err)
{
    FtxError why = {FTX_OK, ""};
    uint32_t target, at;

    *api = &device_cuda;
    if (o->device != FTX_DEVICE_CPU && !find_cuda(a, o->ordinal, &target, &at, &why)) {
        *plan = &a->plans[at];
        return FTX_OK;
    }
    *api = &device_cpu;
    *plan = artifact_plan(a, FTX_TARGET_CPU, "");
    if (o->device == FTX_DEVICE_CUDA)
        return ftx_fail(err, why.status, "%s", why.text);
    return *plan ? FTX_OK
                 : ftx_fail(err, FTX_ENODEVICE, "the artifact has no code for the CPU%s%s", *why.text ? ": " : "",
                            why.text);
}

/* Opens the artifact and makes rank 0's calls. */
static FtxStatus run_rank(const char *path, FtxOptions *o, int rank, int ranks, FtxError *err)
{
    const ArtifactPlan *plan;
    const DeviceApi *api;
    Artifact a;
    FtxStatus s = artifact_open(path, &a, err);

    if (s)
        return s;
    if (a.facts->ranks != (uint32_t)ranks)
        s = ftx_fail(err, FTX_EINVAL, "there are %d processes (FTX_RANKS), and the artifact is for %u rank%s", ranks,
                     a.facts->ranks, a.facts->ranks == 1 ? "" : "s");
    if (!s)
        s = check_devices(&a, o, err);
    if (!s)
        s = choose_rank(&a, o, &api, &plan, err);
    if (!s)
        s = remote_run(api, &a, plan, o, rank, ranks, err);
    artifact_close(&a);
    return s;
}

FtxStatus ftx_rank_run(const char *path, const FtxOptions *options, int *rank, FtxError *err)
{
    FtxOptions o;
    int ranks;
    FtxStatus s;

    if (!path || !rank)
        return ftx_fail(err, FTX_EINVAL, "ftx_rank_run: %s is NULL", path ? "rank" : "path");
    *rank = 0;
    s = options_read(options, &o, err);
    if (!s)
        s = link_read(rank, &ranks, err);
    return s || *rank == 0 ? s : run_rank(path, &o, *rank, ranks, err);
}

void ftx_model_close(FtxModel *model)
{
    model_leave(model);
}

/* --- what it is ------------------------------------------------------------------------------------ */

FtxStatus ftx_model_describe(const FtxModel *m, FtxModelInfo *to)
{
    const FtxFacts *f = m->artifact.facts;
    const uint64_t *space = m->plan->head->space_bytes;
    const uint32_t pages = atomic_load(&m->pages);
    const FtxStatus s = sized_check("FtxModelInfo", to->size, NULL);
    const uint32_t compute = m->plan->head->compute_type;
    FtxModelInfo info = {
        .name = artifact_string(&m->artifact, f->name),
        .device = m->api->describe(m->device),
        .device_reason = m->device_reason,
        .vocab = (int)f->vocab,
        .context = (int)f->context,
        .sequences = (int)(f->sequences < f->tokens ? f->sequences : f->tokens), /* each brings a token to a step */
        .step_tokens = (int)f->tokens,
        .layers = (int)f->layers,
        .hidden = (int)f->hidden,
        .max_top_k = f->decode.max_top_k,
        .kind = (FtxModelKind)f->kind,
        .source_context = (int)f->source_context,
        .pooled = (int)f->pooled,
        .types = (int)f->types,
        .input = (int)f->input,
        .labels = (int)f->n_labels,
        .scoring = (FtxScoring)f->scoring,
        .max_beams = f->beams > 1 ? (int)f->beams : 1,
        .weight_bytes = f->weight_bytes,
        .engine_bytes = space[FTX_SPACE_STATE] + space[FTX_SPACE_IO] + space[FTX_SPACE_WORK] + space[FTX_SPACE_OUT] +
                        space[FTX_SPACE_PAGES] * pages,
        .workspace_bytes = space[FTX_SPACE_WORK],
        .kv_tokens = (uint64_t)pages * f->kv_block,
        .kv_token_bytes = space[FTX_SPACE_PAGES] / f->kv_block,
        .has_tokenizer = m->tokenizer != NULL,
        .input_type = compute == DT_BF16   ? FTX_BF16
                      : compute == DT_FP16 ? FTX_FP16
                                           : FTX_FP32,
        .ordinal = m->plan->head->target == FTX_TARGET_CPU ? -1 : m->ordinal,
        .end_ids = f->ends,
        .end_ids_count = f->n_ends,
        .has_chat = m->chat.head != NULL,
        .plan = artifact_string(&m->artifact, m->plan->head->name),
        .states = f->states,
    };

    if (m->api->tell)
        m->api->tell(m->device, &info);
    if (!s)
        sized_write(to, to->size, &info, sizeof info);
    return s;
}

const char *ftx_model_label(const FtxModel *m, int label, size_t *bytes)
{
    const FtxFacts *f = m->artifact.facts;
    const char *at = artifact_string(&m->artifact, f->labels);

    *bytes = 0;
    if (label < 0 || (uint32_t)label >= f->n_labels)
        return NULL;
    for (; label > 0; label--)
        at += strcspn(at, "\n") + (at[strcspn(at, "\n")] != '\0');
    *bytes = strcspn(at, "\n");
    return at;
}

FtxStatus ftx_tokenize(const FtxModel *m, const char *text, size_t bytes, unsigned flags, int32_t *ids, size_t max,
                       size_t *n, FtxError *err)
{
    const TokenizerPair one = {.text = text ? text : "",
                               .bytes = bytes,
                               .special = (flags & FTX_TOKENIZE_SPECIAL) != 0,
                               .literal = (flags & FTX_TOKENIZE_LITERAL) != 0};
    TokenizerScratch *scratch;
    FtxStatus s;

    *n = 0;
    if (!m->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "the artifact has no tokenizer: use token ids");
    if (!text && bytes)
        return ftx_fail(err, FTX_EINVAL, "text is NULL");
    if (flags & ~(unsigned)(FTX_TOKENIZE_SPECIAL | FTX_TOKENIZE_LITERAL))
        return ftx_fail(err, FTX_EINVAL, "flags: %#x has bits that this libftx does not know", flags);
    s = tokenizer_scratch_open(m->tokenizer, bytes, &scratch, err);
    if (s)
        return s;
    s = tokenizer_encode_pair(m->tokenizer, scratch, &one, ids, NULL, max, n, err);
    tokenizer_scratch_close(scratch);
    return s;
}

FtxStatus ftx_detokenize(const FtxModel *m, const int32_t *ids, size_t count, bool skip_special, char *text, size_t max,
                         size_t *n, FtxError *err)
{
    *n = 0;
    if (!m->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "the artifact has no tokenizer");
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= (int32_t)m->artifact.facts->vocab)
            return ftx_fail(err, FTX_EINVAL, "ids[%zu]: %d is no token id (0 to %u)", i, ids[i],
                            m->artifact.facts->vocab - 1);
    return tokenizer_decode(m->tokenizer, ids, count, skip_special, text, max, n, err);
}

const char *ftx_token_bytes(const FtxModel *m, int32_t id, size_t *n, bool *special)
{
    *n = 0;
    *special = false;
    if (!m->tokenizer || id < 0 || id >= (int32_t)m->artifact.facts->vocab)
        return NULL;
    return tokenizer_bytes(m->tokenizer, id, n, special);
}
