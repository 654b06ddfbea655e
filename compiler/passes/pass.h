/* pass.h - what a pass is, and the plan that the last of them leave behind.
 *
 *   simplify, precision             once, on the graph
 *   then for each target:           select, layout, schedule, memory   fill a Plan */
#ifndef FTXC_PASS_H
#define FTXC_PASS_H

#include "../catalog/catalog.h"
#include "../ir/ir.h"
#include "../targets.h"
#include "../../runtime/artifact/ftx_format.h"

typedef struct Precision {
    DType weights; /* matrices as stored */
    DType compute; /* DT_NONE: auto: fp32 on the CPU, the weights' type on CUDA */
    DType kv;      /* DT_NONE: auto: as compute */
} Precision;

/* A weight of the packed block: a weight-only value of the graph in one type, with what is folded into it. */
typedef struct PackedWeight {
    Id value;
    DType type;
    Fold fold;
    FtxWeightKind kind;
    uint64_t offset, bytes;
} PackedWeight;

/* What a target runs, in the artifact's own structs; strings are collected by the artifact
 * writer, so `str` fields hold indices into `strings` here. */
typedef struct Plan {
    Target target;
    FtxPlan head;
    struct {
        Instance **at;
        size_t n, cap;
    } instances; /* shared by launches with equal facts */
    struct {
        FtxProgram *at;
        size_t n, cap;
    } programs;
    struct {
        FtxLaunch *at;
        size_t n, cap;
    } launches; /* .kernel indexes instances, .label strings */
    struct {
        FtxOperand *at;
        size_t n, cap;
    } operands;
    struct {
        FtxBuffer *at;
        size_t n, cap;
    } buffers; /* .name indexes strings */
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

typedef struct Dump { /* where --dump=LETTERS goes; NULL letters: nowhere */
    const char *letters, *dir;
} Dump;

/* Graph passes in the order of passes.def, verified after each. */
bool passes_check_dump(const Dump *dump, Diag *d); /* that each letter is one of a pass */

bool passes_run_graph(Graph *g, const Precision *p, const Dump *dump, Diag *d);

/* Selection, layout, schedule and memory for one target; adds what it needs to `packing`, whose
 * size is final, for space_bytes of every plan, once the last target has run. The graph is not
 * changed; what the plan points to lives as long as it does. */
bool passes_run_target(const Graph *g, const Catalog *c, Target t, const Precision *p, Packing *packing, Plan *plan,
                       const Dump *dump, Diag *d);

/* One pass by name, for `ftxc opt`. */
bool passes_run_one(Graph *g, const char *name, const Precision *p, Diag *d);

/* `ftxc why`: candidates of the group that holds value v, cost of each, reason for the choice. */
bool passes_why(const Graph *g, const Catalog *c, Target t, const Precision *p, Id v, FILE *out, Diag *d);

#endif
