/* io.h - what a step brings to the kernels and takes from them. Read by C and by CUDA: plain
 * types only, no includes. All sizes are fixed; the arrays' lengths come from the spec's limits.
 *
 * Rows are sequences of this step, tokens are packed in row order. Rows that bring one token
 * (decode rows) come first, so token t of a decode row is row t; prompt chunks follow. */
#ifndef FTX_IO_H
#define FTX_IO_H

enum { FTX_OUT_RING = 8 }; /* results a row can have that the host has not read yet */

/* $step: one, at the start of the IO block. */
typedef struct FtxStep {
    int tokens;      /* T: live tokens of this step */
    int rows;        /* S: live rows */
    int decode_rows; /* rows [0, decode_rows) bring one token each */
    int processors;  /* not 0: some row needs more than temperature 0 and the arg max */
    int reserved[12];
} FtxStep;

/* $token [T] */
typedef struct FtxToken {
    int id;
    int pos; /* in its sequence, from 0: RoPE, learned positions, place in the cache */
    int row;
    int slot; /* of its row; in encode programs the token's type */
} FtxToken;

/* $rows [S]. A row's cache holds kv_len tokens once this step's q_len tokens are appended. */
typedef struct FtxRow {
    int q_start;  /* first packed token */
    int q_len;    /* tokens in this step */
    int kv_len;   /* with this step's tokens */
    int slot;     /* which page table and history: 0 .. sequences-1 */
    int emit;     /* 1: this step's last token is to be followed by a sampled one */
    int prompt;   /* prompt length: history from here on is generated */
    int limit;    /* length (prompt + new) at which the row is done */
    int done;     /* set by `sample` at an end id or at the limit; a done row no longer advances */
    int src_len;  /* sequence to sequence: tokens of the source */
    int src_slot; /* and which of $cross_k and $cross_v is its */
    int group;    /* beams: the row of lane 0; without them the row itself */
    int lane;     /* beams: which lane of the group; -1: not a beam search */
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
    int logits;      /* 1: the host reads the raw logits, which must be written */
    int top_needed; /* so many of the greatest raw logits, their ties and log-sum-exp decide what follows, above 8 nearly
               * always; 0: more does */
} FtxParams;

/* $bias [S][limits.logit_bias] */
typedef struct FtxBias {
    int id;
    float value;
} FtxBias;

/* $bad_words [slots][limits.bad_words] ints, by slot, of beams that of lane 0: words one after another, of each
 * the last id as ~id. That id is banned where the others stand right before it.
 *
 * $ends [S][limits.end_ids] are ints.  $pages [sequences][ceil(context / kv_block)] ints, by slot.
 * $history [sequences][context] ints, by slot: `embed` writes every token's id at its position.
 *
 * Cache of a layer: $k and $v, each [kv_pages][kv_heads][kv_block][head_dim].
 *
 * $out [FTX_OUT_RING][sequences]: the result of row r whose sampled token is number n of its
 * sequence (n = kv_len of the step that sampled it, so its position will be n) stands at
 * [n % FTX_OUT_RING][r]. `length` is written last, so a host that polls sees whole results. */
typedef struct FtxOut {
    int token;
    float logprob; /* log-softmax of the raw logits at token, but where sums of $segments are of others */
    int finish;    /* 0 running, 1 end id, 2 length */
    int length;    /* n: length of the sequence before this token */
} FtxOut;

/* $segments: what the kernel of the LM head leaves of the logits where it can (body/segments.cuh): each row in runs of
 * neighbouring columns, in their order. Logits of rows that need no more than this, and a few candidates, are not
 * written. One FtxSegments, then FtxSegment [S][FTX_SEGMENTS(V)]. */
typedef struct FtxSegments {
    int count; /* of every row */
    int reserved[3];
} FtxSegments;
typedef struct FtxSegment {
    float top;      /* greatest value, not -0 */
    float sum;      /* of exp(x - top), at a temperature where the mass counts (body/segments.cuh) */
    int first;      /* column */
    int width : 10; /* columns; 0: an empty segment, which says nothing */
    int kept : 6;   /* candidates, which stand where its first logits would; -1: all its logits are there */
    int at : 16;    /* first + at has the greatest value, and none before it; -1: none has, all are NaN */
} FtxSegment;
#define FTX_SEGMENTS(vocab) \
    (((vocab) + 95) / 96 + 200) /* at most: runs of 96, or some 190 blocks that end where they do */

/* $beams [S]; there are these five only where an artifact is compiled for beam search. */
typedef struct FtxBeam {
    int width; /* lanes of the group; 0: the row searches nothing, `sample` serves it */
    float length_penalty;
    int early;                  /* FtxEarly */
    int forced_bos, forced_eos; /* the first new token, and the last where the limit is met; -1: any */
    int emit;        /* 1: this step's logits are expanded. FtxRow.emit is 0 then: `sample` leaves the row alone */
    int groups;      /* diverse groups of width / groups lanes each, one after another; 0, 1: one */
    float diversity; /* what an id loses for each lane of an earlier group that takes it in this step */
} FtxBeam;

/* $lanes [slots]: what a lane is between two steps, and the hypothesis that stands in its slot: which
 * lane found it does not matter. Its ids, end id included, are $hyps [slots][context] from 0. */
typedef struct FtxLane {
    float score;              /* sum of log-probabilities; -inf: nothing runs here */
    int token;                /* the next token, not fed yet */
    float hyp_score, hyp_sum; /* score = sum / length ^ length_penalty */
    int hyp_length;           /* generated tokens; 0: none */
    int hyp_end;              /* 1: ends with an end id */
    int reserved[2];
} FtxLane;

/* $logps [2][slots][context]: the log-probability, under the raw logits, of the id at a position of a lane,
 * where $history has the id; and of the ids of $hyps.
 *
 * $group [slots][beams]: by the slot of lane 0, the slots of all lanes.
 * $owner [slots][context]: for positions from the prompt's end on, the slot whose pages and history
 * hold that position of this lane; earlier ones stand in lane 0's slot. */

/* What `random` draws: one weight of the block, as runtime/device/random.h says. */
enum { FTX_FILL_FP32 = 1, FTX_FILL_FP16, FTX_FILL_BF16 }; /* as in DType */
typedef struct FtxFill {
    unsigned long long offset, elements; /* bytes from the block's start, 256-byte aligned */
    unsigned key;
    float scale;
    int type;     /* FTX_FILL_x */
    int constant; /* 1: every element is `scale` */
} FtxFill;

/* After `sample`, a row that is not done stands ready for the next decode step: its token
 * (token index = row) becomes {id = sampled, pos + 1, row, slot}, its kv_len grows by one. Only
 * programs of kind decode rely on it; the host writes the IO block anew for every other step. */

#endif
