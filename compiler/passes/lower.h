/* lower.h - what the stages of one target hand to each other.
 *
 *   select    fills `groups` of every program: which kernel computes which values
 *   layout    gives every weight that a group reads its place in the packed block
 *   schedule  lists the launches, their instances (shared where equal) and what each reads
 *   memory    gives every buffer its offset, and the plan its operands */
#ifndef FTXC_LOWER_H
#define FTXC_LOWER_H

#include "../catalog/contract.h"
#include "pass.h"

/* A kernel and the values it computes. */
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
    uint32_t at;   /* WEIGHT: in the packing; NAMED: FTX_NAMED_x; SCRATCH, ZEROED: which of the contract's */
    int64_t tiled; /* VALUE, WEIGHT: rows of the tiles it is given in; 0: as it is */
    int64_t layer; /* NAMED k, v */
    int64_t bytes; /* SCRATCH, ZEROED, STATS */
} Operand;

typedef struct Launch {
    const Group *group;
    uint32_t instance; /* in plan->instances */
    const char *label;
    Operand *operands;
    uint32_t n_operands;
} Launch;

/* A piece of WORK between two launches; from memory. */
typedef struct Buffer {
    const char *name;
    Id value;                 /* 0: scratch */
    bool stats;               /* not the value itself: statistics of its rows */
    uint32_t launch, scratch; /* of scratch */
    uint32_t first, last;
    uint64_t bytes, offset;
} Buffer;

typedef struct Program {
    FtxProgramKind kind;
    bool optional; /* left out where a value has no kernel for it: the program for any T serves */
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
    const uint32_t *uses; /* how many read a value, as the cover that was taken has it; in scratch memory */
    struct Fits *fits;    /* of select: answers already known, in scratch memory */
} Program;

/* What zeroed lines ask for: one place for each (kernel family, name), as large as the largest. */
typedef struct Zeroed {
    const Contract *contract;
    uint32_t at;
    uint64_t bytes, offset;
} Zeroed;

typedef struct Lower {
    const Graph *source;
    Graph *g; /* the same values with this target's types */
    const Catalog *catalog;
    Target target;
    const Precision *precision;
    DType compute, kv;
    int *layer;    /* of each value, -1: none; [values.n] */
    bool *encoder; /* of each value: computed by encode programs; [values.n] */
    bool *after;   /* of each value: computed by programs that begin at the entry; [values.n] */
    bool *plain;   /* of each value: no program leaves statistics of its rows; [values.n] */
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

/* Stages: false with a reason in d. */
bool stage_select(Lower *l, Diag *d);
bool stage_layout(Lower *l, Diag *d);
bool stage_schedule(Lower *l, Diag *d);
bool stage_memory(Lower *l, Diag *d);

/* Graph passes. */
bool pass_simplify(Graph *g, const Precision *p, Diag *d);
bool pass_precision(Graph *g, const Precision *p, Diag *d);
DType precision_compute(const Precision *p, Target t);
void precision_apply(Graph *g, const Precision *p, DType compute);

/* Every program of the target, its facts, not yet selected. */
void lower_open(Lower *l, const Graph *g, const Catalog *c, Target t, const Precision *p, Packing *packing, Plan *plan);

/* The candidates of one value in one program, for select and `ftxc why`. */
typedef struct Candidate {
    Binding b;
    Fitted fit;
    bool fits;
    const char *reason; /* where it does not fit */
    double own_us;      /* of the kernel alone */
} Candidate;
typedef struct Candidates {
    Candidate *at;
    size_t n, cap;
} Candidates;
/* near: those that do not fit are listed too, with the reason. */
void select_candidates(const Lower *l, Program *p, const uint32_t *uses, Id v, bool near, Candidates *out);
bool select_program(const Lower *l, Program *p, Diag *d);

/* Where the packing has operand i of a group, a weight; SIZE_MAX: nowhere yet. */
size_t lower_packed_at(const Lower *l, const Program *p, const Binding *b, size_t i);

/* "linear (norm, gate and up, glu)": what a group does. */
const char *lower_describe(const Lower *l, const Group *g, Arena *a);
const char *lower_program_name(const Program *p, Arena *a); /* "decode 8", "step", "step 64" */

/* Text of a stage's result, for --dump and the golden tests. */
void print_select(const Lower *l, FILE *out);
void print_layout(const Lower *l, FILE *out);
void print_schedule(const Lower *l, FILE *out);
void print_memory(const Lower *l, FILE *out);

#endif
