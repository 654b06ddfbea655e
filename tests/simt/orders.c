/* orders.c - the order in which each linear kernel and each norm adds is the one that its `sums` line states, bit for bit. */
#include "kernels.h"

typedef struct Ordered {
    const char *only;
    DType t, out;
    int N, K, bias;   /* append: N columns are 4 heads, 2 of them of queries */
    const char *end;  /* "", "append", "head" */
    int rows, bucket; /* bucket 0: a step with prompts, of any size; head: rows are sequences */
    TunedConst use[3];
} Ordered;

static void add_ordered(Suite *s, const Ordered *o)
{
    const char *type = dtype_name(o->t);
    const bool head = strcmp(o->end, "head") == 0;
    Ir g = {0};
    Case c = {.kv = o->t,
              .only = o->only,
              .fixed = true,
              .head = head,
              .decode = o->bucket > 0,
              .bucket = o->bucket,
              .sms = 4,
              .rows = o->rows,
              .decode_rows = o->rows};
    char name[200];
    int x, y;

    while (c.n_use < LEN(o->use) && o->use[c.n_use].name) {
        c.use[c.n_use] = o->use[c.n_use];
        c.n_use++;
    }
    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=160 context=200 tokens=512 kv_block=8 kv_pages=4000 "
                           "logit_bias=4 end_ids=4 bad_words=4\n");
    add(&g, "ids : [T] i32");
    x = input(&g, o->K, o->t);
    if (head)
        x = add(&g, "select_last %%%d : [S,%d] %s", x, o->K, type);
    const int w = weight(&g, "w", o->N, o->K, o->t);

    if (o->bias)
        y = add(&g, "linear %%%d %%%d %%%d : [%s,%d] %s", x, w, weight(&g, "b", o->N, 0, o->t), head ? "S" : "T", o->N,
                dtype_name(o->out));
    else
        y = add(&g, "linear %%%d %%%d - : [%s,%d] %s", x, w, head ? "S" : "T", o->N, dtype_name(o->out));
    if (strcmp(o->end, "append") == 0)
        add(&g, "append %%%d - {layer=0 heads=2 kv_heads=1 head_dim=%d} : [T,2,%d] %s", y, o->N / 4, o->N / 4, type);
    else if (head)
        add(&g, "sample %%%d : [S] i32", y);
    if (o->N > 1000) { /* blocks exchange data within a cluster only */
        c.blocks = 1;
        c.sms = 132;
    }
    for (int r = 0; r < o->rows; r++) {
        c.row[r].q_len = 1;
        c.row[r].kv_len = 1 + r * 7 % 40;
        c.params[r] =
            (FtxParams){.simple = r % 2, /* greedy rows: all logits of a row are written, whoever reads them */
                        .temperature = r % 3 == 2 ? 1.0f : 0.0f,
                        .top_p = 1.0f,
                        .repetition = 1.0f,
                        .top_needed = r % 3 == 2 ? 0 : 1};
    }
    if (!o->bucket && !head) { /* half of the tokens are prompts */
        c.rows = o->rows / 2 + 1;
        c.decode_rows = c.rows - 1;
        c.row[c.rows - 1].q_len = c.row[c.rows - 1].kv_len = o->rows - o->rows / 2;
    }
    snprintf(name, sizeof name, "order of %s %s N=%d K=%d bias=%d %s rows=%d of %d %s=%d", o->only, type, o->N, o->K,
             o->bias, o->end, o->rows, o->bucket, o->use[0].name ? o->use[0].name : "", (int)o->use[0].value);
    if (!take(s, &g, &c, name) && SUITE_TURNS == 1)
        fail_msg("%s: the kernel does not fit", name);
}

typedef struct OrderedNorm {
    const char *only;
    DType t, out;
    int kind, C, heads; /* kind 1: RMS norm, 2: layer norm. heads 0: of whole rows */
} OrderedNorm;

/* The norm of x, of its heads, or of the embedding that an encoder begins with. */
static void add_ordered_norm(Suite *s, const OrderedNorm *o)
{
    const char *type = dtype_name(o->t);
    Ir g = begin();
    Case c = {.kv = o->t, .only = o->only, .fixed = true, .encode = strcmp(o->only, "embed_norm") == 0};
    char name[200], shape[40] = "T,";
    int x = input(&g, (o->heads ? o->heads : 1) * o->C, o->t);

    if (c.encode)
        x = add(&g, "add %%%d %%%d : [T,%d] %s", x,
                add(&g, "positions %%%d {offset=2} : [T,%d] %s", weight(&g, "p", 70, o->C, o->t), o->C, type), o->C,
                type);
    if (o->heads) {
        x = add(&g, "split_heads %%%d {heads=%d} : [T,%d,%d] %s", x, o->heads, o->heads, o->C, type);
        snprintf(shape, sizeof shape, "T,%d,", o->heads);
    }
    const int gain = weight(&g, "g", o->C, 0, o->t);

    if (o->kind == 1)
        add(&g, "rmsnorm %%%d %%%d {eps=1e-5} : [%s%d] %s", x, gain, shape, o->C, dtype_name(o->out));
    else
        add(&g, "layernorm %%%d %%%d %%%d {eps=1e-5} : [%s%d] %s", x, gain, weight(&g, "b", o->C, 0, o->t), shape, o->C,
            dtype_name(o->out));
    mixed_step(&c);
    snprintf(name, sizeof name, "order of %s %s C=%d heads=%d", o->only, type, o->C, o->heads);
    if (!take(s, &g, &c, name) && SUITE_TURNS == 1)
        fail_msg("%s: the kernel does not fit", name);
}

void orders(void **state)
{
    static const OrderedNorm norms[] = {
        {"rmsnorm", DT_BF16, DT_FP32, 1, 712, 0},    {"rmsnorm", DT_FP16, DT_FP32, 1, 2056, 0},
        {"rmsnorm", DT_FP32, DT_FP32, 1, 1022, 0},   {"layernorm", DT_BF16, DT_FP32, 2, 300, 0},
        {"layernorm", DT_FP16, DT_FP32, 2, 1032, 0}, {"layernorm", DT_FP32, DT_FP32, 2, 520, 0},
        {"head_norm", DT_FP32, DT_FP32, 1, 288, 2},  {"head_norm", DT_FP32, DT_FP32, 2, 72, 3},
        {"embed_norm", DT_BF16, DT_FP32, 2, 328, 0}, {"embed_norm", DT_FP32, DT_FP32, 2, 96, 0},
    };

    static const Ordered some[] = {
        {"linear", DT_BF16, DT_FP32, 40, 712, 1, "", 3, 4, {{0}}},
        {"linear", DT_FP16, DT_FP16, 24, 2056, 0, "", 8, 8, {{0}}},
        {"linear_head", DT_BF16, DT_FP32, 72, 392, 0, "head", 2, 2, {{0}}},
        {"linear_wide", DT_FP16, DT_FP32, 40, 300, 1, "", 20, 32, {{0}}},
        {"linear_wide", DT_BF16, DT_BF16, 72, 712, 0, "", 60, 64, {{"CLUSTER_SIZE", 1}}},
        {"linear_wide_rows", DT_BF16, DT_FP32, 40, 301, 1, "", 150, 0, {{0}}},
        {"linear_wide_rows", DT_FP16, DT_FP16, 56, 520, 0, "", 130, 140, {{"CLUSTER_SIZE", 1}}},
        {"linear_wide_rows_append", DT_BF16, DT_BF16, 64, 200, 0, "append", 90, 128, {{0}}},
        {"linear_wide_rows_head", DT_FP16, DT_FP32, 50, 136, 0, "head", 90, 128, {{0}}},
        {"linear_swapped", DT_BF16, DT_FP32, 72, 712, 1, "", 3, 4, {{"CLUSTER_SIZE", 2}}},
        {"linear_swapped", DT_FP16, DT_FP16, 72, 520, 0, "", 1, 1, {{"CLUSTER_SIZE", 1}}},
        {"linear_swapped", DT_BF16, DT_FP32, 64, 712, 0, "", 50, 64, {{"CLUSTER_SIZE", 4}}},
        {"linear_swapped", DT_FP16, DT_FP32, 64, 840, 1, "", 20, 32, {{"CLUSTER_SIZE", 8}}},
        {"linear_swapped_append", DT_BF16, DT_BF16, 64, 328, 1, "append", 6, 8, {{"CLUSTER_SIZE", 2}}},
        {"linear_hopper_head", DT_BF16, DT_FP32, 264, 392, 0, "head", 3, 4, {{"CLUSTER_SIZE", 1}}},
        {"linear_hopper_head", DT_FP16, DT_FP32, 136, 712, 1, "head", 40, 64, {{"CLUSTER_SIZE", 1}}},
        {"linear_batch", DT_BF16, DT_BF16, 72, 712, 1, "", 70, 128, {{"SPLIT_K", 1}}},
        {"linear_batch", DT_FP16, DT_FP16, 72, 712, 0, "", 70, 128, {{"SPLIT_K", 2}}},
        {"linear_batch", DT_BF16, DT_BF16, 72, 840, 0, "", 150, 256, {{"SPLIT_K", 4}}},
        {"linear_batch", DT_FP16, DT_FP16, 72, 520, 1, "", 150, 0, {{"SPLIT_K", 2}}},
        {"linear_batch", DT_BF16, DT_BF16, 200, 392, 0, "", 140, 0, {{"SPLIT_K", 1}}},
        {"linear_batch", DT_BF16, DT_BF16, 8208, 136, 0, "", 40, 64, {{"SPLIT_K", 1}}},
        {"linear_batch_append", DT_FP16, DT_FP16, 64, 328, 0, "append", 100, 0, {{"SPLIT_K", 2}}},
        {"linear_tile", DT_BF16, DT_FP32, 72, 712, 1, "", 70, 128, {{"SPLIT_K", 1}}},
        {"linear_tile", DT_FP16, DT_FP32, 64, 712, 1, "", 70, 128, {{"SPLIT_K", 2}}},
        {"linear_tile", DT_FP16, DT_FP32, 64, 520, 0, "", 70, 128, {{"SPLIT_K", 2}}},
        {"linear_tile_append", DT_BF16, DT_BF16, 64, 328, 1, "append", 80, 128, {{"SPLIT_K", 1}}},
        {"linear_tile", DT_BF16, DT_FP32, 264, 392, 0, "head", 70, 128, {{"SPLIT_K", 1}}},
        {"linear_fma", DT_FP32, DT_FP32, 24, 300, 1, "", 5, 8, {{0}}},
        {"linear_fma", DT_FP32, DT_FP32, 24, 301, 0, "", 90, 0, {{0}}},
        {"linear_fma_append", DT_FP32, DT_FP32, 64, 202, 0, "append", 70, 128, {{0}}},
        {"linear_fma_head", DT_FP32, DT_FP32, 40, 264, 0, "head", 3, 4, {{0}}},
    };
    Suite *s = open_suite("orders");

    (void)state;
    for (size_t i = 0; i < LEN(some); i++)
        add_ordered(s, &some[i]);
    for (size_t i = 0; i < LEN(norms); i++)
        add_ordered_norm(s, &norms[i]);
    finish(s, 61);
}
