/* fake.h - a device, a tokenizer and an artifact that exist for tests: the engine runs on them.
 *
 * The fake model's next token is a hash of all tokens before it and of the request's seed. The fake
 * device computes it from its own cache, through page tables, so a page given to two sequences, a
 * wrong position or a stale IO block changes the tokens; fake_next says what they must be. It knows, too,
 * that attention starts early: what a step reads of earlier positions no other row may write in it, but what stands there
 * already (rows with FtxParams.logits: log-probabilities of a prompt; synchronous, a step appends before it reads). With
 * whole prompts it sees that a step reads all of them. With
 * fixed sums it notes beside each key whether a decode row wrote it: prompts must not, all other tokens must be.
 *
 * A recurrent state must be that of all tokens before a row's, also when it comes from a snapshot.
 *
 * Rows with a mask get the allowed id with the largest logit (fake_logit).
 *
 * Synchronous, run is done when it returns. Asynchronous, a thread works through a queue: copies of
 * IO are made when their turn comes, results appear late, `length` last. */
#ifndef TESTS_RUNTIME_FAKE_H
#define TESTS_RUNTIME_FAKE_H

#include "runtime/engine/engine.h"

typedef struct FakeSizes {
    uint32_t vocab, context, sequences, tokens, kv_block, kv_pages, logit_bias, end_ids, bad_words, max_top_k;
    uint32_t n_ends;
    int32_t ends[FTX_MAX_ENDS];
    const int32_t *words; /* the model's, as in $bad_words */
    uint32_t n_words;
    bool decode_programs; /* buckets 1, 2, 4 ... beside the steps' 16 and exact */
    bool fixed_sums, whole_prompts;
    bool tokenizer;
    uint32_t
        snapshots;   /* of a recurrent state, which knows the tokens that it has seen; 0: the model has no such state */
    bool masks;      /* limits.masks: the asynchronous device applies masks */
    uint32_t states; /* width of $hidden; 0: there is none */
    uint32_t target; /* of the plan; FTX_TARGET_CPU or 900 */
} FakeSizes;

/* What the device does wrong, and what it has seen; set and read between calls. */
typedef struct FakeDevice {
    bool asynchronous;
    unsigned delay_us; /* of a run at most, random */
    int fail_at;       /* run number that fails; 0: none */
    bool fail_late;    /* the failure shows in wait, not in run */
    bool lose_results; /* runs leave OUT alone */
    int32_t token;     /* results have it in place of theirs; 0: theirs */
    uint32_t nan_seed; /* keys of requests with this seed are NaN from position nan_at on; 0: none */
    int nan_at;
    bool nan_any;               /* those of all requests are */
    int wipes;                  /* of KV pages */
    int wipes_until_failure;    /* that one fails; 0: none */
    FtxStatus trace;            /* of DeviceApi.trace */
    Trace *traced;              /* what it was given last */
    bool hold;                  /* no run ends while it is set; atomic */
    double time_us;             /* of DeviceApi.time, of a decode step; 0: 100 */
    double prompt_us, token_us; /* what other steps take more, once and for each token */
    bool made_up;               /* benchmarks: nobody has written what stands in caches and histories */
    FtxStatus probe;            /* of device_cuda_probe */
    FtxModelInfo told;          /* of DeviceApi.tell, if it has host_weight_bytes */
    FtxStatus open;             /* of device_cuda.open */
    int opens, closes, sessions;
    int runs, decode_runs, uploads, most_ahead;
    size_t uploaded; /* bytes of the last upload */
    int most_tokens, most_rows;
    int reads;                   /* of logits */
    int keeps[2];                /* KV pages copied to the host and back */
    int snapshots[2];            /* states copied to a snapshot and back */
    int snapshots_until_failure; /* that copy fails; 0: none */
    int keeps_until_failure;     /* that copy fails; 0: none */
    char order[200];             /* the first calls: p write, u upload, s settle, r run, b and f its two parts, w wait,
                              * t a token to text */
    int rows[200];               /* of the first runs, in the order of the calls */
    FtxParams params;            /* of the last row that was run */
    char wrong[300];             /* the first thing that a plan or an IO block got wrong; "" */
} FakeDevice;

extern FakeDevice fake;
void fake_called(char call);        /* adds to order */
extern const DeviceApi fake_device; /* synchronous; device_cuda is the asynchronous one here */

/* An artifact in memory, good until fake_artifact_free. */
typedef struct FakeArtifact {
    FtxFacts facts;
    FtxPlan plan;
    FtxProgram program[16];
    Artifact artifact;
} FakeArtifact;

FakeSizes fake_sizes(void);
void fake_artifact(FakeArtifact *f, const FakeSizes *s);
FtxStatus fake_model(FakeArtifact *f, const FtxOptions *o, FtxModel **model, FtxError *err);

/* The model: the token after ids[0..n) of a request. Ends are avoided while n < min_length. */
int32_t fake_next(const int32_t *ids, int n, uint64_t seed, uint32_t vocab, const int32_t *ends, int n_ends,
                  int min_length);
uint64_t fake_seed(uint64_t seed, int sample); /* of one of a request's samples */
/* The seed of one with bad words, as in $bad_words: other words, other tokens. */
uint64_t fake_words(uint64_t seed, const int32_t *words, int n);
float fake_logit(const int32_t *ids, int n, uint32_t token);
float fake_state(const int32_t *ids, int n, uint32_t column); /* of the last of these tokens */

/* The tokenizer: texts of one to three bytes, with tokens that hold half a character. */
extern bool fake_tokenizer_fails;
const char *fake_piece(int32_t id);

#endif
