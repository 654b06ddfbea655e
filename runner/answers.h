/* answers.h - the prompts of a run and the texts written from them, printed in the order of the prompts. */
#ifndef FTX_RUNNER_ANSWERS_H
#define FTX_RUNNER_ANSWERS_H

#include <jansson.h>

#include "requests.h"
#include "../runtime/ftx.h"

/* One text written from a prompt. */
typedef struct Answer {
    FtxFinish finish;
    char *out;
    size_t out_bytes, out_cap;
    int32_t *ids;
    float *logprobs;
    size_t n, cap;
} Answer;

/* One prompt and its texts. */
typedef struct Job {
    char *text; /* NULL: the ids of --ids */
    size_t bytes;
    uint64_t id, seed;
    size_t number;     /* from 1 */
    int prompt_tokens; /* 0: not known yet */
    int cached_tokens; /* of the prompt */
    bool submitted;
    char *refusal;            /* why the prompt was refused, or NULL */
    Answer *answers;          /* [Answers.samples] */
    int done;                 /* answers that have ended */
    double start, first, end; /* when it was submitted, its first token, its end; 0: not yet */
    float *logits;
    json_t *hypotheses; /* of a beam search */
    json_t *states;     /* rows of numbers; NULL: not asked for */
    LineRequest *line;  /* --requests: what the text says; else NULL */
} Job;

typedef struct Answers {
    FtxEngine *engine;
    FtxModelInfo info;
    bool json, batch;     /* how answers are printed */
    bool stream;          /* pieces are printed as they come (stream.h) */
    bool logits;          /* keep the logits of the last prompt position */
    bool draws;           /* tokens are drawn at random, so the seed is printed */
    bool shows_cached;    /* "cached_tokens" in JSON */
    int samples;          /* texts from each prompt */
    Job *jobs;            /* [window]: prompt i is in slot i % window */
    size_t window;        /* at most this many prompts are read and not yet printed */
    size_t read, printed; /* prompts */
    size_t in_flight;     /* texts */
    size_t failed;        /* prompts that were refused */
    size_t not_finite;    /* texts that ended with FTX_FINISH_NAN */
    uint64_t tokens;      /* written in all */
} Answers;

Job *answers_job(const Answers *all, size_t i);                /* prompt i */
void answers_add(Answers *all, char *text, size_t bytes);      /* takes over text; NULL: the prompt is ids */
void answers_refuse(Answers *all, Job *j, const char *reason); /* no text will be written from j */
void answers_empty(Answers *all, Job *j);                      /* the texts of j are empty */
void answers_take(Answers *all, const FtxEvent *e);            /* FtxEvent.user: the job */
void answers_end(Answers *all, FtxFinish finish);              /* all unfinished texts, as they are */
void answers_print(Answers *all); /* prompts that are finished, up to the first that is not */
void answers_close(Answers *all);
const char *answers_finish_name(FtxFinish f);

#endif
