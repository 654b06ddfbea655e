/* batches.c - linear layers of decode programs of more than 64 rows: every form of the tiles of linear_batch. */
#include "kernels.h"

typedef struct Batch {
    DType t;
    int N, K, bias;
    const char *end; /* "", "act", "glu", "add"; "append": N columns are 4 heads, 2 of them of queries */
    int rows, bucket;
    int tile_n, split_k, warpgroups;
} Batch;

static void add_batch(Suite *s, const Batch *b)
{
    const char *type = dtype_name(b->t);
    const bool append = strcmp(b->end, "append") == 0;
    Ir g = {0};
    Case c = {.kv = b->t,
              .only = append ? "linear_batch_append" : "linear_batch",
              .decode = true,
              .bucket = b->bucket,
              .sms = b->bucket == 384 ? 3 : 4,
              .use = {{"TILE_N", b->tile_n}, {"SPLIT_K", b->split_k}, {"WARPGROUPS", b->warpgroups}},
              .n_use = 3,
              .rows = b->rows,
              .decode_rows = b->rows};
    char name[200];

    g.n = (size_t)snprintf(g.text, sizeof g.text,
                           "graph \"case\"\nlimits sequences=512 context=64 tokens=512 kv_block=8 kv_pages=2600 "
                           "logit_bias=4 end_ids=4\n");
    add(&g, "ids : [T] i32");
    const int y = product(&g, input(&g, b->K, b->t), b->N, b->K, b->bias, b->t);

    if (strcmp(b->end, "act") == 0)
        add(&g, "act %%%d {kind=\"gelu_tanh\"} : [T,%d] %s", y, b->N, type);
    else if (strcmp(b->end, "glu") == 0)
        add(&g, "glu %%%d {kind=\"silu\"} : [T,%d] %s", y, b->N / 2, type);
    else if (strcmp(b->end, "add") == 0)
        add(&g, "add %%%d %%%d : [T,%d] %s", y, input(&g, b->N, b->t), b->N, type);
    else if (append)
        add(&g, "append %%%d %%%d {layer=0 heads=2 kv_heads=1 head_dim=%d rot=%d} : [T,2,%d] %s", y,
            add(&g, "rope_table {rot=%d theta=10000 positions=64} : [64,%d,2] fp32", b->N / 4 - 8, b->N / 8 - 4),
            b->N / 4, b->N / 4 - 8, b->N / 4, type);
    for (int r = 0; r < b->rows; r++) {
        c.row[r].q_len = 1;
        c.row[r].kv_len = 1 + r * 7 % 40;
    }
    snprintf(name, sizeof name, "batch %s N=%d K=%d bias=%d %s rows=%d of %d columns=%d slices=%d warpgroups=%d", type,
             b->N, b->K, b->bias, b->end, b->rows, b->bucket, b->tile_n, b->split_k, b->warpgroups);
    take(s, &g, &c, name);
}

void batches(void **state)
{
    static const Batch some[] = {
        /* one tile a block, of a bucket that is no multiple of 64; more tiles than blocks; a ring longer than a tile; one live
         * block of rows */
        {DT_BF16, 72, 136, 1, "add", 70, 100, 32, 1, 2},
        {DT_FP16, 200, 200, 0, "act", 128, 128, 32, 1, 2},
        {DT_BF16, 520, 712, 1, "", 65, 128, 96, 1, 2},
        {DT_BF16, 344, 712, 1, "add", 40, 128, 48, 1, 2},
        /* slices of K: of unlike length, of one step */
        {DT_FP16, 120, 328, 1, "add", 90, 128, 64, 2, 2},
        {DT_BF16, 96, 200, 0, "glu", 127, 128, 96, 4, 2},
        {DT_FP16, 72, 328, 0, "act", 60, 128, 64, 4, 2},
        {DT_FP16, 200, 392, 1, "", 110, 128, 64, 2, 2},
        /* several row tiles: of two and of one block of rows; in turns that begin with another one; the last without rows */
        {DT_BF16, 136, 200, 0, "add", 160, 512, 48, 1, 2},
        {DT_BF16, 392, 136, 1, "", 150, 256, 64, 1, 2},
        {DT_FP16, 264, 136, 1, "glu", 140, 384, 64, 1, 2},
        {DT_BF16, 104, 392, 0, "add", 129, 512, 64, 2, 2},
        {DT_BF16, 72, 136, 1, "", 64, 512, 32, 1, 2},
        /* wide tiles */
        {DT_BF16, 232, 136, 0, "glu", 80, 128, 160, 1, 2},
        {DT_FP16, 456, 72, 1, "add", 80, 128, 224, 1, 2},
        {DT_BF16, 192, 136, 0, "", 80, 128, 192, 2, 2},
        {DT_FP16, 264, 136, 0, "glu", 100, 128, 256, 1, 2},
        {DT_BF16, 200, 72, 1, "add", 72, 128, 128, 1, 2},
        {DT_FP16, 240, 456, 0, "glu", 130, 256, 112, 1, 2},
        /* tiles of three blocks of rows: all live, two, several row tiles, slices of K, the widest */
        {DT_BF16, 200, 136, 1, "add", 170, 192, 48, 1, 3},
        {DT_FP16, 136, 328, 0, "glu", 129, 192, 112, 1, 3},
        {DT_BF16, 104, 392, 1, "add", 192, 192, 64, 2, 3},
        {DT_FP16, 328, 136, 1, "", 100, 192, 160, 1, 3},
        {DT_BF16, 136, 200, 0, "act", 300, 384, 64, 1, 3},
        {DT_BF16, 224, 200, 1, "append", 150, 192, 96, 2, 3},
        {DT_FP16, 456, 136, 0, "glu", 300, 384, 224, 1, 3}, /* two products of 112 columns */
        {DT_BF16, 136, 392, 1, "add", 257, 384, 128, 2, 3},
        {DT_BF16, 224, 136, 0, "append", 330, 384, 96, 1, 3},
        /* tiles of four blocks of rows, some with fewer; of unlike height; slices of K */
        {DT_BF16, 200, 136, 1, "add", 190, 256, 48, 1, 4},
        {DT_FP16, 264, 136, 0, "glu", 300, 512, 64, 1, 4},
        {DT_BF16, 104, 392, 1, "add", 250, 256, 64, 2, 4},
        {DT_FP16, 136, 328, 0, "act", 130, 256, 64, 4, 4},
        {DT_BF16, 232, 72, 0, "glu", 129, 192, 112, 1, 4},
        {DT_FP16, 456, 136, 1, "", 330, 384, 128, 1, 4},
        {DT_BF16, 72, 200, 1, "", 512, 512, 32, 1, 4},
        {DT_BF16, 224, 200, 0, "append", 139, 256, 96, 2, 4},
        {DT_FP16, 224, 136, 0, "append", 400, 512, 48, 1, 4},
        {DT_BF16, 224, 200, 1, "append", 180, 256, 96, 2, 4},
        {DT_FP16, 264, 136, 1, "glu", 200, 256, 128, 1, 4},
        /* the cache, the first of such a bucket */
        {DT_BF16, 96, 136, 1, "append", 70, 100, 64, 1, 2},
        {DT_FP16, 160, 264, 0, "append", 150, 256, 96, 2, 2},
        {DT_BF16, 224, 200, 0, "append", 139, 512, 112, 1, 2},
    };
    Suite *s = open_suite("batches");

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        add_batch(s, &some[i]);
    if (wide) {
        static const char *const ends[] = {"", "act", "glu", "add", "append"};

        for (int e = 0; e < 5; e++)
            for (int n = 0; n < 10; n++)
                for (int split = 1; split <= 4; split *= 2) {
                    const int columns[] = {32, 48, 64, 96, 112, 128, 160, 192, 224, 256};
                    const int warpgroups = columns[n] <= 128 && (n + e + split) % 2 ? 4 : 2;

                    if (columns[n] % (8 * split) == 0 && (columns[n] < 256 || split > 1 || strcmp(ends[e], "add") != 0))
                        add_batch(s, &(Batch){(n + e) % 2 ? DT_BF16 : DT_FP16,
                                              (const int[]){96, 160, 352, 544}[(n + e) % 4],
                                              (const int[]){264, 520, 584, 1032}[(n + split) % 4], (n + e) % 3 == 0,
                                              ends[e], (const int[]){65, 160, 250, 129}[(n + e) % 4],
                                              (const int[]){256, 384, 512}[(n + e + split) % 3], columns[n], split,
                                              warpgroups});
                }
    }
    finish(s, 53);
}
