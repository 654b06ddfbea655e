/* hooks.c - the functions that compiled kernels call before every load and store (-fsanitize=thread,alignment),
 * and the wrappers of memcpy, memmove and memset.
 *
 * This file itself is compiled without sanitizers, because compilers treat these names specially then. Under
 * AddressSanitizer it is left out: plain loads and stores are checked by that. */
#include "parts.h"

#define HOOK(bytes) \
    void __tsan_read##bytes(void *p); \
    void __tsan_write##bytes(void *p); \
    void __tsan_unaligned_read##bytes(void *p); \
    void __tsan_unaligned_write##bytes(void *p); \
    void __tsan_read##bytes(void *p) \
    { \
        memory_access(p, bytes, A_READ | A_ALIGNED, PC()); \
    } \
    void __tsan_write##bytes(void *p) \
    { \
        memory_access(p, bytes, A_WRITE | A_ALIGNED, PC()); \
    } \
    void __tsan_unaligned_read##bytes(void *p) \
    { \
        memory_access(p, bytes, A_READ, PC()); \
    } \
    void __tsan_unaligned_write##bytes(void *p) \
    { \
        memory_access(p, bytes, A_WRITE, PC()); \
    }

HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)

void __tsan_read_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes);
void __tsan_init(void);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void *__wrap_memcpy(void *to, const void *from, size_t n); /* clang turns struct copies into calls of memcpy */
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__wrap_memset(void *to, int v, size_t n);

void __tsan_read_range(void *p, size_t bytes)
{
    memory_access(p, bytes, A_READ, PC());
}
void __tsan_write_range(void *p, size_t bytes)
{
    memory_access(p, bytes, A_WRITE, PC());
}
void __tsan_init(void) {}
void __tsan_func_entry(void *pc)
{
    (void)pc;
}
void __tsan_func_exit(void) {}
void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    memory_access(from, n, A_READ, PC());
    memory_access(to, n, A_WRITE, PC());
    return memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n)
{
    memory_access(from, n, A_READ, PC());
    memory_access(to, n, A_WRITE, PC());
    return memmove(to, from, n);
}
void *__wrap_memset(void *to, int v, size_t n)
{
    memory_access(to, n, A_WRITE, PC());
    return memset(to, v, n);
}

/* UBSan calls this for a pointer that is not aligned as its type requires, also where the compiler splits the
 * access into smaller ones. */
struct TypeMismatch {
    struct {
        const char *file;
        uint32_t line, column;
    } at;
    const void *type;
    unsigned char log_alignment, kind;
};
void __ubsan_handle_type_mismatch_v1(const struct TypeMismatch *m, const void *p);
void __ubsan_handle_type_mismatch_v1(const struct TypeMismatch *m, const void *p)
{
    report(SIMT_ALIGN, PC(), NULL, "a pointer to a type that is aligned to %u: %s", 1u << m->log_alignment,
           memory_where(p));
}
