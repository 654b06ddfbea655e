/* ftx.h - run a compiled model: the whole public interface of libftx.
 *
 *     #include <ftx.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         FtxModel *model = NULL;
 *         FtxEngine *engine = NULL;
 *         FtxEvent ev[16]; // as many as the spec's limits.sequences
 *         FtxError err;
 *         FtxStatus s = ftx_model_open("fable.ftx", NULL, &model, &err);
 *
 *         if (!s)
 *             s = ftx_engine_open(model, NULL, &engine, &err);
 *         if (!s) {
 *             FtxRequest r = ftx_request_default(model);
 *             r.text = "Once upon a time";
 *             s = ftx_engine_submit(engine, &r, NULL, &err);
 *         }
 *         while (!s && ftx_engine_busy(engine)) {
 *             size_t n;
 *             s = ftx_engine_step(engine, ev, 16, &n, &err);
 *             for (size_t i = 0; i < n; i++)
 *                 fwrite(ev[i].text, 1, ev[i].text_bytes, stdout);
 *         }
 *         if (s)
 *             fprintf(stderr, "%s: %s\n", ftx_status_name(s), err.text);
 *         ftx_engine_close(engine);
 *         ftx_model_close(model);
 *         return s ? 1 : 0;
 *     }
 *
 * Build:  cc -std=c11 app.c -lftx -lpcre2-8 -lutf8proc -lxxhash -lm -ldl
 *
 * Every call that can fail returns an FtxStatus, zero for success, and puts the reason into
 * *err (which may be NULL). Nothing prints, nothing exits. After ftx_engine_open has returned,
 * no call on that engine allocates host or device memory until ftx_engine_close. Handles, and what a
 * call writes to, must be there: only what is said to may be NULL.
 *
 * Threads: a model may be shared by engines and asked by any thread; an engine belongs to one thread
 * at a time. */
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

typedef enum FtxStatus {
    FTX_OK = 0,
    FTX_EINVAL,    /* an argument or a request asks for what cannot be */
    FTX_EFORMAT,   /* a file is not what it claims to be */
    FTX_EIO,       /* the file system said no */
    FTX_ENOMEM,    /* no host memory */
    FTX_EDEVICE,   /* the driver or a CUDA library said no */
    FTX_ENODEVICE, /* no such device, no driver, or no code for it in the artifact */
    FTX_EVERSION,  /* artifact and runtime are of different versions */
    FTX_EFULL,     /* more than the compiled limits: sequences waiting, pages, context */
} FtxStatus;

typedef struct FtxError {
    FtxStatus status;
    char text[1000]; /* one line, no newline at the end */
} FtxError;

typedef struct FtxModel FtxModel;
typedef struct FtxEngine FtxEngine;

typedef enum FtxDeviceKind { FTX_DEVICE_AUTO = 0, FTX_DEVICE_CPU, FTX_DEVICE_CUDA } FtxDeviceKind;

/* Replaceable allocator. `align` is a power of two; `release` takes what `alloc` gave. */
typedef struct FtxAllocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *p, size_t bytes);
    void *user;
} FtxAllocator;

typedef struct FtxOptions {
    FtxDeviceKind device;
    int ordinal;                                          /* which CUDA device */
    int threads;                                          /* CPU threads; 0: all the process may use */
    const FtxAllocator *allocator;                        /* NULL: malloc */
    void (*log)(void *user, int level, const char *text); /* NULL: silent. level 0 note, 1 warning */
    void *log_user;
    uint64_t random_weights; /* not 0: fill the weights from this seed, read none (benchmarks) */
} FtxOptions;

/* A decoder goes on from a prompt, an encoder gives vectors, and sequence to sequence is a decoder that
 * writes with an encoder's source before its eyes. */
#ifndef FTX_MODEL_KIND
#define FTX_MODEL_KIND
typedef enum FtxModelKind { FTX_MODEL_DECODER, FTX_MODEL_ENCODER, FTX_MODEL_SEQ2SEQ } FtxModelKind;
#endif

/* What makes scores of a classifier's numbers: nothing, a sigmoid of each, or a softmax of all. */
#ifndef FTX_SCORING
#define FTX_SCORING
typedef enum FtxScoring { FTX_SCORING_NONE, FTX_SCORING_SIGMOID, FTX_SCORING_SOFTMAX } FtxScoring;
#endif

/* What a model is; strings live as long as the model. */
typedef struct FtxModelInfo {
    const char *name;
    const char *device;        /* "cpu", or the GPU's name */
    const char *device_reason; /* with FTX_DEVICE_AUTO: why not a GPU; else "" */
    int vocab, context, sequences, step_tokens, layers, hidden;
    int max_top_k;
    int max_beams; /* 1: no beam search */
    FtxModelKind kind;
    int source_context;                  /* tokens of a source at most; 0: the model reads none */
    int pooled, types;                   /* of encoders: width of the vector a text (0: none), token types */
    int input;                           /* width of hidden states in place of tokens; 0: takes none */
    int labels;                          /* of classifiers: as many as pooled; 0: pooled is a vector */
    FtxScoring scoring;                  /* what makes scores of a classifier's numbers */
    uint64_t weight_bytes, engine_bytes; /* on the device */
    uint64_t workspace_bytes;            /* of engine_bytes: activations and scratch, as the memory plan has them */
    bool has_tokenizer;
} FtxModelInfo;

/* Maps an artifact, chooses its device and loads weights and code. options: NULL for all defaults; it is
 * needed during the call, its allocator's and log's `user` until the model is closed. On failure *model is
 * NULL: FTX_EIO, FTX_EFORMAT and FTX_EVERSION for the file, FTX_ENODEVICE where nothing here can run it. */
FtxStatus ftx_model_open(const char *path, const FtxOptions *options, FtxModel **model, FtxError *err);
void ftx_model_info(const FtxModel *model, FtxModelInfo *info);
/* The name of a classifier's class, no terminator; NULL: there is no such class. */
const char *ftx_model_label(const FtxModel *model, int label, size_t *bytes);
void ftx_model_close(FtxModel *model); /* after all its engines; NULL is fine */

/* Text to ids, `bytes` of UTF-8 (what is none becomes U+FFFD). Writes at most max ids and sets *n to the
 * number there are (call again with more room if *n > max). special: add what the tokenizer's post-processor adds (BOS). */
FtxStatus ftx_tokenize(const FtxModel *model, const char *text, size_t bytes, bool special, int32_t *ids, size_t max,
                       size_t *n, FtxError *err);

/* What a text of too many tokens loses: nothing, it is refused; of an encoder's texts the longer of two its end
 * first, always the first, or always the second; of a prompt or a source its start, or its end. */
typedef enum FtxTruncate {
    FTX_TRUNCATE_NONE,
    FTX_TRUNCATE_LONGEST,
    FTX_TRUNCATE_FIRST,
    FTX_TRUNCATE_SECOND,
    FTX_TRUNCATE_START,
    FTX_TRUNCATE_END
} FtxTruncate;

/* Ids to text, all at once; same convention for max and *n, in bytes, no terminator.
 * skip_special: leave special tokens out. */
FtxStatus ftx_detokenize(const FtxModel *model, const int32_t *ids, size_t count, bool skip_special, char *text,
                         size_t max, size_t *n, FtxError *err);

/* When a beam search ends before its limit: with as many hypotheses as beams (TRUE); or when they are
 * better than what runs can become, at the length it has (FALSE) or at any length (NEVER). */
#ifndef FTX_EARLY
#define FTX_EARLY
typedef enum FtxEarly { FTX_EARLY_FALSE, FTX_EARLY_TRUE, FTX_EARLY_NEVER } FtxEarly;
#endif

/* One request. Get it from ftx_request_default and change fields; a value over its compiled
 * maximum is refused with the field's name. Pointers need to live only during submit. */
typedef struct FtxRequest {
    const char *text;   /* prompt as text, UTF-8 ... */
    size_t text_bytes;  /* 0: strlen(text) */
    const int32_t *ids; /* ... or as token ids, taken as they are */
    size_t ids_count;
    bool no_bos; /* do not add what the tokenizer adds to a prompt */

    /* A prompt or source of more tokens than max_prompt loses its start or its end, but nothing of what the
     * tokenizer adds to a text. 0: as many as fit, of a prompt as many as leave room for max_new. */
    FtxTruncate truncate; /* FTX_TRUNCATE_NONE: it is refused; _START; _END */
    int max_prompt;

    int max_new; /* new tokens at most; 0: to the end of the context */
    int min_new; /* end ids are banned before */

    /* Sequence to sequence: text or ids are the source, and what is written begins with the model's
     * start token and these ids. */
    const int32_t *prefix;
    size_t prefix_count;

    float temperature;                         /* 0: greedy */
    int top_k;                                 /* 0: off */
    float top_p;                               /* 1: off */
    float min_p;                               /* 0: off */
    float typical_p;                           /* locally typical sampling; 0, 1: off */
    float repetition_penalty;                  /* 1: off; over the last repetition_window tokens, prompt too */
    int repetition_window;                     /* 0: the whole context */
    float presence_penalty, frequency_penalty; /* 0: off; over generated tokens */
    int no_repeat_ngram;                       /* 0: off */
    uint64_t seed;

    /* Several sequences from one prompt: samples of them run side by side, each with its events. They share
     * the prompt's pages. Sample number i of a seed is the same whichever run beside it. */
    int samples; /* 0: 1 */
    int sample;  /* number of the first */

    const int32_t *bias_ids; /* logit bias: added before everything else */
    const float *bias_values;
    size_t bias_count;

    /* Bad words, beside the model's: the last id of a word is never chosen where its others stand right before,
     * in the prompt or behind; of a word of one id always, but an end id alone means nothing. Given as ids, a
     * word after another, or as texts of at most 255 bytes, by the model's tokenizer (of a translator that of
     * its sources): each as a text begins with it, and behind a space. */
    const int32_t *bad_ids;
    const size_t *bad_lengths; /* [bad_count]: ids of each word */
    size_t bad_count;
    const char *const *bad_words;
    size_t bad_words_count;

    const int32_t *stop_ids; /* beside the model's own end ids */
    size_t stop_ids_count;
    const char *const *stop; /* at most 16 stop strings of at most 255 bytes; the text ends before the first */
    size_t stop_count;
    bool ignore_eos;

    /* Beam search, in artifacts compiled for it. Temperature, top_k, top_p, min_p and seed mean
     * nothing then, stop strings are refused; there is one event, at the end: ftx_engine_hypotheses. */
    int beams;            /* lanes; 0, 1: no beam search */
    float length_penalty; /* score = sum of log-probabilities / generated tokens ^ length_penalty */
    FtxEarly early_stopping;
    int n_best; /* hypotheses given out; 0: 1 */

    /* Diverse beams (Vijayakumar et al. 2016): so many groups of beams / beam_groups lanes search side by side,
     * and a token loses diversity_rate for each lane of an earlier group that takes it in the same step. */
    int beam_groups; /* 0, 1: none */
    float diversity_rate;

    bool logprobs; /* fill FtxEvent.logprob, FtxHypothesis.logprobs: log-softmax of the raw logits */
    bool logits;   /* keep the raw logits of the last prompt position: ftx_engine_logits */
    void *user;    /* handed back in events */
} FtxRequest;

FtxRequest ftx_request_default(const FtxModel *model);

typedef enum FtxFinish {
    FTX_RUNNING = 0,
    FTX_FINISH_END,    /* an end id */
    FTX_FINISH_LENGTH, /* max_new, or the context is full */
    FTX_FINISH_STOP,   /* a stop string */
    FTX_FINISH_CANCEL,
    FTX_FINISH_ERROR, /* the device failed; the engine is dead */
} FtxFinish;

/* What happened to one sequence in one step: one new token, and perhaps its end. */
typedef struct FtxEvent {
    uint64_t request;
    void *user;
    int sample;    /* of a request with several: which; else FtxRequest.sample */
    int32_t token; /* -1: none (cancelled) */
    float logprob; /* of `token` under the raw logits */
    FtxFinish finish;
    const char *text; /* new text, whole characters only, none of an end id; valid until the next call */
    size_t text_bytes;
    size_t hypotheses; /* of a beam search that has ended; `text` is that of the best */
} FtxEvent;

/* An engine has room for FtxModelInfo.sequences requests that run and four times as many that wait, where
 * each sample counts as one. options: the allocator, if it shall be another than the model's, or NULL.
 * On failure *engine is NULL. */
FtxStatus ftx_engine_open(FtxModel *model, const FtxOptions *options, FtxEngine **engine, FtxError *err);

/* The request waits for a step. id: the number of its events, or NULL. A refusal names the field, changes
 * nothing, and harms nobody else: FTX_EINVAL for what cannot be, FTX_EFULL for a prompt that is too long, or
 * when too many requests wait: step, then submit again. */
FtxStatus ftx_engine_submit(FtxEngine *engine, const FtxRequest *request, uint64_t *id, FtxError *err);

/* Run one step: prompt chunks and new tokens of every request that is ready, as many as fit.
 *
 * events   filled with what happened, at most one event a sequence; caller's array, room for
 *          at least FtxModelInfo.sequences of them
 *
 * After an error the engine is dead: every request has had a FTX_FINISH_ERROR event (as far as
 * there was room), and the engine can only be closed.
 *
 * Allocates nothing. Two engines may step at once; one engine may not. */
FtxStatus ftx_engine_step(FtxEngine *engine, FtxEvent *events, size_t max, size_t *n, FtxError *err);

bool ftx_engine_busy(const FtxEngine *engine); /* any request waiting or running */

/* A step soon gives the request, each of its samples, a FTX_FINISH_CANCEL event. FTX_EINVAL: it has ended. */
FtxStatus ftx_engine_cancel(FtxEngine *engine, uint64_t id, FtxError *err);

/* What a beam search has found. */
typedef struct FtxHypothesis {
    const int32_t *ids; /* generated, the end id included */
    size_t count;
    const float *logprobs; /* of each under the raw logits; NULL: FtxRequest.logprobs was not set */
    float score, logprob;  /* logprob: the sum of what was searched by, before the length penalty */
    FtxFinish finish;      /* FTX_FINISH_END, or FTX_FINISH_LENGTH */
    const char *text;      /* UTF-8, none of an end id; "" without a tokenizer */
    size_t text_bytes;
} FtxHypothesis;

/* The n best of a search, best first; valid from its event to the next step or submit. NULL: none. */
const FtxHypothesis *ftx_engine_hypotheses(const FtxEngine *engine, uint64_t id, size_t *n);

/* Raw logits [vocab] of the last prompt position of a request that asked for them; valid from
 * its first event to the next submit. NULL: not there. */
const float *ftx_engine_logits(const FtxEngine *engine, uint64_t id);

/* Log-probabilities of a text under a decoder: logprobs[i] = log p(ids[i + 1] | ids[0 .. i]) under the raw logits,
 * n - 1 of them; n from 2 to the context. No request may wait or run. */
FtxStatus ftx_engine_score(FtxEngine *engine, const int32_t *ids, size_t n, float *logprobs, FtxError *err);

/*     const char *text[] = {"The king", "The queen"};
 *     float vector[2][384]; // FtxModelInfo.pooled
 *     ftx_engine_encode(engine, &(FtxEncode){.count = 2, .text = text, .pooled = vector[0]}, &err);
 *
 * What an encoder shall make of some texts: given as text, as token ids, or as hidden states. Zero-
 * initialise and set what is needed; all arrays are the caller's. Texts go in and vectors come out one
 * after another (packed), or, with a stride, as a batch of equal rows of which the first lengths[i]
 * count (padded: the rest is not read, and zero in `hidden`). Vectors of a text do not depend on the
 * texts beside it. */
typedef struct FtxEncode {
    size_t count;             /* texts */
    const char *const *text;  /* [count], UTF-8 ... */
    const size_t *text_bytes; /* [count]; NULL: strlen */
    const char *const *pair;  /* [count], where two sentences are one text: the second; NULL here or there: none */
    const size_t *pair_bytes; /* [count]; NULL: strlen */
    FtxTruncate truncate;     /* of texts with more than max_tokens (or stride) tokens */
    int max_tokens;           /* of a text, with those around it; 0: the context */
    const int32_t *ids;       /* ... or token ids, taken as they are: [tokens] or [count][stride] */
    const int32_t *types;     /* their types, likewise; NULL: all 0 */
    const float *input;       /* ... or what stands before the first layer, in place of embedded tokens:
                                 [tokens][input] or [count][stride][input] of FtxModelInfo.input */
    const int32_t *lengths;   /* [count]: ids or hidden states of each text */
    size_t stride;            /* 0: packed */
    float *hidden;            /* out: [tokens][hidden] or [count][stride][hidden]; NULL: not wanted */
    size_t hidden_rows;       /* packed: tokens that `hidden` has room for */
    float *pooled;            /* out: [count][pooled]; NULL: not wanted */
    int32_t *tokens;          /* out: [count] tokens of each text, 0 where it was refused; or NULL */
    FtxError *errors;         /* out: [count] why a text was refused (.status 0: it was not), and the others are
                                 done; NULL: the first mistake ends the call */
} FtxEncode;

/* A text that is too long, or an unknown id, is refused; an empty text is what the tokenizer puts around
 * one. Allocates nothing. */
FtxStatus ftx_engine_encode(FtxEngine *engine, const FtxEncode *job, FtxError *err);

/* Time by kernel since profiling was switched on, for `ftxc run --profile`; it waits after every launch.
 * *rows, of *n kernels, are the engine's and live as long. */
typedef struct FtxProfile {
    const char *kernel;
    uint64_t launches;
    double time_us;
    bool matmul;
} FtxProfile;
FtxStatus ftx_engine_profile(FtxEngine *engine, bool on, const FtxProfile **rows, size_t *n, FtxError *err);

/* Time one program with made-up state, for `ftxc bench`: S sequences of `context` tokens each
 * bring `tokens` tokens. For an encoder: S texts of at most `tokens` tokens, `context` in the mean
 * (0: all as long). Median of `repeat` runs in microseconds, smallest and largest beside. */
FtxStatus ftx_engine_bench(FtxEngine *engine, int sequences, int tokens, int context, int repeat, double *median_us,
                           double *least_us, double *most_us, FtxError *err);

void ftx_engine_close(FtxEngine *engine);

const char *ftx_status_name(FtxStatus status); /* "bad file"; lives for ever */

#ifdef __cplusplus
}
#endif
#endif
