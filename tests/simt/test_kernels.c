/* test_kernels.c - every kernel family of the catalog on the host, over small odd shapes in every
 * type, against kernels/ref. `test_kernels long` sweeps wider and under all schedules, `test_kernels short tiles`
 * runs one test. */
#include "kernels.h"

bool wide;

/* --- rows: embeddings, norms, elementwise ops, the last token ------------------------------------ */

static void add_rows(Suite *s, DType t, int C)
{
    static const char *const ops[] = {
        "act gelu_erf", "act gelu_tanh",  "act relu", "act relu2",    "act sigmoid", "glu silu",
        "glu relu2",    "glu quick_gelu", "add",      "mul",          "gated",       "columns",
        "scale",        "norm 1",         "norm 2",   "norm and add", "last",        "embed",
        "positions",    "kinds",          "scaled",   "entry",        "slice",       "join",
        "clamp",        "limits",         "tempered", "id",           "rms",         "deviation",
        "places",       "xielu",          "converted"};

    for (size_t i = 0; i < LEN(ops); i++) {
        Ir g = begin();
        Case c = {0};
        const char *type = dtype_name(t), *op = ops[i];
        const int x = input(&g, strncmp(op, "glu", 3) == 0 || strcmp(op, "limits") == 0 ? 2 * C : C, t);

        mixed_step(&c);
        if (strncmp(op, "act", 3) == 0)
            add(&g, "act %%%d {kind=\"%s\"} : [T,%d] %s", x, op + 4, C, type);
        else if (strncmp(op, "glu", 3) == 0)
            add(&g, "glu %%%d {kind=\"%s\"} : [T,%d] %s", x, op + 4, C, type);
        else if (strcmp(op, "add") == 0 || strcmp(op, "mul") == 0)
            add(&g, "%s %%%d %%%d : [T,%d] %s", op, x, input(&g, C, t), C, type);
        else if (strcmp(op, "slice") == 0)
            add(&g, "slice %%%d {count=%d from=%d} : [T,%d] %s", x, C - C / 3 - C / 4, C / 4, C - C / 3 - C / 4, type);
        else if (strcmp(op, "join") == 0)
            add(&g, "join %%%d %%%d : [T,%d] %s", x, input(&g, C / 2 + 4, t), C + C / 2 + 4, type);
        else if (strcmp(op, "clamp") == 0)
            add(&g, "clamp %%%d {low=-0.3 high=0.4} : [T,%d] %s", x, C, type);
        else if (strcmp(op, "xielu") == 0)
            add(&g, "xielu %%%d %%%d : [T,%d] %s", x, weight(&g, "p", 3, 0, DT_FP32), C, type);
        else if (strcmp(op, "limits") == 0)
            add(&g, "glu_clamped %%%d {alpha=1.7 limit=0.6} : [T,%d] %s", x, C, type);
        else if (strcmp(op, "tempered") == 0)
            add(&g, "scale_by_position %%%d {by=0.7 every=4 offset=1} : [T,%d] %s", x, C, type);
        else if (strcmp(op, "rms") == 0)
            add(&g, "row_rms %%%d {floor=%g inverse=1} : [T,1] %s", x, C == 72 ? 1.5 : 1e-5, type);
        else if (strcmp(op, "deviation") == 0)
            add(&g, "row_rms %%%d {centred=1} : [T,1] %s", x, type);
        else if (strcmp(op, "gated") == 0)
            add(&g, "mul %%%d %%%d : [T,%d] %s", x, input(&g, 1, t), C, type);
        else if (strcmp(op, "columns") == 0)
            add(&g, "mul %%%d %%%d : [T,%d] %s", x, weight(&g, "w", C, 0, DT_FP32), C, type);
        else if (strcmp(op, "scale") == 0)
            add(&g, "scale %%%d {by=0.3} : [T,%d] %s", x, C, type);
        else if (strcmp(op, "converted") == 0) /* its result in another type */
            add(&g, "scale %%%d {by=1} : [T,%d] %s", x, C, dtype_name(t == DT_FP32 ? DT_BF16 : DT_FP32));
        else if (strcmp(op, "norm and add") == 0)
            add(&g, "add %%%d %%%d : [T,%d] %s", norm(&g, 1, x, "T", C, t), input(&g, C, t), C, type);
        else if (strncmp(op, "norm", 4) == 0)
            norm(&g, op[5] - '0', x, "T", C, t);
        else if (strcmp(op, "last") == 0)
            add(&g, "select_last %%%d : [S,%d] %s", x, C, type);
        else if (strcmp(op, "id") == 0)
            add(&g, "select_id %%%d {id=%d} : [S,%d] %s", x, C < 100 ? -1 : 3, C, type);
        else if (strcmp(op, "positions") == 0)
            add(&g, "add %%%d %%%d : [T,%d] %s", x,
                add(&g, "positions %%%d {offset=2} : [T,%d] %s", weight(&g, "p", 70, C, t), C, type), C, type);
        else if (strcmp(op, "kinds") == 0) {
            add(&g, "types %%%d : [T,%d] %s", weight(&g, "s", 3, C, C < 100 ? t : DT_BF16), C, type);
            c.encode = true;
        } else if (strcmp(op, "places") == 0)
            add(&g, "positions %%%d {offset=2} : [T,%d] %s", weight(&g, "p", 70, C, C < 100 ? t : DT_BF16), C, type);
        else if (strcmp(op, "scaled") == 0)
            add(&g, "scale %%%d {by=1.5} : [T,%d] %s", x, C, type);
        else if (strcmp(op, "entry") == 0) { /* the embedding of an encoder */
            const int p = add(&g, "positions %%%d {offset=2} : [T,%d] %s", weight(&g, "p", 70, C, t), C, type);

            norm(&g, 2, add(&g, "add %%%d %%%d : [T,%d] %s", x, p, C, type), "T", C, t);
            c.encode = true;
        }
        take(s, &g, &c, op);
    }
}

/* The row of the token before, of an encoder. w: the type of the first one. */
static void add_previous(Suite *s, DType t, DType w, int C)
{
    Ir g = {.text = "graph \"case\"\nlimits sequences=7 context=64 tokens=64 kv_block=8 kv_pages=72 logit_bias=4 "
                    "end_ids=4\nkind encoder\n"};
    Case c = {.encode = true};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = input(&g, C, t);
    add(&g, "previous %%%d %%%d : [T,%d] %s", x, weight(&g, "f", 1, C, w), C, dtype_name(t));
    set_rows(&c, 3, 0, (const int[][2]){{20, 20}, {1, 1}, {31, 31}});
    take(s, &g, &c, "previous");
}

/* The rows around each token; a text is shorter than the reach. */
static void add_neighbours(Suite *s, DType t, int C, int from, int count, bool ring)
{
    Ir g = {.text = "graph \"case\"\nlimits sequences=7 context=64 tokens=64 kv_block=8 kv_pages=72 logit_bias=4 "
                    "end_ids=4\nkind encoder\n"};
    Case c = {.encode = true};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = input(&g, C, t);
    add(&g, "neighbours %%%d {count=%d from=%d%s} : [T,%d] %s", x, count, from, ring ? " ring=1" : "", C * count,
        dtype_name(t));
    set_rows(&c, 3, 0, (const int[][2]){{20, 20}, {1, 1}, {31, 31}});
    take(s, &g, &c, "neighbours");
}

/* Sums over a token and those before it, with an activation behind them or not. */
typedef struct Convolution {
    DType t, w;
    int C, taps;
    bool bias;
    const char *act; /* "": none */
    int run;         /* tokens of a run */
    int rows; /* of a decode step; 0: generated tokens, prompts shorter and longer than the taps' reach, chunks of prompts */
    int from; /* > 0: x is a slice, behind so many columns of a value that has 12 more */
} Convolution;

static void add_convolve(Suite *s, const Convolution *v)
{
    static const int mixed[][2] = {{1, 1}, {1, 17}, {2, 2}, {3, 30}, {9, 40}, {1, 5}, {20, 20}};
    const char *type = dtype_name(v->t);
    Ir g = begin();
    Case c = {.use = {{"RUN", v->run}}, .n_use = v->run ? 1 : 0};
    const int all = input(&g, v->from ? v->from + v->C + 12 : v->C, v->t);
    const int x = v->from ? add(&g, "slice %%%d {count=%d from=%d} : [T,%d] %s", all, v->C, v->from, v->C, type) : all;
    const int w = weight(&g, "w", v->C, v->taps, v->w);
    char bias[16] = "-", name[100];

    if (v->bias)
        snprintf(bias, sizeof bias, "%%%d", weight(&g, "b", v->C, 0, v->w));
    const int y = add(&g, "convolve %%%d %%%d %s {layer=0} : [T,%d] %s", x, w, bias, v->C, type);

    if (*v->act)
        add(&g, "act %%%d {kind=\"%s\"} : [T,%d] %s", y, v->act, v->C, type);
    if (v->rows)
        decode_step(&c, v->rows);
    else
        set_rows(&c, 7, 2, mixed);
    snprintf(name, sizeof name, "convolve %s C=%d taps=%d %s run=%d rows=%d from=%d", type, v->C, v->taps, v->act,
             v->run, v->rows, v->from);
    take(s, &g, &c, name);
}

static void add_convolutions(Suite *s)
{
    static const Convolution some[] = {
        {DT_FP32, DT_FP32, 36, 3, false, "", 0, 0, 0},      {DT_BF16, DT_BF16, 264, 4, true, "silu", 4, 0, 0},
        {DT_FP16, DT_FP16, 130, 2, true, "", 16, 0, 0},     {DT_BF16, DT_FP32, 1032, 3, false, "silu", 16, 0, 0},
        {DT_FP32, DT_BF16, 72, 16, true, "", 4, 0, 0},      {DT_BF16, DT_BF16, 37, 5, true, "gelu_tanh", 8, 0, 0},
        {DT_FP16, DT_FP16, 36, 4, false, "silu", 32, 0, 0}, {DT_BF16, DT_BF16, 72, 4, false, "silu", 1, 0, 0},
        {DT_BF16, DT_BF16, 264, 4, false, "silu", 0, 7, 0}, {DT_FP32, DT_FP32, 130, 16, true, "", 16, 0, 0},
        {DT_FP16, DT_BF16, 34, 12, false, "relu", 4, 0, 0}, {DT_BF16, DT_BF16, 72, 4, true, "silu", 16, 0, 8},
        {DT_FP32, DT_BF16, 36, 3, false, "", 4, 0, 3},
    };

    for (size_t i = 0; i < LEN(some); i++)
        add_convolve(s, &some[i]);
    for (int t = 0; t < 3 && wide; t++)
        for (int taps = 2; taps <= 16; taps++)
            for (int run = 1; run <= 32; run *= run == 1 ? 4 : 2)
                add_convolve(s, &(Convolution){types[t], types[(t + taps) % 3], 30 + taps * 7 % 11, taps, taps % 2 == 0,
                                               run % 3 == 1 ? "silu" : "", run, 0, 0});
}

static void rows(void **state)
{
    Suite *s = open_suite("rows");

    (void)state;
    add_neighbours(s, DT_FP32, 36, -1, 3, false);
    add_neighbours(s, DT_BF16, 264, -2, 5, false);
    add_neighbours(s, DT_FP16, 130, -1, 1, true);
    add_neighbours(s, DT_BF16, 72, 1, 2, true);
    add_convolutions(s);
    add_previous(s, DT_FP32, DT_BF16, 36);
    add_previous(s, DT_BF16, DT_BF16, 1032);
    add_previous(s, DT_FP16, DT_FP32, 130);
    add_rows(s, DT_FP32, 36);
    add_rows(s, DT_FP16, 72);
    add_rows(s, DT_BF16, 264);
    add_rows(s, DT_BF16, 1032); /* norms by whole blocks */
    if (wide)
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 4; k++)
                add_rows(s, types[i], (const int[]){6, 130, 1024, 2056}[k]);
    finish(s, 1);
}

/* --- linear ------------------------------------------------------------------------------------- */

typedef struct Linear {
    DType t;
    int N, K, norm, bias;
    const char *end; /* "", "act", "glu", "add", "rest", "append", "head" */
    int rows;        /* 1 to 7: rows of a decode step; 0: the mixed step; more: tokens of one prompt */
    const char *target;
} Linear;

/* columns: width of the slices whose statistics lie beside x, which linear_tile_append norms by them; 0: none. */
static void add_linear(Suite *s, const Linear *l, int columns)
{
    const char *type = dtype_name(l->t);
    Ir g = begin();
    Case c = {.target = l->target, .kv = l->t, .columns = columns};
    int x = input(&g, l->K, l->t), y;
    const bool head = strcmp(l->end, "head") == 0;
    const char *rows = head ? "S" : "T";
    char name[200];

    if (head)
        x = add(&g, "select_last %%%d : [S,%d] %s", x, l->K, type);
    x = norm(&g, l->norm, x, rows, l->K, l->t);
    const int w = weight(&g, "w", l->N, l->K, l->t);
    if (l->bias) {
        const int b = weight(&g, "b", l->N, 0, l->t);

        y = add(&g, "linear %%%d %%%d %%%d : [%s,%d] %s", x, w, b, rows, l->N, head ? "fp32" : type);
    } else {
        y = add(&g, "linear %%%d %%%d - : [%s,%d] %s", x, w, rows, l->N, head ? "fp32" : type);
    }
    if (strcmp(l->end, "act") == 0)
        add(&g, "act %%%d {kind=\"gelu_tanh\"} : [T,%d] %s", y, l->N, type);
    else if (strcmp(l->end, "glu") == 0)
        add(&g, "glu %%%d {kind=\"silu\"} : [T,%d] %s", y, l->N / 2, type);
    else if (strcmp(l->end, "add") == 0)
        add(&g, "add %%%d %%%d : [T,%d] %s", y, input(&g, l->N, l->t), l->N, type);
    else if (strcmp(l->end, "rest") == 0) /* the residual is normalised first */
        add(&g, "add %%%d %%%d : [T,%d] %s", y, norm(&g, 2, input(&g, l->N, l->t), "T", l->N, l->t), l->N, type);
    else if (strcmp(l->end, "append") == 0) /* 2 heads, 1 kv head */
        add(&g, "append %%%d %%%d {layer=0 heads=2 kv_heads=1 head_dim=%d rot=%d} : [T,2,%d] %s", y,
            add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", l->N / 4 / 2 * 2, l->N / 8),
            l->N / 4, l->N / 4 / 2 * 2, l->N / 4, type);
    if (l->rows == 0)
        mixed_step(&c);
    else if (l->rows <= 7)
        decode_step(&c, l->rows);
    else {
        set_rows(&c, 1, 0, (const int[][2]){{l->rows, l->rows}});
        c.bucket = 64;
    }
    if (l->N > 1000) { /* blocks exchange data within a cluster only */
        c.only = "linear_swapped";
        c.blocks = 1;
        c.sms = 132;
    }
    if (columns)
        c.only = "linear_tile_append";
    snprintf(name, sizeof name, "linear %s N=%d K=%d norm=%d bias=%d %s rows=%d %s", type, l->N, l->K, l->norm, l->bias,
             l->end, l->rows, l->target ? l->target : "");
    take(s, &g, &c, name);
}

/* A linear layer of many rows, in tiles. bucket 0: exact, limits.tokens=1040; 1: exact, limits.tokens=16640. */
typedef struct Tiled {
    DType t;
    int N, K, bias;
    const char *end;
    int rows, bucket;
} Tiled;

/* Norms without a launch of their own. columns: width of the slices whose statistics are given, for the residual if
 * there is one, else for x (0: no norm); sums: whether y's statistics are written. */
typedef struct Left {
    Tiled of;
    int columns, sums;
} Left;

static void add_tiled(Suite *s, const Tiled *l, int columns, int sums)
{
    const char *type = dtype_name(l->t);
    const bool most = l->bucket == 1, rest = strcmp(l->end, "add") == 0;
    Ir g = {.text = ""};
    Case c = {.kv = l->t,
              .only = "linear_tile",
              .encode = true,
              .bucket = most ? 0 : l->bucket,
              .sms = 6,
              .columns = columns,
              .stats = sums};
    char name[200];
    int y;

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=7 context=1040 tokens=%d kv_block=8 kv_pages=72 "
                           "logit_bias=4 end_ids=4\n",
                           most ? 16640 : 1040);
    add(&g, "ids : [T] i32");
    const int x = norm(&g, columns && !rest ? 2 : 0, input(&g, l->K, l->t), "T", l->K, l->t);
    const int w = weight(&g, "w", l->N, l->K, l->t), b = l->bias ? weight(&g, "b", l->N, 0, l->t) : 0;

    set_rows(&c, 2, 0, (const int[][2]){{l->rows / 3, l->rows / 3}, {l->rows - l->rows / 3, l->rows - l->rows / 3}});
    if (b)
        y = add(&g, "linear %%%d %%%d %%%d : [T,%d] %s", x, w, b, l->N, strcmp(l->end, "fp32") == 0 ? "fp32" : type);
    else
        y = add(&g, "linear %%%d %%%d - : [T,%d] %s", x, w, l->N, strcmp(l->end, "fp32") == 0 ? "fp32" : type);
    if (strncmp(l->end, "gelu", 4) == 0 || strcmp(l->end, "silu") == 0)
        add(&g, "act %%%d {kind=\"%s\"} : [T,%d] %s", y, l->end, l->N, type);
    else if (rest)
        add(&g, "add %%%d %%%d : [T,%d] %s", y, norm(&g, columns ? 2 : 0, input(&g, l->N, l->t), "T", l->N, l->t), l->N,
            type);
    snprintf(name, sizeof name, "tiles %s N=%d K=%d bias=%d %s rows=%d of %d columns=%d sums=%d", type, l->N, l->K,
             l->bias, l->end, l->rows, l->bucket, columns, sums);
    take(s, &g, &c, name);
}

/* The QKV projection of a decode step of many rows, which writes keys and values to the cache. */
typedef struct TiledAppend {
    DType t;
    int H, G, E, rot, K, bias, rows, bucket;
} TiledAppend;

static void add_tiled_append(Suite *s, const TiledAppend *l)
{
    const char *type = dtype_name(l->t);
    Ir g = {0};
    Case c = {.kv = l->t, .only = "linear_tile_append", .decode = true, .bucket = l->bucket, .sms = 6};
    const int N = (l->H + 2 * l->G) * l->E;
    char name[200];
    int y;

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=160 context=64 tokens=512 kv_block=8 kv_pages=1200 "
                           "logit_bias=4 end_ids=4\n");
    add(&g, "ids : [T] i32");
    const int x = input(&g, l->K, l->t), w = weight(&g, "w", N, l->K, l->t);

    if (l->bias)
        y = add(&g, "linear %%%d %%%d %%%d : [T,%d] %s", x, w, weight(&g, "b", N, 0, l->t), N, type);
    else
        y = add(&g, "linear %%%d %%%d - : [T,%d] %s", x, w, N, type);
    if (l->rot)
        add(&g, "append %%%d %%%d {layer=0 heads=%d kv_heads=%d head_dim=%d rot=%d} : [T,%d,%d] %s", y,
            add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", l->rot, l->rot / 2), l->H, l->G,
            l->E, l->rot, l->H, l->E, type);
    else
        add(&g, "append %%%d - {layer=0 heads=%d kv_heads=%d head_dim=%d} : [T,%d,%d] %s", y, l->H, l->G, l->E, l->H,
            l->E, type);
    c.rows = c.decode_rows = l->rows;
    for (int r = 0; r < l->rows; r++) {
        c.row[r].q_len = 1;
        c.row[r].kv_len = 1 + r * 7 % 40;
    }
    snprintf(name, sizeof name, "tiles %s H=%d G=%d E=%d rot=%d K=%d bias=%d append rows=%d of %d", type, l->H, l->G,
             l->E, l->rot, l->K, l->bias, l->rows, l->bucket);
    take(s, &g, &c, name);
}

static void tiles(void **state)
{
    static const Tiled some[] = {
        {DT_FP16, 72, 200, 1, "gelu_erf", 100, 128},
        {DT_BF16, 136, 320, 0, "add", 70, 128},
        {DT_FP16, 72, 2056, 1, "add", 75, 128},
        {DT_BF16, 40, 136, 1, "fp32", 190, 256},
        {DT_FP16, 72, 328, 1, "add", 300, 512},
        {DT_BF16, 136, 456, 1, "add", 300, 640},
        {DT_FP16, 264, 328, 1, "add", 300, 0},
        {DT_BF16, 392, 64, 1, "gelu_erf", 129, 0},
        {DT_FP16, 136, 456, 0, "silu", 514, 0},
        {DT_FP16, 328, 456, 0, "add", 260, 0},
        {DT_BF16, 3080, 136, 1, "gelu_tanh", 70, 128},
        {DT_FP16, 104, 136, 1, "add", 100, 128},
        {DT_FP16, 200, 72, 1, "add", 66, 94},
        {DT_BF16, 8, 2056, 1, "add", 100, 100},
        {DT_FP16, 512, 200, 1, "add", 300, 1},
        {DT_FP16, 48, 48, 1, "add", 74, 128},
        {DT_BF16, 144, 40, 1, "", 20, 64},
        {DT_FP16, 3080, 72, 1, "gelu_erf", 9, 16},
    };
    /* one tile; K split in 2, in 4; 128 x 64; pairs of blocks whose warpgroups alternate, or compute a tile together */
    static const Left left[] = {
        {{DT_FP16, 3080, 136, 1, "gelu_erf", 70, 128}, 48, 0}, {{DT_BF16, 136, 1048, 1, "silu", 100, 128}, 48, 0},
        {{DT_FP16, 200, 1032, 1, "add", 70, 128}, 96, 1},      {{DT_BF16, 104, 2056, 0, "add", 75, 128}, 24, 1},
        {{DT_FP16, 840, 264, 1, "add", 140, 512}, 32, 1},      {{DT_BF16, 136, 456, 1, "add", 300, 640}, 0, 1},
        {{DT_FP16, 264, 328, 0, "add", 300, 0}, 112, 1},       {{DT_BF16, 392, 64, 1, "gelu_erf", 129, 0}, 64, 0},
        {{DT_FP16, 136, 456, 1, "", 514, 0}, 112, 0},          {{DT_BF16, 512, 200, 1, "add", 300, 1}, 128, 1},
    };
    /* 64 columns; 96; 64 and K split in 2; pairs of blocks with 112 columns */
    static const TiledAppend appended[] = {
        {DT_FP16, 2, 1, 40, 0, 72, 1, 70, 128},     {DT_BF16, 16, 2, 160, 0, 72, 0, 70, 128},
        {DT_BF16, 3, 1, 24, 16, 264, 1, 150, 512},  {DT_FP16, 4, 1, 24, 0, 2056, 1, 70, 128},
        {DT_FP16, 30, 4, 56, 56, 136, 1, 150, 512},
    };
    Suite *s = open_suite("tiles");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_tiled(s, &some[i], 0, 0);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        add_tiled(s, &left[i].of, left[i].columns, left[i].sums);
    for (size_t i = 0; i < sizeof appended / sizeof *appended; i++)
        add_tiled_append(s, &appended[i]);
    if (wide) {
        static const char *const ends[] = {"", "gelu_erf", "gelu_tanh", "add", "fp32"};

        for (int e = 0; e < 5; e++)
            for (int n = 0; n < 4; n++)
                for (int r = 0; r < 4; r++)
                    add_tiled(s,
                              &(Tiled){(n + e) % 2 ? DT_BF16 : DT_FP16, (const int[]){8, 120, 776, 1160}[n],
                                       (const int[]){1160, 520, 64, 8}[(n + r) % 4], (n + r + e) % 2, ends[e],
                                       (const int[]){65, 128, 200, 319}[r], (const int[]){128, 128, 512, 0}[r]},
                              0, 0);
    }
    finish(s, 37);
}

/* An LM head: logits and their segments. */
typedef struct Head {
    DType t;
    int N, K, norm, bias, rows, bucket;
    const char *only;
    int sms; /* 0: the default */
} Head;

static void add_head(Suite *s, const Head *h)
{
    const char *type = dtype_name(h->t);
    Ir g = {.text = "graph \"case\"\n"};
    Case c = {.kv = h->t, .only = h->only, .head = true, .decode = true, .bucket = h->bucket, .sms = h->sms};
    char name[200];
    int x, y;

    g.n += (size_t)snprintf(g.text, sizeof g.text,
                            "graph \"case\"\nlimits sequences=160 context=64 tokens=256 kv_block=8 kv_pages=1200 "
                            "logit_bias=4 end_ids=4 beams=%d\n",
                            h->norm == 1 ? 3 : 1);
    add(&g, "ids : [T] i32");
    x = add(&g, "select_last %%%d : [S,%d] %s", input(&g, h->K, h->t), h->K, type);
    x = norm(&g, h->norm, x, "S", h->K, h->t);
    const int w = weight(&g, "w", h->N, h->K, h->t), b = h->bias ? weight(&g, "b", h->N, 0, h->t) : 0;

    if (b)
        y = add(&g, "linear %%%d %%%d %%%d : [S,%d] fp32", x, w, b, h->N);
    else
        y = add(&g, "linear %%%d %%%d - : [S,%d] fp32", x, w, h->N);
    add(&g, "sample %%%d : [S] i32", y);
    c.rows = c.decode_rows = h->rows;
    for (int r = 0; r < h->rows; r++) {
        c.row[r].q_len = 1;
        c.row[r].kv_len = 1 + r * 7 % 40;
        c.params[r] = (FtxParams){.simple = r % 4 != 1,
                                  .logits = r % 4 == 2,
                                  .top_needed = r % 8 == 1   ? 0
                                                : r % 8 == 5 ? 128 /* top-p alone */
                                                : r % 4 == 3 ? 1 + r % 9
                                                             : 1,
                                  .temperature = r % 8 == 7 || r % 16 == 5 ? 0.7f
                                                 : r % 8 == 5              ? 1.6f
                                                                           : 0.0f,
                                  .top_p = r % 8 == 5 ? 0.9f : 1.0f,
                                  .repetition = 1.0f};
    }
    snprintf(name, sizeof name, "head %s N=%d K=%d norm=%d bias=%d rows=%d of %d", type, h->N, h->K, h->norm, h->bias,
             h->rows, h->bucket);
    take(s, &g, &c, name);
}

static void heads(void **state)
{
    static const Head some[] = {
        {DT_BF16, 777, 72, 1, 0, 1, 1, "linear_head", 2},
        {DT_FP16, 1030, 136, 2, 1, 3, 4, "linear_head", 3},
        {DT_BF16, 37, 264, 0, 1, 7, 8, "linear_head", 3},
        {DT_FP16, 600, 40, 1, 0, 6, 8, "linear_head", 1},
        {DT_BF16, 8201, 64, 1, 1, 9, 16, "linear_hopper_head", 132},
        {DT_FP16, 8200, 136, 0, 0, 37, 64, "linear_hopper_head", 132},
        {DT_FP16, 33801, 8, 1, 0, 19, 32, "linear_hopper_head", 3},
        {DT_FP16, 3080, 72, 0, 1, 70, 128, "linear_tile_head", 6},
        {DT_BF16, 3088, 136, 0, 0, 129, 256, "linear_tile_head", 6},
        {DT_FP16, 3192, 200, 0, 1, 150, 512, "linear_tile_head", 6},
        {DT_BF16, 1000, 136, 0, 1, 129, 192, "linear_batch_head", 3},
        {DT_FP16, 1160, 72, 0, 0, 140, 256, "linear_batch_head", 4},
        {DT_BF16, 3080, 200, 0, 1, 129, 512, "linear_batch_head", 5},
    };
    Suite *s = open_suite("heads");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_head(s, &some[i]);
    if (wide)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 4; k++) {
                static const char *const families[] = {"linear_head", "linear_hopper_head", "linear_tile_head",
                                                       "linear_batch_head"};
                static const int rows[][4] = {{1, 2, 4, 8}, {9, 16, 30, 64}, {65, 128, 160, 159}, {65, 190, 250, 400}};
                const int n[] = {600 + 211 * k, 8193 + 111 * k, 3072 + 104 * k, 1000 + 304 * k},
                          b[] = {8, 64, k % 2 ? 512 : 256, k == 1 ? 192 : 512};

                add_head(s, &(Head){k % 2 ? DT_BF16 : DT_FP16, n[i], 40 + 96 * k, i < 2 ? k % 2 : 0, k / 2, rows[i][k],
                                    b[i], families[i], 3 + k});
            }
    finish(s, 41);
}

static void linear(void **state)
{
    static const Linear some[] = {
        {DT_FP32, 37, 70, 0, 1, "", 0, NULL},       {DT_FP32, 40, 96, 1, 0, "glu", 3, NULL},
        {DT_FP32, 33, 100, 2, 1, "act", 0, NULL},   {DT_FP32, 96, 52, 0, 1, "add", 5, NULL},
        {DT_FP32, 96, 60, 1, 0, "append", 0, NULL}, {DT_FP32, 50, 64, 1, 0, "head", 0, NULL},
        {DT_FP32, 24, 64, 0, 0, "", 40, NULL},      {DT_BF16, 40, 96, 0, 1, "", 1, NULL},
        {DT_BF16, 72, 320, 1, 0, "glu", 4, NULL},   {DT_BF16, 37, 264, 2, 1, "act", 7, NULL},
        {DT_BF16, 96, 160, 0, 0, "add", 2, NULL},   {DT_BF16, 96, 96, 1, 1, "append", 3, NULL},
        {DT_BF16, 51, 112, 1, 0, "head", 6, NULL},  {DT_BF16, 40, 96, 0, 1, "", 0, NULL},
        {DT_BF16, 72, 300, 1, 0, "glu", 0, NULL},   {DT_BF16, 37, 200, 2, 1, "act", 0, NULL},
        {DT_BF16, 96, 96, 1, 0, "append", 0, NULL}, {DT_BF16, 51, 112, 2, 0, "head", 0, NULL},
        {DT_BF16, 64, 520, 1, 0, "", 40, NULL},     {DT_BF16, 40, 130, 2, 0, "add", 0, "sm_80"},
        {DT_BF16, 40, 130, 1, 0, "", 0, "sm_80"},   {DT_FP16, 40, 1096, 1, 1, "", 2, NULL},
        {DT_FP16, 72, 96, 2, 0, "glu", 0, NULL},    {DT_FP16, 96, 64, 0, 0, "append", 0, "sm_86"},
        {DT_FP16, 33, 136, 0, 1, "add", 33, NULL},  {DT_BF16, 40, 96, 0, 1, "rest", 3, NULL},
        {DT_FP16, 264, 136, 0, 0, "rest", 7, NULL}, {DT_BF16, 800, 264, 0, 1, "", 2, NULL},
        {DT_BF16, 72, 2120, 1, 0, "glu", 7, NULL},  {DT_FP16, 24, 2184, 0, 1, "add", 6, NULL},
    };
    /* Two of linear_hopper, then linear_swapped: a cluster of 8; tiles of 112 columns in clusters of 2, of 96 in clusters
     * of 4, of 72; the cache; after a layer norm that is folded into w */
    static const Linear hopper[] = {
        {DT_BF16, 72, 304, 1, 1, "glu", 33, NULL},    {DT_FP16, 40, 1096, 1, 0, "act", 9, NULL},
        {DT_FP16, 100, 600, 0, 1, "", 33, NULL},      {DT_BF16, 6146, 72, 0, 0, "glu", 40, NULL},
        {DT_FP16, 2056, 1032, 0, 1, "add", 20, NULL}, {DT_BF16, 9002, 136, 0, 1, "act", 9, NULL},
        {DT_FP16, 96, 72, 0, 1, "append", 30, NULL},  {DT_FP16, 2056, 1032, 2, 1, "act", 20, NULL},
        {DT_BF16, 96, 328, 2, 1, "append", 9, NULL},  {DT_FP16, 320, 520, 2, 1, "", 41, NULL},
        {DT_BF16, 9002, 1096, 2, 1, "act", 9, NULL},
    };
    Suite *s = open_suite("linear");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_linear(s, &some[i], 0);
    for (size_t i = 0; i < sizeof hopper / sizeof *hopper; i++)
        add_linear(s, &hopper[i], 0);
    add_linear(s, &(Linear){DT_FP16, 96, 328, 2, 1, "append", 50, NULL}, 16);
    add_linear(s, &(Linear){DT_BF16, 192, 264, 2, 1, "append", 33, NULL}, 32);
    if (wide) {
        static const char *const ends[] = {"", "act", "glu", "add", "append", "head"};

        for (int t = 0; t < 3; t++)
            for (int e = 0; e < 6; e++)
                for (int n = 0; n < (e == 3 ? 1 : 3); n++)
                    for (int k = 0; k < 4; k++)
                        add_linear(s,
                                   &(Linear){types[t], (const int[]){96, 160, 224, 32}[(e + k) % 4],
                                             (const int[]){104, 1000, 258, 2120}[(n + k) % 4], n, (e + n + k) % 2,
                                             ends[e], (const int[]){1, 0, 7, 50}[k], k == 2 ? NULL : "sm_90a"},
                                   0);
    }
    finish(s, 11);
}

/* --- sampling ----------------------------------------------------------------------------------- */

/* QKV projection and attention in one kernel, for few tokens: texts of these lengths. */
typedef struct FewTexts {
    DType t;
    int D, H, bias, n, length[5];
} FewTexts;

/* columns: width of the slices whose statistics are given for x, which is normalised; 0: no norm. */
static void add_few_texts(Suite *s, const FewTexts *l, int columns)
{
    const char *type = dtype_name(l->t);
    Ir g = {.text = "graph \"case\"\nlimits sequences=7 context=128 tokens=128 kv_block=8 kv_pages=72 logit_bias=4 "
                    "end_ids=4\nkind encoder\n"};
    Case c = {.kv = l->t, .only = "linear_attend", .encode = true, .bucket = 128, .columns = columns};
    int rows[5][2];
    char name[200];
    size_t n;

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = norm(&g, columns ? 2 : 0, input(&g, l->D, l->t), "T", l->D, l->t);
    const int qkv = product(&g, x, 3 * l->H * 64, l->D, l->bias, l->t);

    add(&g, "attend_packed %%%d {heads=%d kv_heads=%d head_dim=64 scale=0.125} : [T,%d] %s", qkv, l->H, l->H, l->H * 64,
        type);
    n = (size_t)snprintf(name, sizeof name, "texts %s D=%d H=%d bias=%d columns=%d of", type, l->D, l->H, l->bias,
                         columns);
    for (int i = 0; i < l->n; i++) {
        rows[i][0] = rows[i][1] = l->length[i];
        n += (size_t)snprintf(name + n, sizeof name - n, " %d", l->length[i]);
    }
    set_rows(&c, l->n, 0, rows);
    take(s, &g, &c, name);
}

static void few_texts(void **state)
{
    static const FewTexts some[] = {
        {DT_FP16, 768, 1, 1, 1, {128}},    {DT_BF16, 200, 2, 1, 3, {1, 40, 30}},
        {DT_FP16, 64, 2, 0, 2, {5, 3}},    {DT_BF16, 136, 1, 1, 5, {20, 17, 1, 60, 30}},
        {DT_FP16, 328, 3, 0, 2, {64, 33}},
    };
    Suite *s = open_suite("few_texts");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_few_texts(s, &some[i], 0);
    add_few_texts(s, &(FewTexts){DT_FP16, 328, 2, 1, 3, {1, 64, 50}}, 24);
    add_few_texts(s, &(FewTexts){DT_BF16, 72, 1, 1, 2, {70, 9}}, 8);
    if (wide)
        for (int i = 0; i < 24; i++)
            add_few_texts(s,
                          &(FewTexts){i % 2 ? DT_BF16 : DT_FP16,
                                      (const int[]){8, 72, 128, 264, 1024}[i % 5],
                                      1 + i % 3,
                                      i / 2 % 2,
                                      1 + i % 4,
                                      {1 + i, 1 + i * 7 % 32, 1 + i * 5 % 32, 1 + i * 11 % 32}},
                          0);
    finish(s, 53);
}

static void add_sample(Suite *s, int V, int kind, bool segments)
{
    static const FtxParams off = {.temperature = 1.0f, .top_p = 1.0f, .repetition = 1.0f};
    Ir g = begin();
    Case c = {.sms = 2, .segments = segments};
    const int x = add(&g, "select_last %%%d : [S,8] fp32", input(&g, 8, DT_FP32));
    char name[60];

    add(&g, "sample %%%d : [S] i32", add(&g, "linear %%%d %%%d - : [S,%d] fp32", x, weight(&g, "w", V, 8, DT_FP32), V));
    if (kind % 2)
        decode_step(&c, 5);
    else
        mixed_step(&c);
    for (int r = 0; r < c.rows; r++) {
        FtxParams *p = &c.params[r];
        const int n = kind * 7 + r;

        *p = off;
        p->seed_low = (unsigned)n * 977u;
        p->seed_high = (unsigned)r + 5;
        p->temperature = n % 5 == 4 ? 0.0f : n % 2 ? 0.7f : 1.3f;
        p->simple = kind == 0 || (segments && n % 5 == 4);
        if (p->simple) {
            p->temperature = 0.0f;
            p->top_needed = 1;
            continue;
        }
        p->top_k = n % 3 == 0 ? 3 : n % 3 == 1 ? 0 : V;
        p->top_p = n % 4 == 1 ? 0.6f : n % 4 == 2 ? 0.95f : 1.0f;
        p->min_p = n % 6 == 3 ? 0.05f : 0.0f;
        if ((n % 7 == 2 || n % 7 == 5) && n % 3 != 0) /* of 3 ids, 2 may be equally typical but for rounding */
            p->typical_p = 0.1f * (float)(1 + n % 9);
        p->repetition = n % 3 == 2 ? 1.3f : 1.0f;
        p->window = n % 4 == 3 ? 5 : 0;
        p->presence = n % 5 == 2 ? 0.4f : 0.0f;
        p->frequency = n % 5 == 3 ? 0.2f : 0.0f;
        p->ngram = n % 4 == 0 && V > 40 ? 2 : 0;
        p->n_bias = n % 3;
        p->n_words = n % 2 ? 0 : 1 + n % 12;
        p->n_ends = n % 4;
        p->min_length = n % 5 == 1 && V > 40 ? 60 : 0;
    }
    for (int r = kind % 2; r < c.rows && segments && kind > 0; r += 2) { /* samples from few logits */
        FtxParams *p = &c.params[r];
        const int k = (kind * 3 + r) % 8;

        *p = (FtxParams){
            .temperature = r % 4 < 2 ? 0.6f : 1.7f, .repetition = 1.0f, .seed_low = (unsigned)(k + kind) * 977u};
        p->top_k = 1 + k;
        p->top_needed = k ? 1 + k : 2;
        p->top_p = r % 3 ? 0.7f : 1.0f;
        p->min_p = r % 5 == 1 ? 0.1f : 0.0f;
        p->logits = r % 7 == 3;
        if ((kind + r / 2) % 2 && k < 4) { /* from a few more, by min-p or top-p alone, or from all */
            p->top_k = k == 0 || V <= 60 ? 0 : 6 + 12 * k;
            p->top_needed = p->top_k ? p->top_k : 128;
            p->top_p = p->top_k ? p->top_p : r % 4 == 1 ? 1.0f : 0.8f;
            p->min_p = p->top_k || p->top_p < 1.0f ? p->min_p : kind % 2 ? 0.2f : 0.0f;
        } else if ((kind + r / 2) % 2) { /* with processors that only lower logits */
            p->top_needed = 128;
            p->repetition = k % 2 ? 1.4f : 1.0f;
            p->frequency = k == 6 ? 0.3f : 0.0f;
            p->ngram = k == 7 ? 2 : k == 4 ? 1 : 0;
            p->n_words = k == 6 ? 7 : 0;
            p->n_ends = 3;
            p->min_length = k == 5 ? 60 : 0;
        }
    }
    snprintf(name, sizeof name, "sample V=%d kind=%d%s", V, kind, segments ? " of segments" : "");
    take(s, &g, &c, name);
}

/* Logits so close together, many of them equal, that the kept ones overflow the kernel's lists and bins. Row 0: top-p,
 * 1: top-k, 2: both and min-p, 3: min-p, 4: emits nothing, 5: typical-p of many, 6: of few. */
static void add_flat(Suite *s, int V, bool segments)
{
    Ir g = begin();
    Case c = {.sms = 2, .flat = 0.002f, .segments = segments};
    const int x = add(&g, "select_last %%%d : [S,8] fp32", input(&g, 8, DT_FP32));

    add(&g, "sample %%%d : [S] i32", add(&g, "linear %%%d %%%d - : [S,%d] fp32", x, weight(&g, "w", V, 8, DT_FP32), V));
    decode_step(&c, 7);
    for (int r = 0; r < c.rows; r++)
        c.params[r] = (FtxParams){.temperature = 1.0f,
                                  .repetition = 1.0f,
                                  .seed_low = (unsigned)r * 977u,
                                  .top_k = (const int[]){0, V - 1500, V - 1500, 0, 0, V - 1500, 20}[r],
                                  .top_p = (const float[]){0.83f, 1.0f, 0.83f, 1.0f, 1.0f, 1.0f, 1.0f}[r],
                                  .min_p = r == 2 || r == 3 ? 0.2f : 0.0f,
                                  .typical_p = r >= 5 ? 0.4f : 0.0f,
                                  .top_needed = segments && (r == 0 || r == 3) ? 128 : 0};
    take(s, &g, &c, segments ? "sample, flat, of segments" : "sample, flat");
}

/* Samples from few or from many of the largest logits; many are equal (levels: how many values differ). */
static void add_alike(Suite *s, int V, int levels, bool many)
{
    Ir g = begin();
    Case c = {.sms = 2, .flat = 1.0f, .levels = levels, .segments = true};
    const int x = add(&g, "select_last %%%d : [S,8] fp32", input(&g, 8, DT_FP32));
    char name[60];

    add(&g, "sample %%%d : [S] i32", add(&g, "linear %%%d %%%d - : [S,%d] fp32", x, weight(&g, "w", V, 8, DT_FP32), V));
    decode_step(&c, 7);
    for (int r = 0; r < c.rows; r++)
        c.params[r] = (FtxParams){.temperature = r % 2 ? 0.5f : 1.3f,
                                  .repetition = 1.0f,
                                  .seed_low = (unsigned)r * 977u,
                                  .top_k = many ? 9 * r : 1 + r,
                                  .top_needed = many ? 128
                                                : r  ? 1 + r
                                                     : 2,
                                  .top_p = r % 3 == 1 ? 0.61f : 1.0f,
                                  .min_p = r % 3 == 2 || (many && r == 0) ? 0.2f : 0.0f};
    snprintf(name, sizeof name, "sample V=%d of %d values%s", V, levels, many ? ", from many" : "");
    take(s, &g, &c, name);
}

static void sampling(void **state)
{
    Suite *s = open_suite("sample");

    (void)state;
    add_flat(s, 4096, false);
    add_flat(s, 10000, true);
    for (int many = 0; many < 2; many++) {
        add_alike(s, 4097, 1, many);
        add_alike(s, 4097, 40, many);
        add_alike(s, 900, 3, many);
    }
    for (int kind = 0; kind < (wide ? 24 : 5); kind++)
        for (int segments = 0; segments < 2; segments++) {
            add_sample(s, 50, kind, segments);
            add_sample(s, 4097, kind, segments);
            if (wide) {
                add_sample(s, 320, kind, segments);
                add_sample(s, 33000, kind, segments);
            }
        }
    finish(s, 31);
}

/* --- searching ---------------------------------------------------------------------------------- */

static void add_beam(Suite *s, int V, int beams, bool segments)
{
    Ir g = {.n = 0};
    Case c = {.sms = 8, .segments = segments, .decode = true, .rows = 1, .decode_rows = 1, .row = {{1, 1}}};
    const int slots = beams > 8 ? beams + 2 : 2 * beams + 2; /* with many lanes only one search fits */
    char name[60];

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=%d context=24 tokens=128 kv_block=8 kv_pages=72 "
                           "logit_bias=2 end_ids=2 bad_words=6 beams=%d\n",
                           slots + (slots % 5 == 0), beams);
    add(&g, "ids : [T] i32");
    const int x = add(&g, "select_last %%%d : [S,8] fp32", input(&g, 8, DT_FP32));
    const int logits = add(&g, "linear %%%d %%%d - : [S,%d] fp32", x, weight(&g, "w", V, 8, DT_FP32), V);

    add(&g, "beam %%%d %%%d : [S] i32", logits, add(&g, "sample %%%d : [S] i32", logits));
    snprintf(name, sizeof name, "beam V=%d of %d%s", V, beams, segments ? " by segments" : "");
    take(s, &g, &c, name);
}

/* Rows of one block and of several, rows of odd length, more lanes than a warp has. */
static void searching(void **state)
{
    Suite *s = open_suite("beam");

    (void)state;
    for (int segments = 0; segments < 2; segments++) {
        add_beam(s, 57, 4, segments);
        add_beam(s, 1100, 5, segments);
        add_beam(s, 16411, 3, segments);
        add_beam(s, 96, 33, segments);
        for (int i = 0; i < 4 && wide; i++)
            add_beam(s, (const int[]){60, 513, 8192, 33000}[i], (const int[]){2, 8, 5, 3}[i], segments);
    }
    finish(s, 43);
}

int main(int n, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows),
                                       cmocka_unit_test(linear),
                                       cmocka_unit_test(tiles),
                                       cmocka_unit_test(heads),
                                       cmocka_unit_test(attention),
                                       cmocka_unit_test(windows),
                                       cmocka_unit_test(texts),
                                       cmocka_unit_test(few_texts),
                                       cmocka_unit_test(blocks),
                                       cmocka_unit_test(sampling),
                                       cmocka_unit_test(searching),
                                       cmocka_unit_test(parts),
                                       cmocka_unit_test(codes_append),
                                       cmocka_unit_test(codes_decode),
                                       cmocka_unit_test(codes_prompts),
                                       cmocka_unit_test(routers),
                                       cmocka_unit_test(whole_routers),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(expert_tiles),
                                       cmocka_unit_test(experts_q),
                                       cmocka_unit_test(expert_tiles_q),
                                       cmocka_unit_test(batches),
                                       cmocka_unit_test(prompts),
                                       cmocka_unit_test(quantised),
                                       cmocka_unit_test(split_texts),
                                       cmocka_unit_test(orders),
                                       cmocka_unit_test(quantised_bulk),
                                       cmocka_unit_test(quantised_hopper),
                                       cmocka_unit_test(quantised_fp8),
                                       cmocka_unit_test(quantised_digits),
                                       cmocka_unit_test(fp8_by_fp8),
                                       cmocka_unit_test(inside),
                                       cmocka_unit_test(attention_of_normed_heads),
                                       cmocka_unit_test(recurrences)};

    wide = n > 1 && strcmp(words[1], "long") == 0;
    if (n > 2)
        cmocka_set_test_filter(words[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
