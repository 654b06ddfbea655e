/* amx_emulated.h - the tile instructions of kernels/cpu/amx_tiles.h and the product of kernels/cpu/bf16_pairs.h in plain C. A kernel's text that is included behind it is
 * compiled with them: of linear_q there are then linear_q_amx_plain and, on x86-64, linear_q_amx_avx2 and linear_q_amx_avx512.
 * The first runs on any processor.
 *
 * As on the processor, a register has the shape that amx_shape gave it, rows of other shapes do not meet, and elements
 * outside of a shape are neither read nor written. What a processor would refuse ends the test. */
#ifndef AMX_EMULATED_H
#define AMX_EMULATED_H
#define AMX_EMULATED

typedef struct Tile { /* of the emulated processor */
    int rows, bytes;
    int8_t at[16][64];
} Tile;

static Tile registers[8];
static bool tiles_shaped;

#define amx_shape(shape) emulate_shape((const uint8_t *)(shape))
#define amx_release() emulate_release()
#define amx_zero(t) emulate_zero(t)
#define amx_load(t, p, stride) emulate_load(t, (const char *)(p), stride)
#define amx_store(t, p, stride) emulate_store(t, (char *)(p), stride)
#define amx_dot(sums, x, w) emulate_dot(sums, x, w)
#define amx_dot_bf16(sums, w, x) emulate_dot_bf16(sums, w, x)

/* 64 bytes: palette, bytes of a row of register t in 16 + 2 t, rows in 48 + t. */
static __attribute__((unused)) void emulate_shape(const uint8_t *s)
{
    assert_int_equal(s[0], 1);
    for (int i = 1; i < 16; i++)
        assert_int_equal(s[i], 0);
    for (int t = 8; t < 16; t++)
        assert_int_equal(s[16 + 2 * t] | s[17 + 2 * t] | s[48 + t], 0);
    for (int t = 0; t < 8; t++) {
        registers[t].bytes = s[16 + 2 * t] | s[17 + 2 * t] << 8;
        registers[t].rows = s[48 + t];
        assert_true(registers[t].bytes <= 64 && registers[t].rows <= 16 && !registers[t].bytes == !registers[t].rows);
        memset(registers[t].at, 0, sizeof registers[t].at);
    }
    tiles_shaped = true;
}

static __attribute__((unused)) void emulate_release(void)
{
    memset(registers, 0, sizeof registers);
    tiles_shaped = false;
}

static Tile *shaped_tile(int t)
{
    assert_true(tiles_shaped && registers[t].rows > 0);
    return &registers[t];
}

static __attribute__((unused)) void emulate_zero(int t)
{
    memset(shaped_tile(t)->at, 0, sizeof registers[t].at);
}

static __attribute__((unused)) void emulate_load(int t, const char *p, int64_t stride)
{
    Tile *to = shaped_tile(t);

    memset(to->at, 0, sizeof to->at);
    for (int r = 0; r < to->rows; r++)
        memcpy(to->at[r], p + r * stride, (size_t)to->bytes);
}

static __attribute__((unused)) void emulate_store(int t, char *p, int64_t stride)
{
    const Tile *from = shaped_tile(t);

    for (int r = 0; r < from->rows; r++)
        memcpy(p + r * stride, from->at[r], (size_t)from->bytes);
}

static inline void emulate_dot(int sums, int x, int w)
{
    Tile *c = shaped_tile(sums);
    const Tile *a = shaped_tile(x), *b = shaped_tile(w);

    assert_int_equal(c->rows, a->rows);
    assert_int_equal(c->bytes, b->bytes);
    assert_int_equal(a->bytes, 4 * b->rows);
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->bytes / 4; n++) {
            int32_t sum;

            memcpy(&sum, &c->at[m][4 * n], sizeof sum);
            for (int k = 0; k < a->bytes; k++)
                sum += a->at[m][k] * b->at[k / 4][4 * n + k % 4];
            memcpy(&c->at[m][4 * n], &sum, sizeof sum);
        }
}

static inline float no_subnormal(float f)
{
    return fabsf(f) < 0x1p-126f ? copysignf(0.0f, f) : f;
}

/* The number at the place i of a row of bf16. */
static inline float bf16_at(const int8_t *row, int i)
{
    uint32_t bits = (uint32_t)((uint8_t)row[2 * i] | (uint8_t)row[2 * i + 1] << 8) << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return no_subnormal(f);
}

/* As Intel's manual says of tdpbf16ps. */
static inline void emulate_dot_bf16(int sums, int w, int x)
{
    Tile *c = shaped_tile(sums);
    const Tile *a = shaped_tile(w), *b = shaped_tile(x);

    assert_int_equal(c->rows, a->rows);
    assert_int_equal(c->bytes, b->bytes);
    assert_int_equal(a->bytes, 4 * b->rows);
    for (int n = 0; n < c->rows; n++)
        for (int m = 0; m < c->bytes / 4; m++) {
            float even = 0.0f, odd = 0.0f, sum;

            for (int k = 0; k < a->bytes / 4; k++) {
                even = no_subnormal(fmaf(bf16_at(a->at[n], 2 * k), bf16_at(b->at[k], 2 * m), even));
                odd = no_subnormal(fmaf(bf16_at(a->at[n], 2 * k + 1), bf16_at(b->at[k], 2 * m + 1), odd));
            }
            memcpy(&sum, &c->at[n][4 * m], sizeof sum);
            sum = no_subnormal(no_subnormal(sum) + no_subnormal(even + odd));
            memcpy(&c->at[n][4 * m], &sum, sizeof sum);
        }
}

/* Sums of `lanes` floats, pairs of bf16 in as many: as Intel's manual says of vdpbf16ps. */
static inline void emulate_bf16_dot(void *sums, const void *x, const void *w, int lanes)
{
    for (int l = 0; l < lanes; l++) {
        float sum;

        memcpy(&sum, (char *)sums + 4 * l, sizeof sum);
        for (int i = 2 * l + 1; i >= 2 * l; i--)
            sum = no_subnormal(fmaf(bf16_at(x, i), bf16_at(w, i), no_subnormal(sum)));
        memcpy((char *)sums + 4 * l, &sum, sizeof sum);
    }
}

#endif
