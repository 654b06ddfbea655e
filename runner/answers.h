/* answers.h - prompts that wait, run or have ended, and what was written from each: printed in the order
 * of the prompts, as text or as objects. */
#ifndef FTX_RUNNER_ANSWERS_H
#define FTX_RUNNER_ANSWERS_H

#include <jansson.h>

#include "../runtime/ftx.h"

/* A text written from a prompt. */
typedef struct Answer {
    FtxFinish finish;
    char *out;
    size_t out_bytes, out_cap;
    int32_t *ids;
    float *logprobs;
    size_t n, cap;
} Answer;

/* One prompt and what became of it. */
typedef struct Job {
    char *text; /* NULL: the ids of --ids */
    size_t bytes;
    uint64_t id;
    bool submitted;
    char *refusal;            /* why nothing was written; NULL: something was */
    Answer *answers;          /* [Answers.samples] */
    int done;                 /* of them */
    double start, first, end; /* seconds */
    float *logits;
    json_t *hypotheses; /* of a beam search */
} Job;

typedef struct Answers {
    FtxEngine *engine;
    FtxModelInfo info;
    bool json, batch;     /* how they are printed */
    bool logits;          /* of the last prompt position are wanted */
    int samples;          /* texts from each prompt */
    Job *jobs;            /* [window]: prompt number i stands at i % window */
    size_t window;        /* prompts between the first that is not printed and the last that was read */
    size_t read, printed; /* prompts */
    size_t in_flight;     /* texts */
    size_t failed;
    uint64_t tokens;
} Answers;

Job *answers_job(const Answers *all, size_t i);                /* prompt number i */
void answers_add(Answers *all, char *text, size_t bytes);      /* another; text becomes its own, NULL: of ids */
void answers_refuse(Answers *all, Job *j, const char *reason); /* nothing will be written from it */
void answers_take(Answers *all, const FtxEvent *e);            /* FtxEvent.user: the job */
void answers_print(Answers *all);                              /* those that are whole */
void answers_close(Answers *all);

#endif
