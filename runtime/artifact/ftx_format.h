/* ftx_format.h - the artifact, field by field. Little-endian; no struct has padding.
 *
 *   FtxHeader | sections, each 64-byte aligned (weights 4096) | FtxSection[n] at sections_at
 *
 * A section is an array of one of the structs below, or bytes. Each plan has its own plan sections. A target (0: the CPU)
 * may have several plans, tuned for different GPUs. Offsets, counts and indices are untrusted: runtime/artifact/artifact.c
 * checks them before they are used. The checksum of a section is XXH3-64 of its bytes. */
#ifndef FTX_FORMAT_H
#define FTX_FORMAT_H

#include <stdint.h>

#define FTX_MAGIC "FTX1\r\n\x1a\n"
enum { FTX_FORMAT = 17 }; /* grows with every change of what is below */

/* A compute capability: 800, 860, 890, 900, ... and +1 for its 'a' form: sm_90a is 901; +2 for PTX
 * that the driver translates for that GPU and all later ones: compute_80 is 802. */
enum { FTX_TARGET_CPU = 0 };

typedef enum FtxSectionKind {
    FTX_SEC_FACTS = 1,    /* FtxFacts, one */
    FTX_SEC_STRINGS,      /* NUL-terminated strings; a `str` field is an offset into it */
    FTX_SEC_SPEC,         /* the spec's text */
    FTX_SEC_BUILD,        /* text: the versions and the command that made this file, one "name value" a line */
    FTX_SEC_WEIGHT_INDEX, /* FtxWeight[] */
    FTX_SEC_WEIGHTS,      /* bytes, mapped, one for each rank; absent with a sidecar, which has the blocks of all ranks
                             one after another, each at a multiple of 4096 */
    FTX_SEC_TOKENIZER,    /* runtime/tokenizer/tokenizer.h */
    FTX_SEC_PLAN,         /* FtxPlan, one */
    FTX_SEC_KERNELS,      /* FtxKernel[] */
    FTX_SEC_CONSTS,       /* int64[]: constants of kernels; numbers as bits of a double */
    FTX_SEC_PROGRAMS,     /* FtxProgram[] */
    FTX_SEC_LAUNCHES,     /* FtxLaunch[] */
    FTX_SEC_OPERANDS,     /* FtxOperand[] */
    FTX_SEC_EXPRS,        /* int64[]: base/expr.h */
    FTX_SEC_BUFFERS,      /* FtxBuffer[]: the memory map, for `ftxc show` */
    FTX_SEC_CUBIN,        /* code images, each 64-byte aligned; FtxKernel says which is whose. ELF
                             files; for a PTX target texts that end in a NUL */
    FTX_SEC_CACHES,       /* FtxCache[]: those of layer 0, 1, ...; encoders have none */
    FTX_SEC_SOURCE,       /* the CUDA text: what NVRTC was given */
    FTX_SEC_TABLES,       /* bytes, one for each rank: without stored weights, those of kind TABLE in index order,
                             each at a multiple of 256 */
    FTX_SEC_BAD_WORDS,    /* int32[]: the model's bad words, as in $bad_words of io.h; absent: none */
    FTX_SEC_CHAT,         /* runtime/chat/format.h: compiled chat templates; absent: none */
} FtxSectionKind;

typedef struct FtxHeader { /* 64 bytes */
    char magic[8];
    uint32_t format;
    uint32_t sections; /* how many */
    uint64_t file_bytes;
    uint64_t sections_at;
    uint64_t sections_checksum;
    uint32_t version_major, version_minor; /* of the ftxc that wrote it */
    uint64_t reserved[2];
} FtxHeader;

typedef struct FtxSection { /* 48 bytes */
    uint32_t kind;          /* FtxSectionKind */
    uint32_t target;        /* of plan sections and code; else 0 */
    uint32_t rank;          /* of weights and tables: whose they are (FtxFacts.ranks); else 0 */
    uint32_t variant;       /* of plan sections: 0, 1, ... tell the plans of one target apart; else 0 */
    uint64_t offset, bytes;
    uint64_t checksum;
    uint64_t reserved2;
} FtxSection;

/* What a request of this model asks for by default: the settings of decode.def, and what has no row there. */
typedef struct FtxDecode { /* 96 bytes */
#define FIELD_COUNT int32_t
#define FIELD_NUMBER float
#define FIELD_EARLY int32_t /* FtxEarly */
#define DECODE(name, type, ...) FIELD_##type name;
#include "../decode.def"
#undef DECODE
#undef FIELD_COUNT
#undef FIELD_NUMBER
#undef FIELD_EARLY
    int32_t max_top_k;              /* the most that a request may ask for */
    int32_t forced_bos, forced_eos; /* the first new token, and the last at the length limit; -1: none */
    int32_t reserved[2];
} FtxDecode;

/* When a beam search ends: see ftx.h. */
#ifndef FTX_EARLY /* ftx.h has it, too */
#define FTX_EARLY
typedef enum FtxEarly { FTX_EARLY_FALSE, FTX_EARLY_TRUE, FTX_EARLY_NEVER } FtxEarly;
#endif

/* The kinds of models: see ftx.h. */
#ifndef FTX_MODEL_KIND /* ftx.h has it, too */
#define FTX_MODEL_KIND
typedef enum FtxModelKind { FTX_MODEL_DECODER, FTX_MODEL_ENCODER, FTX_MODEL_SEQ2SEQ } FtxModelKind;
#endif

/* How a classifier's numbers become scores: see ftx.h. */
#ifndef FTX_SCORING /* ftx.h has it, too */
#define FTX_SCORING
typedef enum FtxScoring { FTX_SCORING_NONE, FTX_SCORING_SIGMOID, FTX_SCORING_SOFTMAX } FtxScoring;
#endif

enum { FTX_MAX_ENDS = 8, FTX_MAX_SEQUENCES = 4096 };

typedef struct FtxFacts {                  /* 288 bytes */
    uint32_t name;                         /* str */
    uint32_t vocab, hidden, layers, heads; /* heads: of attention, the most of a layer; 0: no layer has attention */
    uint32_t context, sequences, tokens;
    uint32_t kv_block;            /* tokens of a KV page */
    uint32_t kv_pages;            /* the most KV pages that an engine can use; 0: encoders */
    uint32_t logit_bias, end_ids; /* entries a request may bring */
    uint32_t n_ends;
    int32_t ends[FTX_MAX_ENDS]; /* the model's end ids */
    int32_t bos;                /* -1: none. Added before text prompts by the tokenizer's rule */
    uint64_t weight_bytes;      /* of the whole block, of one rank */
    uint32_t sidecar;           /* str: file beside this one that holds the weights; 0: inside */
    uint32_t positions;         /* learned positions bound the context; 0: no bound */
    uint64_t sidecar_checksum;
    uint64_t parameters; /* of the model, for `ftxc show` */
    FtxDecode decode;
    uint32_t kind;           /* FtxModelKind */
    uint32_t source_context; /* FTX_MODEL_SEQ2SEQ: tokens of a source at most; else 0 */
    int32_t start;           /* FTX_MODEL_SEQ2SEQ: the decoder's first id; -1: none */
    uint32_t pooled;         /* FTX_MODEL_ENCODER: width of the pooled vector; 0: none */
    uint32_t types;          /* token types; 0: none */
    uint32_t beams;          /* beams that a request may have; 0, 1: no beam search */
    int32_t pad;             /* -1: none. For `ftxc show`: batches are never padded */
    uint32_t bad_words;      /* ids of all bad words of a request, the model's among them */
    uint32_t source_vocab;   /* FTX_MODEL_SEQ2SEQ: ids of a source are below it */
    uint32_t input;          /* FTX_MODEL_ENCODER: width of hidden states in place of ids; 0: takes none */
    uint32_t
        n_labels; /* classifiers: as many as `pooled`, or with `pooled` 0 (classes of each token) as `hidden`; 0: none */
    uint32_t labels;     /* str: the classes' names, one a line */
    uint32_t scoring;    /* FtxScoring */
    uint32_t sources;    /* FTX_MODEL_SEQ2SEQ: sources whose keys and values are kept at once */
    uint32_t ranks;      /* devices that share the model: each has a block of weights; 1: one */
    uint32_t fixed_sums; /* 1: on a GPU each value has one order of sums in all programs (precision.sums) */
    uint32_t
        whole_prompts; /* 1: tokens of a prompt see later ones, so it is read in one step, and its pages are its own */
    uint32_t states;   /* FTX_MODEL_DECODER: width of $hidden, the states of the last layer; 0: there are none */
} FtxFacts;

typedef struct FtxWeight { /* 80 bytes */
    uint32_t name;         /* str */
    uint32_t type;         /* DType */
    uint32_t rank;
    uint32_t kind; /* FtxWeightKind: how random weights are drawn */
    uint64_t dim[4];
    uint64_t offset, bytes; /* in the weight block; offset is 256-byte aligned */
    /* int8, int4, fp8: tiles of base/packed.h */
    uint32_t form;   /* str: the order of the codes of a tile, a form of compiler/ir/forms.def; else 0 */
    uint32_t group;  /* elements of a row that share a scale; else 0 */
    uint32_t scales; /* PackedScales of base/packed.h */
    uint32_t like;   /* random weights: 1 + the index of an earlier packing of the same weight, whose numbers it takes;
                        0: its own */
} FtxWeight;

/* Random weights (benchmarks, tests): matrices uniform in +-sqrt(3 / last dim), gains 1,
 * biases 0; tables are computed and always stored, also when weights are not. The rows of a centred matrix are drawn in
 * pairs x, -x: a norm folded into such a weight takes the mean of each row away, which is 0 then, so that all packings
 * of the weight hold the same numbers. */
typedef enum FtxWeightKind {
    FTX_WEIGHT_MATRIX,
    FTX_WEIGHT_GAIN,
    FTX_WEIGHT_BIAS,
    FTX_WEIGHT_TABLE,
    FTX_WEIGHT_CENTRED,
} FtxWeightKind;

typedef enum FtxSpace {
    FTX_SPACE_NULL = 0, /* the operand is absent: a NULL pointer */
    FTX_SPACE_WEIGHTS,
    FTX_SPACE_STATE, /* lives from engine open to close, zero at open */
    FTX_SPACE_IO,    /* written by the host for every step */
    FTX_SPACE_WORK,  /* activations: undefined between launches that name them */
    FTX_SPACE_OUT,   /* read by the host */
    FTX_SPACE_PAGES, /* KV pages: offsets and bytes are those of one page. An engine takes P pages when it opens, and
                        offset x is then at byte x * P */
    FTX_SPACE_COUNT,
} FtxSpace;

enum {
#define NAMED(name, space, bytes, what) FTX_NAMED_##name,
#include "named.def"
#undef NAMED
    FTX_NAMED_COUNT,
};

enum { FTX_MAX_NAMED = 32 };

typedef struct FtxPlan { /* 616 bytes */
    uint32_t target;
    uint32_t weight_type, compute_type; /* DType */
    uint32_t name;                      /* str: as --target names it: "sm_90a", "h200" */
    uint32_t device; /* str: the GPU that it is tuned for, as the driver names it; "": any of its target */
    uint32_t reserved;
    uint64_t space_bytes[8];       /* by FtxSpace; [WEIGHTS] is the block's size, [PAGES] that of one page */
    uint64_t lower_bound;          /* of WORK: the largest sum of live bytes */
    uint64_t named[FTX_MAX_NAMED]; /* offset of FTX_NAMED_x in its space */
    uint64_t named_bytes[FTX_MAX_NAMED];
    uint64_t exchange; /* bytes of one of the three buffers of $exchange; 0: one rank */
} FtxPlan;

/* The keys and values that attention of one layer reads. A page holds [kv_heads][kv_block] rows of each; of int8 and fp8
 * these are codes, and behind them the page has their scales, [kv_heads][kv_block] fp16. $k and $v hold the pages of all
 * caches, one cache after another. The caches of a sequence-to-sequence model's sources are in $cross_k and $cross_v, with
 * [kv_heads][source] rows for each source. What a layer keeps of all tokens so far in place of keys and values (a recurrent
 * state) is in $recurrent, [kv_heads][k_dim][v_dim] fp32 for each slot. */
typedef struct FtxCache { /* 32 bytes */
    uint32_t kv_heads;
    uint32_t k_dim, v_dim; /* elements of a row */
    uint32_t type;         /* DType */
    uint32_t window;       /* tokens that attention looks back; 0: all */
    uint32_t source;       /* 0: in pages; else tokens of a source (FtxFacts.source_context) */
    uint32_t inside;       /* 1: the first v_dim elements of a key are its value, and no values are stored */
    uint32_t recurrent;    /* 1: a recurrent state */
} FtxCache;

typedef enum FtxKernelKind {
    FTX_KERNEL_CPU = 1, /* a C function of the runtime, by family name and constants */
    FTX_KERNEL_CUDA,    /* an entry of the cubin */
    FTX_KERNEL_MATMUL,  /* cuBLASLt: constants as in FtxMatmulConst */
} FtxKernelKind;

enum { FTX_KERNEL_OVERLAP = 1 }; /* programmatic dependent launch: it waits inside */

/* One instance: a family and its constants. Its parameters are pointers, one for each operand,
 * in the order of the contract's args: (ins, outs, scratch, zeroed), 8 bytes each. */
typedef struct FtxKernel { /* 80 bytes */
    uint32_t kind;
    uint32_t family; /* str: "linear" */
    uint32_t entry;  /* str: "linear__bf16_n640_k384_1f0c": the cubin's symbol */
    uint32_t flags;
    uint32_t first_const, n_consts;
    uint32_t n_operands;
    uint32_t block;               /* threads */
    uint32_t smem;                /* dynamic shared memory, bytes */
    uint32_t grid[3][2];          /* first word and number of words in EXPRS; variables VAR_T, VAR_S, VAR_SMS */
    uint32_t moves[2];            /* bytes, an expression too; 0 words: unknown */
    uint32_t matmul;              /* 1: counts as matrix work in profiles */
    uint32_t code_at, code_bytes; /* FTX_KERNEL_CUDA: its image in FTX_SEC_CUBIN; several kernels may
                                     name one image */
} FtxKernel;

/* y[M,N] = act(x[M,K] w[N,K]^T + b) + r.  Operands: x w b r y. M is T or S. */
enum FtxMatmulConst {
    FTX_MM_ROWS_S, /* 0: M = T, 1: M = S */
    FTX_MM_N,
    FTX_MM_K,
    FTX_MM_TYPE_X,
    FTX_MM_TYPE_W,
    FTX_MM_TYPE_Y,
    FTX_MM_ACT, /* 0 none, else as in FtxAct; only what cuBLASLt computes exactly */
    FTX_MM_CONSTS,
};

/* Behind them, where `ftxc tune` measured algorithms: the version of cuBLASLt, then records of FTX_MM_RECORD words. The library's
 * first choice is taken for other row counts, and with another version. */
enum FtxMatmulAlgo {
    FTX_MM_FROM, /* for M from here ... */
    FTX_MM_TO,   /* to here: multiples of 64, or one more */
    FTX_MM_ALGO, /* its attributes, in the order of cublasLtMatmulAlgoConfigAttributes_t */
    FTX_MM_ATTRIBUTES = 9,
    FTX_MM_RECORD = FTX_MM_ALGO + FTX_MM_ATTRIBUTES,
};

typedef enum FtxAct {
    FTX_ACT_NONE,
    FTX_ACT_RELU,
    FTX_ACT_GELU_ERF,
    FTX_ACT_GELU_TANH,
    FTX_ACT_QUICK_GELU,
    FTX_ACT_SILU,
    FTX_ACT_TANH,
    FTX_ACT_RELU2, /* relu(x)^2 */
    FTX_ACT_SIGMOID,
    FTX_ACT_COUNT,
} FtxAct;

/* STEP and DECODE belong to decoders: any mix of prompt chunks and single tokens, and one token of every row. ENCODE
 * takes whole texts. For an encoder it writes $hidden (and $pooled); for a sequence-to-sequence model the source's
 * keys and values of all decoder layers, $cross_k and $cross_v. HIDDEN is ENCODE with $input in place of everything
 * before the first layer. */
typedef enum FtxProgramKind { FTX_PROG_STEP = 1, FTX_PROG_DECODE, FTX_PROG_ENCODE, FTX_PROG_HIDDEN } FtxProgramKind;

typedef struct FtxProgram { /* 32 bytes */
    uint32_t kind;
    uint32_t bucket; /* T at most, grids are those of T = bucket; 0: any T, grids follow it */
    uint32_t first_launch, n_launches;
    uint64_t work_bytes;
    uint32_t most; /* with a bucket: a step of more tokens takes the next larger program; 0: as many as the bucket */
    uint32_t reserved;
} FtxProgram;

typedef struct FtxLaunch { /* 16 bytes */
    uint32_t kernel;
    uint32_t first_operand; /* n_operands of the kernel follow */
    uint32_t label;         /* str: "layer 3: qkv"; runtime/device/offload.c reads the layer */
    uint32_t reserved;
} FtxLaunch;

/* What a kernel's parameter points to. With tile_rows it is a TMA descriptor (CUtensorMap), which the runtime makes
 * when an engine is opened: of a row-major matrix [rows, columns] of a 16-bit type, in tiles of tile_rows x 64. Where
 * space is FTX_SPACE_PAGES, rows is that of one page, and the matrix has as many pages as the engine. */
typedef struct FtxOperand { /* 32 bytes */
    uint32_t space;
    uint32_t tile_rows; /* 0: the operand's bytes */
    uint64_t offset;
    uint32_t rows, columns;
    uint32_t type; /* DType */
    uint32_t reserved;
} FtxOperand;

typedef struct FtxBuffer { /* 40 bytes */
    uint32_t name;         /* str */
    uint32_t space;
    uint32_t program;     /* the program of a WORK buffer */
    uint32_t first, last; /* launches of the program between which it lives */
    uint32_t reserved;
    uint64_t offset, bytes;
} FtxBuffer;

#endif
