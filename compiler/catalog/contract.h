/* contract.h - a contract as read, and what becomes of it: a match in the graph, then an instance with constants. */
#ifndef FTXC_CONTRACT_H
#define FTXC_CONTRACT_H

#include "../../runtime/artifact/ftx_format.h"
#include "catalog.h"

enum {
    CONTRACT_MAX_ARGS = 24,
    CONTRACT_MAX_DIMS = 16,
    CONTRACT_MAX_CONSTS = 48,
    CONTRACT_MAX_VALUES = 16,  /* of a tune line */
    CONTRACT_MAX_COVERED = 16, /* ops of one match line */
    CONTRACT_MAX_BUFFERS = 4,  /* scratch, zeroed and tiled lines, of each */
    CONTRACT_MAX_REGIONS = 16, /* shared lines */
};

typedef struct ContractArg {
    const char *name; /* "x"; of a named buffer "token" */
    int named;        /* FTX_NAMED_x; -1: bound by the match line */
    bool out;
    bool shaped; /* sizes are given: [..] */
    uint32_t rank;
    const char *dims[IR_MAX_RANK]; /* "M", "2*F" */
    DType type;                    /* required storage type; DT_NONE: any */
    const char *type_of;           /* ":type(y)" */
    const char *stats_name;        /* ":stats(x)" */
    int stats_of;                  /* index of that arg; -1: this is not a statistics argument */
} ContractArg;

/* A node of a match line's tree: an op with its arguments, or an argument of the kernel. */
typedef struct Pattern Pattern;
struct Pattern {
    Op op;                           /* OP_NONE: a kernel argument */
    int arg;                         /* index into args */
    bool optional;                   /* "b?": the graph's op may lack it */
    const Pattern *sub[IR_MAX_ARGS]; /* NULL: the graph's op must lack it */
};

typedef struct NamedText { /* a name, its expression, and their line */
    const char *name, *text;
    Loc loc;
} NamedText;

typedef struct MatchLine {
    int out; /* the arg that receives the result; -1: the result is not written to a buffer of its own */
    const Pattern *root;
    struct {
        NamedText *at;
        size_t n, cap;
    } consts;
    Loc loc;
} MatchLine;

typedef struct ContractConst {
    NamedText value; /* text NULL: a tune line gives values, or match lines give the value */
    ConstKind kind;
    const char *values[CONTRACT_MAX_VALUES]; /* of a tune line, expressions */
    size_t n_values;
    bool reorders; /* an order line names it */
    bool of_match; /* match lines give the value */
    bool placed;   /* and a consts line "NAME: NAME" the place among the constants */
} ContractConst;

typedef struct PreferLine { /* values of tuned constants, where a condition holds */
    struct {
        NamedText *at;
        size_t n, cap;
    } values;
    NamedText when;   /* text NULL: always */
    const char *text; /* the line after its keyword */
    Loc loc;
} PreferLine;

typedef struct SharedRegion { /* of a block's shared memory */
    NamedText bytes;
    enum {
        SHARED_BEHIND,
        SHARED_OVER,
        SHARED_AFTER
    } place;       /* begins behind all above; where `other` begins; where it ends */
    int other;     /* index of a region above */
    int64_t align; /* and at a multiple of so many bytes */
} SharedRegion;

struct Contract {
    const char *family;
    KernelDevice device;
    const char *template_name; /* NULL: cpu, matmul */
    const char *variant;       /* "head"; NULL: the file has no variant lines for this kernel */
    struct {
        Const *at;
        size_t n, cap;
    } fixed;       /* numbers of the variant line */
    uint32_t rank; /* decides between candidates of the same cost: the lowest */
    Loc loc;
    struct {
        ContractArg *at;
        size_t n, cap;
    } args;
    uint32_t operands; /* the first so many args are pointers of the kernel; the rest are gain and shift of `folded` */
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
    } fits, prefer_other, scratch, zeroed, tiled;
    struct {
        PreferLine *at;
        size_t n, cap;
    } prefer;
    struct {
        SharedRegion *at;
        size_t n, cap;
    } shared;
    struct {
        int matrix, bias, gain, shift; /* indices of args; gain 0: no `folded` line */
    } folded;
    NamedText leaves; /* text NULL: the kernel writes no row statistics */
    struct {
        uint32_t capabilities;
        Loc loc;
    } needs;
    RowsServed rows;
    NamedText grid[3], block, smem, moves, flops; /* text NULL: not given */
    bool matmul, overlap;
    bool unmatched; /* "match none" */
    uint32_t rate;  /* percent of the target's fp32 or tensor rate; 0: not given */
};

/* Row statistics of a value: for each row, the sum and the sum of squares of each block of columns. A kernel that
 * normalises the rows reads them in place of the whole rows. */
typedef struct RowStats {
    bool wanted;     /* some reader could use them: the producer should write them */
    int64_t columns; /* of a block, as the producer writes them; the last block has the rest; 0: it writes none */
} RowStats;

/* The program in which a match is tried: what contracts may depend on. */
typedef struct ProgramFacts {
    const Graph *g; /* with the types of the target */
    bool decode, encode;
    bool hidden;    /* an encode program that begins at the graph's entry */
    int64_t bucket; /* T of a program of fixed size; 0: any T */
    int64_t t_max, s_max;
    const TargetFacts *target;
    DType kv;
    bool segments;    /* LOGIT_SEGMENTS of names.def; set once the kernel of the logits is chosen */
    bool entry_waits; /* ENTRY_WAITS of names.def; set once the second kernel is chosen */
    RowStats *stats;  /* of each value; NULL: no kernel writes any */
} ProgramFacts;

typedef struct Binding {
    const Contract *contract;
    const MatchLine *line;
    Id root;
    Id arg[CONTRACT_MAX_ARGS];        /* the value bound to each arg; 0: none */
    Id covered[CONTRACT_MAX_COVERED]; /* values that the kernel computes, the root first; ids() included */
    uint32_t n_covered;
    struct {
        const char *name;
        Dim dim;
    } dims[CONTRACT_MAX_DIMS];
    uint32_t n_dims;
} Binding;

/* In how many ways a line's tree can be read: each add and mul with its arguments as written, or swapped. */
uint32_t match_ways(const MatchLine *line);

/* Whether the line's tree, read in one of its ways, matches the graph with its root at v. uses: how many values read
 * each value. On false *reason, where asked for, says why. */
bool match_at(const ProgramFacts *f, const uint32_t *uses, const Contract *c, const MatchLine *line, uint32_t way, Id v,
              Binding *b, const char **reason, Arena *scratch);

/* A match with its constants chosen. */
typedef struct Fitted {
    Instance *instance;                                                  /* in `keep` */
    int64_t scratch[CONTRACT_MAX_BUFFERS], zeroed[CONTRACT_MAX_BUFFERS]; /* bytes, one for each line of the contract */
    int64_t tiled[CONTRACT_MAX_BUFFERS];                                 /* rows of a tile */
    int64_t leaves;             /* columns of a block of the row statistics that it writes; 0: none */
    double moves, flops;        /* at T_MAX and S_MAX; moves < 0: not given */
    const NamedText *avoided;   /* the `prefer other` line that holds; NULL: none */
    const PreferLine **decided; /* of each constant: the line that gave its value; NULL: none did */
} Fitted;

/* Chooses the constants and evaluates the expressions; false: *reason names the line that does not hold and its values. */
bool contract_fit(const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch, Fitted *out,
                  const char **reason);

/* The same with a given value for each tuned constant: its place in the tune line; those of other constants are not read. */
bool contract_fit_at(const ProgramFacts *f, const Binding *b, const size_t *places, Arena *keep, Arena *scratch,
                     Fitted *out, const char **reason);

/* The weights that are folded into operand i when it is packed; all 0: none. */
Fold contract_arg_fold(const Binding *b, size_t i);

/* Checks, when a contract is read, that every expression parses and uses known names only. */
bool contract_check(const Contract *c, Diag *d);

/* Rows of a tile of operand i if it is passed as a TMA descriptor; 0: it is passed as its address. */
int64_t contract_arg_tiled(const Binding *b, const Fitted *fit, size_t i);

/* Storage type of operand i: the one that the contract requires, else that of the value. */
DType contract_arg_type(const ProgramFacts *f, const Binding *b, size_t i);

#endif
