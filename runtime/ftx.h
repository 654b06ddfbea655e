/* ftx.h - run a compiled model: the whole public interface of libftx.
 *
 *     #include <ftx.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         FtxModel *model = NULL;
 *         FtxEngine *engine = NULL;
 *         FtxEvent ev[16] = {FTX_EVENT_INIT}; // as many as the spec's limits.sequences
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
 * Errors: a call that can fail returns an FtxStatus, zero for success, and writes the reason to *err, which may be
 * NULL. The library prints nothing and never ends the program. A pointer may be NULL only where that is said.
 *
 * Memory: what the caller passes in stays the caller's and is needed during the call only, unless said otherwise.
 * What the library returns by pointer belongs to the library; each function says until when it is valid. After
 * ftx_engine_open has returned, no call on that engine but ftx_engine_trace_begin allocates host or device memory until
 * ftx_engine_close.
 *
 * Threads: any thread may use a model, several at once. An engine may be used by one thread at a time, but for
 * ftx_engine_post, ftx_engine_post_cancel and ftx_engine_wake. Two engines of one model may run at the same time.
 *
 * Versions: a program built with this header runs with any later libftx of the same major version. Structs that may
 * grow begin with their size as the program's compiler saw it: the library reads and writes no more than that, and
 * uses defaults for the fields that the program does not know. Begin such a struct with its FTX_..._INIT, or set
 * `size` to its sizeof and the rest to zero. New fields are added at the end. A size of 0 is refused with FTX_EINVAL;
 * so is a larger struct than the library knows if a field after the known ones is not zero. FtxError, FtxAllocator,
 * FtxMessage, FtxHypothesis, FtxTop and FtxProfile never change. */
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

/* The version of the library that runs, which may be later than this header's. Both may be called at any time. */
const char *ftx_version(void); /* "0.1"; a constant */
int ftx_version_number(void);  /* major * 1000 + minor */

typedef enum FtxStatus {
    FTX_OK = 0,
    FTX_EINVAL,    /* an argument or a field of a request is wrong */
    FTX_EFORMAT,   /* the file is damaged or no artifact */
    FTX_EIO,       /* the file cannot be opened or read */
    FTX_ENOMEM,    /* out of host memory */
    FTX_EDEVICE,   /* the driver or a CUDA library failed; out of device memory is this, too */
    FTX_ENODEVICE, /* no such device, no driver, or no code for it in the artifact */
    FTX_EVERSION,  /* artifact and runtime are of different versions */
    FTX_EFULL      /* more than the compiled limits: sequences waiting, pages, context */
} FtxStatus;

typedef struct FtxError {
    FtxStatus status;
    char text[1000]; /* one line, no newline at the end */
} FtxError;

typedef struct FtxModel FtxModel;
typedef struct FtxEngine FtxEngine;

typedef enum FtxDeviceKind { FTX_DEVICE_AUTO = 0, FTX_DEVICE_CPU, FTX_DEVICE_CUDA } FtxDeviceKind;

/* The caller's allocator of host memory. `align` is a power of two. `alloc` returns NULL if there is no memory.
 * `release` gets a pointer that `alloc` returned, and the same `bytes`. Both may be called by any thread that calls
 * the library. */
typedef struct FtxAllocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *p, size_t bytes);
    void *user;
} FtxAllocator;

typedef struct FtxOptions {
    size_t size;                                          /* FTX_OPTIONS_INIT */
    FtxDeviceKind device;                                 /* AUTO: a GPU if one can run the artifact, else the CPU */
    int ordinal;                                          /* which CUDA device, from 0 */
    int threads;                                          /* CPU threads; 0: as many as the process may use */
    const FtxAllocator *allocator;                        /* NULL: malloc. It is copied */
    void (*log)(void *user, int level, const char *text); /* NULL: silent. level 0 note, 1 warning */
    void *log_user;
    uint64_t random_weights; /* not 0: draw the weights from this seed instead of reading them (benchmarks) */

    /* Device memory for the KV cache of an engine (ftx_engine_open). It is never more than the spec's limits can use. 0:
     * what is free when the engine opens, less a reserve of 2 % and at least 256 MiB. So the first of several engines on
     * a GPU may leave nothing to the others: give each its part. On the CPU memory is used when tokens are written
     * there, but at once if `allocator` is set. Requests wait while no pages are free. FTX_EINVAL: less than one page
     * for each sequence; FTX_ENOMEM (the CPU), FTX_EDEVICE: less than that, or than kv_bytes, is free. */
    uint64_t kv_bytes;

    /* 1: an engine keeps the keys and values of requests that have ended until it needs their memory. A prompt that
     * begins with the same tokens (a system prompt, the earlier turns of a conversation) takes them over page by page
     * and computes the rest. Decoders only; with recurrent states up to a snapshot of these (limits.snapshots of the
     * artifact; without them nothing is taken over). On the CPU texts do not depend on it. On a GPU the last bits of logits can,
     * because the rest of a prompt may run in another kernel than the whole; not if the artifact was compiled with
     * precision.sums = "fixed": then pages of generated tokens are not kept. */
    size_t prefix_cache;

    /* 1: a request takes KV pages as it writes, not all that its max_new could need when it begins. So more requests run
     * at once. If pages run out, the request with the fewest tokens is preempted: it is requeued, and its keys and values
     * are recomputed when it runs again, at most twice; its events do not show it. Decoders; searches and several samples of one prompt take all their pages at
     * once. Texts do not depend on it, with the restriction of prefix_cache. */
    size_t overcommit;

    size_t queue_requests; /* that may wait; each sample counts as one; at most 65536. 0: four times the sequences */
    size_t queue_tokens;   /* of the prompts that wait; one alone may have more. 0: any number */

    /* A step has so many tokens of prompts that it takes about so many milliseconds, by times that ftx_engine_open
     * measures (a second or less). Of steps that do not end in a quarter of it, at most two are enqueued. Decoders. At
     * most 60,000; 0: a step has as many tokens as there is room for. Texts do not depend on it. ftx_engine_step may
     * then return without an event before the step has ended, so that the caller can submit what has come. */
    size_t step_ms;

    /* An artifact for several ranks (devices that share a model: compiled with parallel=N) takes these CUDA devices; on the
     * CPU a rank is a part of the threads. device_count 0: 0, 1, ... N - 1. Any other artifact has one rank. kv_bytes is that
     * of each rank. */
    int devices[8];
    size_t device_count;

    /* With overcommit: memory of the host for KV pages of preempted requests, taken when the engine opens (on a GPU pinned).
     * A preempted request's pages are copied there and back where that takes less time than to recompute them, by times
     * that ftx_engine_open measures; else, or if this memory is full, they are recomputed. 0: always. FTX_EINVAL: less than
     * a page; an artifact for several ranks; a model with recurrent states. Texts do not depend on it. */
    uint64_t swap_bytes;

    size_t
        inbox; /* requests that other threads may post before a step takes them (ftx_engine_post); at most 65536. 0: none */

    /* A GPU that is too small for the weights. gpu_memory: bytes for weights on the GPU; 0: no limit. gpu_layers: the layers whose
     * weights stay on the GPU, FTX_NO_GPU_LAYERS: none does; 0: all, or as many as gpu_memory holds. The last layers' weights, and
     * embeddings of which only rows are looked up, lie in pinned memory of the host then. Every step copies those layers to the
     * GPU, each to the same area before it runs: that area, the size of the largest such layer, is a part of gpu_memory, and each
     * further engine takes one more. Texts do not depend on it. FtxModelInfo.copy_us says what the copies take. Refused with
     * FTX_EINVAL: both options at once; less than what must be on the GPU; an artifact for several ranks; FTX_DEVICE_CPU. With
     * them FTX_DEVICE_AUTO takes a GPU or fails. */
    uint64_t gpu_memory;
    int64_t gpu_layers;
} FtxOptions;

#define FTX_NO_GPU_LAYERS (-1)

/* A decoder continues a prompt. An encoder turns a text into vectors. A sequence-to-sequence model (a translator)
 * reads a source with an encoder and writes with a decoder. */
#ifndef FTX_MODEL_KIND
#define FTX_MODEL_KIND
typedef enum FtxModelKind { FTX_MODEL_DECODER, FTX_MODEL_ENCODER, FTX_MODEL_SEQ2SEQ } FtxModelKind;
#endif

/* How a classifier's numbers become scores: not at all, a sigmoid of each, or a softmax of all. */
#ifndef FTX_SCORING
#define FTX_SCORING
typedef enum FtxScoring { FTX_SCORING_NONE, FTX_SCORING_SIGMOID, FTX_SCORING_SOFTMAX } FtxScoring;
#endif

/* The type of numbers in an array. */
typedef enum FtxType { FTX_FP32, FTX_FP16, FTX_BF16 } FtxType;

/* Facts of a model. Strings belong to the model and are valid until it is closed. */
typedef struct FtxModelInfo {
    size_t size; /* set by ftx_model_info */
    const char *name;
    const char *device;        /* "cpu", or the GPU's name */
    const char *device_reason; /* with FTX_DEVICE_AUTO: why no GPU was chosen; "" if one was */
    int vocab, context, sequences, step_tokens, layers, hidden; /* context: tokens; sequences: that run at once */
    int max_top_k;                                              /* the largest top_k of a request */
    int max_beams;                                              /* the most beams of a request; 1: no beam search */
    FtxModelKind kind;
    int source_context; /* most tokens of a source; 0: the model reads none */
    int pooled;         /* encoders: width of the vector of a text; 0: there is none */
    int types;          /* encoders: token types; 0: none */
    int input;          /* encoders: width of hidden states in place of tokens; 0: not taken */
    int labels; /* classifiers: classes, as many as pooled, or with pooled 0, of each token, as hidden; 0: none */
    FtxScoring scoring; /* classifiers: how numbers become scores */
    bool has_tokenizer;
    uint64_t weight_bytes, engine_bytes; /* memory on the device: of the model, and of each engine */
    uint64_t workspace_bytes;            /* the part of engine_bytes for activations and scratch */

    /* Tokens whose keys and values fit in the KV cache (a part of engine_bytes) of the engine that was opened last;
     * before the first, as many as the limits can use. 0: encoders. */
    uint64_t kv_tokens;
    uint64_t kv_token_bytes; /* device memory for each of them; 0: no layer has attention */
    FtxType input_type;      /* encoders: of hidden states that FtxEncode.input has in device memory */
    int ordinal;             /* which CUDA device; -1: the CPU */
    size_t has_chat;         /* 1: there are chat templates: ftx_chat. No bool: a struct ends without padding */
    const int32_t *end_ids;  /* [end_ids_count]: tokens that end a text */
    size_t end_ids_count;
    const char *plan; /* which code of the artifact runs: "cpu", "sm_90a", "h200" (tuned for that GPU) */
    size_t states;    /* decoders: width of the states that FtxRequest.states asks for; 0: compiled without them */

    /* FtxOptions.gpu_layers, gpu_memory. weight_bytes is then without these. */
    uint64_t host_weight_bytes; /* of weights in pinned memory of the host; 0: all weights are on the device */
    uint64_t host_layers;       /* layers among them, which every step copies to the GPU */
    uint64_t copy_bytes;        /* so many bytes a step, of the program that copies the most */
    uint64_t copy_us;           /* what that takes, at the rate of a copy that was measured at open */
} FtxModelInfo;

/* Maps an artifact, chooses a device and loads weights and code. options may be NULL for all defaults; the allocator's
 * and log's `user` must stay valid until the model is closed. On failure *model is NULL. FTX_EIO, FTX_EFORMAT and
 * FTX_EVERSION are about the file; FTX_ENODEVICE: no device here can run it; FTX_ENOMEM, FTX_EDEVICE: no memory. */
FtxStatus ftx_model_open(const char *path, const FtxOptions *options, FtxModel **model, FtxError *err);

/* Ranks of a model in several processes (FTX_MASTER, docs/parallel.md): each calls this before ftx_model_open. *rank is the
 * number of the process. In rank 0, and where FTX_MASTER is not set, it is 0, and the call returns at once. In another rank
 * the call runs that rank's part of the model until rank 0 closes it, or a rank fails; the process opens no model itself. */
FtxStatus ftx_rank_run(const char *path, const FtxOptions *options, int *rank, FtxError *err);

/* Writes info->size bytes of *info. FTX_EINVAL: that size is wrong. Programs call ftx_model_info. */
FtxStatus ftx_model_describe(const FtxModel *model, FtxModelInfo *info);
static inline void ftx_model_info(const FtxModel *model, FtxModelInfo *info)
{
    info->size = sizeof *info;
    ftx_model_describe(model, info);
}

/* The name of a classifier's class, without a terminator, valid until the model is closed. NULL: no such class. */
const char *ftx_model_label(const FtxModel *model, int label, size_t *bytes);

/* Closes the model when its last engine is closed. NULL is allowed. */
void ftx_model_close(FtxModel *model);

/* How ftx_tokenize reads a text; 0: neither. */
enum {
    FTX_TOKENIZE_SPECIAL = 1, /* add the tokens that the tokenizer puts around a text (BOS, [CLS] ...) */
    FTX_TOKENIZE_LITERAL = 2  /* the text of a special token is text, as FtxRequest.literal */
};

/* Text to ids. text: `bytes` bytes of UTF-8; invalid bytes are read as U+FFFD. flags: FTX_TOKENIZE_*. Writes at most
 * max ids and sets *n to the number of ids there are: call again with more room if *n > max. Allocates memory and
 * frees it. FTX_EINVAL: the model has no tokenizer. */
FtxStatus ftx_tokenize(const FtxModel *model, const char *text, size_t bytes, unsigned flags, int32_t *ids, size_t max,
                       size_t *n, FtxError *err);

/* Ids to text, all at once. skip_special: leave special tokens out. Writes at most max bytes, without a terminator,
 * and sets *n to the number of bytes there are. FTX_EINVAL: no tokenizer, or an id outside of the vocabulary. */
FtxStatus ftx_detokenize(const FtxModel *model, const int32_t *ids, size_t count, bool skip_special, char *text,
                         size_t max, size_t *n, FtxError *err);

/* The bytes of a token behind others in a text, *n of them, valid until the model is closed. They may be a part of a
 * character. *special: it is a special token. NULL: the model has no tokenizer, or no such token. */
const char *ftx_token_bytes(const FtxModel *model, int32_t id, size_t *n, bool *special);

/* One message of a conversation. */
typedef struct FtxMessage {
    const char *role; /* "system", "user", "assistant" ...: the template decides which there are */
    const char *content;
    size_t content_bytes; /* 0: strlen(content) */
} FtxMessage;

/* A conversation, for a model whose artifact holds its chat templates. All texts are UTF-8. */
typedef struct FtxChat {
    size_t size;                /* FTX_CHAT_INIT */
    const FtxMessage *messages; /* [count] ... */
    size_t count;
    const char *json;      /* ... or all messages as a JSON array of objects, for contents in parts and tool calls */
    size_t json_bytes;     /* 0: strlen(json) */
    const char *tools;     /* JSON array of function descriptions; NULL: none */
    const char *variables; /* JSON object: further variables of the template, {"enable_thinking": false}; NULL */
    const char *template_name;  /* one of several templates; NULL: "tool_use" with tools if there is one, "default" */
    bool add_generation_prompt; /* end with what begins the assistant's answer */
    uint64_t time;              /* what strftime_now gives, in seconds since 1970; 0: the present time */
} FtxChat;

/* A conversation to the ids of a prompt, for FtxRequest.ids. Everything in the prompt comes from the template: nothing
 * is added around it, so a template that writes the BOS token's text makes one BOS token. Special tokens are recognised
 * in the template's own text only. Texts of the conversation stay text, as with FTX_TOKENIZE_LITERAL.
 *
 * Writes at most max ids and sets *n to the number of ids there are. Allocates memory and frees it. FTX_EINVAL: there
 * are no templates or no tokenizer, a field is wrong, or the template refuses the conversation (err has its text and
 * the line). FTX_EFULL: the template takes too many steps or too much memory. */
FtxStatus ftx_chat(const FtxModel *model, const FtxChat *chat, int32_t *ids, size_t max, size_t *n, FtxError *err);

/* The same prompt as text, at most max bytes of it without a terminator; *n: how many there are. */
FtxStatus ftx_chat_text(const FtxModel *model, const FtxChat *chat, char *text, size_t max, size_t *n, FtxError *err);

/* Which tokens of a too long text are dropped. An encoder's texts: the end of the longer one of a pair (LONGEST), of
 * the first or of the second. A prompt or a source: its start or its end. NONE: the text is refused. */
typedef enum FtxTruncate {
    FTX_TRUNCATE_NONE,
    FTX_TRUNCATE_LONGEST,
    FTX_TRUNCATE_FIRST,
    FTX_TRUNCATE_SECOND,
    FTX_TRUNCATE_START,
    FTX_TRUNCATE_END
} FtxTruncate;

/* When a beam search ends before its length limit. TRUE: as soon as there are as many hypotheses as beams. FALSE: when
 * no running beam can become better at its present length. NEVER: when none can at any length. */
#ifndef FTX_EARLY
#define FTX_EARLY
typedef enum FtxEarly { FTX_EARLY_FALSE, FTX_EARLY_TRUE, FTX_EARLY_NEVER } FtxEarly;
#endif

/* The states of a decoder's last layer, behind its final norm: what its head makes logits of. LAST: of the prompt's last
 * token. MEAN: their mean over the prompt. TOKENS: of each token that the model reads, the prompt's and the new ones but the
 * last. */
typedef enum FtxStates { FTX_STATES_NONE, FTX_STATES_LAST, FTX_STATES_MEAN, FTX_STATES_TOKENS } FtxStates;

/* One request. Get it from ftx_request_default, then change fields. ftx_engine_submit refuses a value that is out of
 * its range or above its compiled maximum, and names the field. The ranges are stated here and by `ftxc help run`. */
typedef struct FtxRequest {
    size_t size;        /* set by ftx_request_default */
    const char *text;   /* the prompt as UTF-8 text ... */
    size_t text_bytes;  /* 0: strlen(text) */
    const int32_t *ids; /* ... or as token ids, to which nothing is added */
    size_t ids_count;
    bool no_bos; /* do not add the tokens that the tokenizer puts around a text */

    /* The text is the user's: the text of a special token in it ("<|end_of_text|>") is tokenized as text and does not
     * become that token. Added tokens that are not special are recognised as ever. (transformers:
     * split_special_tokens) */
    bool literal;

    /* A prompt or source of more than max_prompt tokens loses tokens at its start or its end, never those that the
     * tokenizer adds. max_prompt 0: as many as fit; of a prompt, as many as leave room for max_new. */
    FtxTruncate truncate; /* FTX_TRUNCATE_NONE, _START or _END */
    int max_prompt;

    int max_new; /* most new tokens, 0 to 1048576; 0: to the end of the context */
    int min_new; /* no end id before this many new tokens; at most max_new */

    /* Sequence to sequence: text or ids are the source; the output begins with the model's start token and these
     * ids. */
    const int32_t *prefix;
    size_t prefix_count;

    float temperature;        /* divides the logits; 0 to 100, 0: greedy */
    int top_k;                /* 0 to 1024 and FtxModelInfo.max_top_k; 0: off */
    float top_p;              /* 0 to 1; 1: off */
    float min_p;              /* 0 to 1; 0: off */
    float typical_p;          /* locally typical sampling, 0 to 1; 0, 1: off */
    float repetition_penalty; /* 0.01 to 100; 1: off. Counts the prompt and the new tokens */
    int repetition_window;    /* the penalty looks at the last so many tokens; 0: at all */
    float presence_penalty;   /* -100 to 100; 0: off. Counts new tokens only */
    float frequency_penalty;  /* -100 to 100; 0: off. Counts new tokens only */
    int no_repeat_ngram;      /* no n-gram of this length twice; 0: off */
    uint64_t seed;

    /* Several texts from one prompt run side by side; each has its own events, and they share the prompt's pages.
     * Sample i of a seed is the same whichever samples run beside it. */
    int samples; /* 0 to FtxModelInfo.sequences; 0: 1 */
    int sample;  /* the number of the first one */

    const int32_t *bias_ids; /* logit bias, of at most 300 tokens: added to the raw logits before all else */
    const float *bias_values;
    size_t bias_count;

    /* Bad words, in addition to the model's. The last id of a word is never chosen directly after its other ids, in
     * the prompt or in new tokens; a word of one id is never chosen; an end id alone is ignored. As ids: one word
     * after another in bad_ids. As texts of at most 255 bytes: the model's tokenizer (a translator's: that of its
     * sources) makes two words of each, one as a text begins with it and one after a space. */
    const int32_t *bad_ids;
    const size_t *bad_lengths; /* [bad_count]: ids of each word */
    size_t bad_count;
    const char *const *bad_words;
    size_t bad_words_count;

    const int32_t *stop_ids; /* in addition to the model's end ids */
    size_t stop_ids_count;
    const char *const *stop; /* at most 16 strings of at most 255 bytes; the text ends before the first found */
    size_t stop_count;
    bool ignore_eos; /* do not end at the model's end ids */

    /* Beam search, if the artifact is compiled for it. temperature, top_k, top_p, min_p, typical_p and seed have no
     * effect then, and stop strings are refused. The search has one event, at its end; ftx_engine_hypotheses gives
     * the results. */
    int beams;            /* 0 to 64 and FtxModelInfo.max_beams; 0, 1: no beam search */
    float length_penalty; /* -100 to 100: score = sum of log-probabilities / generated tokens ^ length_penalty */
    FtxEarly early_stopping;
    int n_best; /* hypotheses to return, 0 to beams; 0: 1 */

    /* Diverse beams (Vijayakumar et al. 2016): beam_groups groups of beams / beam_groups beams each. A token loses
     * diversity_rate for each beam of an earlier group that takes it in the same step. */
    int beam_groups;      /* a divisor of beams; 0, 1: off */
    float diversity_rate; /* 0 to 1000000 */

    bool logprobs;       /* fill FtxEvent.logprob and FtxHypothesis.logprobs: log-softmax of the raw logits */
    bool logits;         /* keep the raw logits of the last prompt position for ftx_engine_logits */
    void *user;          /* FtxEvent.user of the request's events */
    uint64_t cache_salt; /* FtxOptions.prefix_cache: only requests of the same salt share pages */

    /* With a source: the first token of a text (the language of a translation) and its last one at max_new; -1: none.
     * A prefix takes the place of forced_bos. */
    int32_t forced_bos, forced_eos;

    /* The order in which requests begin: the lowest priority first; among equal ones that of the fairness key that was
     * served the fewest tokens (a new one counts as two of a prompt), then the order of submission. A request that does
     * not fit in what is free is passed by smaller ones at most 32 times, then it is the next. No running request stops
     * for one of a lower priority; where FtxOptions.overcommit preempts, it preempts the highest first. */
    int priority;
    int deadline_ms;   /* ends with FTX_FINISH_DEADLINE if it has not begun so long after its submission; 0: none */
    uint64_t fair_key; /* whose request it is: a user, a tenant */

    /* Log-probabilities under the raw logits. They and masks are computed on the host from logits that are read after
     * each step, so on a GPU no step runs ahead while such a request runs. Masks alone are applied by a GPU where the
     * artifact was compiled with -D limits.masks=true. Not with a beam search. */
    int top_logprobs;    /* 0 to 20: of so many likeliest tokens at each place, FtxEvent.top */
    int prompt_logprobs; /* 1: of the prompt's tokens from the second on, FtxEvent.prompt_logprobs. Decoders */

    /* A grammar: called before each new token with those that there are, it sets the bits of all tokens that may
     * follow (bits[id / 32] >> id % 32 & 1; all are 0). False, or no bit: the text ends with FTX_FINISH_STOP. It is called
     * by ftx_engine_step, once for each token, also after a preemption, and must call no function of this engine. On a GPU
     * it is called while the step runs that computes the token's logits. */
    bool (*mask)(void *mask_user, int sample, const int32_t *ids, size_t count, uint32_t *bits);
    void *mask_user;

    /* FtxStates: which states FtxEvent.states has. The artifact must be compiled with -D states=true. Prompts with MEAN and
     * TOKENS are computed whole, also where FtxOptions.prefix_cache has their beginning; on a GPU no step runs ahead while
     * such a request reads its prompt, with TOKENS while it runs. Of one sample; not with a beam search or
     * prompt_logprobs. */
    size_t states;
} FtxRequest;

/* Fills request->size bytes of *request with the model's defaults. FTX_EINVAL: that size is wrong. Programs call
 * ftx_request_default. */
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
    FTX_FINISH_END,      /* an end id */
    FTX_FINISH_LENGTH,   /* max_new, or the context is full */
    FTX_FINISH_STOP,     /* a stop string */
    FTX_FINISH_CANCEL,   /* ftx_engine_cancel */
    FTX_FINISH_ERROR,    /* the device failed; the engine can only be closed */
    FTX_FINISH_DEADLINE, /* FtxRequest.deadline_ms has passed */
    FTX_FINISH_NAN       /* the request's logits were not finite numbers; others go on (FTX_NAN=1 finds where) */
} FtxFinish;

typedef struct FtxTop {
    int32_t id;
    float logprob;
} FtxTop;

/* What one step did to one sequence: a new token, its end, or both. */
typedef struct FtxEvent {
    size_t size;      /* set that of the first event of an array: FTX_EVENT_INIT */
    uint64_t request; /* the id that ftx_engine_submit gave */
    void *user;       /* FtxRequest.user */
    int sample;       /* which sample of the request */
    int32_t token;    /* -1: none (cancelled, failed, or a beam search) */
    float logprob;    /* of `token` under the raw logits, with FtxRequest.logprobs; else 0 */
    FtxFinish finish;
    const char *text; /* the new text: whole characters, nothing of an end id; valid until the engine's next call */
    size_t text_bytes;
    size_t hypotheses;    /* of a beam search that has ended; `text` is that of the best */
    size_t prompt_tokens; /* tokens of the prompt or source that the model reads; cut ones do not count */
    size_t cached_tokens; /* of these, tokens that FtxOptions.prefix_cache has saved */

    /* Seconds from submission: until it began (or until now), until its first token (0: none yet), until now. */
    double queued_seconds, first_seconds, seconds;

    /* With FtxRequest.top_logprobs: the likeliest tokens in place of `token`, best first. With prompt_logprobs, in events
     * of their own without a token: log-probabilities of tokens prompt_first to prompt_first + prompt_count - 1 of the
     * prompt, and the likeliest ones in their place, top_count of each, 20 entries apart. All are the engine's and valid
     * until its next call. */
    const FtxTop *top;
    size_t top_count;
    size_t prompt_first, prompt_count;
    const float *prompt_logprobs;
    const FtxTop *prompt_top;

    /* With FtxRequest.states: [states_count][FtxModelInfo.states], the engine's and valid until its next call. LAST and
     * MEAN: one row, in the event of the first token. TOKENS: of tokens states_first to states_first + states_count - 1 of
     * prompt and text, once each and in order; the event of a new token has that of the token before it, and parts of a
     * prompt have events of their own, without a token. */
    const float *states;
    size_t states_first, states_count;
} FtxEvent;

/* Opens an engine: memory for FtxModelInfo.sequences requests that run and FtxOptions.queue_requests that wait.
 * options may be NULL; allocator (NULL: the model's), kv_bytes, prefix_cache, overcommit, swap_bytes, queue_..., step_ms and inbox are read. On failure *engine is NULL: FTX_ENOMEM, FTX_EDEVICE. The engine keeps the model open. */
FtxStatus ftx_engine_open(FtxModel *model, const FtxOptions *options, FtxEngine **engine, FtxError *err);

/* Adds a request to those that wait. It is copied: its pointers are needed during the call only. *id, if id is not
 * NULL, becomes the number that its events carry. A refused request changes nothing. FTX_EINVAL names the wrong field.
 * FTX_EFULL: the prompt is too long, or too many requests or tokens wait (then step, and submit again). */
FtxStatus ftx_engine_submit(FtxEngine *engine, const FtxRequest *request, uint64_t *id, FtxError *err);

/* Runs one step: parts of prompts, and one new token of each request that is ready, as many as fit.
 *
 * events   the caller's array of `max`, at least FtxModelInfo.sequences; events[0].size says how large each is. The
 *          first *n are written, at most one for a running sequence
 *
 * FTX_EDEVICE and the like: the device failed. All requests have had an event with FTX_FINISH_ERROR, if there was room
 * for it; the engine can only be closed. FTX_EINVAL: the array is wrong; nothing has changed. */
FtxStatus ftx_engine_step(FtxEngine *engine, FtxEvent *events, size_t max, size_t *n, FtxError *err);

/* True while a request waits or runs: step again. */
bool ftx_engine_busy(const FtxEngine *engine);

/* Steps of one kind. `seconds` counts from when the device could begin one, the step before being over, to its result. */
typedef struct FtxSteps {
    uint64_t steps;
    uint64_t rows;   /* that decode: a token of a text each, or of none where the text had just ended */
    uint64_t tokens; /* of prompts */
    double seconds;
} FtxSteps;

/* What an engine does now, and has done since it was opened. A request that has ended while it waited counts as waiting
 * until its event is returned. */
typedef struct FtxStats {
    size_t size;                             /* set by ftx_engine_stats */
    size_t waiting, running;                 /* requests; each sample counts as one */
    size_t pages, free_pages;                /* of the KV cache: all, and those that no request uses */
    size_t idle_pages;                       /* free pages whose text a prompt can still take over */
    uint64_t requests;                       /* that have begun to run; with all samples */
    uint64_t prompt_tokens, cached_tokens;   /* of those requests */
    uint64_t preemptions, recomputed_tokens; /* FtxOptions.overcommit: and what they lost */
    uint64_t new_tokens;                     /* returned in events */
    uint64_t waiting_tokens;                 /* of prompts that wait */
    uint64_t swaps;                     /* of the preemptions: pages were copied to the host (FtxOptions.swap_bytes) */
    size_t swapped;                     /* requests that wait and have pages there */
    size_t swap_pages, free_swap_pages; /* pages of that memory: all, and those that no request uses */
    FtxSteps decode, mixed, prompt;     /* steps in which every row decodes, some rows do, none does */
    double compose_seconds; /* of the host: rows of steps chosen and written, beside the step before or not */
    double gap_seconds;     /* from a step's result to when the next one was enqueued, both with requests */
} FtxStats;

/* Writes stats->size bytes of *stats. FTX_EINVAL: that size is wrong. Programs call ftx_engine_stats. */
FtxStatus ftx_engine_read_stats(const FtxEngine *engine, FtxStats *stats);
static inline FtxStats ftx_engine_stats(const FtxEngine *engine)
{
    FtxStats stats;

    stats.size = sizeof stats;
    ftx_engine_read_stats(engine, &stats);
    return stats;
}

/* Cancels a request with all its samples. One of the next steps gives each an event with FTX_FINISH_CANCEL.
 * FTX_EINVAL: it neither waits nor runs. */
FtxStatus ftx_engine_cancel(FtxEngine *engine, uint64_t id, FtxError *err);

/* From any thread, also while another one is in a call of this engine: posts a request, or the end of one. The next step
 * takes them as ftx_engine_submit and ftx_engine_cancel do, requests in their order and when the queue has room. Of an
 * engine with FtxOptions.inbox.
 *
 * Posting copies and checks the request as ftx_engine_submit does. FTX_EINVAL names the wrong field; FTX_EFULL: the prompt
 * is too long, or the inbox is full. A cancel of a request that has ended already does nothing. FTX_EFULL: too many
 * cancels are waiting for the next step. When the device has failed, what was posted gets an event as the others do, and
 * both calls return the engine's error. No thread may be in these calls when the engine is closed. */
FtxStatus ftx_engine_post(FtxEngine *engine, const FtxRequest *request, uint64_t *id, FtxError *err);
FtxStatus ftx_engine_post_cancel(FtxEngine *engine, uint64_t id, FtxError *err);

/* For the thread that steps: sleeps until something is posted, ftx_engine_wake is called (by any thread, also before), or
 * `ms` milliseconds have passed; negative: no limit. Returns at once while a request waits or runs, and without an inbox.
 * True: step again. */
bool ftx_engine_wait(FtxEngine *engine, int ms);
void ftx_engine_wake(FtxEngine *engine);

/* One result of a beam search. */
typedef struct FtxHypothesis {
    const int32_t *ids; /* the new tokens, the end id included */
    size_t count;
    const float *logprobs; /* of each id under the raw logits; NULL without FtxRequest.logprobs */
    float score;           /* what the search ranks by: logprob with the length penalty */
    float logprob;         /* sum of the log-probabilities that the search used */
    FtxFinish finish;      /* FTX_FINISH_END or FTX_FINISH_LENGTH */
    const char *text;      /* UTF-8, nothing of an end id; "" without a tokenizer */
    size_t text_bytes;
} FtxHypothesis;

/* The results of a beam search, best first; *n of them. They and what they point to are the engine's and valid from the
 * search's event to the next step or submit. NULL: there are none. */
const FtxHypothesis *ftx_engine_hypotheses(const FtxEngine *engine, uint64_t id, size_t *n);

/* The raw logits [vocab] of the last prompt position of a request with FtxRequest.logits; the engine's, valid from its
 * first event to the next submit. NULL: there are none. */
const float *ftx_engine_logits(const FtxEngine *engine, uint64_t id);

/* Log-probabilities of a text under a decoder: logprobs[i] = log p(ids[i + 1] | ids[0 .. i]) of the raw logits, n - 1
 * of them. n: 2 to the context. FTX_EINVAL: an id is wrong, or a request waits or runs. */
FtxStatus ftx_engine_score(FtxEngine *engine, const int32_t *ids, size_t n, float *logprobs, FtxError *err);
/* The same with the raw logits behind ids[0 .. i] in logits[i]: [n - 1][vocab]. */
FtxStatus ftx_engine_score_logits(FtxEngine *engine, const int32_t *ids, size_t n, float *logprobs, float *logits,
                                  FtxError *err);

/* Texts for an encoder:
 *
 *     const char *text[] = {"The king", "The queen"};
 *     float vector[2][384]; // FtxModelInfo.pooled
 *     FtxEncode job = FTX_ENCODE_INIT;
 *     job.count = 2;
 *     job.text = text;
 *     job.pooled = vector[0];
 *     ftx_engine_encode(engine, &job, &err);
 *
 * Each text is given as text, as token ids or as hidden states. All arrays are the caller's. Ids and vectors stand
 * packed, one text after another, or in rows of `stride` tokens, of which the first lengths[i] count; the rest of a
 * row is not read, and is zero in `hidden`. The vectors of a text do not depend on the texts beside it
 * (on a GPU but in their last bits, if precision.sums is "free"). */
typedef struct FtxEncode {
    size_t size;              /* FTX_ENCODE_INIT */
    size_t count;             /* texts */
    const char *const *text;  /* [count], UTF-8 ... */
    const size_t *text_bytes; /* [count]; NULL: strlen */
    const char *const *pair;  /* [count]: the second sentence of each text; NULL, the array or an entry: none */
    const size_t *pair_bytes; /* [count]; NULL: strlen */
    FtxTruncate truncate;     /* of texts with more than max_tokens (or stride) tokens: NONE, LONGEST, FIRST, SECOND */
    int max_tokens;           /* of a text, with the tokens around it; 0: the context */
    bool literal;             /* texts are the users': as FtxRequest.literal */
    const int32_t *ids;       /* ... or token ids, to which nothing is added: [tokens] or [count][stride] */
    const int32_t *types;     /* their types, likewise; NULL: all 0 */
    const float *input;       /* ... or hidden states before the first layer, in place of embedded tokens:
                                 [tokens][input] or [count][stride][input], FtxModelInfo.input */
    const int32_t *lengths;   /* [count]: ids or hidden states of each text */
    size_t stride;            /* 0: packed */
    float *hidden;            /* out: [tokens][hidden] or [count][stride][hidden]; NULL: not wanted */
    size_t hidden_rows;       /* packed: tokens that `hidden` has room for */
    float *pooled;            /* out: [count][pooled]; NULL: not wanted */
    int32_t *tokens;          /* out: [count] tokens of each text, 0 if it was refused; NULL: not wanted */
    FtxError *errors;         /* out: [count] why a text was refused (.status 0: it was not), and the others are
                                 done; NULL: the first wrong text ends the call */

    /* input, hidden and pooled, as far as given, are memory of the model's GPU; input then has FtxModelInfo.input_type,
     * not float. All other arrays are the host's. Nothing of these three passes through the host. */
    bool on_device;

    /* With on_device: a CUstream of the caller, in the GPU's primary context. The arrays are read and written after the
     * work that it holds now. CU_STREAM_LEGACY ((void *)1): the default stream. NULL: after all work of that context;
     * the call waits for it. When the call returns, the arrays are written, for any stream. */
    void *stream;

    /* out, in memory of the host: the token ids of the texts, each where `hidden` has its vector. Packed, there must be
     * room for hidden_rows of them, also without hidden; what is behind a text in a row of `stride` is not written. NULL:
     * not wanted. */
    int32_t *text_ids;
} FtxEncode;

/* Runs an encoder over the texts and returns when their vectors are written. FTX_EFULL: a text is too long. FTX_EINVAL:
 * a field or an id is wrong. FTX_EDEVICE: the device failed, the engine can only be closed. An empty text is the tokens
 * that the tokenizer puts around one. */
FtxStatus ftx_engine_encode(FtxEngine *engine, const FtxEncode *job, FtxError *err);

/* Time by kernel since profiling was switched on. While it is on, the engine waits after every launch. *rows are the
 * engine's, *n of them, and valid until it is closed. */
typedef struct FtxProfile {
    const char *kernel;
    uint64_t launches;
    double time_us;
    bool matmul;
} FtxProfile;
FtxStatus ftx_engine_profile(FtxEngine *engine, bool on, const FtxProfile **rows, size_t *n, FtxError *err);

/* Times one program with made-up state: `sequences` sequences that have `context` tokens and bring `tokens` more each.
 * An encoder: `sequences` texts of at most `tokens` tokens, `context` on average (0: all as long). Median, least and
 * most of `repeat` runs in microseconds. No request may wait or run. */
FtxStatus ftx_engine_bench(FtxEngine *engine, int sequences, int tokens, int context, int repeat, double *median_us,
                           double *least_us, double *most_us, FtxError *err);

/* The same for one step of a decoder in which `sequences` sequences bring a token each after `context` tokens, beside the
 * first `prompt` tokens of one more. */
FtxStatus ftx_engine_bench_mixed(FtxEngine *engine, int sequences, int context, int prompt, int repeat,
                                 double *median_us, double *least_us, double *most_us, FtxError *err);

/* Records a timeline from now on: each step, each wait of the host, each kernel and copy of the device, with begin and
 * end. Memory for `events` of them (at most 100 bytes each) is allocated; later ones are counted and not kept. On a GPU
 * the times of kernels come from CUPTI, if libcupti is there and records no other engine of the process; else from CUDA
 * events, and of a program that is one CUDA graph only the whole is timed. FTX_EINVAL: events is 0, or a trace is recorded
 * already. */
FtxStatus ftx_engine_trace_begin(FtxEngine *engine, size_t events, FtxError *err);

/* Ends the recording and writes it to `path`, whole or not at all, in the trace-event format (JSON) of Perfetto and
 * chrome://tracing. Kernels have the names of `ftxc show`. path NULL: it is thrown away. If the device has failed, what
 * was recorded before is written. FTX_EINVAL: nothing is recorded. FTX_EIO: the file cannot be written. */
FtxStatus ftx_engine_trace_end(FtxEngine *engine, const char *path, FtxError *err);

/* Ends all requests without events and frees the engine. NULL is allowed. */
void ftx_engine_close(FtxEngine *engine);

const char *ftx_status_name(FtxStatus status); /* "bad file"; a constant */

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
#define FTX_CHAT_INIT ftx_struct_init<FtxChat>()
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
#define FTX_CHAT_INIT \
    { \
        .size = sizeof(FtxChat) \
    }
#endif
#endif
