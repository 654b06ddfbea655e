/* attention.c - part of test_kernels: attention to the KV cache, cross-attention, attention within packed texts,
 * fused attention blocks, and the ops on heads one by one. */
#include "kernels.h"

/* --- append, attention -------------------------------------------------------------------------- */

typedef struct Attend {
    DType t, kv;
    int H, G, E, window;
    double softcap;
    int rows; /* 1 to 7: rows of a decode step; 0: the mixed step; above 7: tokens of a prompt */
    const char *target;
} Attend;

static void add_attend(Suite *s, const Attend *a)
{
    const char *type = dtype_name(a->t);
    Ir g = begin();
    Case c = {.target = a->target, .kv = a->kv, .sms = 3};
    const int x = input(&g, (a->H + 2 * a->G) * a->E, a->t);
    const int q = add(&g, "append %%%d - {layer=0 heads=%d kv_heads=%d head_dim=%d} : [T,%d,%d] %s", x, a->H, a->G,
                      a->E, a->H, a->E, type);
    char name[200];

    add(&g, "attend_paged %%%d {layer=0 kv_heads=%d scale=0.2 window=%d softcap=%g} : [T,%d] %s", q, a->G, a->window,
        a->softcap, a->H * a->E, type);
    if (a->rows == 0)
        mixed_step(&c);
    else if (a->rows <= 7)
        decode_step(&c, a->rows);
    else {
        set_rows(&c, 2, 0, (const int[][2]){{a->rows, a->rows}, {7, 30}});
        c.bucket = 64;
    }
    snprintf(name, sizeof name, "attend %s/%s H=%d G=%d E=%d window=%d softcap=%g rows=%d", type, dtype_name(a->kv),
             a->H, a->G, a->E, a->window, a->softcap, a->rows);
    take(s, &g, &c, name);
}

/* Long rows, which the kernel splits into chunks. With one multiprocessor a block takes whole groups of chunks;
 * with more, several blocks share a row. */
static void add_attend_long(Suite *s, DType t, int sms)
{
    const char *type = dtype_name(t);
    Ir g = {.text = "graph \"case\"\nlimits sequences=2 context=1600 tokens=64 kv_block=8 kv_pages=300 "
                    "logit_bias=4 end_ids=4\n"};
    Case c = {.kv = t, .sms = sms};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = input(&g, 12 * 16, t);
    const int q = add(&g, "append %%%d - {layer=0 heads=4 kv_heads=4 head_dim=16} : [T,4,16] %s", x, type);
    add(&g, "attend_paged %%%d {layer=0 kv_heads=4 scale=0.2 window=0 softcap=0} : [T,64] %s", q, type);
    set_rows(&c, 2, 2, (const int[][2]){{1, 1500}, {1, 700}});
    c.decode = true;
    c.bucket = 2;
    take(s, &g, &c, "attend, several chunks");
}

/* SPREAD 1: a block for each row and head set, and a few for the later groups of chunks. SPREAD 2: blocks take ranges. rows: of
 * eight; sms: as many blocks. */
static void add_attend_spread(Suite *s, DType t, int E, int warps, int rows, int spread, int sms)
{
    const char *type = dtype_name(t);
    Ir g = {.text = "graph \"case\"\nlimits sequences=8 context=1600 tokens=64 kv_block=8 kv_pages=600 "
                    "logit_bias=4 end_ids=4\n"};
    Case c = {.kv = t,
              .only = "attend_decode",
              .sms = sms,
              .decode = true,
              .bucket = 8,
              .n_use = 4,
              .use = {{"SPREAD", spread}, {"CHUNK", 128}, {"WARPS", warps}, {"BLOCKS", 1}}};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = input(&g, 8 * E, t);
    const int q = add(&g, "append %%%d - {layer=0 heads=4 kv_heads=2 head_dim=%d} : [T,4,%d] %s", x, E, E, type);
    add(&g, "attend_paged %%%d {layer=0 kv_heads=2 scale=0.2 window=0 softcap=0} : [T,%d] %s", q, 4 * E, type);
    set_rows(&c, rows, rows,
             (const int[][2]){{1, 700}, {1, 1}, {1, 1590}, {1, 128}, {1, 17}, {1, 600}, {1, 33}, {1, 1025}});
    take(s, &g, &c, spread == 1 ? "attend, a block for each row and head set" : "attend, ranges");
}

/* Heads and rows so many that a row's keys do not fit in shared memory at once. With 64 rows four warps take
 * turns at a row's tiles; with 256 rows one warp takes all of them. */
static void add_attend_brief(Suite *s, DType t, int rows)
{
    const char *type = dtype_name(t);
    Ir g = {0};
    Case c = {.kv = t, .only = "attend_brief"};

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=40 context=256 tokens=%d kv_block=8 kv_pages=80 "
                           "logit_bias=4 end_ids=4\n",
                           rows);
    add(&g, "ids : [T] i32");
    const int x = input(&g, 24 * 16, t);
    const int q = add(&g, "append %%%d - {layer=0 heads=8 kv_heads=8 head_dim=16} : [T,8,16] %s", x, type);
    add(&g, "attend_paged %%%d {layer=0 kv_heads=8 scale=0.2 window=0 softcap=0} : [T,128] %s", q, type);
    set_rows(&c, 3, 3, (const int[][2]){{1, 250}, {1, 17}, {1, 145}});
    c.decode = true;
    take(s, &g, &c, "attend, keys in turns");
}

/* A sliding window of several tiles of keys that begins inside a tile, for prompt chunks or for single tokens of
 * long sequences. */
static void add_attend_window(Suite *s, DType t, int E, int window, bool decode)
{
    const char *type = dtype_name(t);
    Ir g = {.text = "graph \"case\"\nlimits sequences=2 context=960 tokens=64 kv_block=8 kv_pages=170 "
                    "logit_bias=4 end_ids=4\n"};
    Case c = {.kv = t, .sms = 3, .bucket = decode ? 2 : 64, .decode = decode};
    char name[200];

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    const int x = input(&g, 4 * E, t);
    const int q = add(&g, "append %%%d - {layer=0 heads=2 kv_heads=1 head_dim=%d} : [T,2,%d] %s", x, E, E, type);
    add(&g, "attend_paged %%%d {layer=0 kv_heads=1 scale=0.2 window=%d softcap=0} : [T,%d] %s", q, window, 2 * E, type);
    if (decode)
        set_rows(&c, 2, 2, (const int[][2]){{1, 900}, {1, 333}});
    else
        set_rows(&c, 2, 0, (const int[][2]){{47, 900}, {17, 333}});
    snprintf(name, sizeof name, "attend %s E=%d, the last %d of 900 and 333, %s", type, E, window,
             decode ? "single tokens" : "chunks");
    take(s, &g, &c, name);
}

void windows(void **state)
{
    static const int some[] = {64, 65, 98, 105, 112, 127, 300, 600};
    Suite *s = open_suite("windows");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        add_attend_window(s, i % 2 ? DT_BF16 : DT_FP16, i % 3 ? 64 : 32, some[i], false);
        if (i % 2 == 0 || wide) {
            add_attend_window(s, DT_FP32, 24, some[i], i % 4 == 0);
            add_attend_window(s, i % 4 ? DT_BF16 : DT_FP16, 64, some[i], true);
        }
    }
    for (int w = 99; wide && w < 112; w++)
        add_attend_window(s, w % 2 ? DT_BF16 : DT_FP16, 64, w, w % 3 == 0);
    finish(s, 17);
}

/* Chunks by attend_prefill_hopper: pieces in which rows end, prefixes that end within tiles and pages, more pieces than
 * blocks. */
typedef struct Prompt {
    DType t;
    int H, G, E, window, page;
    double softcap;
    int sms, n, decode_rows;
    int row[4][2]; /* tokens, length with them */
} Prompt;

static void add_prompt(Suite *s, const Prompt *p)
{
    const char *type = dtype_name(p->t);
    Ir g = {.n = 0};
    Case c = {.kv = p->t, .sms = p->sms, .bucket = 512, .only = "attend_prefill_hopper"};
    char name[200];

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=4 context=960 tokens=512 kv_block=%d kv_pages=240 "
                           "logit_bias=4 end_ids=4\n",
                           p->page);
    add(&g, "ids : [T] i32");
    const int x = input(&g, (p->H + 2 * p->G) * p->E, p->t);
    const int q = add(&g, "append %%%d - {layer=0 heads=%d kv_heads=%d head_dim=%d} : [T,%d,%d] %s", x, p->H, p->G,
                      p->E, p->H, p->E, type);

    add(&g, "attend_paged %%%d {layer=0 kv_heads=%d scale=0.2 window=%d softcap=%g} : [T,%d] %s", q, p->G, p->window,
        p->softcap, p->H * p->E, type);
    set_rows(&c, p->n, p->decode_rows, p->row);
    snprintf(name, sizeof name, "prompts %s H=%d G=%d E=%d window=%d softcap=%g, %d of %d and so on", type, p->H, p->G,
             p->E, p->window, p->softcap, p->row[0][0], p->row[0][1]);
    take(s, &g, &c, name);
}

void prompts(void **state)
{
    static const Prompt some[] = {
        {DT_BF16, 4, 1, 128, 0, 16, 0, 2, 3, 1, {{1, 40}, {50, 300}, {33, 33}}},
        {DT_FP16, 2, 1, 64, 0, 8, 0, 1, 3, 0, {{130, 257}, {2, 900}, {97, 97}}},
        {DT_BF16, 3, 1, 96, 0, 8, 0, 3, 2, 0, {{70, 390}, {17, 129}}},
        {DT_FP16, 2, 2, 256, 0, 24, 0, 1, 2, 0, {{65, 200}, {3, 67}}},
        {DT_FP16, 2, 1, 128, 100, 8, 0, 2, 3, 1, {{1, 300}, {90, 333}, {5, 101}}},
        {DT_BF16, 4, 2, 64, 131, 8, 0, 3, 2, 0, {{100, 700}, {60, 60}}},
        {DT_BF16, 2, 1, 128, 0, 8, 20, 3, 1, 0, {{60, 200}}},
        {DT_BF16, 1, 1, 64, 25, 16, 0, 1, 2, 0, {{200, 200}, {4, 260}}},
    };
    Suite *s = open_suite("prompts");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_prompt(s, &some[i]);
    if (wide)
        for (int i = 0; i < 24; i++)
            add_prompt(s, &(Prompt){types[1 + i % 2],
                                    (const int[]){2, 3, 8, 1}[i % 4],
                                    (const int[]){1, 3, 2, 1}[i % 4],
                                    (const int[]){64, 96, 128, 256}[i / 4 % 4],
                                    i % 3 == 2 ? 60 + 9 * i : 0,
                                    8 * (1 + i % 3),
                                    i % 8 == 5 ? 15.0 : 0.0,
                                    1 + i % 3,
                                    3,
                                    i % 2,
                                    {{i % 2 ? 1 : 127, 128 + i}, {64 + i, 255 + 20 * i}, {2 + 7 * i, 2 + 7 * i}}});
    finish(s, 19);
}

static void add_append(Suite *s, DType t, DType kv, int E, int rot)
{
    Ir g = begin();
    Case c = {.kv = kv};
    const int x = input(&g, 4 * E, t);

    mixed_step(&c);
    if (rot)
        add(&g, "append %%%d %%%d {layer=0 heads=2 kv_heads=1 head_dim=%d rot=%d} : [T,2,%d] %s", x,
            add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", rot, rot / 2), E, rot, E,
            dtype_name(t));
    else
        add(&g, "append %%%d - {layer=0 heads=2 kv_heads=1 head_dim=%d} : [T,2,%d] %s", x, E, E, dtype_name(t));
    take(s, &g, &c, "append");
}

void attention(void **state)
{
    static const Attend some[] = {
        {DT_FP32, DT_FP32, 4, 2, 48, 0, 0, 0, NULL},  {DT_FP32, DT_FP32, 2, 2, 56, 0, 0, 4, NULL},
        {DT_FP32, DT_FP32, 3, 1, 24, 7, 20, 0, NULL}, {DT_FP32, DT_FP32, 2, 1, 72, 12, 0, 40, NULL},
        {DT_BF16, DT_BF16, 4, 2, 48, 0, 0, 0, NULL},  {DT_BF16, DT_BF16, 6, 1, 40, 0, 30, 5, NULL},
        {DT_BF16, DT_BF16, 4, 1, 64, 10, 0, 0, NULL}, {DT_BF16, DT_BF16, 2, 2, 24, 0, 0, 33, NULL},
        {DT_FP16, DT_FP16, 20, 2, 32, 0, 0, 3, NULL}, {DT_FP16, DT_FP16, 2, 1, 136, 5, 0, 0, NULL},
        {DT_FP32, DT_FP32, 3, 1, 176, 9, 0, 0, NULL}, {DT_FP32, DT_FP32, 2, 2, 144, 0, 0, 3, NULL},
        {DT_BF16, DT_FP32, 2, 1, 32, 0, 0, 0, NULL},  {DT_FP16, DT_FP16, 4, 2, 128, 0, 0, 50, "sm_86"},
    };
    Suite *s = open_suite("attend");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_attend(s, &some[i]);
    add_attend_long(s, DT_BF16, 1);
    add_attend_long(s, DT_FP16, 5);
    add_attend_spread(s, DT_BF16, 16, 4, 8, 1, 1);
    add_attend_spread(s, DT_FP16, 80, 1, 5, 1, 1);
    add_attend_spread(s, DT_FP32, 32, 2, 8, 1, 1);
    add_attend_spread(s, DT_BF16, 16, 4, 8, 2, 1);
    add_attend_spread(s, DT_FP16, 64, 1, 5, 2, 5);
    add_attend_spread(s, DT_FP32, 32, 2, 8, 2, 30);
    add_attend_spread(s, DT_BF16, 128, 2, 8, 2, 11);
    add_attend_brief(s, DT_BF16, 64);
    add_attend_brief(s, DT_FP16, 256);
    add_append(s, DT_FP32, DT_FP32, 20, 8);
    add_append(s, DT_BF16, DT_BF16, 24, 24);
    add_append(s, DT_FP16, DT_FP16, 40, 0);
    add_append(s, DT_BF16, DT_FP32, 32, 16);
    if (wide)
        for (int t = 0; t < 3; t++)
            for (int e = 16; e <= 256; e += 40)
                for (int k = 0; k < 4; k++)
                    add_attend(s, &(Attend){types[t], types[t], (const int[]){4, 3, 16, 1}[k],
                                            (const int[]){2, 1, 1, 1}[k], e, (const int[]){0, 9, 0, 17}[(k + e) % 4],
                                            k == 3 ? 15.0 : 0.0, (const int[]){0, 7, 45, 0}[(k + e / 8) % 4], NULL});
    finish(s, 21);
}

/* --- attention that norms the heads itself ------------------------------------------------------- */

typedef struct Normed {
    DType t;
    int H, G, E, rot, window;
    double softcap;
    int sms, n, length[7]; /* of rows that bring one token each */
    const char *target;
} Normed;

static void add_normed(Suite *s, const Normed *a)
{
    const char *type = dtype_name(a->t);
    Ir g = {0};
    Case c = {.target = a->target, .kv = a->t, .sms = a->sms, .decode = true, .bucket = 8};
    char table[12] = "-", name[200];
    int rows[7][2];

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=8 context=1600 tokens=64 kv_block=8 kv_pages=600 "
                           "logit_bias=4 end_ids=4\n");
    add(&g, "ids : [T] i32");
    const int x = input(&g, (a->H + 2 * a->G) * a->E, a->t), qg = weight(&g, "g", a->E, 0, a->t);
    const int kg = weight(&g, "h", a->E, 0, a->t);

    if (a->rot)
        snprintf(table, sizeof table, "%%%d",
                 add(&g, "rope_table {rot=%d theta=10000 positions=1600} : [1600,%d,2] fp32", a->rot, a->rot / 2));
    const int q =
        add(&g, "append %%%d %s %%%d %%%d {eps=1e-3 layer=0 heads=%d kv_heads=%d head_dim=%d rot=%d} : [T,%d,%d] %s", x,
            table, qg, kg, a->H, a->G, a->E, a->rot, a->H, a->E, type);

    add(&g, "attend_paged %%%d {layer=0 kv_heads=%d scale=0.2 window=%d softcap=%g} : [T,%d] %s", q, a->G, a->window,
        a->softcap, a->H * a->E, type);
    for (int i = 0; i < a->n; i++) {
        rows[i][0] = 1;
        rows[i][1] = a->length[i];
    }
    set_rows(&c, a->n, a->n, (const int(*)[2])rows);
    snprintf(name, sizeof name, "attend, heads normed, %s H=%d G=%d E=%d rot=%d window=%d rows=%d", type, a->H, a->G,
             a->E, a->rot, a->window, a->n);
    take(s, &g, &c, name);
}

/* Rows of one token, of one more than a tile or a chunk; one block with units of several rows and heads; several blocks a row. */
void attention_of_normed_heads(void **state)
{
    static const Normed some[] = {
        {DT_BF16, 16, 2, 128, 128, 0, 0, 3, 3, {1, 17, 300}, NULL},
        {DT_FP16, 4, 2, 64, 32, 0, 0, 1, 7, {1, 16, 17, 128, 5, 129, 64}, NULL},
        {DT_BF16, 3, 1, 24, 24, 9, 20, 1, 3, {33, 7, 10}, NULL},
        {DT_FP16, 32, 2, 40, 20, 0, 0, 2, 2, {256, 257}, NULL},
        {DT_BF16, 2, 2, 96, 0, 0, 0, 3, 3, {31, 32, 130}, NULL},
        {DT_BF16, 8, 1, 256, 256, 100, 0, 1, 2, {333, 12}, NULL},
        {DT_BF16, 4, 4, 16, 16, 0, 0, 1, 2, {1500, 513}, NULL},
        {DT_FP16, 4, 4, 16, 8, 0, 0, 5, 3, {1100, 1, 769}, NULL},
    };
    Suite *s = open_suite("attend-normed");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_normed(s, &some[i]);
    for (int e = 16; wide && e <= 256; e += 24)
        for (int k = 0; k < 3; k++)
            add_normed(s, &(Normed){types[1 + (k + e / 8) % 2],
                                    (const int[]){4, 3, 16}[k],
                                    (const int[]){2, 1, 1}[k],
                                    e,
                                    e / 2,
                                    (const int[]){0, 30, 0}[k],
                                    k == 1 ? 15.0 : 0.0,
                                    1 + e % 3,
                                    4,
                                    {e, 1 + k, 300 + e, 16 * k + 16},
                                    NULL});
    finish(s, 61);
}

/* --- ops on heads, one by one -------------------------------------------------------------------- */

typedef struct Part {
    DType t, kv;
    int H, G, E;
    const char
        *scope; /* of attend: "causal" and "prefix" over pages; "full" and "rows" (causal) within texts; "source" */
    int window, span, slopes, sinks, lanes;
    double softcap;
    int chunk, rounded, tail, reach; /* reach: columns of by_query and by_key; 0: none */
} Part;

static int heads_of(Ir *g, int heads, int E, DType t)
{
    return add(g, "split_heads %%%d {heads=%d} : [T,%d,%d] %s", input(g, heads * E, t), heads, heads, E, dtype_name(t));
}

static void add_attend_part(Suite *s, const Part *p)
{
    const bool source = strcmp(p->scope, "source") == 0, prefix = strcmp(p->scope, "prefix") == 0;
    const bool paged = prefix || strcmp(p->scope, "causal") == 0;
    const char *type = dtype_name(p->t), *scope = strcmp(p->scope, "rows") == 0 ? "causal" : p->scope;
    Ir g = {0};
    Case c = {.kv = p->kv, .lanes = p->lanes, .only = "attend", .encode = !source && !paged, .whole = prefix};
    char beside[12] = "-", bias[12] = "-", slopes[12] = "-", sinks[12] = "-", by[24] = "- -", name[200];
    int k;

    g.n =
        (size_t)snprintf(g.text, sizeof g.text,
                         "graph \"case\"\nlimits sequences=7 context=64 tokens=150 kv_block=8 kv_pages=72 logit_bias=4 "
                         "end_ids=4 source=%d sources=%d beams=%d\nkind %s\n",
                         source ? 75 : 0, source ? 4 : 0, p->lanes, source ? "seq2seq" : "decoder");
    add(&g, "ids : [T] i32");
    const int q = heads_of(&g, p->H, p->E, p->t);
    k = heads_of(&g, p->G, p->E, p->t);
    const int v = heads_of(&g, p->G, p->E, p->t);
    if (source || paged)
        k = add(&g, "%s %%%d %%%d {layer=0} : [T,%d,%d] %s", source ? "cross_cache" : "cache", k, v, p->G, p->E, type);
    else
        snprintf(beside, sizeof beside, "%%%d", v);
    if (p->span)
        snprintf(bias, sizeof bias, "%%%d", weight(&g, "w", p->H, p->span, p->t));
    if (p->slopes)
        snprintf(slopes, sizeof slopes, "%%%d", weight(&g, "s", p->H, 0, p->t));
    if (p->sinks)
        snprintf(sinks, sizeof sinks, "%%%d", weight(&g, "z", p->H, 0, p->t));
    if (p->reach) {
        const int by_query = heads_of(&g, p->H, p->reach, p->t);

        snprintf(by, sizeof by, "%%%d %%%d", by_query, heads_of(&g, p->H, p->reach, p->t));
    }
    add(&g,
        "attend %%%d %%%d %s %s %s %s %s {chunk=%d layer=0 rounded=%d scale=0.2 scope=\"%s\" softcap=%g tail=%d "
        "window=%d} : [T,%d,%d] %s",
        q, k, beside, bias, slopes, sinks, by, p->chunk, p->rounded, scope, p->softcap, p->tail, p->window, p->H, p->E,
        type);
    if (p->lanes || source)
        decode_step(&c, 5);
    else if (paged)
        mixed_step(&c);
    else
        set_rows(&c, 3, 0, (const int[][2]){{70, 70}, {1, 1}, {41, 41}});
    snprintf(name, sizeof name,
             "attend %s %s/%s H=%d G=%d E=%d window=%d span=%d slopes=%d sinks=%d lanes=%d chunk=%d tail=%d reach=%d",
             p->scope, type, dtype_name(p->kv), p->H, p->G, p->E, p->window, p->span, p->slopes, p->sinks, p->lanes,
             p->chunk, p->tail, p->reach);
    take(s, &g, &c, name);
}

/* Elements of heads, or those of two values beside each other; HB: heads of the second. */
static void add_head_parts(Suite *s, DType t, int H, int A, int HB, int B)
{
    Ir g = begin();
    Case c = {0};
    const int a = heads_of(&g, H, A, t);

    mixed_step(&c);
    if (HB)
        add(&g, "join_parts %%%d %%%d : [T,%d,%d] %s", a, heads_of(&g, HB, B, t), H, A + B, dtype_name(t));
    else
        add(&g, "slice_heads %%%d {count=%d from=%d} : [T,%d,%d] %s", a, B, A - B - 1, H, B, dtype_name(t));
    take(s, &g, &c, "parts of heads");
}

static void add_rope(Suite *s, DType t, int H, int E, int rot, const char *style, const char *count)
{
    Ir g = begin();
    Case c = {.whole = true};
    const int x = heads_of(&g, H, E, t);

    mixed_step(&c);
    add(&g, "rope %%%d %%%d {count=\"%s\" style=\"%s\" tail=%d} : [T,%d,%d] %s", x,
        add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", rot, rot / 2), count, style,
        strcmp(count, "all") ? 2 : 0, H, E, dtype_name(t));
    take(s, &g, &c, "rope");
}

/* per: heads that a warp's lanes take one after another */
static void add_append_norm(Suite *s, DType t, DType kv, int E, int rot, int per)
{
    Ir g = begin();
    Case c = {.kv = kv, .use = {{"PER", per}}, .n_use = 1};
    const int x = input(&g, 7 * E, t), qg = weight(&g, "g", E, 0, t), kg = weight(&g, "h", E, 0, t);
    char table[12] = "-";

    if (rot)
        snprintf(table, sizeof table, "%%%d",
                 add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", rot, rot / 2));
    mixed_step(&c);
    add(&g, "append %%%d %s %%%d %%%d {eps=1e-3 layer=0 heads=3 kv_heads=2 head_dim=%d rot=%d} : [T,3,%d] %s", x, table,
        qg, kg, E, rot, E, dtype_name(t));
    take(s, &g, &c, "append, normed");
}

/* kind 1: root mean square, with `by` times another value; 2: layer norm. */
static void add_head_norm(Suite *s, DType t, int H, int E, int kind, bool own_gain, bool own_bias, bool by)
{
    Ir g = begin();
    Case c = {0};
    const int x = heads_of(&g, H, E, t), gain = own_gain ? weight(&g, "g", H, E, t) : weight(&g, "g", E, 0, t);
    const int bias = kind == 1 ? 0 : own_bias ? weight(&g, "b", H, E, t) : weight(&g, "b", E, 0, t);

    mixed_step(&c);
    if (kind == 1) {
        const int y = add(&g, "rmsnorm %%%d %%%d {eps=1e-5} : [T,%d,%d] %s", x, gain, H, E, dtype_name(t));

        if (by)
            add(&g, "mul %%%d %%%d : [T,%d] %s", add(&g, "join_heads %%%d : [T,%d] %s", y, H * E, dtype_name(t)),
                input(&g, H * E, t), H * E, dtype_name(t));
    } else
        add(&g, "layernorm %%%d %%%d %%%d {eps=1e-5} : [T,%d,%d] %s", x, gain, bias, H, E, dtype_name(t));
    take(s, &g, &c, "norm of heads");
}

static void add_cache(Suite *s, DType t, DType kv, int G, int E, bool source)
{
    Ir g = {0};
    Case c = {.kv = kv, .encode = source};

    g.n =
        (size_t)snprintf(g.text, sizeof g.text,
                         "graph \"case\"\nlimits sequences=7 context=64 tokens=64 kv_block=8 kv_pages=72 logit_bias=4 "
                         "end_ids=4 source=64 sources=5\nkind %s\n",
                         source ? "seq2seq" : "decoder");
    add(&g, "ids : [T] i32");
    const int k = heads_of(&g, G, E, t), v = heads_of(&g, G, E, t);

    add(&g, "%s %%%d %%%d {layer=0} : [T,%d,%d] %s", source ? "cross_cache" : "cache", k, v, G, E, dtype_name(t));
    if (source)
        set_rows(&c, 3, 0, (const int[][2]){{20, 20}, {1, 1}, {41, 41}});
    else
        mixed_step(&c);
    take(s, &g, &c, "cache");
}

void parts(void **state)
{
    static const Part some[] = {
        {DT_FP32, DT_FP32, 4, 2, 24, "causal", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
        {DT_BF16, DT_BF16, 3, 1, 64, "causal", 5, 9, 1, 1, 0, 20, 0, 0, 0, 0},
        {DT_FP16, DT_FP32, 2, 2, 40, "causal", 0, 0, 1, 0, 4, 0, 0, 0, 0, 0},
        {DT_FP32, DT_FP32, 2, 1, 16, "full", 0, 7, 0, 0, 0, 0, 0, 0, 0, 0},
        {DT_BF16, DT_FP32, 2, 2, 80, "full", 9, 0, 0, 1, 0, 0, 0, 0, 0, 0},
        {DT_FP16, DT_FP16, 4, 1, 32, "rows", 0, 63, 0, 0, 0, 0, 0, 0, 0, 0},
        {DT_FP32, DT_FP32, 1, 1, 48, "rows", 33, 0, 1, 0, 0, 0, 0, 0, 0, 0},
        {DT_FP32, DT_FP32, 4, 4, 24, "source", 0, 0, 0, 1, 0, 15, 0, 0, 0, 0},
        {DT_BF16, DT_BF16, 2, 1, 128, "source", 0, 0, 0, 0, 4, 0, 0, 0, 0, 0},
        {DT_BF16, DT_BF16, 1, 1, 512, "causal", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0},
        {DT_FP32, DT_FP32, 2, 1, 24, "causal", 0, 0, 0, 1, 0, 0, 4, 0, 0, 0},
        {DT_BF16, DT_BF16, 2, 2, 40, "causal", 3, 0, 0, 0, 0, 0, 8, 0, 0, 0},
        {DT_FP32, DT_FP32, 3, 1, 32, "rows", 0, 0, 1, 0, 0, 0, 16, 1, 0, 0},
        {DT_FP16, DT_FP32, 2, 2, 16, "causal", 0, 0, 1, 0, 0, 0, 0, 1, 0, 0},
        {DT_FP32, DT_FP32, 2, 1, 16, "causal", 0, 9, 0, 0, 0, 0.5, 0, 0, 0, 0},
        {DT_FP32, DT_FP32, 3, 1, 24, "prefix", 0, 0, 0, 0, 0, 0, 0, 0, 1, 0},
        {DT_BF16, DT_BF16, 2, 2, 40, "prefix", 0, 63, 0, 1, 0, 9, 0, 0, 3, 0},
        {DT_FP16, DT_FP32, 2, 1, 16, "prefix", 0, 0, 1, 0, 4, 0, 0, 0, 0, 0},
        {DT_FP32, DT_FP32, 3, 3, 24, "full", 0, 0, 0, 0, 0, 0, 0, 0, 0, 9},
        {DT_BF16, DT_FP32, 2, 2, 40, "full", 7, 0, 0, 0, 0, 0, 0, 0, 0, 141},
        {DT_FP16, DT_FP16, 2, 2, 64, "full", 0, 0, 0, 0, 0, 0, 0, 0, 0, 65},
    };
    Suite *s = open_suite("parts");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_attend_part(s, &some[i]);
    for (int t = 0; t < 3; t++) {
        add_rope(s, types[t], 3, 40, t == 1 ? 12 : 40, "half", "all");
        add_rope(s, types[t], 1, 22, t == 1 ? 22 : 6, "neighbour", "all");
        add_rope(s, types[t], 2, 24, 24, "half", t == 1 ? "prefix" : "rest");
        add_head_norm(s, types[t], 3, (const int[]){24, 128, 20}[t], 1, t == 1, false, false);
        add_head_norm(s, types[t], 2, (const int[]){72, 40, 288}[t], 2, t > 0, t > 1, false);
        add_head_norm(s, types[t], 3, (const int[]){20, 128, 264}[t], 1, t == 1, false, true);
        add_head_parts(s, types[t], 3, 24, 0, 10);
        add_head_parts(s, types[t], 3, 16, 1, 8);
        add_head_parts(s, types[t], 2, 7, 2, 300);
        add_cache(s, types[t], types[t], 2, 24, false);
        add_append_norm(s, types[t], types[t], (const int[]){24, 128, 72}[t], (const int[]){24, 0, 16}[t], 1);
        add_append_norm(s, types[t], DT_FP32, (const int[]){136, 40, 512}[t], 8, t == 2 ? 2 : 4);
        add_append_norm(s, types[t], types[t], (const int[]){264, 136, 20}[t], (const int[]){264, 136, 10}[t], 5);
        add_cache(s, types[t], t ? types[t] : DT_BF16, 3, 40, true);
    }
    finish(s, 59);
}

/* --- values inside keys ------------------------------------------------------------------------------ */

typedef struct Inside {
    DType t, kv;
    int H, G, E, V, window, sinks, lanes;
    double softcap;
} Inside;

static void add_inside(Suite *s, const Inside *p, bool writes)
{
    const char *type = dtype_name(p->t);
    Ir g = {0};
    Case c = {.kv = p->kv, .lanes = p->lanes};
    char sinks[12] = "-", name[200];

    g.n =
        (size_t)snprintf(g.text, sizeof g.text,
                         "graph \"case\"\nlimits sequences=7 context=64 tokens=150 kv_block=8 kv_pages=72 logit_bias=4 "
                         "end_ids=4 source=0 sources=0 beams=%d\nkind decoder\n",
                         p->lanes);
    add(&g, "ids : [T] i32");
    const int q = heads_of(&g, p->H, p->E, p->t), k = heads_of(&g, p->G, p->E, p->t);
    const int cache = add(&g, "cache %%%d - {layer=0 v_dim=%d} : [T,%d,%d] %s", k, p->V, p->G, p->E, type);

    if (p->sinks && !writes)
        snprintf(sinks, sizeof sinks, "%%%d", weight(&g, "z", p->H, 0, p->t));
    if (!writes)
        add(&g, "attend %%%d %%%d - - - %s {layer=0 scale=0.2 softcap=%g v_dim=%d window=%d} : [T,%d,%d] %s", q, cache,
            sinks, p->softcap, p->V, p->window, p->H, p->V, type);
    if (p->lanes)
        decode_step(&c, 5);
    else
        mixed_step(&c);
    snprintf(name, sizeof name, "%s %s/%s H=%d G=%d E=%d V=%d window=%d softcap=%g sinks=%d lanes=%d",
             writes ? "keys" : "values inside keys", type, dtype_name(p->kv), p->H, p->G, p->E, p->V, p->window,
             p->softcap, p->sinks, p->lanes);
    take(s, &g, &c, name);
}

/* w has the type that the model's weights are stored in, x that of computing; rows: of a decode step, 0: the mixed step. */
static void add_head_linear(Suite *s, DType t, DType w, int H, int N, int K, int rows)
{
    Ir g = begin();
    Case c = {0};
    const int x = heads_of(&g, H, K, t);

    if (rows)
        decode_step(&c, rows);
    else
        mixed_step(&c);
    add(&g, "head_linear %%%d %%%d : [T,%d,%d] %s", x, weight(&g, "w", H * N, K, w), H, N, dtype_name(t));
    take(s, &g, &c, "product for each head");
}

void inside(void **state)
{
    static const Inside some[] = {
        {DT_FP32, DT_FP32, 4, 2, 24, 24, 0, 0, 0, 0},    {DT_FP32, DT_FP32, 11, 1, 48, 33, 0, 1, 0, 0},
        {DT_BF16, DT_BF16, 18, 2, 40, 16, 6, 0, 0, 12},  {DT_FP16, DT_FP32, 3, 1, 72, 1, 0, 0, 4, 0},
        {DT_BF16, DT_BF16, 6, 1, 576, 512, 0, 0, 0, 0},  {DT_FP32, DT_FP32, 5, 1, 576, 576, 20, 1, 0, 0},
        {DT_FP16, DT_FP16, 8, 1, 136, 128, 0, 0, 4, 15}, {DT_BF16, DT_FP32, 2, 2, 32, 31, 3, 1, 0, 0},
    };
    Suite *s = open_suite("inside");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        add_inside(s, &some[i], false);
        add_inside(s, &some[i], true);
    }
    for (int t = 0; t < 3; t++) {
        add_head_linear(s, types[t], types[t], 3, 70, 40, 0);
        add_head_linear(s, types[t], types[t], 2, 64, 131, 5);
        add_head_linear(s, types[t], DT_FP32, 1, 9, 24, 0);
    }
    finish(s, 20);
}

/* --- attention within packed texts --------------------------------------------------------------- */

typedef struct Text {
    DType t;
    int H, G, E, bucket; /* 0: exact, of at most 1040 tokens */
    int n, length[7];
    const char *only;
} Text;

static void add_text(Suite *s, const Text *x)
{
    const char *type = dtype_name(x->t);
    Ir g = {.text = "graph \"case\"\nlimits sequences=7 context=1040 tokens=1040 kv_block=8 kv_pages=72 logit_bias=4 "
                    "end_ids=4\n"};
    Case c = {.kv = x->t, .only = x->only, .encode = true, .bucket = x->bucket};
    int rows[7][2];
    char name[200];

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    add(&g, "attend_packed %%%d {heads=%d kv_heads=%d head_dim=%d scale=0.2} : [T,%d] %s",
        input(&g, (x->H + 2 * x->G) * x->E, x->t), x->H, x->G, x->E, x->H * x->E, type);
    for (int i = 0; i < x->n; i++)
        rows[i][0] = rows[i][1] = x->length[i];
    set_rows(&c, x->n, 0, (const int(*)[2])rows);
    snprintf(name, sizeof name, "texts %s H=%d G=%d E=%d, %d of %d and so on, %s", type, x->H, x->G, x->E, x->n,
             x->length[0], x->only);
    take(s, &g, &c, name);
}

void texts(void **state)
{
    static const char hopper[] = "attend_hopper", packed[] = "attend_packed";
    static const Text some[] = {
        {DT_FP16, 2, 2, 64, 0, 4, {129, 1, 64, 65}, hopper}, {DT_BF16, 1, 1, 64, 0, 3, {257, 2, 100}, hopper},
        {DT_BF16, 2, 1, 32, 0, 3, {193, 17, 128}, hopper},   {DT_FP16, 3, 1, 48, 0, 2, {63, 130}, hopper},
        {DT_FP16, 1, 1, 64, 512, 2, {250, 33}, hopper},      {DT_BF16, 1, 1, 128, 0, 3, {191, 9, 64}, hopper},
        {DT_FP16, 2, 1, 80, 256, 3, {129, 40, 7}, hopper},   {DT_BF16, 2, 2, 16, 0, 3, {127, 66, 31}, hopper},
        {DT_FP16, 1, 1, 112, 0, 2, {193, 3}, hopper},        {DT_FP32, 2, 1, 40, 0, 3, {70, 1, 9}, packed},
        {DT_BF16, 2, 2, 64, 0, 3, {129, 1, 64}, packed},     {DT_FP16, 1, 1, 24, 128, 2, {65, 31}, packed},
    };
    Suite *s = open_suite("texts");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_text(s, &some[i]);
    if (wide)
        for (int e = 16; e <= 128; e += 16)
            for (int k = 0; k < 3; k++)
                add_text(s, &(Text){k % 2 ? DT_BF16 : DT_FP16,
                                    1 + k,
                                    1,
                                    e,
                                    k == 1 ? 512 : 0,
                                    5,
                                    {e + 1, 256 - e, 1 + 15 * k, 64, 63 + k},
                                    k == 2 && e % 32 ? packed : hopper});
    finish(s, 43);
}

/* --- blocks of attention ------------------------------------------------------------------------- */

typedef struct Block {
    DType t;
    int D, H, E, norm, post, bias; /* post: the residual is normed as well */
    int rows, source;              /* source: most tokens of the cross-attention source; 0: self-attention */
    int rot, lanes;
    double softcap;
    int context; /* 0: 64 */
} Block;

static int block_self(Ir *g, const Block *b, int x)
{
    const char *type = dtype_name(b->t);
    const int A = b->H * b->E, qkv = product(g, x, 3 * A, b->D, b->bias, b->t);
    int q;

    if (b->rot)
        q = add(g, "append %%%d %%%d {layer=0 heads=%d kv_heads=%d head_dim=%d rot=%d} : [T,%d,%d] %s", qkv,
                add(g, "rope_table {rot=%d theta=10000 positions=256} : [256,%d,2] fp32", b->rot, b->rot / 2), b->H,
                b->H, b->E, b->rot, b->H, b->E, type);
    else
        q = add(g, "append %%%d - {layer=0 heads=%d kv_heads=%d head_dim=%d} : [T,%d,%d] %s", qkv, b->H, b->H, b->E,
                b->H, b->E, type);
    return add(g, "attend_paged %%%d {layer=0 kv_heads=%d scale=0.2 window=0 softcap=%g} : [T,%d] %s", q, b->H,
               b->softcap, A, type);
}

/* Attention of texts whose queries, keys and values are apart, with what changes a score. The texts have tiles that a
 * window hides whole, in part and not at all. */
typedef struct SplitText {
    DType t;
    int H, G, E;
    const char *scope;
    int window, span, slopes, rot;
    double softcap;
    int n, length[4];
} SplitText;

static int rotated(Ir *g, int x, int table, const SplitText *p, int heads)
{
    return p->rot ? add(g, "rope %%%d %%%d {style=\"half\"} : [T,%d,%d] %s", x, table, heads, p->E, dtype_name(p->t))
                  : x;
}

static void add_split_text(Suite *s, const SplitText *p)
{
    const char *type = dtype_name(p->t);
    Ir g = {.text = "graph \"case\"\nlimits sequences=7 context=512 tokens=600 kv_block=8 kv_pages=72 logit_bias=4 "
                    "end_ids=4\n"};
    Case c = {.kv = p->t, .only = "attend_hopper_split", .encode = true};
    int rows[4][2], table = 0; /* of RoPE */
    char bias[12] = "-", slopes[12] = "-", name[200];

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    int q = heads_of(&g, p->H, p->E, p->t), k = heads_of(&g, p->G, p->E, p->t);
    const int v = heads_of(&g, p->G, p->E, p->t);
    if (p->rot)
        table = add(&g, "rope_table {rot=%d theta=100 positions=512} : [512,%d,2] fp32", p->rot, p->rot / 2);
    q = rotated(&g, q, table, p, p->H);
    k = rotated(&g, k, table, p, p->G);
    if (p->span)
        snprintf(bias, sizeof bias, "%%%d", weight(&g, "w", p->H, p->span, p->t));
    if (p->slopes)
        snprintf(slopes, sizeof slopes, "%%%d", weight(&g, "s", p->H, 0, p->t));
    add(&g, "attend %%%d %%%d %%%d %s %s - {scale=0.2 scope=\"%s\" softcap=%g window=%d} : [T,%d,%d] %s", q, k, v, bias,
        slopes, p->scope, p->softcap, p->window, p->H, p->E, type);
    for (int i = 0; i < p->n; i++)
        rows[i][0] = rows[i][1] = p->length[i];
    set_rows(&c, p->n, 0, (const int(*)[2])rows);
    snprintf(name, sizeof name, "split texts %s H=%d G=%d E=%d %s window=%d span=%d slopes=%d rot=%d softcap=%g", type,
             p->H, p->G, p->E, p->scope, p->window, p->span, p->slopes, p->rot, p->softcap);
    take(s, &g, &c, name);
}

void split_texts(void **state)
{
    static const SplitText some[] = {
        {DT_BF16, 1, 1, 64, "full", 0, 0, 0, 64, 0, 3, {129, 1, 66}},
        {DT_FP16, 2, 1, 64, "full", 64, 0, 0, 32, 0, 2, {260, 65}},
        {DT_BF16, 1, 1, 32, "full", 20, 0, 0, 0, 0, 2, {193, 63}},
        {DT_FP16, 2, 2, 64, "full", 0, 257, 0, 0, 0, 2, {330, 9}},
        {DT_BF16, 2, 1, 48, "full", 0, 9, 1, 0, 3, 2, {130, 31}},
        {DT_FP16, 2, 1, 16, "causal", 0, 0, 0, 16, 0, 3, {193, 64, 2}},
        {DT_BF16, 1, 1, 128, "causal", 70, 0, 1, 128, 0, 2, {270, 65}},
        {DT_FP16, 1, 1, 80, "causal", 1, 33, 0, 48, 0, 2, {140, 3}},
        {DT_BF16, 2, 1, 112, "full", 100, 0, 0, 96, 2, 2, {240, 17}},
        {DT_FP16, 1, 1, 16, "full", 20, 0, 0, 16, 0, 1, {512}},
    };
    Suite *s = open_suite("split_texts");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_split_text(s, &some[i]);
    if (wide)
        for (int i = 0; i < 24; i++)
            add_split_text(s, &(SplitText){types[1 + i % 2],
                                           (const int[]){2, 3, 4}[i % 3],
                                           (const int[]){2, 1, 2}[i % 3],
                                           16 * (1 + i % 8),
                                           i % 3 ? "full" : "causal",
                                           i % 4 ? 0 : 1 + 17 * i,
                                           i % 5 == 2 ? 1 + 10 * i : 0,
                                           i % 7 == 3,
                                           i % 2 ? 16 * (1 + i % 8) : 0,
                                           i % 6 == 5 ? 1.5 : 0.0,
                                           3,
                                           {64 + 9 * i, 1 + i, 130}});
    finish(s, 12);
}

/* The input of cross_append only gives the keys and values their shape; the tested kernel does not read it. */
static int block_cross(Ir *g, const Block *b, int x)
{
    const char *type = dtype_name(b->t);
    const int A = b->H * b->E, q = product(g, x, A, b->D, b->bias, b->t);
    const int source = add(g, "cross_append %%%d {layer=0 kv_heads=%d head_dim=%d} : [T,%d,%d] %s",
                           product(g, input(g, b->D, b->t), 2 * A, b->D, 0, b->t), b->H, b->E, b->H, b->E, type);

    return add(g, "attend_cross %%%d %%%d {layer=0 heads=%d kv_heads=%d head_dim=%d scale=0.2} : [T,%d] %s", q, source,
               b->H, b->H, b->E, A, type);
}

/* A step of few rows in a program for many rows, where two warps (not four) take the tiles of a source. */
static void add_attend_cross(Suite *s, const Block *b)
{
    Ir g = {0};
    Case c = {.kv = b->t, .lanes = b->lanes, .only = "attend_cross"};
    char name[200];

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=160 context=64 tokens=512 kv_block=8 kv_pages=1200 "
                           "logit_bias=4 end_ids=4 source=%d sources=8 beams=%d\nkind seq2seq\n",
                           b->source, b->lanes);
    add(&g, "ids : [T] i32");
    block_cross(&g, b, input(&g, b->D, b->t));
    decode_step(&c, b->rows);
    c.bucket = 512;
    snprintf(name, sizeof name, "attend %s H=%d E=%d rows=%d source=%d lanes=%d", dtype_name(b->t), b->H, b->E, b->rows,
             b->source, b->lanes);
    take(s, &g, &c, name);
}

static void add_block(Suite *s, const Block *b)
{
    Ir g = {0};
    const int context = b->context ? b->context : 64;
    Case c = {.kv = b->t, .lanes = b->lanes, .only = b->source ? "attention_block_cross" : "attention_block"};
    char name[200];

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=8 context=%d tokens=64 kv_block=8 kv_pages=260 "
                           "logit_bias=4 end_ids=4 source=%d sources=%d beams=%d\nkind %s\n",
                           context, b->source, b->source ? 8 : 0, b->lanes, b->source ? "seq2seq" : "decoder");
    add(&g, "ids : [T] i32");
    const int x = input(&g, b->D, b->t);
    const int gain = weight(&g, "g", b->D, 0, b->t), bias = weight(&g, "b", b->D, 0, b->t);
    const int n = b->norm ? norm_by(&g, b->norm, x, gain, bias, "T", b->D, b->t) : x;
    const int z = b->post ? norm_by(&g, b->norm, x, gain, bias, "T", b->D, b->t) : x;
    const int y = b->source ? block_cross(&g, b, n) : block_self(&g, b, n);

    add(&g, "add %%%d %%%d : [T,%d] %s", product(&g, y, b->D, b->H * b->E, b->bias, b->t), z, b->D, dtype_name(b->t));
    decode_step(&c, b->rows);
    for (int r = 0; r < b->rows; r++)
        c.row[r].kv_len = c.row[r].kv_len * context / 64;
    snprintf(name, sizeof name, "block %s D=%d H=%d E=%d norm=%d post=%d bias=%d rows=%d source=%d rot=%d lanes=%d",
             dtype_name(b->t), b->D, b->H, b->E, b->norm, b->post, b->bias, b->rows, b->source, b->rot, b->lanes);
    take(s, &g, &c, name);
}

void blocks(void **state)
{
    static const Block some[] = {
        {DT_FP16, 96, 2, 48, 2, 1, 1, 4, 33, 0, 4, 0, 0},   {DT_BF16, 64, 4, 16, 2, 0, 0, 1, 20, 0, 0, 0, 0},
        {DT_FP16, 136, 3, 40, 0, 0, 1, 7, 64, 0, 2, 0, 0},  {DT_BF16, 256, 4, 64, 2, 1, 1, 5, 200, 0, 0, 0, 0},
        {DT_FP16, 200, 1, 128, 1, 0, 0, 2, 7, 0, 0, 0, 0},  {DT_FP16, 512, 8, 64, 2, 1, 1, 4, 64, 0, 4, 0, 0},
        {DT_FP16, 96, 2, 48, 2, 1, 1, 4, 0, 0, 4, 0, 0},    {DT_BF16, 64, 4, 16, 2, 0, 0, 1, 0, 16, 0, 0, 0},
        {DT_FP16, 136, 3, 40, 0, 0, 1, 7, 0, 0, 3, 20, 0},  {DT_BF16, 256, 4, 64, 2, 1, 1, 5, 0, 32, 0, 0, 0},
        {DT_FP16, 120, 1, 128, 1, 0, 0, 2, 0, 64, 0, 0, 0}, {DT_FP16, 512, 8, 64, 2, 1, 1, 4, 0, 0, 4, 0, 0},
        {DT_BF16, 512, 8, 64, 2, 1, 1, 8, 0, 0, 2, 0, 256},
    };
    Suite *s = open_suite("blocks");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_block(s, &some[i]);
    add_attend_cross(s, &(Block){.t = DT_FP16, .D = 24, .H = 8, .E = 40, .rows = 7, .source = 200, .lanes = 4});
    add_attend_cross(s, &(Block){.t = DT_BF16, .D = 24, .H = 4, .E = 16, .rows = 6, .source = 64, .lanes = 2});
    if (wide) /* 1 to 8 heads and rows; lengths from one tile of keys to more than a warp holds at once */
        for (int h = 1; h <= 8; h++)
            for (int k = 0; k < 6; k++) {
                const int E = (const int[]){64, 16, 40, 80, 24, 112}[(h + k) % 6];
                const int norm = (h / 2 + k) % 3, lanes = (const int[]){0, 2, 4}[k % 3];

                add_block(s, &(Block){k % 2 ? DT_BF16 : DT_FP16, E > 64 ? 72 : h * 56, h, E, norm,
                                      norm == 2 && (h + k) % 2, (h + k / 2) % 2, (h + k) % 8 + 1,
                                      k < 3 ? 0 : (const int[]){64, 9, 250}[(h + k) % 3],
                                      k < 3 && h % 2 ? E / 16 * 8 : 0, lanes <= (h + k) % 8 + 1 ? lanes : 0,
                                      h % 3 == 2 && k < 3 ? 15.0 : 0.0, k == 1 ? 200 : 0});
            }
    finish(s, 41);
}
