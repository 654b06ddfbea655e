/* test_cpu_heads.c - the CPU kernels of heads one by one (attend, cache, rope, norms) against the references: pages in any
 * order, texts, sources, the lanes of a beam search; windows, biases, slopes, sinks; caches of any type. */
#include "cpu_test.h"

enum { ROWS = 4, BLOCK = 8, LENGTH = 64, PAGES = LENGTH / BLOCK, SOURCE = 50, KEYS = 2 * ROWS * LENGTH };

typedef struct Step {
    FtxRow rows[ROWS];
    FtxToken token[256];
    int32_t pages[ROWS * PAGES], owner[ROWS * LENGTH];
    int T;
} Step;

/* The prompts of the rows with several tokens end with these, or behind them. */
static void make_whole(Step *s)
{
    for (int r = 0; r < ROWS; r++)
        if (s->rows[r].q_len > 1)
            s->rows[r].prompt = s->rows[r].kv_len + r % 2;
}

/* q_len and kv_len of each row. With lanes all rows but the last are one beam search. */
static Step make_step(const int length[ROWS][2], bool lanes)
{
    Step s = {.T = 0};

    for (int i = 0; i < ROWS * PAGES; i++)
        s.pages[i] = (i * 5 + 3) % (ROWS * PAGES);
    for (int i = 0; i < ROWS * LENGTH; i++)
        s.owner[i] = (i * 7 / 3) % (ROWS - 1);
    for (int r = 0; r < ROWS; r++) {
        s.rows[r] = (FtxRow){.q_start = s.T,
                             .q_len = length[r][0],
                             .kv_len = length[r][1],
                             .slot = (r + 1) % ROWS,
                             .src_len = 1 + 16 * r,
                             .src_slot = (r * 3 + 1) % ROWS,
                             .prompt = 5,
                             .lane = lanes && r < ROWS - 1 ? r : -1};
        for (int i = 0; i < length[r][0]; i++)
            s.token[s.T++] = (FtxToken){.pos = length[r][1] - length[r][0] + i, .row = r, .slot = s.rows[r].slot};
    }
    return s;
}

static int page_row(const Step *s, const FtxRow *row, int p)
{
    const int slot = row->lane < 0 || p == row->kv_len - 1 ? row->slot
                     : p < row->prompt                     ? s->rows[row->group].slot
                                                           : s->owner[row->slot * LENGTH + p];

    return s->pages[slot * PAGES + p / BLOCK];
}

typedef struct Shape {
    int H, G, E, place, causal, window, span;
    bool slopes, sinks, lanes;
    double softcap;
    DType type;
    int chunk;
    bool rounded;
    int prefix; /* not 0: one more than the tail of the prompt that others do not see */
    int reach;  /* columns of by_query and by_key; 0: none */
} Shape;

/* Element of key j of head g, in pages, rows or sources. */
static int64_t element(const Step *s, const Shape *x, const FtxRow *row, int g, int j)
{
    if (x->place == 1)
        return ((int64_t)(row->q_start + j) * x->G + g) * x->E;
    if (x->place == 2)
        return (((int64_t)row->src_slot * x->G + g) * SOURCE + j) * x->E;
    return (((int64_t)page_row(s, row, j) * x->G + g) * BLOCK + j % BLOCK) * x->E;
}

static void expect_attend(const Step *s, const Shape *x, const float *q, const void *k, const void *v, RefScores scores,
                          float *want)
{
    const DType type = x->place == 1 || dtype_is_code(x->type) ? DT_FP32 : x->type;

    for (int t = 0; t < s->T; t++)
        for (int h = 0; h < x->H; h++) {
            const FtxRow *row = &s->rows[s->token[t].row];
            const int i = t - row->q_start + (x->place ? 0 : row->kv_len - row->q_len);
            const int end = x->place == 2 ? row->src_len : x->place == 0 || x->causal ? i + 1 : row->q_len;
            const int whole = x->prefix ? ref_prefix(row, x->prefix - 1) : 0;
            const int n = whole > row->kv_len ? row->kv_len : whole > end ? whole : end;
            const bool behind = x->place == 0 || x->causal;
            int64_t place[KEYS];

            for (int j = 0; j < n; j++)
                place[j] = (x->window && (behind ? i - j >= x->window : abs(i - j) > x->window)) ||
                                   (x->chunk && i / x->chunk != j / x->chunk)
                               ? -1
                               : element(s, x, row, h / (x->H / x->G), j);
            scores.i = i;
            ref_attend_keys((RefTensor){q, DT_FP32}, ((int64_t)t * x->H + h) * x->E, (RefTensor){k, type},
                            (RefTensor){v, type}, place, n, x->E, h, &scores, want + ((int64_t)t * x->H + h) * x->E);
        }
}

/* Pages of codes of the numbers, which become those of the codes. */
static void *as_codes(const Shape *x, float *numbers)
{
    const int rows = x->G * BLOCK, pages = ROWS * PAGES;
    char *codes = malloc((size_t)(pages * rows * (x->E + 2)));
    const RefCache c = {.type = x->type, .block = BLOCK, .G = x->G, .E = x->E};
    double row[576];

    for (int i = 0; i < pages * rows; i++) {
        ref_cache(&c, codes, i / rows, i % rows, numbers + (size_t)i * (size_t)x->E);
        ref_cached(&c, codes, i / rows, i % rows, row);
        for (int e = 0; e < x->E; e++)
            numbers[i * x->E + e] = (float)row[e];
    }
    return codes;
}

/* The same by attend_texts, whose operands are arg; a text alone has the bits that it has among others. */
static void check_texts(const Shape *x, const Step *s, void *const arg[7], const float *want)
{
    const int64_t consts[] = {[ATTEND_TEXTS_H] = x->H,           [ATTEND_TEXTS_G] = x->G,
                              [ATTEND_TEXTS_E] = x->E,           [ATTEND_TEXTS_SCALE] = number_bits(0.3),
                              [ATTEND_TEXTS_WINDOW] = x->window, [ATTEND_TEXTS_SOFTCAP] = number_bits(x->softcap),
                              [ATTEND_TEXTS_CAUSAL] = x->causal, [ATTEND_TEXTS_SPAN] = x->span};
    const size_t values = (size_t)(s->T * x->H * x->E);
    float *y = arg[6], *again = malloc(values * 4);

    for (int level = 0; level < LEVELS; level++) {
        memset(y, -1, values * 4);
        call(kernel_at("attend_texts", level), arg, consts, s->T, ROWS, 1);
        assert_close(y, want, values, 4e-6, "attend_texts");
        memcpy(again, y, values * 4);
        memset(y, -1, values * 4);
        call(kernel_at("attend_texts", level), arg, consts, s->T, ROWS, 5);
        assert_memory_equal(y, again, values * 4);
        for (int r = 0; r < ROWS; r++) {
            void *const one[] = {arg[0], arg[1], arg[2], arg[3], arg[4], (void *)&s->rows[r], y};

            memset(y, -1, values * 4);
            call(kernel_at("attend_texts", level), one, consts, s->T, 1, 2);

            const size_t from = (size_t)(s->rows[r].q_start * x->H * x->E);

            assert_memory_equal(y + from, again + from, (size_t)(s->rows[r].q_len * x->H * x->E) * 4);
        }
    }
    free(again);
}

static void check_attend(const Shape *x, const Step *s)
{
    const size_t values = (size_t)(s->T * x->H * x->E);
    const bool codes = dtype_is_code(x->type);
    const DType type = x->place == 1 || codes ? DT_FP32 : x->type;
    const size_t cached = (size_t)(x->G * x->E) * (x->place == 1   ? (size_t)s->T
                                                   : x->place == 2 ? (size_t)(ROWS * SOURCE)
                                                                   : (size_t)(ROWS * LENGTH));
    float *q = random_tensor(values, DT_FP32, 2.0f), *y = malloc(values * 4), *want = malloc(values * 4);
    float *again = malloc(values * 4);
    void *k = random_tensor(cached, type, 2.0f), *v = random_tensor(cached, type, 2.0f);
    float *bias = x->span ? random_tensor((size_t)(x->H * x->span), DT_FP32, 2.0f) : NULL;
    float *slopes = x->slopes ? random_tensor((size_t)x->H, DT_FP32, 0.3f) : NULL;
    float *sinks = x->sinks ? random_tensor((size_t)x->H, DT_FP32, 3.0f) : NULL;
    const size_t by = (size_t)(s->T * x->H * x->reach);
    float *by_query = by ? random_tensor(by, DT_FP32, 2.0f) : NULL,
          *by_key = by ? random_tensor(by, DT_FP32, 2.0f) : NULL;
    void *const codes_k = codes ? as_codes(x, k) : NULL, *const codes_v = codes ? as_codes(x, v) : NULL;
    void *const pages_k = codes ? codes_k : x->place == 0 ? k : NULL;
    void *const pages_v = codes ? codes_v : x->place == 0 ? v : NULL;
    void *const cross_k = x->place == 2 ? k : NULL, *const cross_v = x->place == 2 ? v : NULL;
    void *const arg[] = {q,
                         x->place == 1 ? k : NULL,
                         x->place == 1 ? v : NULL,
                         bias,
                         slopes,
                         sinks,
                         (void *)s->rows,
                         (void *)s->token,
                         (void *)s->pages,
                         pages_k,
                         pages_v,
                         cross_k,
                         cross_v,
                         x->lanes ? (void *)s->owner : NULL,
                         by_query,
                         by_key,
                         y};
    const int64_t consts[] = {[ATTEND_H] = x->H,
                              [ATTEND_G] = x->G,
                              [ATTEND_E] = x->E,
                              [ATTEND_SCALE] = number_bits(0.3),
                              [ATTEND_WINDOW] = x->window,
                              [ATTEND_SOFTCAP] = number_bits(x->softcap),
                              [ATTEND_PLACE] = x->place,
                              [ATTEND_CAUSAL] = x->causal,
                              [ATTEND_SPAN] = x->span,
                              [ATTEND_BLOCK] = BLOCK,
                              [ATTEND_PAGES] = PAGES,
                              [ATTEND_LENGTH] = LENGTH,
                              [ATTEND_SOURCE] = SOURCE,
                              [ATTEND_KV] = x->type,
                              [ATTEND_SOURCE_KV] = x->place == 2 ? x->type : DT_FP32,
                              [ATTEND_CHUNK] = x->chunk,
                              [ATTEND_ROUNDED] = x->rounded,
                              [ATTEND_PREFIX] = x->prefix > 0,
                              [ATTEND_TAIL] = x->prefix ? x->prefix - 1 : 0,
                              [ATTEND_REACH] = x->reach};

    expect_attend(s, x, q, k, v,
                  (RefScores){.scale = 0.3,
                              .softcap = x->softcap,
                              .bias = {bias, DT_FP32},
                              .slopes = {slopes, DT_FP32},
                              .sinks = {sinks, DT_FP32},
                              .by_query = {by_query, DT_FP32},
                              .by_key = {by_key, DT_FP32},
                              .reach = x->reach,
                              .span = x->span,
                              .rounded = x->rounded},
                  want);
    for (int level = 0; level < LEVELS; level++) {
        memset(y, -1, values * 4);
        call(kernel_at("attend", level), arg, consts, s->T, ROWS, 1);
        assert_close(y, want, values, 4e-6, "attend");
        memcpy(again, y, values * 4);
        memset(y, -1, values * 4);
        call(kernel_at("attend", level), arg, consts, s->T, ROWS, 5);
        assert_memory_equal(y, again, values * 4);
    }
    if (x->place == 1 && !x->sinks && !x->chunk && !x->rounded && !x->reach)
        check_texts(x, s, (void *const[]){q, k, v, bias, slopes, (void *)s->rows, y}, want);
    free(q), free(y), free(want), free(again), free(k), free(v), free(bias), free(slopes), free(sinks);
    free(by_query), free(by_key), free(codes_k), free(codes_v);
}

static void attends(void **state)
{
    static const int mixed[ROWS][2] = {{1, 40}, {1, 1}, {9, 9}, {5, 64}},
                     texts[ROWS][2] = {{33, 33}, {1, 1}, {64, 64}, {7, 7}};
    static const int lanes[ROWS][2] = {{1, 30}, {1, 30}, {1, 30}, {1, 12}};
    static const Shape shapes[] = {
        {4, 2, 24, 0, 1, 0, 0, false, false, false, 0, DT_FP32, 0, false, 0, 0},
        {3, 1, 40, 0, 1, 6, 9, true, true, false, 12, DT_BF16, 0, false, 0, 0},
        {2, 2, 512, 0, 1, 33, 0, false, true, false, 0, DT_FP16, 0, false, 0, 0},
        {1, 1, 576, 0, 1, 0, 0, false, false, false, 0, DT_FP32, 0, false, 0, 0},
        {2, 1, 16, 0, 1, 0, 0, true, false, true, 0, DT_FP32, 0, false, 0, 0},
        {2, 2, 72, 0, 1, 9, 127, false, true, true, 0, DT_BF16, 0, false, 0, 0},
        {4, 2, 40, 0, 1, 6, 9, true, true, false, 12, DT_INT8, 0, false, 0, 0},
        {2, 1, 136, 0, 1, 0, 0, false, false, true, 0, DT_FP8, 0, false, 0, 0},
        {4, 2, 20, 1, 0, 0, 7, false, false, false, 0, DT_FP32, 0, false, 0, 0},
        {2, 1, 64, 1, 0, 5, 0, false, true, false, 9, DT_FP32, 0, false, 0, 0},
        {3, 3, 32, 1, 1, 0, 0, true, false, false, 0, DT_FP32, 0, false, 0, 0},
        {2, 1, 64, 1, 0, 5, 31, true, false, false, 2, DT_FP32, 0, false, 0, 0},
        {2, 2, 16, 1, 0, 20, 125, false, false, false, 0, DT_FP32, 0, false, 0, 0},
        {2, 1, 256, 1, 0, 40, 0, false, false, false, 9, DT_FP32, 0, false, 0, 0},
        {3, 1, 24, 1, 1, 1, 3, true, false, false, 0, DT_FP32, 0, false, 0, 0},
        {4, 2, 32, 1, 1, 37, 65, false, false, false, 0, DT_FP32, 0, false, 0, 0},
        {1, 1, 48, 1, 1, 33, 3, false, false, false, 0, DT_FP32, 0, false, 0, 0},
        {4, 1, 40, 2, 0, 0, 0, false, true, false, 5, DT_FP32, 0, false, 0, 0},
        {2, 2, 128, 2, 0, 0, 0, false, false, false, 0, DT_BF16, 0, false, 0, 0},
        {2, 1, 24, 0, 1, 0, 0, false, true, false, 0, DT_FP32, 8, false, 0, 0},
        {2, 2, 16, 0, 1, 3, 0, false, false, false, 0, DT_FP32, 16, false, 0, 0},
        {3, 1, 40, 1, 1, 0, 0, true, false, false, 0, DT_FP32, 5, true, 0, 0},
        {2, 2, 32, 0, 1, 0, 0, true, false, false, 0, DT_FP32, 0, true, 0, 0},
        {2, 1, 24, 0, 0, 0, 0, false, false, false, 0, DT_FP32, 0, false, 1, 0},
        {3, 3, 40, 0, 0, 0, 9, true, true, false, 12, DT_BF16, 0, false, 3, 0},
        {2, 1, 16, 0, 0, 0, 0, false, false, true, 0, DT_FP32, 0, false, 2, 0},
        {2, 2, 16, 0, 0, 0, 0, false, false, false, 0, DT_INT8, 0, false, 9, 0},
        {3, 3, 24, 1, 0, 0, 0, false, false, false, 0, DT_FP32, 0, false, 0, 9},
        {2, 2, 40, 1, 0, 20, 0, false, false, false, 0, DT_FP32, 0, false, 0, 127},
        {1, 1, 16, 1, 0, 0, 0, false, false, false, 0, DT_FP32, 0, false, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Step s = make_step(shapes[i].place == 1 ? texts : shapes[i].lanes ? lanes : mixed, shapes[i].lanes);

        if (shapes[i].prefix)
            make_whole(&s);
        check_attend(&shapes[i], &s);
    }
}

/* Values that are the first V elements of their keys: pages of one kind. */
static void check_keys(const Shape *x, int V, const Step *s)
{
    const size_t values = (size_t)(s->T * x->H * V), cached = (size_t)(ROWS * LENGTH * x->G * x->E);
    const bool codes = dtype_is_code(x->type);
    const float most = x->E > 256 ? 0.5f : 2.0f; /* errors of scores, sums of E products, are in exponents */
    float *q = random_tensor((size_t)(s->T * x->H * x->E), DT_FP32, most), *y = malloc(values * 4);
    float *want = malloc(values * 4), *again = malloc(values * 4);
    float *sinks = x->sinks ? random_tensor((size_t)x->H, DT_FP32, 3.0f) : NULL;
    void *k = random_tensor(cached, codes ? DT_FP32 : x->type, 2.0f), *const coded = codes ? as_codes(x, k) : NULL;
    void *const arg[] = {q,
                         NULL,
                         sinks,
                         (void *)s->rows,
                         (void *)s->token,
                         (void *)s->pages,
                         codes ? coded : k,
                         x->lanes ? (void *)s->owner : NULL,
                         y};
    const int64_t consts[] = {[KEYS_ATTEND_H] = x->H,
                              [KEYS_ATTEND_G] = x->G,
                              [KEYS_ATTEND_E] = x->E,
                              [KEYS_ATTEND_V] = V,
                              [KEYS_ATTEND_SCALE] = number_bits(0.3),
                              [KEYS_ATTEND_WINDOW] = x->window,
                              [KEYS_ATTEND_SOFTCAP] = number_bits(x->softcap),
                              [KEYS_ATTEND_BLOCK] = BLOCK,
                              [KEYS_ATTEND_PAGES] = PAGES,
                              [KEYS_ATTEND_LENGTH] = LENGTH,
                              [KEYS_ATTEND_KV] = x->type};

    for (int t = 0; t < s->T; t++)
        for (int h = 0; h < x->H; h++) {
            const FtxRow *row = &s->rows[s->token[t].row];
            const int i = t - row->q_start + row->kv_len - row->q_len;
            const RefScores scores = {
                .scale = 0.3, .softcap = x->softcap, .sinks = {sinks, DT_FP32}, .i = i, .v_dim = V};
            const RefTensor keys = {k, codes ? DT_FP32 : x->type};
            int64_t place[KEYS];

            for (int j = 0; j <= i; j++)
                place[j] = x->window && i - j >= x->window ? -1 : element(s, x, row, h / (x->H / x->G), j);
            ref_attend_keys((RefTensor){q, DT_FP32}, ((int64_t)t * x->H + h) * x->E, keys, keys, place, i + 1, x->E, h,
                            &scores, want + ((int64_t)t * x->H + h) * V);
        }
    for (int level = 0; level < LEVELS; level++) {
        memset(y, -1, values * 4);
        call(kernel_at("keys_attend", level), arg, consts, s->T, ROWS, 1);
        assert_close(y, want, values, 4e-6, "keys_attend");
        memcpy(again, y, values * 4);
        memset(y, -1, values * 4);
        call(kernel_at("keys_attend", level), arg, consts, s->T, ROWS, 5);
        assert_memory_equal(y, again, values * 4);
    }
    free(q), free(y), free(want), free(again), free(sinks), free(k), free(coded);
}

static void attends_keys(void **state)
{
    static const int mixed[ROWS][2] = {{1, 40}, {1, 1}, {9, 9}, {5, 64}};
    static const int lanes[ROWS][2] = {{1, 30}, {1, 30}, {1, 30}, {1, 12}};
    static const struct {
        Shape x;
        int V;
    } some[] = {
        {{.H = 4, .G = 2, .E = 24, .type = DT_FP32}, 24},
        {{.H = 11, .G = 1, .E = 48, .type = DT_FP32, .sinks = true}, 33}, /* two runs of heads */
        {{.H = 18, .G = 2, .E = 40, .type = DT_BF16, .window = 6, .softcap = 12}, 16},
        {{.H = 16, .G = 1, .E = 576, .type = DT_BF16}, 512},
        {{.H = 2, .G = 1, .E = 576, .type = DT_FP32, .window = 33, .sinks = true}, 576},
        {{.H = 3, .G = 1, .E = 72, .type = DT_FP16, .lanes = true}, 1},
        {{.H = 4, .G = 2, .E = 40, .type = DT_INT8, .window = 9}, 17},
        {{.H = 9, .G = 1, .E = 136, .type = DT_FP8, .lanes = true}, 128},
    };

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const Step s = make_step(some[i].x.lanes ? lanes : mixed, some[i].x.lanes);

        check_keys(&some[i].x, some[i].V, &s);
    }
}

/* Each head has a matrix of its own; a token's bits do not depend on those beside it. */
static void heads_apart(void **state)
{
    static const int some[][5] = {{1, 3, 5, 16, DT_FP32},    {2, 1, 7, 33, DT_BF16},   {5, 4, 64, 24, DT_FP16},
                                  {13, 2, 70, 130, DT_BF16}, {7, 2, 9, 1100, DT_FP32}, {40, 3, 12, 8, DT_FP32}};

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const int T = some[i][0], H = some[i][1], N = some[i][2], K = some[i][3];
        const DType type = (DType)some[i][4];
        const size_t n = (size_t)(T * H * N);
        float *x = random_tensor((size_t)(T * H * K), DT_FP32, 1.0f), *want = malloc(n * 4), *y = malloc(n * 4);
        float *again = malloc(n * 4);
        void *w = random_tensor((size_t)(H * N * K), type, 1.0f);
        const int64_t consts[] = {
            [HEAD_LINEAR_H] = H, [HEAD_LINEAR_N] = N, [HEAD_LINEAR_K] = K, [HEAD_LINEAR_W] = type};

        ref_head_linear((RefTensor){x, DT_FP32}, (RefTensor){w, type}, T, H, N, K, want);
        for (int level = 0; level < LEVELS; level++) {
            memset(y, -1, n * 4);
            call(kernel_at("head_linear", level), (void *const[]){x, w, y}, consts, T, 1, 3);
            assert_close(y, want, n, 4e-6, "head_linear");
            memcpy(again, y, n * 4);
            memset(y, -1, n * 4);
            for (int t = 0; t < T; t++)
                call(kernel_at("head_linear", level), (void *const[]){x + t * H * K, w, y + t * H * N}, consts, 1, 1,
                     2);
            assert_memory_equal(y, again, n * 4);
        }
        free(x), free(want), free(y), free(again), free(w);
    }
}

/* Elements of heads, and those of two values beside each other; the second may have one head for all. */
static void head_parts(void **state)
{
    enum { T = 5, H = 3, A = 10, B = 7 };
    float *a = random_tensor(T * H * A, DT_FP32, 1.0f), *b = random_tensor(T * H * B, DT_FP32, 1.0f);
    float y[T * H * (A + B)], want[T * H * (A + B)];

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int heads = 1; heads <= H; heads += H - 1) {
            ref_join_parts((RefTensor){a, DT_FP32}, (RefTensor){b, DT_FP32}, T, H, A, heads, B, want);
            call(kernel_at("join_parts", level), (void *const[]){a, b, y}, (const int64_t[]){H, A, B, heads}, T, 1, 2);
            assert_memory_equal(y, want, sizeof y);
            ref_columns((RefTensor){a, DT_FP32}, A, 3, (RefTensor){0}, T * H, A - 4, want);
            call(kernel_at("slice_heads", level), (void *const[]){a, y}, (const int64_t[]){H, A - 4, A, 3}, T, 1, 2);
            assert_memory_equal(y, want, sizeof *y * T * H * (A - 4));
        }
    free(a), free(b);
}

/* Each row of the cache that this step writes, and no other. */
static void caches(void **state)
{
    static const int length[ROWS][2] = {{1, 40}, {1, 1}, {9, 9}, {5, 50}};
    const Step s = make_step(length, false);

    (void)state;
    for (int i = 0; i < 8; i++) {
        static const DType types[] = {DT_FP32, DT_FP16, DT_BF16, DT_INT8, DT_FP8, DT_FP32, DT_FP16, DT_BF16};
        const Shape x = {.G = 1 + i % 3, .E = i % 2 ? 40 : 24, .place = i < 5 ? 0 : 2, .type = types[i]};
        const RefCache c = {.type = x.type, .block = BLOCK, .G = x.G, .E = x.E};
        const size_t n = (size_t)(ROWS * LENGTH * x.G * x.E), row = (size_t)(s.T * x.G * x.E);
        float *keys = random_tensor(row, DT_FP32, 2.0f), *values = random_tensor(row, DT_FP32, 2.0f);
        void *k = calloc(n, 4), *v = calloc(n, 4), *want_k = calloc(n, 4), *want_v = calloc(n, 4);

        for (int t = 0; t < s.T; t++)
            for (int g = 0; g < x.G; g++) {
                const int64_t to = element(&s, &x, &s.rows[s.token[t].row], g, s.token[t].pos);
                const int64_t in = x.place == 0 ? to / x.E % (x.G * BLOCK) : to / x.E;
                const int64_t page = x.place == 0 ? to / x.E / (x.G * BLOCK) : 0;

                ref_cache(&c, want_k, page, in, keys + (t * x.G + g) * x.E);
                ref_cache(&c, want_v, page, in, values + (t * x.G + g) * x.E);
            }
        for (int level = 0; level < LEVELS; level++) {
            memset(k, 0, n * 4), memset(v, 0, n * 4);
            if (x.place == 0)
                call(kernel_at("cache", level), (void *const[]){keys, values, (void *)s.token, (void *)s.pages, k, v},
                     (const int64_t[]){[CACHE_G] = x.G,
                                       [CACHE_E] = x.E,
                                       [CACHE_BLOCK] = BLOCK,
                                       [CACHE_PAGES] = PAGES,
                                       [CACHE_KV] = x.type},
                     s.T, ROWS, 3);
            else
                call(kernel_at("cross_cache", level),
                     (void *const[]){keys, values, (void *)s.rows, (void *)s.token, k, v},
                     (const int64_t[]){[CROSS_CACHE_G] = x.G,
                                       [CROSS_CACHE_E] = x.E,
                                       [CROSS_CACHE_SOURCE] = SOURCE,
                                       [CROSS_CACHE_KV] = x.type},
                     s.T, ROWS, 3);
            assert_memory_equal(k, want_k, n * 4);
            assert_memory_equal(v, want_v, n * 4);
            if (x.place == 2)
                continue;
            memset(k, 0, n * 4);
            call(kernel_at("cache_keys", level), (void *const[]){keys, (void *)s.token, (void *)s.pages, k},
                 (const int64_t[]){[CACHE_KEYS_G] = x.G,
                                   [CACHE_KEYS_E] = x.E,
                                   [CACHE_KEYS_BLOCK] = BLOCK,
                                   [CACHE_KEYS_PAGES] = PAGES,
                                   [CACHE_KEYS_KV] = x.type},
                 s.T, ROWS, 3);
            assert_memory_equal(k, want_k, n * 4);
        }
        free(keys), free(values), free(k), free(v), free(want_k), free(want_v);
    }
}

static void ropes(void **state)
{
    static const int length[ROWS][2] = {{1, 40}, {1, 1}, {9, 9}, {5, 64}};
    static const int shapes[][6] = {{3, 24, 24, 1, 0, 0}, {1, 22, 6, 0, 0, 0},  {2, 40, 12, 1, 0, 0},
                                    {4, 16, 16, 0, 0, 0}, {2, 16, 16, 1, 1, 1}, {1, 24, 24, 0, 2, 1},
                                    {2, 16, 8, 1, 2, 0},  {1, 16, 16, 1, 1, 70}};
    Step s = make_step(length, false);

    (void)state;
    make_whole(&s);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int H = shapes[i][0], E = shapes[i][1], rot = shapes[i][2], half = shapes[i][3];
        const int count = shapes[i][4], tail = shapes[i][5]; /* 0: all positions, 1: within the prefix, 2: behind it */
        FtxToken counted[LENGTH * ROWS];
        const size_t n = (size_t)(s.T * H * E);
        float *x = random_tensor(n, DT_FP32, 2.0f), *table = random_tensor((size_t)(LENGTH * rot), DT_FP32, 1.0f);
        float *y = malloc(n * 4), *want = malloc(n * 4);

        if (count)
            ref_count(s.rows, s.token, s.T, tail, count == 2, counted);
        ref_rope((RefTensor){x, DT_FP32}, table, count ? counted : s.token, s.T, H, E, rot, half, want);
        for (int level = 0; level < LEVELS; level++) {
            memset(y, -1, n * 4);
            call(kernel_at("rope", level), (void *const[]){x, table, s.rows, s.token, y},
                 (const int64_t[]){[ROPE_H] = H,
                                   [ROPE_E] = E,
                                   [ROPE_ROT] = rot,
                                   [ROPE_HALF] = half,
                                   [ROPE_PREFIX] = count == 1,
                                   [ROPE_REST] = count == 2,
                                   [ROPE_TAIL] = tail},
                 s.T, ROWS, 3);
            assert_close(y, want, n, 1e-6, "rope");
        }
        free(x), free(table), free(y), free(want);
    }
}

static void norms(void **state)
{
    enum { T = 7 };
    static const int shapes[][5] = {/* H, E, layer norm, each head has its own gain, its own bias */
                                    {3, 24, 0, 0, 0},
                                    {2, 37, 0, 1, 0},
                                    {1, 128, 1, 0, 0},
                                    {4, 16, 1, 1, 0},
                                    {2, 70, 1, 1, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int H = shapes[i][0], E = shapes[i][1], layer = shapes[i][2], own_g = shapes[i][3], own_b = shapes[i][4];
        const size_t n = (size_t)(T * H * E);
        float *x = random_tensor(n, DT_FP32, 2.0f), *g = random_tensor((size_t)(own_g ? H * E : E), DT_FP32, 1.0f);
        float *b = random_tensor((size_t)(own_b ? H * E : E), DT_FP32, 1.0f), *y = malloc(n * 4), *want = malloc(n * 4);

        for (int at = 0; at < T * H; at++) {
            const RefTensor row = {x + at * E, DT_FP32}, gain = {g + (own_g ? at % H * E : 0), DT_FP32};

            x[at * E] += (float)at; /* a mean other than 0 */
            if (layer)
                ref_layernorm(row, gain, (RefTensor){b + (own_b ? at % H * E : 0), DT_FP32}, 1e-3, 1, E, want + at * E);
            else
                ref_rmsnorm(row, gain, 1e-3, 1, E, want + at * E);
        }
        for (int level = 0; level < LEVELS; level++) {
            memset(y, -1, n * 4);
            call(kernel_at("head_norm", level),
                 (void *const[]){x, own_g ? NULL : g, layer && !own_b ? b : NULL, own_g ? g : NULL,
                                 layer && own_b ? b : NULL, y},
                 (const int64_t[]){[HEAD_NORM_H] = H,
                                   [HEAD_NORM_E] = E,
                                   [HEAD_NORM_LAYER] = layer,
                                   [HEAD_NORM_OWN_G] = own_g,
                                   [HEAD_NORM_OWN_B] = own_b,
                                   [HEAD_NORM_EPS] = number_bits(1e-3)},
                 T, ROWS, 3);
            assert_close(y, want, n, 4e-6, "head_norm");
        }
        free(x), free(g), free(b), free(y), free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(head_parts),   cmocka_unit_test(attends),
                                       cmocka_unit_test(attends_keys), cmocka_unit_test(heads_apart),
                                       cmocka_unit_test(caches),       cmocka_unit_test(ropes),
                                       cmocka_unit_test(norms)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
