/* host.h - the functions of the harness that replace PTX when a kernel runs on the host. The headers beside this one,
 * which replace those of kernels/device/, call them. Read by C and C++. */
#ifndef FTX_SIMT_HOST_H
#define FTX_SIMT_HOST_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SimtIndex {
    unsigned x, y, z;
} SimtIndex;

/* The same for the whole run of a thread. */
SimtIndex simt_thread_index(void) __attribute__((const));
SimtIndex simt_block_index(void) __attribute__((const));
SimtIndex simt_block_size(void) __attribute__((const));
SimtIndex simt_grid_size(void) __attribute__((const));

enum { SIMT_XOR, SIMT_UP, SIMT_DOWN, SIMT_INDEX };
void simt_warp_sync(void);
void simt_shuffle(int kind, void *value, unsigned bytes, int by);
unsigned simt_ballot(int p);
unsigned simt_least(unsigned v);

void simt_block_sync(void);
int simt_block_count(int p);
void simt_named_barrier_sync(int id, int threads);
void simt_named_barrier_arrive(int id, int threads);

enum { SIMT_ADD, SIMT_OR, SIMT_MAX, SIMT_EXCHANGE };
/* IN_BLOCK: the scope is the block; other blocks neither tell nor hear by it. SYSTEM: the host hears, too. */
enum { SIMT_RELAXED = 0, SIMT_ACQUIRE = 1, SIMT_RELEASE = 2, SIMT_IN_BLOCK = 4, SIMT_SYSTEM = 8 };
unsigned simt_atomic(unsigned *p, int op, unsigned v, int order);
unsigned simt_shared_atomic(unsigned *p, int op, unsigned v);
unsigned simt_load(const unsigned *p, int order);
void simt_store(unsigned *p, unsigned v, int order);
void simt_fence(int order);

void *simt_shared(void);
void *simt_static(const void *site, unsigned bytes, const char *name);
unsigned simt_shared_address(const void *p);
void simt_shared_load(unsigned address, void *to, unsigned bytes);
void simt_shared_store(unsigned address, const void *from, unsigned bytes);
void simt_global_load(const void *p, void *to, unsigned bytes);

void simt_mma(int bf16, float *d, const unsigned *a, const unsigned *b);
void simt_mma_codes(unsigned k, int *d, const unsigned *a, const unsigned *b);
void simt_ldmatrix(unsigned *r, unsigned n, int trans, unsigned row);
unsigned simt_transpose(unsigned pair);

void simt_copy(unsigned to, const void *from, unsigned bytes, unsigned zeros);
void simt_copy_commit(void);
void simt_copy_arrive(unsigned mbarrier);
void simt_copy_wait(unsigned pending);
void simt_bulk_copy(unsigned to, const void *from, unsigned bytes, unsigned mbarrier);
void simt_tensor_copy(unsigned to, const void *map, int row, int column, unsigned mbarrier, unsigned mask);
void simt_async_proxy_fence(void);

void simt_mbarrier_init(unsigned b, unsigned arrivals);
void simt_mbarrier_init_fence(void);
void simt_mbarrier_arrive(unsigned b, unsigned bytes);
int simt_mbarrier_try(unsigned b, unsigned parity);
void simt_mbarrier_wait(unsigned b, unsigned parity);

unsigned simt_cluster_rank(void);
void simt_cluster_arrive(void);
void simt_cluster_wait(void);
unsigned simt_cluster_map(unsigned address, unsigned rank);
void simt_cluster_mbarrier_arrive(unsigned mbarrier);
void simt_cluster_send(unsigned mapped, const void *from, unsigned bytes, unsigned mbarrier);

void simt_wait_for_previous(void);
void simt_launch_dependents(void);

/* Memory that several GPUs write: stores of 16 bytes, loads, nanoseconds. */
void simt_peer_store(void *p, const void *v);
void simt_peer_load(const void *p, void *v);
void simt_peer_store_word(void *p, unsigned v);
unsigned simt_peer_load_word(const void *p);
unsigned long long simt_clock(void);

void simt_wgmma(int bf16, unsigned n, float *d, const unsigned *a, unsigned long long b);
void simt_wgmma_e4m3(unsigned n, float *d, const unsigned *a, unsigned long long b);
void simt_wgmma_s8(unsigned n, int *d, const unsigned *a, unsigned long long b);
void simt_wgmma_n_major(int bf16, unsigned n, float *d, const unsigned *a, unsigned long long b);
void simt_wgmma_shared(int bf16, unsigned n, float *d, unsigned long long a, unsigned long long b);
void simt_wgmma_fence(void);
void simt_wgmma_commit(void);
void simt_wgmma_wait(unsigned pending);

#ifdef __cplusplus
}
#endif
#endif
