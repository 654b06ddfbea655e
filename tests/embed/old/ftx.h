/* ftx.h - ftx.h as an older program saw it: without the last fields of FtxOptions, FtxModelInfo, FtxRequest, FtxEvent and
 * FtxEncode, and without what came later. Never to be changed: programs that were built with it must run with every
 * later libftx of the same major version (old.sh). */
#ifndef FTX_H
#define FTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define FTX_VERSION_MAJOR 0
#define FTX_VERSION_MINOR 1
const char *ftx_version(void);
int ftx_version_number(void);
typedef enum FtxStatus {
    FTX_OK = 0,
    FTX_EINVAL,
    FTX_EFORMAT,
    FTX_EIO,
    FTX_ENOMEM,
    FTX_EDEVICE,
    FTX_ENODEVICE,
    FTX_EVERSION,
    FTX_EFULL
} FtxStatus;
typedef struct FtxError {
    FtxStatus status;
    char text[1000];
} FtxError;
typedef struct FtxModel FtxModel;
typedef struct FtxEngine FtxEngine;
typedef enum FtxDeviceKind { FTX_DEVICE_AUTO = 0, FTX_DEVICE_CPU, FTX_DEVICE_CUDA } FtxDeviceKind;
typedef struct FtxAllocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *p, size_t bytes);
    void *user;
} FtxAllocator;
typedef struct FtxOptions {
    size_t size;
    FtxDeviceKind device;
    int ordinal;
    int threads;
    const FtxAllocator *allocator;
    void (*log)(void *user, int level, const char *text);
    void *log_user;
} FtxOptions;
#ifndef FTX_MODEL_KIND
#define FTX_MODEL_KIND
typedef enum FtxModelKind { FTX_MODEL_DECODER, FTX_MODEL_ENCODER, FTX_MODEL_SEQ2SEQ } FtxModelKind;
#endif
#ifndef FTX_SCORING
#define FTX_SCORING
typedef enum FtxScoring { FTX_SCORING_NONE, FTX_SCORING_SIGMOID, FTX_SCORING_SOFTMAX } FtxScoring;
#endif
typedef struct FtxModelInfo {
    size_t size;
    const char *name;
    const char *device;
    const char *device_reason;
    int vocab, context, sequences, step_tokens, layers, hidden;
    int max_top_k;
    int max_beams;
    FtxModelKind kind;
    int source_context;
    int pooled;
    int types;
    int input;
    int labels;
    FtxScoring scoring;
    bool has_tokenizer;
    uint64_t weight_bytes, engine_bytes;
} FtxModelInfo;
FtxStatus ftx_model_open(const char *path, const FtxOptions *options, FtxModel **model, FtxError *err);
FtxStatus ftx_model_describe(const FtxModel *model, FtxModelInfo *info);
static inline void ftx_model_info(const FtxModel *model, FtxModelInfo *info)
{
    info->size = sizeof *info;
    ftx_model_describe(model, info);
}
const char *ftx_model_label(const FtxModel *model, int label, size_t *bytes);
void ftx_model_close(FtxModel *model);
enum { FTX_TOKENIZE_SPECIAL = 1, FTX_TOKENIZE_LITERAL = 2 };
FtxStatus ftx_tokenize(const FtxModel *model, const char *text, size_t bytes, unsigned flags, int32_t *ids, size_t max,
                       size_t *n, FtxError *err);
FtxStatus ftx_detokenize(const FtxModel *model, const int32_t *ids, size_t count, bool skip_special, char *text,
                         size_t max, size_t *n, FtxError *err);
typedef enum FtxTruncate {
    FTX_TRUNCATE_NONE,
    FTX_TRUNCATE_LONGEST,
    FTX_TRUNCATE_FIRST,
    FTX_TRUNCATE_SECOND,
    FTX_TRUNCATE_START,
    FTX_TRUNCATE_END
} FtxTruncate;
#ifndef FTX_EARLY
#define FTX_EARLY
typedef enum FtxEarly { FTX_EARLY_FALSE, FTX_EARLY_TRUE, FTX_EARLY_NEVER } FtxEarly;
#endif
typedef struct FtxRequest {
    size_t size;
    const char *text;
    size_t text_bytes;
    const int32_t *ids;
    size_t ids_count;
    bool no_bos;
    bool literal;
    FtxTruncate truncate;
    int max_prompt;
    int max_new;
    int min_new;
    const int32_t *prefix;
    size_t prefix_count;
    float temperature;
    int top_k;
    float top_p;
    float min_p;
    float typical_p;
    float repetition_penalty;
    int repetition_window;
    float presence_penalty;
    float frequency_penalty;
    int no_repeat_ngram;
    uint64_t seed;
    int samples;
    int sample;
    const int32_t *bias_ids;
    const float *bias_values;
    size_t bias_count;
    const int32_t *bad_ids;
    const size_t *bad_lengths;
    size_t bad_count;
    const char *const *bad_words;
    size_t bad_words_count;
    const int32_t *stop_ids;
    size_t stop_ids_count;
    const char *const *stop;
    size_t stop_count;
    bool ignore_eos;
    int beams;
    float length_penalty;
    FtxEarly early_stopping;
    int n_best;
    int beam_groups;
    float diversity_rate;
} FtxRequest;
FtxStatus ftx_request_fill(const FtxModel *model, FtxRequest *request, FtxError *err);
static inline FtxRequest ftx_request_default(const FtxModel *model)
{
    FtxRequest request;
    request.size = sizeof request;
    ftx_request_fill(model, &request, NULL);
    return request;
}
typedef enum FtxFinish {
    FTX_RUNNING = 0,
    FTX_FINISH_END,
    FTX_FINISH_LENGTH,
    FTX_FINISH_STOP,
    FTX_FINISH_CANCEL,
    FTX_FINISH_ERROR
} FtxFinish;
typedef struct FtxEvent {
    size_t size;
    uint64_t request;
    void *user;
    int sample;
    int32_t token;
    float logprob;
    FtxFinish finish;
    const char *text;
    size_t text_bytes;
} FtxEvent;
FtxStatus ftx_engine_open(FtxModel *model, const FtxOptions *options, FtxEngine **engine, FtxError *err);
FtxStatus ftx_engine_submit(FtxEngine *engine, const FtxRequest *request, uint64_t *id, FtxError *err);
FtxStatus ftx_engine_step(FtxEngine *engine, FtxEvent *events, size_t max, size_t *n, FtxError *err);
bool ftx_engine_busy(const FtxEngine *engine);
FtxStatus ftx_engine_cancel(FtxEngine *engine, uint64_t id, FtxError *err);
typedef struct FtxHypothesis {
    const int32_t *ids;
    size_t count;
    const float *logprobs;
    float score;
    float logprob;
    FtxFinish finish;
    const char *text;
    size_t text_bytes;
} FtxHypothesis;
const FtxHypothesis *ftx_engine_hypotheses(const FtxEngine *engine, uint64_t id, size_t *n);
const float *ftx_engine_logits(const FtxEngine *engine, uint64_t id);
FtxStatus ftx_engine_score(FtxEngine *engine, const int32_t *ids, size_t n, float *logprobs, FtxError *err);
typedef struct FtxEncode {
    size_t size;
    size_t count;
    const char *const *text;
    const size_t *text_bytes;
    const char *const *pair;
    const size_t *pair_bytes;
    FtxTruncate truncate;
    int max_tokens;
    bool literal;
    const int32_t *ids;
    const int32_t *types;
    const float *input;
    const int32_t *lengths;
    size_t stride;
    float *hidden;
    size_t hidden_rows;
    float *pooled;
    int32_t *tokens;
} FtxEncode;
FtxStatus ftx_engine_encode(FtxEngine *engine, const FtxEncode *job, FtxError *err);
typedef struct FtxProfile {
    const char *kernel;
    uint64_t launches;
    double time_us;
    bool matmul;
} FtxProfile;
FtxStatus ftx_engine_profile(FtxEngine *engine, bool on, const FtxProfile **rows, size_t *n, FtxError *err);
FtxStatus ftx_engine_bench(FtxEngine *engine, int sequences, int tokens, int context, int repeat, double *median_us,
                           double *least_us, double *most_us, FtxError *err);
void ftx_engine_close(FtxEngine *engine);
const char *ftx_status_name(FtxStatus status);
#ifdef __cplusplus
}
template <class Struct> inline Struct ftx_struct_init()
{
    Struct s = Struct();
    s.size = sizeof s;
    return s;
}
#define FTX_OPTIONS_INIT ftx_struct_init<FtxOptions>()
#define FTX_EVENT_INIT ftx_struct_init<FtxEvent>()
#define FTX_ENCODE_INIT ftx_struct_init<FtxEncode>()
#else
#define FTX_OPTIONS_INIT \
    { \
        .size = sizeof(FtxOptions) \
    }
#define FTX_EVENT_INIT \
    { \
        .size = sizeof(FtxEvent) \
    }
#define FTX_ENCODE_INIT \
    { \
        .size = sizeof(FtxEncode) \
    }
#endif
#endif
