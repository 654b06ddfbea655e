/* lower.h - the state of one target that its stages read and fill, one after the other.
 *
 *   select    fills `groups` of every program: which kernel computes which values
 *   layout    gives every weight that a group reads an offset in the packed block
 *   schedule  makes the launch lists: instances, shared where equal, and operands
 *   memory    gives every buffer its offset and writes the plan */
#ifndef FTXC_LOWER_H
#define FTXC_LOWER_H

#include "../catalog/contract.h"
#include "pass.h"

/* A kernel and the values that it computes: becomes one launch. */
typedef struct Group {
    Binding b;
    Fitted fit;
    double cost_us;
} Group;

typedef enum OperandKind {
    OPERAND_NULL,
    OPERAND_WEIGHT,
    OPERAND_NAMED,
    OPERAND_VALUE,
    OPERAND_STATS,
    OPERAND_SCRATCH,
    OPERAND_ZEROED
} OperandKind;

typedef struct Operand {
    OperandKind kind;
    Id value;      /* WEIGHT, VALUE, STATS */
    uint32_t at;   /* WEIGHT: index in the packing; NAMED: FTX_NAMED_x; SCRATCH, ZEROED: line of the contract */
    int64_t tiled; /* VALUE, WEIGHT: passed as a TMA descriptor with tiles of so many rows; 0: as an address */
    int64_t layer; /* NAMED: that of k, v, cross_k, cross_v */
    int64_t bytes; /* SCRATCH, ZEROED, STATS */
} Operand;

typedef struct Launch {
    const Group *group;
    uint32_t instance; /* in plan->instances */
    const char *label;
    Operand *operands;
    uint32_t n_operands;
} Launch;

/* A buffer in the workspace; made by memory. */
typedef struct Buffer {
    const char *name;
    Id value;                 /* 0: scratch */
    bool stats;               /* it holds the row statistics of the value */
    uint32_t launch, scratch; /* scratch: of this launch, this line of its contract */
    uint32_t first, last;     /* lifetime interval in launches, both inclusive */
    uint64_t bytes, offset;
} Buffer;

typedef struct Program {
    FtxProgramKind kind;
    bool optional; /* dropped if a value has no kernel in it; the program for any T is used then */
    ProgramFacts facts;
    struct {
        Group *at;
        size_t n, cap;
    } groups; /* in the order of computation */
    struct {
        Launch *at;
        size_t n, cap;
    } launches;
    struct {
        Buffer *at;
        size_t n, cap;
    } buffers;
    uint64_t work_bytes, lower_bound;
    const uint32_t *uses;       /* readers of each value in the cover that was taken; in scratch memory */
    struct FitCache *fit_cache; /* of select; in scratch memory */
} Program;

/* Memory of a `zeroed` line: one buffer for each contract and line, as large as its largest launch needs. */
typedef struct Zeroed {
    const Contract *contract;
    uint32_t at;
    uint64_t bytes, offset;
} Zeroed;

typedef struct Lower {
    const Graph *source;
    Graph *g; /* a copy of source with the types of this target */
    const Catalog *catalog;
    Target target;
    const Precision *precision;
    DType compute, kv;
    /* of each value, [values.n] */
    int *layer;         /* -1: none */
    bool *encoder;      /* computed by encode programs */
    bool *after;        /* computed by programs that begin at the entry */
    bool *launch_norms; /* norms of this value get a launch in every program */
    struct {
        Program *at;
        size_t n, cap;
    } programs;
    struct {
        Zeroed *at;
        size_t n, cap;
    } zeroed;
    Packing *packing;
    Plan *plan;
    Arena *keep, *scratch;
} Lower;

/* Stages; false: d has the reason. */
bool stage_select(Lower *l, Diag *d);
bool stage_layout(Lower *l, Diag *d);
bool stage_schedule(Lower *l, Diag *d);
bool stage_memory(Lower *l, Diag *d);

/* Graph passes. */
bool pass_simplify(Graph *g, const Precision *p, Diag *d);
bool pass_precision(Graph *g, const Precision *p, Diag *d);
DType precision_compute(const Precision *p, Target t);
void precision_apply(Graph *g, const Precision *p, DType compute);

/* Prepares the target: its types, and its programs with their facts; nothing is selected yet. */
void lower_open(Lower *l, const Graph *g, const Catalog *c, Target t, const Precision *p, Packing *packing, Plan *plan);

/* The candidates of one value in one program, for select and `ftxc why`. */
typedef struct Candidate {
    Binding b;
    Fitted fit;
    bool fits;
    const char *reason; /* why it was refused, if it was */
    double own_us;      /* cost of its launch, without its inputs */
} Candidate;
typedef struct Candidates {
    Candidate *at;
    size_t n, cap;
} Candidates;
/* Candidates with their root at v, by rank. refused: with those that were refused, and the reason. */
void select_candidates(const Lower *l, Program *p, const uint32_t *uses, Id v, bool refused, Candidates *out);
bool select_program(const Lower *l, Program *p, Diag *d);

/* The index in the packing of operand i, a weight; SIZE_MAX: it is not packed yet. */
size_t lower_packed_at(const Lower *l, const Program *p, const Binding *b, size_t i);

/* "linear (norm, gate and up, glu)": family and ops of a group. */
const char *lower_describe(const Lower *l, const Group *g, Arena *a);
const char *lower_program_name(const Program *p, Arena *a); /* "decode 8", "step", "step 64" */

/* The result of a stage as text, for --dump and the golden tests. */
void print_select(const Lower *l, FILE *out);
void print_layout(const Lower *l, FILE *out);
void print_schedule(const Lower *l, FILE *out);
void print_memory(const Lower *l, FILE *out);

#endif
