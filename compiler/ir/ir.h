/* ir.h - the graph: what a model computes, between the spec and the kernels.
 *
 * A graph is an array of values in the order of computation. A value is an op, its arguments
 * (earlier values, by Id), its attributes, and what comes out: shape, storage type, compute type.
 * Ids are indices, so they print, compare, and survive a growing array. The text form
 *
 *     graph "fable"
 *     limits sequences=16 context=1024 tokens=512 kv_block=16 kv_pages=1024 logit_bias=0 end_ids=8
 *     facts clean                                           passes that have run; none: no line
 *     %1 = ids : [T] i32
 *     %2 = weight {name="model.embed_tokens.weight"} : [4096,384] bf16
 *     %3 = embed %1 %2 : [T,384] fp32                       ; "specs/llama.lua":12
 *     %9 = linear %3 %8 - : [T,640] fp32
 *     output %120
 *
 * round-trips: print(parse(t)) == t. A graph that is no decoder has a line `kind encoder` or `kind seq2seq` before the
 * values; an encoder may have `pooled %121` and `entry %9` after them, a decoder `states %121`. `-` is a missing argument, `#` begins a comment
 * line, `;` stands before the spec line. Strings take \" \\ and \xHH. */
#ifndef FTXC_IR_H
#define FTXC_IR_H

#include <stdint.h>
#include <stdio.h>

#include "../../runtime/base/arena.h"
#include "../../runtime/base/diag.h"
#include "../../runtime/base/dtype.h"
#include "../../runtime/artifact/ftx_format.h"

typedef uint32_t Id; /* 0: none */

typedef enum Op {
    OP_NONE,
#define OP(id, name, args, attrs, result) OP_##id,
#include "ops.def"
#undef OP
    OP_COUNT,
} Op;

enum { IR_MAX_ARGS = 8, IR_MAX_RANK = 4 };

typedef enum DimKind { DIM_CONST, DIM_T, DIM_S } DimKind;
typedef struct Dim {
    DimKind kind;
    int64_t n; /* DIM_CONST: the size; else the factor: [T*n] */
} Dim;

typedef struct Shape {
    uint32_t rank;
    Dim dim[IR_MAX_RANK];
} Shape;

typedef enum AttrKind { ATTR_INT, ATTR_FLOAT, ATTR_WORD } AttrKind;
typedef struct Attr {
    const char *name;
    AttrKind kind;
    int64_t i;
    double f; /* printed with 17 digits, so it survives */
    const char *s;
} Attr;

typedef struct Value {
    Op op;
    Id args[IR_MAX_ARGS];
    Attr *attrs; /* sorted by name; in the graph's arena */
    uint32_t n_attrs;
    Shape shape;
    DType type; /* storage */
    Loc loc;    /* the spec line that made it */
} Value;

/* What passes have established: `needs` and `gives` of passes.def. */
enum {
    IR_CLEAN = 1,   /* canonical form (passes/simplify.c), no dead value */
    IR_PRECISE = 2, /* a storage type on every value */
};

/* `limits` of the spec. The size of every buffer follows from them. */
typedef struct Limits {
    int64_t sequences;           /* largest S */
    int64_t context;             /* tokens of one sequence */
    int64_t tokens;              /* largest T */
    int64_t kv_block;            /* tokens of a KV page */
    int64_t kv_pages;            /* the most pages of the KV cache */
    int64_t logit_bias, end_ids; /* entries of one request */
    int64_t bad_words;           /* ids of all bad words of a request and of the model together */
    int64_t source;              /* tokens of a source text; 0: the model reads none */
    int64_t sources;             /* sources kept at the same time: one for each running request */
    int64_t beams;               /* beams of a request; 0, 1: no beam search */
    int64_t snapshots;           /* copies of a sequence's recurrent states, for others that begin alike */
    int64_t ranks;               /* devices that compute together, each with its part of the weights; 0, 1: one */
} Limits;

typedef struct Graph {
    const char *name;
    Limits limits;
    struct {
        Value *at;
        size_t n, cap;
    } values;       /* [0] is unused */
    uint32_t kind;  /* FtxModelKind of ftx_format.h */
    Id output;      /* the sampled tokens; of an encoder the hidden states */
    Id logits;      /* the argument of the output where that is sample or beam; else 0 */
    Id pooled;      /* encoder: one vector for each sequence; 0: none */
    Id states;      /* decoder: the states of the last layer, a result beside the tokens; 0: they are none */
    Id entry;       /* encoder: the value that a caller may bring in place of ids; 0: none */
    uint32_t facts; /* which passes have run: IR_CLEAN ... */
    Arena *keep;    /* lives as long as the graph */
    Arena *scratch; /* emptied after every pass */
} Graph;

Graph *ir_graph_new(const char *name);
void ir_graph_close(Graph *g);

/* Appends a value; checks nothing (ir_verify does). args: IR_MAX_ARGS ids, 0 where missing. */
Id ir_value_add(Graph *g, Op op, const Id args[IR_MAX_ARGS], Shape shape, DType type, Loc loc);
static inline Value *ir_value(const Graph *g, Id id)
{
    return &g->values.at[id];
}

void ir_attr_int(Graph *g, Id v, const char *name, int64_t i);
void ir_attr_float(Graph *g, Id v, const char *name, double f);
void ir_attr_word(Graph *g, Id v, const char *name, const char *s);
const Attr *ir_attr(const Value *v, const char *name); /* NULL: not there */
/* The attribute, or its default in ops.def; asserts that the op has such an attribute. */
int64_t ir_int(const Value *v, const char *name);
double ir_float(const Value *v, const char *name);
const char *ir_word(const Value *v, const char *name);

Shape ir_shape(uint32_t rank, Dim a, Dim b, Dim c);
Dim ir_const(int64_t n);
Dim ir_T(void);
Dim ir_S(void);
bool ir_shape_equal(Shape a, Shape b);
int64_t ir_shape_elements(Shape s, int64_t T, int64_t S); /* T, S: values for the symbols */
const char *ir_shape_text(Arena *a, Shape s);             /* "[T,384]" */

/* The shape and type of an op's result; false: the arguments do not fit, d says why. The spec's `nn.*` and the verifier
 * both use it. attrs: those that are set, in any order; the others have the defaults of ops.def. Ops on weights keep the
 * type of their arguments, tables are fp32, ids and tokens i32; activations get `type`. For WEIGHT, *shape is read. */
bool ir_infer(const Graph *g, Op op, const Id args[IR_MAX_ARGS], const Attr *attrs, uint32_t n_attrs, DType type,
              Loc loc, Shape *shape, DType *out, Diag *d);

/* Removes dead values, those that no output needs, and renumbers the rest. */
void ir_sweep(Graph *g);
/* How many times each value is read, as an argument or as an output of the graph; [values.n], in g->scratch. */
uint32_t *ir_uses(const Graph *g);
/* How many launches may read each value: readers of a view read what it is a view of. */
uint32_t *ir_readers(const Graph *g);
/* Which values the encoder computes: all of an encoder model, none of a decoder, and of seq2seq those that the keys
 * and values of the source depend on. [values.n], in g->scratch. */
bool *ir_encoder_side(const Graph *g);

/* Which values must be computed when the caller brings the entry: those that the output and the pooled vector depend
 * on, without the entry itself and what only the entry depends on. [values.n], in g->scratch. */
bool *ir_after_entry(const Graph *g);

/* The first value of v's layer: what v is computed of by first arguments, back to the sum (or the embedding) that the layer
 * reads. Attention and recurrences of one layer have one beginning. */
Id ir_layer_begin(const Graph *g, Id v);

/* How many devices share the model; 1: it is not cut. */
int64_t ir_ranks(const Graph *g);

/* What the graph's output reads if it is sample or beam; else 0. */
Id ir_logits(const Graph *g);

bool ir_verify(const Graph *g, Diag *d);
void ir_print(const Graph *g, FILE *out);
Graph *ir_parse(const char *file, const char *text, Diag *d); /* NULL: d says why */

Op ir_op_parse(const char *name); /* OP_NONE: no such op */
const char *ir_op_name(Op op);
const char *ir_op_args(Op op);
const char *ir_op_attrs(Op op);
const char *ir_op_result(Op op);
/* Argument i as declared: its name ("w") and whether it may be missing. False: the op has fewer. */
bool ir_op_arg(Op op, int i, char name[16], bool *optional);
/* Attribute i as declared in ops.def. False: the op has fewer. */
typedef struct AttrRule {
    char name[24];
    AttrKind kind;
    bool required;
    double f; /* default, of an integer too */
    char s[24];
} AttrRule;
bool ir_op_attr(Op op, int i, AttrRule *rule);
bool ir_op_attr_named(Op op, const char *name, AttrRule *rule);
bool ir_op_is_table(Op op);       /* FILL, ALIBI, SINUSOID, ROPE_TABLE: fp32 weights without a tensor */
bool ir_op_is_weight(Op op);      /* its result is known at compile time: WEIGHT .. ROPE_TABLE, without IDS */
bool ir_op_is_norm(Op op);        /* LAYERNORM, RMSNORM */
bool ir_op_is_recurrent(Op op);   /* it keeps a state of all tokens so far: CONVOLVE, RECUR */
bool ir_op_is_view(Op op);        /* its result is its argument in another shape, in the same memory */
Id ir_base(const Graph *g, Id v); /* v, or what it is a view of */

#endif
