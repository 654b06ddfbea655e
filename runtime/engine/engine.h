/* engine.h - the inside of an engine: requests, slots, pages and the steps in flight.
 *
 *   submit            step                                            device
 *   request.c ──▶ waiting ──admit──▶ running ──compose──▶ IO block ──▶ run, run, run
 *                 queue.c   pages.c          batch.c   schedule.c  flight.c │
 *                 events ◀── stream.c ◀── take.c ◀────── OUT ring ◀─────────┘
 *
 * Row: a sequence's tokens in one step. Slot: where the device keeps a sequence's state (page table, history). Lane:
 * one beam of a beam search, with a slot of its own; other sequences have one lane. Flight: rows that were composed
 * once and run until the composition changes. A step with prompt chunks runs once; a decode step runs again and
 * again, on a GPU several runs ahead of the host. The next flight is composed while the last run of this one goes on
 * (flight.c). Ghost: the row of a sequence that has ended in that last run; its results are dropped. */
#ifndef FTX_ENGINE_H
#define FTX_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "../../kernels/device/io.h"
#include "../base/team.h"
#include "../device/trace.h"
#include "batch.h"
#include "fair.h"
#include "list.h"
#include "logprobs.h"
#include "model.h"
#include "pace.h"
#include "pages.h"
#include "queue.h"

struct CpuCall; /* kernels/cpu/cpu.h */

enum {
    WAITING_PER_SEQUENCE = 4, /* requests that may wait, for each sequence, if the caller does not say */
    MOST_WAITING = 65536,
    MOST_STEP_MS = 60000,
    MAX_STOPS = 16,          /* stop strings of a request (ftx.h) */
    STOP_BYTES = 256,        /* each */
    MOST_TOP = 20,           /* top_logprobs */
    MOST_BIAS_ENTRIES = 300, /* logit biases, if the artifact was compiled for fewer */
    WORD_BYTES = 256,        /* bytes of a bad word */
    WORD_TOKENS = 512,       /* most tokens of one */
};

/* --- stream.c: tokens to text, up to a stop string --------------------------------------------- */

typedef struct Stream {
    TokenizerStream decoder;
    char *text;               /* [cap]: text that is held back because it may begin a stop string */
    uint32_t bytes, out, cap; /* bytes in text; `out` of them were returned and are dropped by the next call */
    uint32_t searched;        /* bytes known to hold no end of a stop string */
    uint32_t n_stops;
    uint16_t stop_bytes[MAX_STOPS];
    char stop[MAX_STOPS][STOP_BYTES];
} Stream;

size_t stream_bytes(const Tokenizer *t); /* of Stream.text; 0 without a tokenizer */
/* Takes the next token; -1: none, only the end. Returns text that is valid until the next call, and whether a stop
 * string has ended it. last: return the text held back, too. */
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
/* Sets n values of a slot's row, from `at` on; the device has them after table_send at the latest. */
FtxStatus table_put(struct FtxEngine *e, SlotTable *t, int slot, uint32_t at, const int32_t *values, uint32_t n,
                    FtxError *err);
FtxStatus table_send(struct FtxEngine *e, SlotTable *t, FtxError *err);

/* --- requests -------------------------------------------------------------------------------------- */

typedef enum RequestState {
    REQUEST_FREE = 0, /* never used, or ended: the logits are still there */
    REQUEST_WAITING,
    REQUEST_RUNNING,
    REQUEST_ENDING, /* cancelled or too late while waiting: its event is still to come */
} RequestState;

typedef struct Request {
    uint64_t id;       /* 0: not the engine's yet, or never used */
    uint64_t posted;   /* in the inbox: its id to come */
    uint64_t fair_key; /* likewise: FtxRequest.fair_key */
    void *user;
    RequestState state;
    bool cancelled, wants_logits, has_logits, wants_logprob;
    bool not_finite;    /* its logits were not finite numbers: it ends, and its pages are wiped */
    bool checked;       /* logits of it have come since it has its pages */
    int prompt;         /* tokens of the prompt */
    int limit;          /* most tokens, prompt and new */
    int fed;            /* tokens sent to the device */
    int length;         /* known tokens: fed, or one more, which stands in ids */
    bool unread;        /* the last of them is still the device's: ids has it when the run has landed */
    int slot;           /* of a beam search: the slot of lane 0 */
    uint32_t own_pages; /* pages of the whole sequence, of lane 0 */
    uint32_t n_pages;   /* pages of all lanes; of one that grows, those it has now */
    bool grows;         /* it takes pages as it grows (grow.c) */
    int preemptions;    /* how often it has been preempted */
    int cached;         /* tokens of the prompt that were in the cache when it began to run */
    int placed;         /* of all its tokens, when it began to run or to run again */
    int priority;
    uint32_t passed;                /* how often another has begun before it (queue.h) */
    uint32_t fair_entry;            /* its key (fair.h) */
    double deadline;                /* seconds after which it must have begun; 0: none */
    double submitted, began, first; /* times; 0: not yet */
    FtxFinish ended;                /* REQUEST_ENDING: why */

    /* Several samples are as many requests with one id. The first feeds the prompt; the others share its whole
     * prompt pages and begin after them. */
    uint32_t together;      /* in the first: how many samples; in the others 0 */
    uint32_t shared_pages;  /* pages that all of them share */
    uint32_t all_pages;     /* pages of all samples together */
    struct Request *leader; /* in the others: the first, until the shared pages are written */

    /* Pages on the host, of a preempted request (swap.c). */
    int32_t *kept;       /* [pages of a sequence]: of those from kept_first on */
    uint32_t kept_first; /* the first one; those before it were others', too */
    uint32_t kept_pages; /* 0: it has none there */
    int kept_fed;        /* tokens that it has with them */

    /* Prefix cache (prefix.h, reuse.c). */
    uint64_t salt;         /* FtxRequest.cache_salt */
    Hash128 *key;          /* [pages of a sequence]: keys of its first pages */
    uint32_t keys;         /* keys that are computed */
    uint32_t found_pages;  /* the first pages of the prompt that were known at admission */
    uint32_t branch_pages; /* the first pages of it that were known then, with or without a snapshot */
    uint32_t known_pages;  /* the first pages of the sequence that were found or made known */
    /* What of its logits comes to the host at each token: log-probabilities, or all for a choice there (draw.c). */
    int top;           /* FtxRequest.top_logprobs */
    bool on_host;      /* the host chooses its tokens */
    bool masked;       /* the device applies its mask */
    int asked;         /* on_host: the length for which its mask was asked; -1: none */
    int allowed;       /* ids that its last mask allows: 0, 1 or 2 for more */
    int32_t only;      /* the first of them */
    bool wants_prompt; /* log-probabilities of the prompt: its rows are of one token each (score.c) */
    FtxStates states;  /* FtxRequest.states */
    int states_done;   /* of so many first tokens the states are returned, or are in states_sum (states.c) */
    float *states_sum; /* [facts.states]: FTX_STATES_MEAN */
    bool (*mask)(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits);
    void *mask_user;
    FtxParams params;
    int32_t forced_eos; /* FtxRequest.forced_eos */
    FtxBeam beam;       /* width 0: no beam search */
    int n_best;
    int32_t *lane;        /* [limits.beams]: slots */
    FtxHypothesis *found; /* [limits.beams]: best first */
    uint32_t n_found;
    int32_t *ids;    /* [context]: the prompt, then new tokens but those of beams */
    int32_t *source; /* [source_context]: the source of a sequence-to-sequence model */
    int n_source;
    int32_t source_slot; /* its index in $cross_k and $cross_v */
    bool encoded;        /* its keys and values are computed */
    FtxBias *bias;       /* [limits.logit_bias or 300] */
    int n_bias;
    int32_t *ends;      /* [limits.end_ids] */
    int32_t *bad_words; /* [limits.bad_words]: as in $bad_words */
    int32_t *pages;     /* [pages of a sequence and its lanes] */
    float *logits;      /* [vocab] */
    Stream stream;
} Request;

/* --- draw.c: tokens that the host chooses ------------------------------------------------------------ */

typedef struct DrawScratch { /* of one thread */
    float *z, *values;       /* [vocab + 32] */
    int32_t *ids;            /* likewise */
    float *best;             /* [vocab / 32] */
    uint32_t *marks;         /* [vocab], zero between calls */
} DrawScratch;

typedef struct DrawItem { /* a row whose token the host chooses */
    Request *request;
    int row;        /* of the step */
    FtxOut *out;    /* token -1: none is allowed */
    double log_sum; /* with log-probabilities: log(sum(exp(logits))) */
} DrawItem;

typedef struct Drawing {
    void (*sample)(const struct CpuCall *call); /* the CPU's kernels */
    void (*choose)(const struct CpuCall *call);
    float *row, *z;       /* [vocab]: a row of the device; scratch */
    uint32_t *marks;      /* [vocab], zero between calls */
    DrawItem *item;       /* [slots] */
    DrawScratch *scratch; /* [scratches] */
    int scratches;
    uint32_t *bits; /* [slots][vocab / 32]: masks, by slot */
    float *rows;    /* [slots][vocab]: logits by row; rarely touched */
    Team *team;     /* NULL: one thread */
    bool own_team;
} Drawing;

/* --- the engine --------------------------------------------------------------------------------------- */

typedef struct Row {  /* part of a flight */
    Request *request; /* NULL: the request has ended, results are dropped */
    int first;        /* index of its first token in the step */
    int count;        /* its tokens in the step */
    int from;         /* their first position */
    bool emit;        /* its last token gets a sampled one */
    int lane;         /* the lane of a beam search; else 0 */
    bool scored;      /* a token of a text that is scored, beside others of the same text (score.c) */
} Row;

typedef struct Flight {
    Row *row; /* [sequences] */
    int rows, tokens;
    uint32_t program;
    bool again;        /* the device can run it again without a new IO block */
    bool stop;         /* the composition has changed: no further runs */
    bool masked;       /* rows have masks that the device applies: runs are enqueued in two parts (flight.c) */
    int issued, taken; /* runs enqueued; results read */
    int finished;      /* of a masked flight: runs whose second part is enqueued, too */
    int most;          /* runs after which every row has reached its limit */
    size_t bytes;      /* of IO that it fills */
    int decode;        /* rows that decode; the first ones */
    double sent;       /* when its first run was enqueued */
    double due;        /* when its last run will probably end, less some time for the host; 0: nobody knows */
    bool pending;      /* the device may be busy: wait before IO is written */
} Flight;

typedef struct ProgramLadder { /* programs by bucket, ascending; the one for any size (0) last */
    uint32_t index[32], bucket[32];
    uint32_t n;
} ProgramLadder;

typedef struct Swap { /* FtxOptions.swap_bytes */
    int32_t *free;    /* [all]: a stack of pages on the host */
    uint32_t n, all;  /* n are free */
    double page_us;   /* to copy one there or back */
    double token_us;  /* to recompute a token */
} Swap;

typedef struct Snapshot { /* snapshots.c */
    const Request *of;    /* who has left it, until its pages are known; else NULL */
    uint32_t pages;       /* of that request, behind which it is */
    uint32_t page;        /* behind which it is, if that one says so, too */
    uint64_t used;        /* when, by Snapshots.uses */
} Snapshot;

typedef struct Snapshots {
    Snapshot *at;    /* [all] */
    uint32_t all, n; /* n of them are about to get a page */
    uint64_t uses;
} Snapshots;

typedef struct Inbox {       /* FtxOptions.inbox: see inbox.c */
    uint32_t most;           /* requests in it, free and full; 0: there is no inbox */
    pthread_mutex_t reading; /* held while a request is read: of the memory of the tokenizer, too */
    pthread_mutex_t lock;    /* of all below */
    pthread_cond_t changed;
    RequestList free, full; /* full: with a request, in order */
    uint64_t *cancel;       /* [requests]: ids to cancel */
    uint32_t n_cancels;
    atomic_uint n; /* full and cancels together; read without the lock */
    bool woken;
    FtxError dead; /* as that of the engine */
} Inbox;

/* What the order of the queue depends on. The requests themselves are too far apart in memory for a look at all of them. */
typedef struct Waits {
    int32_t priority;
    uint32_t fair_entry;
    uint16_t together, passed;
    bool preempted;
} Waits;

struct FtxEngine {
    FtxModel *model;
    Memory memory;
    size_t block_bytes; /* the engine itself and all arrays of it are one block */
    const FtxFacts *facts;
    const FtxPlan *plan;
    const DeviceApi *api;
    Session *session;
    Trace *trace; /* NULL: nothing is recorded. Else api and session are those of the trace */
    TokenizerScratch *scratch;
    size_t max_text; /* bytes of a prompt */

    char *io;
    FtxOut *out;     /* [FTX_OUT_RING][sequences] */
    uint32_t *masks; /* DeviceApi.masks; NULL: the host applies all masks */
    ProgramLadder step, decode, encode, hidden;
    int ahead;      /* most runs in flight */
    bool nan;       /* FTX_NAN looks at all logits, so every step writes them */
    uint32_t slots; /* sequences that run at once */
    uint32_t pages_of_sequence;

    Request *request; /* [requests] */
    uint32_t requests, most_waiting;
    uint64_t most_waiting_tokens; /* 0: any number */
    uint64_t waiting_tokens;      /* of prompts that wait; of several samples once */
    uint32_t waiting_swapped;     /* requests that wait and have pages on the host */
    Fair fair;
    QueueItem *queue;     /* [requests]: while choosing the next request */
    uint32_t *queued;     /* [requests]: indices of these items in `waiting` */
    uint32_t *queue_heap; /* [requests] */
    RequestList waiting, running, ending;
    Waits *waits;       /* [requests]: of waiting.at[i] */
    double first_late;  /* before this time (engine_now) none that waits is too late */
    RequestList unused; /* a stack, so that memory that was touched before is used first */
    int32_t *free_slot; /* [slots]: a stack */
    uint32_t free_slots;
    int32_t *free_source; /* [sources]: a stack, too */
    uint32_t free_sources;
    uint16_t *source_users; /* [sources]: sequences that read it */
    Pages pages;
    SlotTable page_table, group_table; /* of all slots; the lanes of a beam search, by the slot of lane 0 */
    SlotTable word_table;              /* bad words */
    SlotTable history;                 /* token history that the host writes: prompts that another sample has fed */
    Drawing draw;
    FtxTop *top;           /* [sequences][MOST_TOP]: of the rows whose results are being taken */
    float *prompt_logprob; /* [sequences]: of the prompt that score_prompt has worked on, and its likeliest tokens */
    FtxTop *prompt_top;    /* [sequences][MOST_TOP] */
    const Request *scored; /* whose prompt that is, in this step */
    float *states; /* [tokens][facts.states]: of the rows whose results are being taken, as far as they are wanted */
    Flight flight;
    Flight landing;    /* the one before, while its last run is waited for and `flight` is composed already */
    FtxOut *landed;    /* [sequences]: results of the run that is being taken, by row */
    BatchItem *batch;  /* [sequences]: while composing */
    int *shares;       /* likewise */
    Row *scratch_rows; /* likewise */
    FtxEvent *events;  /* [requests]: events of the current step */
    FtxLane *lanes;    /* [sequences]: copies of the device's, while composing or taking results */
    bool has_lanes;    /* `lanes` (and hyp_ids, if small) belong to the run whose results are being taken */
    int32_t *hyp_ids;  /* [slots][context]: hypotheses that were fetched */
    float *hyp_logps;  /* likewise */
    char *hyp_text;    /* [slots][hyp_text_bytes] */
    size_t hyp_text_bytes;
    FtxStats stats;   /* the counters; ftx_engine_stats fills in the rest */
    double landed_at; /* when the last run landed; 0: nothing has run since no request did */
    bool overcommit;  /* FtxOptions */
    bool by_role;     /* FtxFacts.fixed_sums on a GPU: see schedule.c */
    bool recurrent;   /* a slot has states of all tokens so far: samples of a prompt compute it each */
    float share;      /* of max_new that a request probably uses (grow.c) */
    float used;       /* of max_new, by those that have ended: the mean, the last ones count more */
    Pace pace;        /* FtxOptions.step_ms */
    Swap swap;
    Snapshots snapshots;
    Inbox inbox;
    _Atomic uint64_t next_id;
    FtxError dead; /* .status not 0: the device has failed */
};

/* submit.c */
typedef struct Events {
    FtxEvent *at;
    size_t n, max;
} Events;

double engine_now(void); /* seconds of a monotonic clock */
/* r, which is in no list, waits with its further samples. There is room. */
void submit_enter(FtxEngine *e, Request *r, uint64_t fair_key);
bool submit_has_room(const FtxEngine *e, const Request *r); /* for it and its further samples to wait */
FtxStatus submit_too_many(const FtxEngine *e, uint32_t samples, FtxError *err); /* FTX_EINVAL */
bool submit_is_late(const Request *r, double now);                              /* it has not begun by its deadline */
uint32_t submit_waiting(const FtxEngine *e); /* requests that wait, or have an event to come that they ended there */
void submit_wait(FtxEngine *e, Request *r, bool first); /* into the queue, before all others or behind them */
void submit_leave(FtxEngine *e, Request *r);            /* out of it; its prompt and kept_pages are as they were */
FtxEvent *submit_add_event(Events *v, const Request *r);
/* Ends a running request. The flight ignores its row from now on. What gets its slot and pages next is enqueued after
 * that flight. */
void submit_end_running(FtxEngine *e, Request *r);
void submit_end_others(FtxEngine *e, Events *v); /* those that were cancelled, or have not begun by their deadline */

/* inbox.c */
FtxStatus inbox_open(FtxEngine *e, uint32_t most, FtxError *err); /* of an engine whose requests are all unused */
void inbox_close(FtxEngine *e);
void inbox_read_begin(FtxEngine *e); /* around request_fill */
void inbox_read_end(FtxEngine *e);
/* Requests to the queue, as long as that has room; cancels. Of the others those that are cancelled or too late end. */
void inbox_take(FtxEngine *e, Events *v);
void inbox_fail(FtxEngine *e, Events *v); /* the device has failed: events of all that is in it */

/* flight.c */
/* Enqueues what there is to run, waits for one run, adds its events. */
FtxStatus flight_step(FtxEngine *e, Events *v, FtxError *err);

/* take.c: the oldest run of f that was not read. */
void take_ask(FtxEngine *e, const Flight *f); /* asks the masks that the host applies; the run may go on */
/* Asks those that the device applies. All results before that run have been told. They are in rows [*first, *first + *n). */
void take_masks(FtxEngine *e, const Flight *f, int *first, int *n);
/* Waits for it. Its tokens are in the requests then, and all that the next run would overwrite has been read. */
FtxStatus take_land(FtxEngine *e, const Flight *f, FtxError *err);
/* A row has its result, so the run is about to land; also where no row gets one, because then nobody can tell. */
bool take_has_come(const FtxEngine *e, const Flight *f);
bool take_ends(const FtxEngine *e, const Flight *f);                    /* landed: a request ends with it, by id */
FtxStatus take_tell(FtxEngine *e, Flight *f, Events *v, FtxError *err); /* landed: adds its events */

/* draw.c */
void draw_lay_out(Drawing *d, Carve *c, const FtxFacts *f, uint32_t slots, int threads);
FtxStatus draw_open(FtxEngine *e, FtxError *err); /* e->session is open */
void draw_close(FtxEngine *e);
/* Asks r's mask which tokens may follow its first `length` ones; once for each length. */
void draw_ask(FtxEngine *e, Request *r, int length);
void draw_mask(FtxEngine *e, Request *r, int length, int row); /* the same into e->masks, for the device */
/* Whether that mask allows the id, and processors do not ban it. */
bool draw_allows(const FtxEngine *e, const Request *r, int length, int row, int32_t id);
/* Chooses the tokens of e->draw.item[n], rows ascending, whose step has ended and whose masks were asked. */
FtxStatus draw_rows(FtxEngine *e, int n, FtxError *err);
const float *draw_logits(const FtxEngine *e,
                         int row); /* those of an item with log-probabilities, until the next draw */
/* The logarithm of the sum of exp(logit) of e->draw.row. r: the request that it belongs to. */
double draw_log_sum(FtxEngine *e, const Request *r);

/* score.c */
bool score_pending(const Request *r); /* log-probabilities of its prompt are still to be computed */
/* Between flights: does so for some tokens of one running request, and adds their event. */
FtxStatus score_prompt(FtxEngine *e, Events *v, FtxError *err);

/* states.c */
bool states_wait(const Request *r, int from); /* the host reads states of its row that begins at `from` */
/* Tokens of r's prompt that it may take over from others: those whose states nobody needs any more. */
int states_reusable(const Request *r, int tokens);
FtxStatus states_land(FtxEngine *e, const Flight *f,
                      FtxError *err); /* f's run has ended: copies those that are wanted */
/* Row i's states into the event of its token; event NULL: there is none, and one is added if it has states. */
void states_tell(FtxEngine *e, const Flight *f, int i, FtxEvent *event, Events *v);

/* request.c */
/* The caller's request with the fields that this library knows; those that the caller lacks have the model's
 * defaults. */
FtxStatus request_read(const FtxModel *model, const FtxRequest *from, FtxRequest *q, FtxError *err);
FtxStatus request_fill(FtxEngine *e, Request *r, const FtxRequest *from, FtxError *err);
void request_follow(const FtxEngine *e, Request *r, Request *leader, int sample); /* makes r another sample of leader */

/* words.c */
/* Fills r's biases, end ids, bad words and stop strings. r->beam is filled already. */
FtxStatus words_fill(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err);

/* beams.c */
uint32_t beams_lane_pages(const FtxEngine *e, const Request *r); /* pages of each lane but the first */
FtxStatus beams_place(FtxEngine *e, Request *r, FtxError *err);  /* slots, pages of all lanes but the first */
void beams_release(FtxEngine *e, const Request *r);
FtxStatus beams_finish(FtxEngine *e, Request *r, FtxEvent *event, FtxError *err); /* fetches hypotheses */

/* schedule.c */
void schedule_ladders(FtxEngine *e); /* fills e->step, e->decode, e->encode, e->hidden */
/* The program that takes a step of so many tokens. */
bool schedule_program(const ProgramLadder *l, int tokens, uint32_t *program);
/* For at most limits.tokens, for which ftx_engine_open has found a program. */
uint32_t schedule_found_program(const ProgramLadder *l, int tokens);
/* Bytes of IO that a step of `tokens` tokens uses; rows from biased_rows on have no biases. */
size_t schedule_live_bytes(const FtxEngine *e, int tokens, int biased_rows);
bool schedule_can_admit(FtxEngine *e);                             /* one of those that wait */
FtxStatus schedule_admit(FtxEngine *e, FtxError *err);             /* waiting to running, while slots and pages last */
uint32_t schedule_shared(const Request *r);                        /* r's first pages, which others wrote */
FtxStatus schedule_place(FtxEngine *e, Request *r, FtxError *err); /* gives r a slot and pages */
FtxStatus schedule_tell(FtxEngine *e, FtxError *err);              /* sends the tables of what was placed */
void schedule_release(FtxEngine *e, Request *r);
FtxStatus schedule_encode(FtxEngine *e, FtxError *err); /* runs the encoder over new sources */
void schedule_compose(FtxEngine *e);                    /* makes e->flight of the running requests */
/* Chooses the program of e->flight and writes its rows, settings and tokens to the IO block; of an unread token, none. */
FtxStatus schedule_write(FtxEngine *e, FtxError *err);
/* Between flights: completes the IO block with the tokens that were unread, and sends it. Nothing runs yet. */
FtxStatus schedule_send(FtxEngine *e, FtxError *err);

/* grow.c */
void grow_begin(FtxEngine *e);                             /* from now on requests grow */
void grow_learn(FtxEngine *e, const Request *r);           /* r ends by itself */
bool grow_does(const Request *r);                          /* r takes pages as it grows */
uint32_t grow_first(const FtxEngine *e, const Request *r); /* pages it takes at admission */
uint32_t grow_needs(const FtxEngine *e, const Request *r); /* pages that must be there then */
uint32_t grow_reserve(const FtxEngine *e);                 /* pages that running requests will probably take */
int grow_room(const FtxEngine *e, const Request *r);       /* tokens that a request can have with its pages */
/* Gives pages to the requests that grow. Where there are none, *short_of: between flights (may_preempt) some requests
 * wait again. */
FtxStatus grow_all(FtxEngine *e, bool may_preempt, bool *short_of, FtxError *err);
/* r ends with numbers that are not finite: pages that it alone uses are known no more, and get zeros; the others are in doubt. */
FtxStatus grow_wipe(FtxEngine *e, const Request *r, FtxError *err);
/* r loses its pages: if nobody has seen logits that come from those it wrote, these are in doubt. */
void grow_doubt(FtxEngine *e, const Request *r);
/* n pages that were just taken: those in doubt get zeros. */
FtxStatus grow_clean(FtxEngine *e, const int32_t *page, uint32_t n, FtxError *err);

/* swap.c */
uint32_t swap_count(const FtxModel *model, uint64_t bytes, uint32_t most); /* pages in so much memory of the host */
FtxStatus swap_open(FtxEngine *e, FtxError *err);                          /* e->swap.all of them */
/* Copies the pages of a running request that is preempted, if that is worth it and there is room. False: they are lost. */
bool swap_out(FtxEngine *e, Request *r);
/* Copies them back; r has its pages, of which the first `found` hold their text already. Returns the tokens that it has
 * then: those of these pages where a copy fails, or where pages are missing between. */
int swap_in(FtxEngine *e, Request *r, uint32_t found);
void swap_drop(FtxEngine *e, Request *r); /* gives r's pages on the host back */

/* pace.c */
FtxStatus pace_measure(FtxEngine *e, size_t step_ms, FtxError *err); /* fills e->pace of an idle engine */

/* snapshots.c */
uint32_t snapshots_next(const FtxEngine *e,
                        const Request *r); /* pages of running r behind which the next is still to be known; 0: none */
int snapshots_cut(const FtxEngine *e, const Request *r, int need); /* of `need` tokens those up to there */
FtxStatus snapshots_enqueued(FtxEngine *e, const Flight *f,
                             FtxError *err);          /* the run of f, whose rows may leave some */
void snapshots_landed(FtxEngine *e, Request *r);      /* r->known_pages has risen */
void snapshots_leave(FtxEngine *e, const Request *r); /* r runs no more */
FtxStatus snapshots_begin(FtxEngine *e, const Request *r,
                          FtxError *err); /* r's slot gets the states of r->fed tokens */

/* reuse.c */
/* Finds the known pages that r's prompt begins with, into r->pages and r->found_pages; returns how many of them are
 * idle. Nothing is taken. */
uint32_t reuse_find(FtxEngine *e, Request *r);
/* After reuse_find: a running request is about to compute the first page that r lacks, or to leave a snapshot behind pages of r. */
bool reuse_awaits(FtxEngine *e, Request *r);
int32_t reuse_page(FtxEngine *e, Request *r,
                   uint32_t page); /* the known page with that page of r's tokens; -1: there is none */
/* The keys and values of r's first `tokens` tokens are in the cache: makes its full pages known. */
void reuse_landed(FtxEngine *e, Request *r, int tokens);

/* tracing.c */
FtxStatus tracing_begin(FtxEngine *e, size_t events, FtxError *err);
FtxStatus tracing_end(FtxEngine *e, const char *path, FtxError *err); /* path NULL: no file */

/* The host reads logits of every row that gets a token. */
static inline bool engine_reads_logits(const Request *r)
{
    return r->top || r->on_host;
}

/* A request waits, runs or has an event to come. */
static inline bool engine_busy(const FtxEngine *e)
{
    return !e->dead.status &&
           (e->waiting.n || e->running.n || e->ending.n || (e->inbox.most && atomic_load(&e->inbox.n)));
}

/* What to raise for more KV pages. */
static inline const char *engine_more_pages(const FtxEngine *e)
{
    return e->pages.all < e->facts->kv_pages ? "kv_bytes (--kv-memory)" : "the spec's kv.pages";
}

/* A named buffer of the IO block. */
static inline void *engine_io(const FtxEngine *e, int named)
{
    return e->io + e->plan->named[named];
}

#endif
