/* io.h - the inputs and outputs of a step, as the kernels see them. Read by C and by CUDA: plain types only, no
 * includes. All struct sizes are fixed; the lengths of arrays follow from the spec's limits.
 *
 * Rows are the sequences of this step; their tokens are packed in row order. Rows that bring one token (decode rows)
 * come first, so token t of a decode row is row t; rows with a chunk of a prompt follow. */
#ifndef FTX_IO_H
#define FTX_IO_H

enum { FTX_OUT_RING = 8 }; /* how many results of a row the host may not have read yet */

/* $peers: one, in artifacts for several ranks (devices that share a model). The session writes it before the first step. */
enum { FTX_MAX_RANKS = 8, FTX_EXCHANGES = 3 };
typedef struct FtxPeers { /* 128 bytes */
    int rank, ranks;
    int timeout_ms; /* of a wait for another rank; 0: no limit */
    /* "gathered". GPUs of several processes, 1: what all ranks bring to an exchange stands in the first buffer of $exchange, as
     * x has it, before the kernel begins: NCCL has brought it, and the kernel sends nothing. */
    int reserved;
    unsigned long long bytes;                   /* of one buffer of $exchange */
    unsigned long long exchange[FTX_MAX_RANKS]; /* addresses of $exchange of all ranks, as this device reaches them */
    unsigned long long report;                  /* GPUs: the address of the rank's FtxReport; 0: none */
    unsigned long long reserved2[4];
} FtxPeers;

/* In the host's memory, for each GPU: what went wrong, and whether it is to stop. */
typedef struct FtxReport { /* 32 bytes */
    unsigned failed, step; /* as in FtxExchange */
    unsigned reserved;
    unsigned written; /* 1: the three words before are there */
    unsigned stop;    /* the host: waits end */
    unsigned reserved2[3];
} FtxReport;

/* $exchange: this, then three buffers of FtxPeers.bytes each. Exchange n uses buffer n % 3, in which what rank r brings
 * stands at r * bytes / ranks. A rank that brings exchange n has read all of exchange n - 2, so its buffer is free. */
typedef struct FtxExchange { /* 256 bytes */
    unsigned count;          /* exchanges to which this rank has brought its part */
    unsigned arrived;        /* threads (of a GPU: blocks) that take part in the running one */
    unsigned stop;           /* not 0: every wait ends, and all later exchanges go on without waiting */
    unsigned failed;         /* 1 + the rank that did not come in time; 0: none */
    unsigned step;           /* count at that time */
    unsigned reserved[59];
} FtxExchange;

/* $step: one, at the start of the IO block. */
typedef struct FtxStep {
    int tokens;      /* T: live tokens of this step */
    int rows;        /* S: live rows */
    int decode_rows; /* rows [0, decode_rows) bring one token each */
    int processors;  /* not 0: some row needs more than temperature 0 and the arg max */
    unsigned number; /* several ranks: of the step, from 1, and the hash of what the host wrote of the IO block */
    unsigned hash_low, hash_high;
    int reserved[9];
} FtxStep;

/* $token [T] */
typedef struct FtxToken {
    int id;
    int pos; /* in its sequence, from 0: RoPE, learned positions, place in the cache */
    int row;
    int slot; /* of its row; in encode programs: the token's type id */
} FtxToken;

/* $rows [S]. A row's cache holds kv_len tokens once this step's q_len tokens are appended. */
typedef struct FtxRow {
    int q_start;  /* first packed token */
    int q_len;    /* tokens in this step */
    int kv_len;   /* with this step's tokens */
    int slot;     /* which page table and history: 0 .. sequences-1 */
    int emit;     /* 1: sample the token that follows this step's last one */
    int prompt;   /* prompt length: history from here on is generated */
    int limit;    /* length (prompt + new) at which the row is done */
    int done;     /* set by `sample` at an end id or at the limit; a done row no longer advances */
    int src_len;  /* sequence to sequence: tokens of the source */
    int src_slot; /* and its index in $cross_k and $cross_v */
    int group;    /* beams: the row of lane 0 of the search; otherwise the row itself */
    int lane;     /* beams: which lane of the search; -1: not a beam search */
} FtxRow;

/* $params [S] */
typedef struct FtxParams {
    float temperature;         /* 0: greedy */
    float top_p;               /* 1: off */
    float min_p;               /* 0: off */
    float repetition;          /* 1: off */
    float presence, frequency; /* 0: off */
    int top_k;                 /* 0: off */
    int window;                /* of repetition; 0: the whole context */
    int ngram;                 /* no_repeat_ngram; 0: off */
    int min_length;            /* end ids are banned while prompt + new < this */
    int n_ends;                /* of $ends[row] */
    int n_bias;                /* of $bias[row] */
    unsigned seed_low, seed_high;
    int sample;      /* index of this sample among those of one request */
    int simple;      /* 1: greedy without any processor */
    float typical_p; /* 0: off */
    int n_words;     /* ids of $bad_words[slot] */
    int logits; /* 1: the host reads the raw logits, which must be written; FTX_LOGITS_MASKED: so does `mask` (mask.h) */
    int top_needed; /* the next token depends only on this many largest raw logits, their ties and the row's
                      * log-sum-exp (above 8: nearly always; `sample` checks). 0: the whole row is read */
} FtxParams;

/* $bias [S][limits.logit_bias] */
typedef struct FtxBias {
    int id;
    float value;
} FtxBias;

/* $bad_words [slots][limits.bad_words] ints, by slot (beams: that of lane 0): words one after another, the last id of
 * each as ~id. That id is banned where the word's other ids are the last tokens.
 *
 * $ends [S][limits.end_ids] are ints.  $pages [sequences][ceil(context / kv_block)] ints, by slot.
 * $history [sequences][context] ints, by slot: `embed` writes every token's id at its position.
 *
 * Cache of a layer: $k and $v, each [kv_pages][kv_heads][kv_block][head_dim].
 *
 * $out [FTX_OUT_RING][sequences]: row r's sampled token with position n (n = kv_len of the step that sampled it) is at
 * [n % FTX_OUT_RING][r]. `length` is written last, so a host that polls it sees whole results. */
typedef struct FtxOut {
    int token;
    float logprob; /* log-softmax of the raw logits at token; not where $segments have sums at a temperature */
    int finish;    /* 0 running, 1 end id, 2 length */
    int length;    /* n: length of the sequence before this token */
} FtxOut;

/* $segments: runs of neighbouring columns of each row of logits, in order, written by those LM head kernels that can
 * (body/segments.cuh). Where they and a few candidates decide the next token, the logits are not written.
 * One FtxSegments, then FtxSegment [S][FTX_SEGMENTS(V)]. */
typedef struct FtxSegments {
    int count; /* segments of a row, the same for all rows */
    int reserved[3];
} FtxSegments;
typedef struct FtxSegment {
    float top;      /* greatest value, not -0 */
    float sum;      /* of exp(x - top); of exp((x - top) / temperature) for draws_by_mass() (body/segments.cuh) */
    int first;      /* its first column */
    int width : 10; /* columns; 0: an empty segment */
    int kept : 6;   /* number of candidates, written in place of its first logits; -1: all its logits are written */
    int at : 16;    /* column first + at has the greatest value, the first of equal ones; -1: all are NaN */
} FtxSegment;
#define FTX_SEGMENTS(vocab) \
    (((vocab) + 95) / 96 + 200) /* upper bound: runs of 96, and about 190 blocks whose last run is shorter */

/* $beams [S]. $beams, $lanes, $logps, $group, $owner and $hyps exist only in artifacts compiled for beam search. */
typedef struct FtxBeam {
    int width; /* lanes of the search; 0: the row is no search, `sample` chooses its token */
    float length_penalty;
    int early;                  /* FtxEarly */
    int forced_bos, forced_eos; /* the first new token, and the last where the limit is met; -1: any */
    int emit;        /* 1: `beam` expands this step's logits. FtxRow.emit is 0 then, so `sample` skips the row */
    int groups;      /* diverse groups of width / groups lanes each; 0, 1: one */
    float diversity; /* an id's penalty for each lane of an earlier group that takes it in this step */
} FtxBeam;

/* $lanes [slots]: the state of a lane between two steps, and one of the search's hypotheses, which any of its lanes may
 * have found. The hypothesis's ids, end id included, are $hyps [slots][context] from index 0. */
typedef struct FtxLane {
    float score;              /* sum of log-probabilities; -inf: the lane does not run */
    int token;                /* the next token, not yet an input */
    float hyp_score, hyp_sum; /* score = sum / length ^ length_penalty */
    int hyp_length;           /* generated tokens; 0: none */
    int hyp_end;              /* 1: ends with an end id */
    int reserved[2];
} FtxLane;

/* $logps [2][slots][context]: the log-probability, under the raw logits, of the id at a position of a lane,
 * where $history has the id; and of the ids of $hyps.
 *
 * $group [slots][beams]: for the slot of lane 0, the slots of all lanes of the search.
 * $owner [slots][context]: for positions from the prompt's end on, the slot whose pages and history hold that position
 * of this lane; earlier positions are in lane 0's slot. */

/* What `random` draws: one weight, as runtime/device/random.h says. */
enum { FTX_FILL_FP32 = 1, FTX_FILL_FP16, FTX_FILL_BF16 }; /* as in DType */
typedef struct FtxFill {
    unsigned long long offset, elements; /* bytes from the block's start, 256-byte aligned */
    unsigned key;
    float scale;
    int type;     /* FTX_FILL_x */
    int constant; /* 1: every element is `scale`; 2: of each pair the second is the first with the other sign */
} FtxFill;

/* `sample` makes each row that is not done ready for the next decode step: its token (token index = row) becomes
 * {id = sampled, pos + 1, row, slot} and its kv_len grows by one. Only programs of kind decode rely on this; the host
 * writes the IO block anew for every other step. */

#endif
