/* contract.h - a contract as read, and what becomes of it: a match in the graph, then an instance with constants. */
#ifndef FTXC_CONTRACT_H
#define FTXC_CONTRACT_H

#include "../../runtime/artifact/ftx_format.h"
#include "catalog.h"

enum {
    CONTRACT_MAX_ARGS = 64,
    CONTRACT_MAX_DIMS = 16,
    CONTRACT_MAX_CONSTS = 48,
    CONTRACT_MAX_VALUES = 16,  /* of a tune line */
    CONTRACT_MAX_COVERED = 16, /* ops of one match line */
    CONTRACT_MAX_BUFFERS = 8,  /* scratch, zeroed and tiled lines, of each */
    CONTRACT_MAX_REGIONS = 16, /* shared lines */
    CONTRACT_MAX_FORMS = 16,
    CONTRACT_MAX_SUMS = 8,  /* sums lines */
    CONTRACT_MAX_ORDER = 4, /* constants of order lines */
};

typedef struct Companion {
    const char *name;
    int named;         /* FTX_NAMED_x; -1: a buffer in the workspace */
    const char *bytes; /* expression over ROWS, COLUMNS, PARAM */
} Companion;

/* A form in which a value can lie in memory, as compiler/ir/forms.def declares it. Number 0 is plain. */
struct Form {
    const char *name;
    const char *instead; /* bytes of an element, over PARAM, in place of the plain value's; NULL: that is there, too */
    bool packed;         /* a form of quantised weights (runtime/base/packed.h) */
    struct {
        Companion *at;
        size_t n, cap;
    } companions;
    Loc loc;
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
    const char *of_name;           /* ":row_stats(x)": a companion of x */
    int of;                        /* index of that arg; -1: this is not a companion */
    uint32_t form, companion;      /* of the catalog; of the form */
    Loc loc;
} ContractArg;

/* A node of a match line's tree: an op with its arguments, or an argument of the kernel. */
typedef struct Pattern Pattern;
struct Pattern {
    Op op;         /* OP_NONE: a kernel argument */
    int arg;       /* index into args; -1, "_": any value, of which the kernel gets no pointer */
    uint32_t form; /* in which the kernel reads the argument */
    const char *form_name;
    bool optional;                   /* "b?": the graph's op may lack it */
    const Pattern *sub[IR_MAX_ARGS]; /* NULL: the graph's op must lack it */
};

typedef struct NamedText { /* a name, its expression, and their line */
    const char *name, *text;
    Loc loc;
} NamedText;

typedef struct MatchLine {
    int out;             /* the arg that receives the result; -1: the result is not written to a buffer of its own */
    const Pattern *root; /* an argument alone: the kernel converts its form */
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

typedef struct GivesLine { /* a form in which the kernel can write its result */
    int arg;
    uint32_t form;
    NamedText param; /* its number; 0: this instance cannot */
} GivesLine;

typedef struct SumsLine { /* the order in which the kernel adds what an op sums: "slices 2" */
    Op op;
    NamedText order; /* a word and its number */
} SumsLine;

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
        SumsLine *at;
        size_t n, cap;
    } sums;
    struct {
        int matrix, bias, gain, shift; /* indices of args; gain 0: no `folded` line */
    } folded;
    struct {
        GivesLine *at;
        size_t n, cap;
    } gives;
    bool no_plain; /* a form of `gives` stands in place of the plain value */
    struct {
        uint32_t capabilities;
        Loc loc;
    } needs;
    RowsServed rows;
    NamedText grid[3], block, smem, moves, flops; /* text NULL: not given */
    NamedText holds;                              /* text NULL: its dependents may start before its wait */
    bool matmul, overlap;
    bool waits;     /* with overlap: it reads nothing before its wait, weights neither */
    bool unmatched; /* "match none" */
    uint32_t rate;  /* percent of the target's fp32 or tensor rate; 0: not given */
};

typedef struct TuningEntry TuningEntry; /* tuning.h */

typedef struct TunedConst { /* a value for a tuned constant */
    const char *name;
    int64_t value;
} TunedConst;

/* The program in which a match is tried: what contracts may depend on. */
typedef struct ProgramFacts {
    const Graph *g; /* with the types of the target */
    bool decode, encode;
    bool hidden;    /* an encode program that begins at the graph's entry */
    int64_t bucket; /* T of a program of fixed size; 0: any T */
    int64_t t_max, s_max;
    const TargetFacts *target;
    DType kv, cross_kv, compute;
    bool free_dependents; /* FREE_DEPENDENTS of names.def; set by edges */
    bool fixed;           /* precision.sums is "fixed" */
    bool exact;           /* activations keep their type: precision.compute is given */
    bool bf16_rows;       /* on the CPU: linears round the rows that they read; precision.compute is bf16 */
    bool fp8_rows;        /* linears of more than 64 rows round them to fp8; precision.activations is fp8 */
    bool quantised;       /* a linear of the model has quantised weights */
    uint32_t packed;      /* forms in which quantised weights can lie, as bits */
    const char *name;     /* "decode 8" */
    Tuning *tuning;       /* what was measured on the target's GPU; NULL: nothing */
    /* [values.n][CONTRACT_MAX_FORMS]: the number of a value's form as its writer gives it; 0: no kernel writes the value in
     * this form. NULL: all values are plain */
    int64_t *params;
} ProgramFacts;

/* The number of a value's form in this program, of a quantised weight elements of a group; 0: it is not there in this form. */
int64_t facts_param(const ProgramFacts *f, Id v, uint32_t form);

typedef struct Binding {
    const Contract *contract;
    const MatchLine *line;
    Id root;
    Id arg[CONTRACT_MAX_ARGS]; /* the value bound to each arg; 0: none. A companion has the value that it belongs to */
    uint8_t form[CONTRACT_MAX_ARGS]; /* in which that value is read or written */
    Id columns
        [CONTRACT_MAX_ARGS]; /* the slice, or view of one, whose columns the kernel reads in the rows of arg; 0: arg itself */
    uint32_t gives;          /* the form in which the root is written */
    Id covered[CONTRACT_MAX_COVERED]; /* values that the kernel computes, the root first; ids() included */
    uint32_t n_covered;
    struct {
        const char *name;
        Dim dim;
    } dims[CONTRACT_MAX_DIMS];
    uint32_t n_dims;
    TunedConst
        use[CONTRACT_MAX_ORDER]; /* values for all constants of order lines; n_use 0: they are chosen as always */
    size_t n_use;
} Binding;

/* In how many ways a line's tree can be read: each add and mul with its arguments as written, or swapped. */
uint32_t match_ways(const MatchLine *line);

/* Whether the line's tree, read in one of its ways, matches the graph with its root at v, to be written in the form
 * `gives`. uses: how many values read each value. On false *reason, where asked for, says why. */
bool match_at(const ProgramFacts *f, const uint32_t *uses, const Contract *c, const MatchLine *line, uint32_t way, Id v,
              uint32_t gives, Binding *b, const char **reason, Arena *scratch);

/* Whether the contract can write its result in a form, for some constants. */
bool contract_gives(const Contract *c, uint32_t form);

/* A match with its constants chosen. */
typedef struct Fitted {
    Instance *instance;                                                  /* in `keep` */
    int64_t scratch[CONTRACT_MAX_BUFFERS], zeroed[CONTRACT_MAX_BUFFERS]; /* bytes, one for each line of the contract */
    int64_t tiled[CONTRACT_MAX_BUFFERS];                                 /* rows of a tile */
    int64_t param;                       /* the number of the form in which the root is written; plain: 1 */
    bool holds;                          /* the `holds` line */
    const char *sums[CONTRACT_MAX_SUMS]; /* one for each `sums` line: "slices 2" */
    double moves, flops;                 /* at T_MAX and S_MAX; moves < 0: not given */
    const NamedText *avoided;            /* the `prefer other` line that holds; NULL: none */
    const PreferLine **decided;          /* of each constant: the line that gave its value; NULL: none did */
    TuningEntry *tuned;                  /* the entry of a tuning file that was followed; NULL: none */
} Fitted;

/* Chooses the constants and evaluates the expressions; false: *reason names the line that does not hold and its values.
 * Follows the entry of f->tuning for this match, if there is one that applies (tuning.h). */
bool contract_fit(const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch, Fitted *out,
                  const char **reason);

/* The same with a given value for each tuned constant: its place in the tune line; those of other constants are not read. */
bool contract_fit_at(const ProgramFacts *f, const Binding *b, const size_t *places, Arena *keep, Arena *scratch,
                     Fitted *out, const char **reason);

/* The same with values for some tuned constants, by name; the others are chosen as always. */
bool contract_fit_with(const ProgramFacts *f, const Binding *b, const TunedConst *use, size_t n, Arena *keep,
                       Arena *scratch, Fitted *out, const char **reason);

/* Bytes of a companion, or of an element of a form that stands in place of the plain value, by their expression: of a value
 * with so many rows and columns and the form's number; false: they cannot be computed. */
bool form_bytes(const char *expression, int64_t rows, int64_t columns, int64_t param, int64_t *bytes);

/* The weights that are folded into operand i when it is packed; all 0: none. */
Fold contract_arg_fold(const Binding *b, size_t i);

/* Checks, when a contract is read, that every expression parses and uses known names only. */
bool contract_check(const Contract *c, Diag *d);

/* Rows of a tile of operand i if it is passed as a TMA descriptor; 0: it is passed as its address. */
int64_t contract_arg_tiled(const Binding *b, const Fitted *fit, size_t i);

/* Storage type of operand i: the one that the contract requires, else that of the value. */
DType contract_arg_type(const ProgramFacts *f, const Binding *b, size_t i);

#endif
