/* lower.h - the state of one target that its stages read and fill, one after the other.
 *
 *   select    fills `groups` of every program: which kernel computes which values, in which form each is written
 *   edges     where a launch may let the next one start early, and is compiled so
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
    OPERAND_SCRATCH,
    OPERAND_ZEROED
} OperandKind;

typedef struct Operand {
    OperandKind kind;
    Id value;      /* WEIGHT, VALUE */
    uint32_t part; /* VALUE: PLAIN_PART, or what lower_part says of its form */
    uint32_t at;   /* WEIGHT: index in the packing; NAMED: FTX_NAMED_x; SCRATCH, ZEROED: line of the contract */
    int64_t tiled; /* VALUE, WEIGHT: passed as a TMA descriptor with tiles of so many rows; 0: as an address */
    int64_t layer; /* NAMED: that of k, v, cross_k, cross_v */
    int64_t bytes; /* VALUE, SCRATCH, ZEROED */
} Operand;

/* A value has a buffer for each part: the plain value, the elements of a form that replaces it, and each companion. */
enum { PLAIN_PART = 0, MAX_PARTS = 32 };
/* Part of a form of the catalog: 0: its elements; k: its companion k - 1. */
static inline uint32_t lower_part(uint32_t form, uint32_t k)
{
    return form * MAX_PARTS + k;
}

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
    uint32_t part;            /* of the value */
    uint32_t launch, scratch; /* scratch: of this launch, this line of its contract */
    uint32_t first, last;     /* lifetime interval in launches, both inclusive */
    uint64_t bytes, offset;
} Buffer;

typedef struct Program {
    FtxProgramKind kind;
    bool optional; /* dropped if a value has no kernel in it; the program for any T is used then */
    bool dropped;
    int64_t most; /* rows that it is run with, where a tuning file has a border; 0: as many as its bucket */
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
    struct FitCache *fit_cache; /* of candidates.c; in scratch memory */
} Program;

/* Memory of a `zeroed` line: one buffer for each contract and line, as large as its largest launch needs. */
typedef struct Zeroed {
    const Contract *contract;
    uint32_t at;
    uint64_t bytes, offset;
} Zeroed;

/* In which form the programs selected so far read a weight. */
typedef struct WeightForm {
    bool known;
    Fold fold;
} WeightForm;

enum { SUMS_ROLES = 3 }; /* RowsServed */

/* How a value is added in all programs, and a hash of the values that one launch computes with it. */
typedef struct Order {
    const char *sums; /* "slices 2"; NULL: none was chosen */
    uint64_t with;
} Order;

typedef struct Lower {
    const Graph *source;
    Graph *g; /* a copy of source with the types of this target */
    const Catalog *catalog;
    Target target;
    const Precision *precision;
    DType compute, kv, cross_kv; /* kv: of pages; cross_kv: of sources */
    /* of each value, [values.n] */
    int *layer;    /* -1: none */
    bool *encoder; /* computed by encode programs */
    bool *after;   /* computed by programs that begin at the entry */
    WeightForm *weight_forms;
    bool fixed;            /* precision.sums; orders: of each value, chosen before programs are selected */
    bool is_sum[OP_COUNT]; /* ops whose order of adding must be stated */
    Order *orders;         /* [values.n][SUMS_ROLES] */
    bool ordered;          /* they are chosen */
    bool unfolded;         /* no norm may be folded into a weight */
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
bool stage_edges(Lower *l, Diag *d);
bool stage_layout(Lower *l, Diag *d);
bool stage_schedule(Lower *l, Diag *d);
bool stage_memory(Lower *l, Diag *d);

/* Graph passes. */
bool pass_shard(Graph *g, const Precision *p, Diag *d);
bool pass_simplify(Graph *g, const Precision *p, Diag *d);
bool pass_precision(Graph *g, const Precision *p, Diag *d);
/* A value `quantise` before each linear whose weight is to be stored as codes. */
bool quantise_weights(Graph *g, const Quantising *q, Diag *d);
DType precision_compute(const Precision *p, Target t);
void precision_apply(Graph *g, const Precision *p, DType compute);

/* Adds the target's programs, none selected yet. */
void lower_add_programs(Lower *l);

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
/* COMPUTE: candidates with their root at v. CONVERSIONS: those that make one form of v from another. By rank; refused: with
 * those that were refused, and the reason. */
typedef enum CandidateKind { COMPUTE, CONVERSIONS } CandidateKind;
void select_candidates(const Lower *l, Program *p, const uint32_t *uses, Id v, CandidateKind kind, bool refused,
                       Candidates *out);
/* borders.c: sets `most` of the programs that have a border in the target's tuning files. */
void borders_follow(Lower *l);

/* precision.sums = "fixed" (sums.c): prepares l; chooses l->orders; whether a candidate adds in them. Before they are chosen
 * it must state an order for each of its sums. */
void sums_open(Lower *l);
bool sums_choose(Lower *l, Diag *d);
bool sums_agree(const Lower *l, const Candidate *x, const char **reason);
/* "added in all programs as: slices 2" */
void sums_print(const Lower *l, Id v, FILE *out);
/* ", slices 2": the orders of a launch's sums; "": precision.sums is free. */
const char *sums_text(const Lower *l, const Group *g);
/* The cost by which candidates are compared: one with a `prefer other` line that holds loses to any without. */
double candidate_cost(const Candidate *x);
/* Whether two matches cover the same values and write the same form. */
bool candidate_same_inputs(const Binding *a, const Binding *b);

/* Why attention v is computed in parts, in place of the fused kernels; NULL: it is not, or v is no attention. */
const char *apart_reason(const Graph *g, Id v, Arena *a);

bool select_program(const Lower *l, Program *p, Diag *d);
/* "no kernel for %5 = rmsnorm ...": v, and the contracts that came closest. Returns false. */
bool why_missing(const Lower *l, Program *p, const uint32_t *uses, Id v, Diag *d);

/* Whether all parts of `name` stand among the parts of `whole` in their order: layers.3.down_proj in
 * model.layers.3.mlp.down_proj.weight. Parts end at dots; "*" stands for digits. */
bool lower_name_has(const char *whole, const char *name);

/* Whether operand i is read from the packed block: a weight, but no quantised one as plain values, which a launch writes. */
bool lower_is_packed(const Lower *l, const Binding *b, size_t i);
/* The index in the packing of operand i, a weight; SIZE_MAX: it is not packed yet. */
size_t lower_packed_at(const Lower *l, const Program *p, const Binding *b, size_t i);

/* "linear (norm, gate and up, glu)": family and ops of a group. */
const char *lower_describe(const Lower *l, const Group *g, Arena *a);
const char *lower_program_name(const Program *p, Arena *a); /* "decode 8", "step", "step 64" */

/* The result of a stage as text, for --dump and the golden tests. */
void print_select(const Lower *l, FILE *out);
void print_edges(const Lower *l, FILE *out);
void print_layout(const Lower *l, FILE *out);
void print_schedule(const Lower *l, FILE *out);
void print_memory(const Lower *l, FILE *out);

#endif
