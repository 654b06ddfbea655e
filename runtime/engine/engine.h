/* engine.h - inside of an engine: requests, slots, pages, and the steps that are in flight.
 *
 *   submit            step                                            device
 *   request.c ──▶ waiting ──admit──▶ running ──compose──▶ IO block ──▶ run, run, run
 *                 (queue)   pages.c             schedule.c                  │
 *                 events ◀── stream.c ◀── take ◀──────── OUT ring ◀─────────┘
 *
 * A flight is what was composed once and runs until its composition changes: a step with prompt
 * chunks runs once, a decode step runs again and again, and on a GPU ahead of the reader. */
#ifndef FTX_ENGINE_H
#define FTX_ENGINE_H

#include "../../kernels/device/io.h"
#include "list.h"
#include "model.h"
#include "pages.h"

enum {
    WAITING_PER_SEQUENCE = 4, /* room of the queue */
    MAX_STOPS = 16,           /* stop strings of a request, as ftx.h says */
    STOP_BYTES = 256,         /* each */
    WORD_BYTES = 256,         /* a bad word */
    WORD_TOKENS = 512,        /* of its text */
};

/* --- stream.c: tokens to text, up to a stop string --------------------------------------------- */

typedef struct Stream {
    TokenizerStream decoder;
    char *text;               /* [cap]: what may be the start of a stop string stays here */
    uint32_t bytes, out, cap; /* in text; of them given out by the last call, dropped by the next */
    uint32_t searched;        /* bytes known to hold no end of a stop string */
    uint32_t n_stops;
    uint16_t stop_bytes[MAX_STOPS];
    char stop[MAX_STOPS][STOP_BYTES];
} Stream;

size_t stream_bytes(const Tokenizer *t); /* of Stream.text; 0 without a tokenizer */
/* The next token; -1: none, only the end. Gives text that is valid until the next call, and
 * whether a stop string has ended it. last: give out what is held back. */
FtxStatus stream_token(Stream *s, const Tokenizer *t, int32_t id, bool last, const char **text, size_t *bytes,
                       bool *stopped, FtxError *err);

/* --- tables.c: what the device knows of a slot -------------------------------------------------------- */

typedef struct SlotTable {
    int named;            /* FTX_NAMED_pages, FTX_NAMED_group, FTX_NAMED_bad_words */
    uint32_t width;       /* of a row */
    int32_t *rows;        /* [slots][width]; NULL: the table is not small */
    uint32_t first, last; /* rows that have changed since they were sent: [first, last) */
} SlotTable;

struct FtxEngine;
bool table_is_small(uint32_t slots, uint32_t width);
/* n values of a slot's row, from `at` on; table_send at the latest tells the device. */
FtxStatus table_put(struct FtxEngine *e, SlotTable *t, int slot, uint32_t at, const int32_t *values, uint32_t n,
                    FtxError *err);
FtxStatus table_send(struct FtxEngine *e, SlotTable *t, FtxError *err);

/* --- requests -------------------------------------------------------------------------------------- */

typedef enum RequestState {
    REQUEST_FREE = 0, /* never used, or ended: the logits are still there */
    REQUEST_WAITING,
    REQUEST_RUNNING,
    REQUEST_ENDING, /* cancelled while waiting: owes an event */
} RequestState;

typedef struct Request {
    uint64_t id;
    void *user;
    RequestState state;
    bool cancelled, wants_logits, has_logits, wants_logprob;
    int prompt;                  /* tokens of it */
    int limit;                   /* prompt + new, at most */
    int fed;                     /* tokens that went to the device */
    int length;                  /* tokens known: fed, or one more */
    int32_t last;                /* the one more */
    int slot;                    /* of a beam search that of lane 0 */
    uint32_t n_pages, own_pages; /* of all lanes; of lane 0, or of the only one */

    /* Several samples are as many requests with one id: the first, and others that have its prompt's
     * whole pages and begin behind them. */
    uint32_t together;      /* of the first: how many they are; of the others 0 */
    uint32_t shared_pages;  /* what they share */
    uint32_t all_pages;     /* what they take, all of them */
    struct Request *leader; /* of the others, until the shared pages are written: the first */
    FtxParams params;
    FtxBeam beam; /* width 0: no beam search */
    int n_best;
    int32_t *lane;        /* [limits.beams]: slots */
    FtxHypothesis *found; /* [limits.beams]: best first */
    uint32_t n_found;
    int32_t *ids;    /* [context]: the prompt */
    int32_t *source; /* [source_context]: what is read, where the prompt only begins what is written */
    int n_source;
    int32_t source_slot; /* which of $cross_k and $cross_v is its */
    bool encoded;        /* its keys and values are there */
    FtxBias *bias;       /* [limits.logit_bias] */
    int32_t *ends;       /* [limits.end_ids] */
    int32_t *bad_words;  /* [limits.bad_words]: as in $bad_words */
    int32_t *pages;      /* [pages of a sequence and its lanes] */
    float *logits;       /* [vocab] */
    Stream stream;
} Request;

/* --- the engine --------------------------------------------------------------------------------------- */

typedef struct Row {  /* of a flight */
    Request *request; /* NULL: it has ended, its results are dropped */
    int first;        /* its first token in the packed step */
    int count;        /* tokens of the step */
    int from;         /* their first position */
    bool emit;        /* the last is followed by a sampled one */
    int lane;         /* of a beam search; else 0 */
} Row;

typedef struct Flight {
    Row *row; /* [sequences] */
    int rows, tokens;
    uint32_t program;
    bool again;        /* the device goes on by itself: run it again without a new IO block */
    bool stop;         /* the composition has changed: no further runs */
    int issued, taken; /* runs enqueued; results read */
    int most;          /* runs after which every row has reached its limit */
    bool pending;      /* the device may not be idle: wait before IO is written */
} Flight;

typedef struct ProgramLadder { /* by bucket, ascending, exact (0) last */
    uint32_t index[32], bucket[32];
    uint32_t n;
} ProgramLadder;

struct FtxEngine {
    FtxModel *model;
    Memory memory;
    size_t block_bytes; /* the engine itself and all arrays of it are one block */
    const FtxFacts *facts;
    const FtxPlan *plan;
    const DeviceApi *api;
    Session *session;
    TokenizerScratch *scratch;
    size_t max_text; /* bytes of a prompt */

    char *io;
    FtxOut *out; /* [FTX_OUT_RING][sequences] */
    ProgramLadder step, decode, encode, hidden;
    int ahead;      /* runs in flight at most */
    bool nan;       /* FTX_NAN, which looks at all logits: every step writes them */
    uint32_t slots; /* sequences that run at most */
    uint32_t pages_of_sequence;

    Request *request; /* [requests] */
    uint32_t requests;
    RequestList waiting, running, ending;
    RequestList unused; /* a stack: who comes next takes memory that was touched before */
    int32_t *free_slot; /* [slots]: a stack */
    uint32_t free_slots;
    int32_t *free_source; /* [sources]: a stack, too */
    uint32_t free_sources;
    uint16_t *source_users; /* [sources]: sequences that read it */
    Pages pages;
    SlotTable page_table, group_table; /* of all slots; lanes of a group by the slot of lane 0 */
    SlotTable word_table;              /* bad words */
    SlotTable history;                 /* what the host knows of it: prompts that others have fed */
    Flight flight;
    Row *scratch_rows; /* [sequences]: while composing */
    FtxEvent *events;  /* [requests]: of the step that runs */
    FtxLane *lanes;    /* [sequences]: as they stand on the device, while composing or taking results */
    bool has_lanes;    /* `lanes` (and with small ones hyp_ids) are those of the run whose results are taken */
    int32_t *hyp_ids;  /* [slots][context]: hypotheses that were fetched */
    float *hyp_logps;  /* likewise */
    char *hyp_text;    /* [slots][hyp_text_bytes] */
    size_t hyp_text_bytes;
    uint64_t next_id;
    FtxError dead; /* .status not 0: the device has failed */
};

/* request.c */
/* The caller's request as this library lays it out, with the model's defaults in fields that it lacks. */
FtxStatus request_read(const FtxModel *model, const FtxRequest *from, FtxRequest *q, FtxError *err);
FtxStatus request_fill(FtxEngine *e, Request *r, const FtxRequest *from, FtxError *err);
void request_follow(const FtxEngine *e, Request *r, Request *leader, int sample); /* another sample */

/* beams.c */
uint32_t beams_lane_pages(const FtxEngine *e, const Request *r); /* of each lane but the first */
FtxStatus beams_place(FtxEngine *e, Request *r, FtxError *err);  /* slots, pages of all lanes but the first */
void beams_release(FtxEngine *e, const Request *r);
FtxStatus beams_finish(FtxEngine *e, Request *r, FtxEvent *event, FtxError *err); /* fetches hypotheses */

/* schedule.c */
void schedule_ladders(FtxEngine *e); /* e->step and its like from the plan's programs */
/* The program that takes a step of so many tokens. */
bool schedule_program(const ProgramLadder *l, int tokens, uint32_t *program);
/* Of IO, in a step of so many tokens, where no row behind the first so many has biases. */
size_t schedule_live_bytes(const FtxEngine *e, int tokens, int biased_rows);
bool schedule_can_admit(const FtxEngine *e);                       /* the first that waits */
FtxStatus schedule_admit(FtxEngine *e, FtxError *err);             /* waiting to running, while slots and pages last */
FtxStatus schedule_place(FtxEngine *e, Request *r, FtxError *err); /* a slot and pages */
FtxStatus schedule_tell(FtxEngine *e, FtxError *err); /* what was placed, if the device does not know it yet */
void schedule_release(FtxEngine *e, Request *r);
FtxStatus schedule_encode(FtxEngine *e, FtxError *err); /* the sources of all who came last */
void schedule_compose(FtxEngine *e);                    /* running to e->flight */
/* e->flight to the IO block and to the device: its program, settings, tokens; nothing runs yet. */
FtxStatus schedule_upload(FtxEngine *e, FtxError *err);

/* A request waits, runs or has an event to come. */
static inline bool engine_busy(const FtxEngine *e)
{
    return !e->dead.status && (e->waiting.n || e->running.n || e->ending.n);
}

/* A named buffer of the IO block. */
static inline void *engine_io(const FtxEngine *e, int named)
{
    return e->io + e->plan->named[named];
}

#endif
