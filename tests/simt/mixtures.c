/* mixtures.c - routers and linear layers of experts. */
#include "kernels.h"

#include "runtime/base/packed.h"

/* A graph whose steps may have so many tokens. */
static Ir begin_long(int tokens)
{
    Ir g = {0};

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=7 context=%d tokens=%d kv_block=8 kv_pages=512 "
                           "logit_bias=4 end_ids=4\n",
                           tokens, tokens);
    add(&g, "ids : [T] i32");
    return g;
}

/* rows 1 to 7: a decode step; 0: the mixed step; more: one prompt in a program for any number of tokens. */
static void set_step(Case *c, int rows)
{
    if (rows == 0)
        mixed_step(c);
    else if (rows <= 7)
        decode_step(c, rows);
    else
        set_rows(c, 1, 0, (const int[][2]){{rows, rows}});
}

typedef struct Router {
    int X, k, bias, sorted, rows;
    const char *attrs;
    const char *target;
    int levels; /* of the logits, so that experts and groups are alike; 0: any numbers */
} Router;

static void add_router(Suite *s, const Router *r)
{
    Ir g = begin_long(300);
    Case c = {.target = r->target, .sorted = r->sorted, .flat = r->levels ? 1.0f : 0.0f, .levels = r->levels};
    const int x = input(&g, r->X, DT_FP32);
    char name[200];

    set_step(&c, r->rows);
    if (r->bias)
        add(&g, "route %%%d %%%d {k=%d%s} : [T,%d] i32", x, weight(&g, "b", r->X, 0, DT_FP32), r->k, r->attrs,
            2 * r->k);
    else
        add(&g, "route %%%d - {k=%d%s} : [T,%d] i32", x, r->k, r->attrs, 2 * r->k);
    snprintf(name, sizeof name, "route X=%d k=%d%s bias=%d sorted=%d rows=%d", r->X, r->k, r->attrs, r->bias, r->sorted,
             r->rows);
    take(s, &g, &c, name);
}

/* Norm, logits and choice in one launch: routes of a row of D activations. */
typedef struct WholeRouter {
    DType t;
    int D, X, k, norm, linear_bias, bias, sorted, rows;
    const char *attrs;
} WholeRouter;

static void add_whole_router(Suite *s, const WholeRouter *r)
{
    Ir g = begin_long(300);
    Case c = {.sorted = r->sorted, .only = "router"};
    const int x = norm(&g, r->norm, input(&g, r->D, r->t), "T", r->D, r->t), w = weight(&g, "w", r->X, r->D, r->t);
    const int lb = r->linear_bias ? weight(&g, "lb", r->X, 0, DT_FP32) : 0;
    const int b = r->bias ? weight(&g, "b", r->X, 0, DT_FP32) : 0;
    char name[200], linear_bias[16] = "-", bias[16] = "-";
    int y;

    set_step(&c, r->rows);
    if (lb)
        snprintf(linear_bias, sizeof linear_bias, "%%%d", lb);
    if (b)
        snprintf(bias, sizeof bias, "%%%d", b);
    y = add(&g, "linear %%%d %%%d %s : [T,%d] fp32", x, w, linear_bias, r->X);
    add(&g, "route %%%d %s {k=%d%s} : [T,%d] i32", y, bias, r->k, r->attrs, 2 * r->k);
    snprintf(name, sizeof name, "router %s D=%d X=%d k=%d%s norm=%d bias=%d,%d sorted=%d rows=%d", dtype_name(r->t),
             r->D, r->X, r->k, r->attrs, r->norm, r->linear_bias, r->bias, r->sorted, r->rows);
    take(s, &g, &c, name);
}

static void add_route_weights(Suite *s, DType t, int X, int k)
{
    Ir g = begin_long(300);
    Case c = {0};
    const int r = add(&g, "route %%%d - {k=%d} : [T,%d] i32", input(&g, X, DT_FP32), k, 2 * k);

    set_step(&c, 0);
    add(&g, "route_weights %%%d : [T,%d] %s", r, k, dtype_name(t));
    take(s, &g, &c, "weights of routes");
}

void routers(void **state)
{
    static const Router some[] = {
        {8, 2, 0, 1, 1, " renorm=1", NULL, 0},
        {8, 2, 0, 0, 3, "", NULL, 0},
        {5, 5, 1, 1, 7, " sigmoid=1 scale=2.5", NULL, 0},
        {60, 4, 0, 1, 0, "", "sm_80", 0},
        {128, 8, 0, 1, 1, " renorm=1", NULL, 0},
        {33, 6, 0, 1, 0, " chosen=1 scale=0.5", NULL, 0},
        {64, 8, 1, 1, 0, " sigmoid=1 renorm=1 groups=8 groups_kept=4 best_two=1 scale=2.5", NULL, 0},
        {48, 3, 1, 1, 5, " groups=6 groups_kept=2", NULL, 0},
        {256, 8, 1, 1, 0, " sigmoid=1 renorm=1 groups=8 groups_kept=4 best_two=1", "sm_80", 0},
        {1024, 8, 1, 1, 0, " groups=32 groups_kept=3", NULL, 0},
        {300, 9, 0, 1, 41, " renorm=1", NULL, 0},
        {40, 2, 0, 1, 41, " chosen=1 near=0.6", NULL, 0},
        {16, 3, 0, 1, 1, " chosen=1 near=0.3", NULL, 0},
        {40, 4, 1, 1, 150, " chosen=1", "sm_80", 0},
        {16, 1, 0, 1, 299, "", NULL, 0},
        {64, 8, 0, 1, 7, " sigmoid=1 groups=8 groups_kept=1", NULL, 2},
        {48, 12, 0, 1, 0, " chosen=1 groups=6 groups_kept=2", NULL,
         0}, /* experts below 0 are chosen, none of other groups */
    };
    Suite *s = open_suite("routers");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_router(s, &some[i]);
    add_route_weights(s, DT_FP32, 8, 1);
    add_route_weights(s, DT_BF16, 40, 7);
    finish(s, 71);
}

typedef struct Expert {
    DType t;
    int X, R, N, K, bias;
    const char *end; /* of the first layer: "", "glu", "act"; of the sum: "sum", "add"; it writes "parts", or it
                        reads them: "of parts", "add parts" */
    int rows;
    const char *target;
    int norm;         /* 1: of x, before the layer */
    const char *only; /* the kernel that runs; NULL: all */
} Expert;

typedef struct CodedExpert { /* its weights are quantised */
    Expert l;
    const char *codes;
    int group;
    PackedScales scales;
    TunedConst use[2]; /* values of tuned constants */
} CodedExpert;

/* q NULL: the weights are numbers */
static void add_coded(Suite *s, const Expert *l, const CodedExpert *q)
{
    const char *type = dtype_name(l->t);
    const bool parts = strstr(l->end, "parts") != NULL, add_to = strncmp(l->end, "add", 3) == 0;
    const bool sum = parts || add_to || strcmp(l->end, "sum") == 0;
    Ir g = begin_long(300);
    Case c = {
        .target = l->target, .only = l->only, .parts = parts ? l->R : 0, .as_parts = strcmp(l->end, "parts") == 0};
    const int x = norm(&g, l->norm, input(&g, sum ? l->R * l->K : l->K, l->t), "T", l->K, l->t),
              width = sum ? l->N : l->R * l->N;
    const int r = add(&g, "route %%%d - {k=%d renorm=1} : [T,%d] i32", input(&g, l->X, DT_FP32), l->R, 2 * l->R);
    const int numbers = weight(&g, "w", l->X * l->N, l->K, l->t);
    const int w = q ? add(&g, "quantise %%%d {group=%d scales=%d to=\"%s\"} : [%d,%d] %s", numbers, q->group,
                          (int)q->scales, q->codes, l->X * l->N, l->K, q->codes)
                    : numbers,
              b = l->bias ? weight(&g, "b", l->X * l->N, 0, l->t) : 0;
    char name[200], bias[16] = "-";
    int y;

    for (int i = 0; q && i < 2 && q->use[i].name; i++)
        c.use[c.n_use++] = q->use[i];
    set_step(&c, l->rows);
    if (b)
        snprintf(bias, sizeof bias, "%%%d", b);
    y = add(&g, "%s %%%d %%%d %%%d %s {experts=%d} : [T,%d] %s", sum ? "expert_sum" : "expert_linear", x, r, w, bias,
            l->X, width, type);
    if (strcmp(l->end, "glu") == 0)
        add(&g, "glu %%%d {kind=\"silu\"} : [T,%d] %s", y, width / 2, type);
    else if (strcmp(l->end, "act") == 0)
        add(&g, "act %%%d {kind=\"gelu_tanh\"} : [T,%d] %s", y, width, type);
    else if (add_to)
        add(&g, "add %%%d %%%d : [T,%d] %s", y, input(&g, width, l->t), width, type);
    snprintf(name, sizeof name, "expert %s %s X=%d R=%d N=%d K=%d bias=%d norm=%d %s rows=%d %s", type,
             q ? q->codes : "", l->X, l->R, l->N, l->K, l->bias, l->norm, l->end, l->rows, l->target ? l->target : "");
    take(s, &g, &c, name);
}

static void add_expert(Suite *s, const Expert *l)
{
    add_coded(s, l, NULL);
}

void whole_routers(void **state)
{
    static const WholeRouter some[] = {
        {DT_BF16, 264, 8, 2, 1, 0, 0, 1, 1, " renorm=1"},
        {DT_BF16, 2048, 128, 8, 1, 0, 0, 1, 1, " renorm=1"},
        {DT_FP16, 72, 40, 4, 1, 1, 0, 1, 3, " chosen=1"},
        {DT_BF16, 4096, 128, 8, 0, 0, 1, 1, 2, " sigmoid=1 renorm=1 scale=2.5"},
        {DT_FP16, 520, 64, 8, 1, 0, 1, 1, 7, " sigmoid=1 groups=8 groups_kept=4 best_two=1"},
        {DT_BF16, 8, 1, 1, 1, 0, 0, 1, 1, " sigmoid=1"},
        {DT_BF16, 1032, 60, 4, 0, 1, 1, 0, 5, ""},
        {DT_FP16, 136, 300, 9, 1, 1, 0, 1, 6, " renorm=1"},
        {DT_BF16, 136, 16, 2, 1, 0, 0, 1, 4, " chosen=1 near=0.5"},
    };
    Suite *s = open_suite("whole_routers");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_whole_router(s, &some[i]);
    finish(s, 75);
}

void experts(void **state)
{
    static const Expert some[] = {
        {DT_BF16, 8, 2, 72, 264, 0, "glu", 1, NULL, 0, NULL},
        {DT_BF16, 8, 2, 72, 264, 0, "add", 1, NULL, 0, NULL},
        {DT_FP16, 40, 8, 66, 72, 1, "glu", 3, NULL, 0, NULL},
        {DT_FP16, 40, 8, 35, 72, 1, "sum", 3, NULL, 0, NULL},
        {DT_FP32, 5, 3, 24, 36, 1, "glu", 7, NULL, 0, NULL},
        {DT_FP32, 5, 3, 20, 36, 1, "add", 7, NULL, 0, NULL},
        {DT_FP32, 3, 1, 7, 6, 0, "", 0, "sm_80", 0, NULL},
        {DT_FP32, 3, 1, 7, 6, 0, "sum", 0, "sm_80", 0, NULL},
        {DT_BF16, 33, 4, 34, 520, 1, "act", 0, NULL, 0, NULL},
        {DT_BF16, 33, 4, 34, 520, 0, "add", 0, NULL, 0, NULL},
        {DT_BF16, 3, 2, 36, 136, 1, "glu", 16, NULL, 0, NULL},
        {DT_FP16, 3, 2, 36, 136, 1, "add", 16, "sm_80", 0, NULL},
        {DT_BF16, 2, 1, 20, 40, 0, "", 60, NULL, 0, NULL},
        {DT_FP16, 2, 2, 17, 40, 0, "sum", 40, NULL, 0, NULL},
        {DT_BF16, 4, 2, 20, 36, 1, "glu", 5, NULL, 0, NULL},
        {DT_BF16, 4, 2, 20, 36, 1, "add", 5, NULL, 0, NULL},
        {DT_BF16, 3, 2, 34, 1368, 1, "glu", 20, NULL, 0, NULL},
        {DT_FP16, 3, 2, 19, 1368, 0, "add", 20, NULL, 0, NULL},
        {DT_BF16, 8, 2, 72, 264, 1, "glu", 1, NULL, 1, NULL},
        {DT_FP16, 40, 8, 66, 72, 0, "glu", 3, NULL, 1, NULL},
        {DT_BF16, 3, 2, 34, 2056, 1, "act", 7, NULL, 1, NULL},
        {DT_BF16, 33, 4, 19, 520, 0, "", 6, NULL, 1, NULL},
        {DT_FP16, 300, 9, 18, 40, 1, "", 5, NULL, 0, "expert_few_linear"},
    };
    Suite *s = open_suite("experts");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_expert(s, &some[i]);
    finish(s, 73);
}

/* Rows of a prompt: each expert has many. */
void expert_tiles(void **state)
{
    static const Expert some[] = {
        {DT_FP16, 6, 2, 40, 24, 0, "glu", 41, NULL, 0, NULL},
        {DT_BF16, 70, 3, 24, 40, 1, "glu", 150, "sm_80", 0, NULL},
        {DT_BF16, 70, 3, 24, 40, 1, "add", 150, NULL, 0, NULL},
        {DT_FP32, 4, 2, 18, 20, 1, "glu", 70, NULL, 0, NULL},
        {DT_FP32, 4, 2, 18, 20, 1, "sum", 70, NULL, 0, NULL},
        {DT_FP16, 3, 2, 208, 328, 1, "glu", 150, NULL, 0, NULL},
        {DT_FP16, 3, 2, 200, 328, 1, "add", 150, NULL, 0, NULL},
        {DT_FP16, 3, 2, 200, 328, 1, "parts", 150, NULL, 0, NULL},
        {DT_BF16, 40, 5, 10, 8, 0, "sum", 90, "sm_80", 0, NULL},
        {DT_FP16, 1, 1, 6, 8, 0, "add", 280, NULL, 0, NULL},
        /* three blocks of the simulated GPU: each has several units, and its warpgroups take turns */
        {DT_BF16, 2, 1, 400, 72, 1, "glu", 100, NULL, 0, "expert_hopper_linear"},
        {DT_BF16, 2, 2, 392, 72, 1, "act", 100, NULL, 0, "expert_hopper_linear"},
        {DT_FP16, 2, 1, 392, 456, 0, "parts", 66, NULL, 0, "expert_hopper_sum"},
        {DT_BF16, 9, 5, 136, 72, 1, "parts", 70, NULL, 0, "expert_hopper_sum"},
        {DT_BF16, 9, 8, 2048, 8, 0, "add parts", 5, NULL, 0, "expert_add"},
        {DT_FP16, 9, 3, 36, 8, 0, "of parts", 0, NULL, 0, "expert_add"},
        {DT_BF16, 9, 1, 7, 8, 0, "add parts", 40, NULL, 0, "expert_add"},
    };
    Suite *s = open_suite("expert_tiles");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_expert(s, &some[i]);
    finish(s, 73);
}

/* Quantised weights. */
void experts_q(void **state)
{
    static const CodedExpert some[] = {
        {{DT_BF16, 8, 2, 64, 256, 0, "glu", 1, NULL, 0, NULL}, "int4", 128, PACKED_FP16, {{0}}},
        {{DT_BF16, 8, 2, 48, 256, 0, "add", 1, NULL, 0, NULL}, "int4", 128, PACKED_FP16, {{0}}},
        {{DT_FP16, 40, 8, 32, 192, 1, "glu", 3, NULL, 1, NULL}, "int4", 32, PACKED_FP16_ZEROS, {{0}}},
        {{DT_FP16, 40, 8, 32, 192, 1, "sum", 3, NULL, 0, NULL}, "int4", 64, PACKED_FP32, {{0}}},
        {{DT_BF16, 3, 1, 16, 2112, 1, "act", 7, "sm_80", 1, NULL}, "int4", 64, PACKED_FP16_ZEROS, {{0}}},
        {{DT_BF16, 3, 2, 16, 1472, 0, "add", 7, "sm_80", 0, NULL}, "int4", 32, PACKED_FP32_MINIMA, {{0}}},
        {{DT_FP16, 5, 3, 48, 64, 1, "", 20, NULL, 0, NULL}, "int4", 16, PACKED_FP16, {{0}}},
        {{DT_BF16, 5, 3, 48, 64, 1, "sum", 20, NULL, 0, NULL}, "int8", 16, PACKED_FP16, {{0}}},
        {{DT_BF16, 8, 2, 32, 320, 1, "glu", 5, NULL, 1, NULL}, "int8", 64, PACKED_FP16_ZEROS, {{0}}},
        {{DT_FP16, 8, 2, 32, 1152, 0, "add", 6, NULL, 0, NULL}, "int8", 128, PACKED_FP32_MINIMA, {{0}}},
        {{DT_BF16, 8, 2, 32, 1408, 0, "glu", 40, NULL, 0, NULL}, "int8", 32, PACKED_FP32, {{0}}},
        {{DT_BF16, 8, 2, 32, 384, 0, "glu", 2, NULL, 1, NULL}, "fp8", 128, PACKED_FP16, {{0}}},
        {{DT_BF16, 8, 2, 32, 384, 1, "add", 9, NULL, 0, NULL}, "fp8", 32, PACKED_FP32, {{0}}},
        {{DT_FP16, 8, 2, 32, 1088, 1, "act", 4, "sm_80", 0, NULL}, "fp8", 64, PACKED_FP16, {{0}}},
        {{DT_FP16, 8, 4, 32, 128, 0, "sum", 12, NULL, 0, NULL}, "fp8", 64, PACKED_FP32, {{0}}},
        {{DT_BF16, 4, 2, 32, 1088, 0, "add", 8, NULL, 0, NULL},
         "int4",
         64,
         PACKED_FP16,
         {{"BLOCK_M", 2}, {"CHAINS", 1}}},
        {{DT_BF16, 4, 2, 32, 1088, 0, "glu", 8, NULL, 1, NULL},
         "int4",
         64,
         PACKED_FP16,
         {{"BLOCK_M", 4}, {"CHAINS", 2}}},
        {{DT_FP16, 4, 2, 32, 1088, 1, "", 8, NULL, 0, NULL},
         "int8",
         64,
         PACKED_FP16,
         {{"BRICK_K", 256}, {"CHAINS", 4}}},
        {{DT_FP16, 4, 2, 32, 1088, 1, "add", 8, NULL, 0, NULL}, "int4", 64, PACKED_FP16_ZEROS, {{"BRICK_K", 256}}},
        {{DT_BF16, 4, 2, 256, 512, 0, "add", 4, NULL, 0, NULL}, "int4", 64, PACKED_FP16, {{"CHAINS", 4}}},
    };
    Suite *s = open_suite("experts_q");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_coded(s, &some[i].l, &some[i]);
    finish(s, 77);
}

/* Quantised weights and rows of a prompt. */
void expert_tiles_q(void **state)
{
    static const CodedExpert some[] = {
        {{DT_BF16, 3, 2, 208, 320, 1, "glu", 150, NULL, 0, "expert_q_hopper_linear"}, "int4", 64, PACKED_FP16, {{0}}},
        {{DT_FP16, 3, 2, 208, 320, 0, "parts", 150, NULL, 0, "expert_q_hopper_sum"},
         "int4",
         32,
         PACKED_FP16_ZEROS,
         {{0}}},
        {{DT_BF16, 40, 5, 16, 64, 0, "parts", 90, NULL, 0, "expert_q_hopper_sum"},
         "int4",
         64,
         PACKED_FP32_MINIMA,
         {{0}}},
        {{DT_FP16, 2, 1, 400, 1152, 1, "act", 100, NULL, 0, "expert_q_hopper_linear"}, "int4", 128, PACKED_FP32, {{0}}},
        {{DT_BF16, 2, 1, 400, 448, 0, "parts", 66, NULL, 0, "expert_q_hopper_sum"}, "int8", 64, PACKED_FP16, {{0}}},
        {{DT_FP16, 6, 2, 48, 256, 0, "glu", 41, NULL, 0, "expert_q_hopper_linear"},
         "int8",
         32,
         PACKED_FP16_ZEROS,
         {{0}}},
        {{DT_BF16, 4, 2, 144, 384, 1, "", 70, NULL, 0, "expert_q_hopper_fp8"}, "fp8", 128, PACKED_FP16, {{0}}},
        {{DT_FP16, 4, 2, 144, 192, 1, "parts", 70, NULL, 0, "expert_q_hopper_fp8_sum"}, "fp8", 32, PACKED_FP32, {{0}}},
    };
    Suite *s = open_suite("expert_tiles_q");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_coded(s, &some[i].l, &some[i]);
    finish(s, 79);
}
