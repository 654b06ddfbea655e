/* wgmma.c - asynchronous matrix products of a warpgroup (wgmma).
 *
 * A in registers is read when wgmma is issued. Operands in shared memory are read at the wait, the last moment
 * allowed; until then the accumulators hold NaN. */
#include "device/host.h"
#include "parts.h"

#include <math.h>

#include "runtime/base/dtype.h"

enum { K16 = 16, MAX_SUMS = 128 }; /* MAX_SUMS: accumulators of a lane */

typedef struct Product {
    struct Product *next;
    float *d;
    unsigned n, group; /* columns of B; commit group */
    bool bf16;
    bool e4m3;        /* an element of 16 bits is two numbers of e4m3 */
    bool s8;          /* ... two integers; the sums are integers, whose bits stand in d */
    uint64_t b, seen; /* descriptor of B; checksum of the shared operands at issue */
    bool across;      /* B is n-major: its rows are k */
    bool tile;        /* A is in shared memory, too */
    uint64_t shared_a;
    float a[2][K16]; /* of bytes as numbers of bf16 with the same bits; rows g and g + 8 of the warp */
    const void *pc;
} Product;

typedef struct Sums { /* the values of accumulators d once their products are done */
    struct Sums *next;
    float *d;
    unsigned n;
    float value[MAX_SUMS];
} Sums;

/* Shared address of a 16-byte unit of a row, from a descriptor (device/wgmma.cuh). Only a row of an N-major operand has
 * more than 8 units. */
static uint32_t unit_of(uint64_t b, unsigned row, unsigned unit)
{
    const uint32_t base = (uint32_t)b & 0xffffff, across = (uint32_t)(b >> 24 & 0xff) * 8;
    const uint32_t r = (uint32_t)(b >> 32 & 0xffff) + row + unit / 8 * across, k16 = (uint32_t)(b >> 48);

    return base + r * 128 + ((k16 * 2 + unit % 8) ^ (r & 7)) * 16;
}

/* Checks one row of an operand, `units` of 16 bytes each, and returns a checksum. begins: as the product is issued, which is
 * when plain writes must have been fenced. */
static uint64_t look_at_row(const Product *p, uint64_t operand, unsigned row, unsigned units, bool begins)
{
    uint64_t sum = 0, words[2];
    uint16_t seen[8];

    for (unsigned unit = 0; unit < units; unit++) {
        const void *at = memory_shared(unit_of(operand, row, unit), 16, A_READ | A_ALIGNED | A_UNWRITTEN_OK, p->pc);

        if (begins && !run.current->proxied && memory_is_plain(at)) {
            report(SIMT_FENCE, p->pc, NULL,
                   "wgmma reads what plain stores or cp.async brought, with no async_proxy_fence "
                   "since they were waited for");
            return 0;
        }
        memory_products(unit_of(operand, row, unit), seen);
        memcpy(words, seen, sizeof words);
        sum = (sum + words[0] * 0x9E3779B97F4A7C15u + words[1]) * 0xBF58476D1CE4E5B9u;
    }
    return sum;
}

/* A warp's first row of A. */
static unsigned warp_row(const Fiber *f)
{
    return f->tid / WARP % 4 * 16;
}

/* Each lane checks some rows of the shared operands. Returns the lane's checksum. */
static uint64_t look(const Product *p, bool begins)
{
    const Fiber *f = run.current;
    uint64_t sum = 0;

    for (unsigned row = f->tid % WARP; row < (p->across ? K16 : p->n); row += WARP)
        sum = sum * 31 + look_at_row(p, p->b, row, p->across ? p->n / 8 : 2, begins);
    if (p->tile && f->tid % WARP < 16)
        sum = sum * 31 + look_at_row(p, p->shared_a, warp_row(f) + f->tid % WARP, 2, begins);
    return sum;
}

static Sums *sums_of(Fiber *f, float *d, unsigned n)
{
    Sums *s = f->sums;

    while (s && s->d != d)
        s = s->next;
    if (!s) {
        s = run_keep(sizeof *s);
        *s = (Sums){.next = f->sums, .d = d, .n = n};
        memcpy(s->value, d, n / 2 * sizeof *d);
        for (unsigned i = 0; i < n / 2; i++)
            d[i] = NAN;
        f->sums = s;
    }
    return s;
}

static void check_operand(char name, uint64_t operand, const void *pc)
{
    const unsigned base = operand & 0xffffff;

    if (base % 1024 || (operand >> 32 & 7))
        report(SIMT_ALIGN, pc, NULL, "wgmma: %c at %u, row %u: a multiple of 1024, of 8", name, base,
               (unsigned)(operand >> 32 & 0xffff));
}

static void begin(Product *p)
{
    Fiber *f = run.current;
    Product **last = &f->products;

    check_operand('B', p->b, p->pc);
    if (!f->wgmma_fenced)
        report(SIMT_FENCE, p->pc, NULL, "wgmma without a wgmma_fence since the last wait");
    p->group = f->wgmma_group;
    sums_of(f, p->d, p->n);
    p->seen = look(p, true);
    while (*last)
        last = &(*last)->next;
    *last = p;
    simt_counts.collectives++;
}

static void begin_rows(Product p, const unsigned *a)
{
    Product *kept = run_keep(sizeof *kept);

    *kept = p;
    memcpy(run.current->in, a, 16);
    sync_rows(kept->a, p.bf16, p.pc);
    begin(kept);
}

void simt_wgmma(int bf16, unsigned n, float *d, const unsigned *a, unsigned long long b)
{
    begin_rows((Product){.d = d, .n = n, .bf16 = bf16, .b = b, .pc = PC()}, a);
}

void simt_wgmma_e4m3(unsigned n, float *d, const unsigned *a, unsigned long long b)
{
    begin_rows((Product){.d = d, .n = n, .bf16 = true, .e4m3 = true, .b = b, .pc = PC()}, a);
}

void simt_wgmma_s8(unsigned n, int *d, const unsigned *a, unsigned long long b)
{
    begin_rows((Product){.d = (float *)(void *)d, .n = n, .bf16 = true, .s8 = true, .b = b, .pc = PC()}, a);
}

void simt_wgmma_n_major(int bf16, unsigned n, float *d, const unsigned *a, unsigned long long b)
{
    begin_rows((Product){.d = d, .n = n, .bf16 = bf16, .b = b, .across = true, .pc = PC()}, a);
}

void simt_wgmma_shared(int bf16, unsigned n, float *d, unsigned long long a, unsigned long long b)
{
    Product *p = run_keep(sizeof *p);

    *p = (Product){.d = d, .n = n, .bf16 = bf16, .b = b, .tile = true, .shared_a = a, .pc = PC()};
    check_operand('A', a, PC());
    begin(p);
}

/* Rows g and g + 8 of a warp's A in shared memory. */
static void read_rows(const Fiber *f, Product *p)
{
    uint16_t unit[8];

    for (unsigned h = 0; h < 2; h++)
        for (unsigned k = 0; k < K16; k++) {
            if (k % 8 == 0)
                memory_products(unit_of(p->shared_a, warp_row(f) + f->tid % WARP / 4 + 8 * h, k / 8), unit);
            p->a[h][k] = p->bf16 ? bf16_to_float(unit[k % 8]) : fp16_to_float(unit[k % 8]);
        }
}

/* B[column][0..15], or B[0..15][column]. */
static void read_column(float out[K16], const Product *p, unsigned column)
{
    uint16_t unit[8];

    for (unsigned k = 0; k < K16; k++) {
        if (p->across)
            memory_products(unit_of(p->b, k, column / 8), unit);
        else if (k % 8 == 0)
            memory_products(unit_of(p->b, column, k / 8), unit);

        const uint16_t h = unit[p->across ? column % 8 : k % 8];
        out[k] = p->bf16 ? bf16_to_float(h) : fp16_to_float(h);
    }
}

/* The product of two elements: of e4m3 the sum of two products. */
static float multiply(const Product *p, float a, float b)
{
    uint32_t x, y;

    if (!p->e4m3)
        return a * b;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return e4m3_to_float((uint8_t)(x >> 16)) * e4m3_to_float((uint8_t)(y >> 16)) +
           e4m3_to_float((uint8_t)(x >> 24)) * e4m3_to_float((uint8_t)(y >> 24));
}

/* The product of two integers each. */
static int32_t multiply_integers(float a, float b)
{
    int8_t x[4], y[4];

    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    return x[2] * y[2] + x[3] * y[3];
}

static void finish(Fiber *f, Product *p)
{
    const unsigned t = f->tid % 4;
    Sums *s = sums_of(f, p->d, p->n);

    if (look(p, false) != p->seen)
        report(SIMT_IN_FLIGHT, p->pc, NULL, "the operand of a product changed before it was waited for");
    if (p->tile)
        read_rows(f, p);
    for (unsigned i = 0; i < p->n / 2; i++) {
        const unsigned column = i / 4 * 8 + t * 2 + i % 2;
        const float *row = p->a[i % 4 / 2];
        float b[K16], sum = 0.0f;

        read_column(b, p, column);
        if (p->s8) {
            int32_t all;

            memcpy(&all, &s->value[i], sizeof all);
            for (unsigned k = 0; k < K16; k++)
                all += multiply_integers(row[k], b[k]);
            memcpy(&s->value[i], &all, sizeof all);
            continue;
        }
        for (unsigned k = 0; k < K16; k++)
            sum += multiply(p, row[k], b[k]);
        s->value[i] += sum;
    }
}

void simt_wgmma_fence(void)
{
    run.current->wgmma_fenced = true;
}

void simt_wgmma_commit(void)
{
    run.current->wgmma_group++;
}

void simt_wgmma_wait(unsigned pending)
{
    Fiber *f = run.current;

    while (f->products && f->products->group + pending < f->wgmma_group) {
        finish(f, f->products);
        f->products = f->products->next;
    }
    simt_warp_sync(); /* the products are complete for all lanes of the warp */
    for (Sums **s = &f->sums; *s;) {
        const Product *p = f->products;

        while (p && p->d != (*s)->d)
            p = p->next;
        if (p) {
            s = &(*s)->next;
            continue;
        }
        memcpy((*s)->d, (*s)->value, (*s)->n / 2 * sizeof *(*s)->d);
        *s = (*s)->next;
    }
    f->wgmma_fenced = false;
    sync_products_done(PC());
}

void wgmma_thread_ends(Fiber *f)
{
    if (f->products)
        report(SIMT_IN_FLIGHT, f->products->pc, NULL, "a thread ends with products under way");
}
