/* arena.h - memory with one lifetime: allocated piece by piece, freed at once.
 *
 * Only the compiler uses arenas: without memory they end the program. All memory comes zeroed. */
#ifndef FTX_BASE_ARENA_H
#define FTX_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_open(void);
void arena_reset(Arena *a); /* frees everything, keeps the arena */
void arena_close(Arena *a); /* NULL is fine */

void *arena_alloc(Arena *a, size_t bytes);                   /* aligned to 16 */
void *arena_grow(Arena *a, void *p, size_t old, size_t now); /* copies; the old array stays */
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_printf(Arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *a, const char *format, va_list ap);

#define arena_new(a, T) ((T *)arena_alloc(a, sizeof(T)))
#define arena_array(a, T, n) ((T *)arena_alloc(a, sizeof(T) * (size_t)(n)))

/* Growing arrays: a struct with `T *at; size_t n, cap;` and this to append one zeroed element. */
#define arena_push(a, v) \
    (((v).n == (v).cap ? ((v).at = arena_grow(a, (v).at, sizeof *(v).at * (v).n, sizeof *(v).at * ((v).cap * 2 + 8)), \
                          (v).cap = (v).cap * 2 + 8) \
                       : 0), \
     &(v).at[(v).n++])

#define LEN(array) (sizeof(array) / sizeof *(array))

#endif
