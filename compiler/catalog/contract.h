/* contract.h - a contract as read, and how it meets a graph: matching and fixing constants. */
#ifndef FTXC_CONTRACT_H
#define FTXC_CONTRACT_H

#include "../../runtime/artifact/ftx_format.h"
#include "catalog.h"

enum {
    CONTRACT_MAX_ARGS = 24,
    CONTRACT_MAX_DIMS = 16,
    CONTRACT_MAX_CONSTS = 48,
    CONTRACT_MAX_CANDIDATES = 16,
    CONTRACT_MAX_COVERED = 16, /* ops of one match line */
};

typedef struct ContractArg {
    const char *name; /* "x"; of a named buffer "token" */
    int named;        /* FTX_NAMED_x; -1: bound by the match line */
    bool out;
    bool shaped; /* it has [..] */
    uint32_t rank;
    const char *dims[IR_MAX_RANK]; /* "M", "2*F" */
    DType type;                    /* storage asked for; DT_NONE: any */
    const char *type_of;           /* ":type(y)" */
    const char *stats_name;        /* ":stats(x)" */
    int stats_of;                  /* that arg's index; -1: these are no statistics */
} ContractArg;

/* A node of a match line: an op with its arguments, or the name of an arg. */
typedef struct Pattern Pattern;
struct Pattern {
    Op op;   /* OP_NONE: a name */
    int arg; /* index into args */
    bool optional;
    const Pattern *sub[IR_MAX_ARGS]; /* NULL: missing in the graph too */
};

typedef struct NamedText { /* NAME and an expression, where it stands */
    const char *name, *text;
    Loc loc;
} NamedText;

typedef struct MatchLine {
    int out; /* index into args of what it computes; -1: no buffer */
    const Pattern *root;
    struct {
        NamedText *at;
        size_t n, cap;
    } consts;
    Loc loc;
} MatchLine;

typedef struct ContractConst {
    NamedText value; /* text NULL: candidates, or of match lines */
    ConstKind kind;
    int64_t candidate[CONTRACT_MAX_CANDIDATES];
    size_t n_candidates;
    bool of_match; /* match lines say its value */
    bool placed;   /* ... but a consts line "NAME: NAME" its place */
} ContractConst;

struct Contract {
    const char *family;
    KernelDevice device;
    const char *template_name; /* NULL: cpu, matmul */
    uint32_t rank;             /* of two that cost the same, the one with the lower rank is taken */
    Loc loc;
    struct {
        ContractArg *at;
        size_t n, cap;
    } args;
    uint32_t operands; /* args that are pointers of the kernel; behind them stand those that are folded away */
    struct {
        MatchLine *at;
        size_t n, cap;
    } matches;
    struct {
        ContractConst *at;
        size_t n, cap;
    } consts;
    struct {
        NamedText *at;
        size_t n, cap;
    } fits, scratch, zeroed, tiled; /* tiled: NAME of an arg, rows of its tiles */
    struct {
        int matrix, bias, gain, shift; /* by index of args; gain 0: nothing is folded */
    } folded;
    NamedText leaves; /* NAME of an out arg, columns; text NULL: it leaves no statistics */
    RowsServed rows;
    NamedText grid[3], block, smem, moves, flops; /* text NULL: not given */
    bool matmul, overlap;
    bool unmatched; /* "match none": computes no op, the runtime launches it by family */
    uint32_t rate;  /* TFLOP/s that it reaches; 0: not said */
};

/* What is known of the statistics of a value's rows: the sum and the sum of squares of each part of their columns. */
typedef struct RowStats {
    bool wanted;     /* who writes the value is asked to leave them */
    int64_t columns; /* of a part, as they are left; the last has the rest; 0: they are not */
} RowStats;

/* The program a match is asked for. */
typedef struct ProgramFacts {
    const Graph *g; /* with the target's types */
    bool decode, encode;
    bool hidden;    /* encode, from the graph's entry on */
    int64_t bucket; /* 0: exact */
    int64_t t_max, s_max;
    uint32_t arch; /* 80, 90 ...; 0: CPU */
    int64_t smem;
    DType kv;
    uint32_t target;
    bool segments;    /* the kernel of the logits leaves segments of them, too: select knows once it has chosen it */
    bool entry_waits; /* the second kernel has constant FIRST: likewise */
    RowStats *stats;  /* of each value; NULL: nobody leaves any */
} ProgramFacts;

typedef struct Binding {
    const Contract *contract;
    const MatchLine *line;
    Id root;
    Id arg[CONTRACT_MAX_ARGS];        /* by index of args; 0: not bound */
    Id covered[CONTRACT_MAX_COVERED]; /* outermost first; ids() included */
    uint32_t n_covered;
    struct {
        const char *name;
        Dim dim;
    } dims[CONTRACT_MAX_DIMS];
    uint32_t n_dims;
} Binding;

/* How many ways there are to read a line: its add and mul turned round or not. */
uint32_t match_ways(const MatchLine *line);

/* Whether the line's tree, read in one of its ways, stands in the graph with its root at v.
 * uses: ir_uses of the graph. On false `reason` (may be NULL) says why, in the arena of reasons. */
bool match_at(const ProgramFacts *f, const uint32_t *uses, const Contract *c, const MatchLine *line, uint32_t way, Id v,
              Binding *b, const char **reason, Arena *scratch);

/* What a match costs and needs once its constants are fixed. */
typedef struct Fitted {
    Instance *instance;            /* in `keep` */
    int64_t scratch[4], zeroed[4]; /* bytes, as many as the contract has */
    int64_t tiled[4];              /* rows of a tile */
    int64_t leaves;                /* columns of a part of the statistics it leaves; 0: none */
    double moves, flops;           /* at T_MAX and S_MAX; moves < 0: not given */
} Fitted;

/* Fixes constants and expressions; false: `reason` says which line does not hold, with its values. */
bool contract_fit(const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch, Fitted *out,
                  const char **reason);

/* What of weights is computed into operand i when it is packed; all 0: nothing. */
Fold contract_arg_fold(const Binding *b, size_t i);

/* Every expression of a contract parses and knows its names: asked once, when it is read. */
bool contract_check(const Contract *c, Diag *d);

/* Rows of the tiles in which operand i is given as a map; 0: it is given as it is. */
int64_t contract_arg_tiled(const Binding *b, const Fitted *fit, size_t i);

/* Storage of operand i: what the contract asks for, else the value's own. */
DType contract_arg_type(const ProgramFacts *f, const Binding *b, size_t i);

#endif
