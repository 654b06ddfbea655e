/* pass.h - the passes and the plan that they make.
 *
 *   simplify, precision                  once, on the graph
 *   select, edges, layout, schedule, memory     for each target; they fill a Plan */
#ifndef FTXC_PASS_H
#define FTXC_PASS_H

#include "../catalog/catalog.h"
#include "../ir/ir.h"
#include "../targets.h"
#include "../../runtime/artifact/ftx_format.h"
#include "../../runtime/base/packed.h"

/* Which weights of linears and of experts are stored as codes, and how. */
typedef struct Quantising {
    DType type;          /* INT8, INT4, FP8; NONE: no weight is quantised */
    DType head;          /* of the linear whose result is logits or pooled; FP32 to BF16: it is not quantised */
    int64_t group;       /* 32, 64, 128; 0: the largest of them that divides the elements of a row */
    bool zeros;          /* of INT4 weights: each group has a zero, too */
    const char **except; /* names of weights that are not quantised: * stands for digits */
    size_t n_except;
} Quantising;

typedef struct Precision {
    DType weights;     /* matrices as stored, but those that are quantised */
    DType compute;     /* DT_NONE: auto: fp32 on the CPU, the weights' type on CUDA */
    DType kv;          /* DT_NONE: auto: as compute */
    DType activations; /* FP8: linears with weights of fp8 round many rows to it; DT_NONE: auto: as compute */
    Quantising quant;
    bool fixed_sums; /* each value has one order of sums in all programs of a target */
    bool dequantise; /* codes of the checkpoint are read as numbers, and stored as the other weights are */
} Precision;

/* A weight of the packed block: a weight-only value of the graph, in one type, folded or not. */
typedef struct PackedWeight {
    Id value;
    DType type;
    Fold fold;
    uint32_t form;         /* of the catalog; 0: plain, row-major */
    const char *form_name; /* of quantised weights, in tiles (packed.h): the order of their codes; else NULL */
    int64_t group;         /* and elements of a row that share a scale; else 0 */
    PackedScales scales;   /* and what stands behind the codes */
    FtxWeightKind kind;
    uint32_t like; /* FtxWeight.like */
    uint64_t offset, bytes;
} PackedWeight;

/* What select knows of a launch, for `ftxc page`; no artifact holds it. */
typedef struct LaunchOrigin {
    const Id *values; /* that it computes, the root first */
    uint32_t n_values;
    double cost_us; /* at the largest T and S of its program */
} LaunchOrigin;

/* What the runtime needs for one target, in the structs of the artifact. Fields that are strings in the artifact hold
 * indices into `strings` here. */
typedef struct Plan {
    Target target;
    FtxPlan head;
    struct {
        Instance **at;
        size_t n, cap;
    } instances; /* one for all launches with equal constants */
    struct {
        FtxProgram *at;
        size_t n, cap;
    } programs;
    struct {
        FtxLaunch *at;
        size_t n, cap;
    } launches; /* .kernel indexes instances, .label strings */
    struct {
        LaunchOrigin *at;
        size_t n, cap;
    } origins; /* of each launch */
    struct {
        FtxOperand *at;
        size_t n, cap;
    } operands;
    struct {
        FtxBuffer *at;
        size_t n, cap;
    } buffers; /* .name indexes strings */
    struct {
        FtxCache *at;
        size_t n, cap;
    } caches;
    struct {
        const char **at;
        size_t n, cap;
    } strings; /* [0] is "" */
} Plan;

/* All plans of a compile share the packed weights: one block, one layout. */
typedef struct Packing {
    struct {
        PackedWeight *at;
        size_t n, cap;
    } weights;
    uint64_t bytes;
} Packing;

typedef struct Dump { /* --dump and --dump-dir; letters NULL: no dump */
    const char *letters, *dir;
} Dump;

/* Checks that each letter belongs to a pass or stage. */
bool passes_check_dump(const Dump *dump, Diag *d);

/* Graph passes in the order of passes.def; the graph is verified after each. */
bool passes_run_graph(Graph *g, const Precision *p, const Dump *dump, Diag *d);

/* Select, layout, schedule and memory for one target. Adds the weights that it needs to `packing`, which all targets
 * share: the size of the packed block is known after the last one. Does not change the graph; the plan points into the
 * graph's memory and lives as long. */
bool passes_run_target(const Graph *g, const Catalog *c, Target t, const Precision *p, Packing *packing, Plan *plan,
                       const Dump *dump, Diag *d);

/* One pass by name, for `ftxc opt`. */
bool passes_run_one(Graph *g, const char *name, const Precision *p, Diag *d);

/* `ftxc why`: the candidates for value v in each program, their costs, and the one taken. */
bool passes_why(const Graph *g, const Catalog *c, Target t, const Precision *p, Id v, FILE *out, Diag *d);

/* A kernel that could compute values of a launch. Texts are valid until the function that gets them returns. */
typedef struct Considered {
    uint32_t program, launch; /* the launch as counted in its program */
    Id root;                  /* the last value that the kernel would compute */
    bool fits;
    double cost_us;     /* if it fits: of its launch, without its inputs */
    const char *kernel; /* "linear (norm, gate and up)" */
    const char *entry;  /* NULL: it does not fit */
    const char *reason; /* why it was not taken; "": it was */
    const char *tuned;  /* its tuned constants, a line each */
} Considered;

/* `ftxc page`: calls `tell` for the kernels that could compute values of a launch, in the order of the graph. Launches
 * of one instance in a program are alike: only the first is told of. */
bool passes_considered(const Graph *g, const Catalog *c, Target t, const Precision *p,
                       void (*tell)(void *user, const Considered *x), void *user, Diag *d);

/* `ftxc tune`: adds a case for each kernel of the plan that has tuned constants, in the programs that are wanted. Their number
 * is their place among all programs of the target. */
typedef struct TuneCases TuneCases; /* tune/tune.h */
bool passes_tunable(const Graph *g, const Catalog *c, Target t, const Precision *p, bool any_order,
                    bool (*wanted)(void *user, FtxProgramKind kind, int64_t bucket), void *user, TuneCases *cases,
                    Arena *keep, Diag *d);

/* The borders between programs of fixed size and the next larger ones, for `ftxc tune`, with the entries of t.tuning followed. */
typedef struct TuneBorders TuneBorders; /* tune/tune.h */
bool passes_borders(const Graph *g, const Catalog *c, Target t, const Precision *p, TuneBorders *borders, Arena *keep,
                    Diag *d);

/* The values that are computed with weights of that name, [values.n]. Parts between dots may be left out: layers.3.down_proj. */
bool *passes_values_of(const Graph *g, const char *name, Arena *a);

#endif
