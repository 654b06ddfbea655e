/* model.h - a served model: its engine on a thread of its own, and the jobs that wait for it. */
#ifndef FTX_SERVER_MODEL_H
#define FTX_SERVER_MODEL_H

#include "http.h"
#include "metrics.h"
#include "tools.h"
#include "../runtime/ftx.h"

enum { MOST_MARKS = 7 };

typedef struct Job Job;
typedef struct Served Served;

/* One request to an engine. The functions are called by the engine's thread; `free` is the last call. */
struct Job {
    Exchange *exchange; /* the job stops when its client has gone */
    FtxRequest request; /* what it points to is the job's */
    size_t prompt_tokens;

    /* Not NULL: uses the engine while nothing else runs there, instead of `request`. */
    FtxStatus (*run)(Job *j, FtxEngine *engine, FtxError *err);
    void (*event)(Job *j, const FtxEvent *e, const FtxHypothesis *best); /* best: of a beam search that has ended */
    void (*fail)(Job *j, int status, const char *why);                   /* no event follows */
    void (*free)(Job *j);
    bool dropped; /* set by the engine's thread: stop as if the client had gone */

    /* model.c's */
    Job *next;
    uint64_t id;
    int running; /* samples that have not ended */
    size_t new_tokens;
    double arrived, given, begun, first, last; /* seconds of a monotonic clock; given: to the engine. 0: not yet */
};

struct Served {
    char name[200];
    FtxModel *model;
    FtxModelInfo info;
    FtxOptions options; /* of the engine */
    Metrics metrics;
    int32_t mark_ids[MOST_MARKS];  /* of message.c's marks: special tokens, which a text does not contain; -1: none */
    ToolStyle tools;               /* how the model writes calls */
    struct Vocabulary *vocabulary; /* grammar.h; NULL: no grammars */
    struct Engine *engine;
};

typedef struct QueueLimits {
    int requests; /* 0: four times the model's sequences */
    size_t tokens;
    int seconds; /* a job that would probably wait longer is refused */
} QueueLimits;

/* Starts the engine's thread. m->model, name, info and options are set. False: the reason is in err. */
bool served_start(Served *m, const QueueLimits *limits, FtxError *err);
/* Ends all jobs without events, closes engine and model. */
void served_stop(Served *m);

/* Puts jobs into the queue, all or none. 0: done, they are the engine's. 429: the queue is full; *retry: seconds after which
 * there may be room. 503: the device has failed. */
int served_submit(Served *m, Job *const *jobs, size_t n, int *retry);

bool served_alive(Served *m);                                  /* false: the device has failed */
void served_load(Served *m, size_t *waiting, FtxStats *stats); /* waiting: not yet the engine's */

#endif
