/* bytes.h - GGUF files in memory, byte by byte, so that tests can write what no writer would. */
#ifndef TESTS_GGUF_BYTES_H
#define TESTS_GGUF_BYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct GgufBytes {
    unsigned char *at;
    size_t n, cap;
} GgufBytes;

static inline void gguf_put(GgufBytes *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2 + 256;
        b->at = realloc(b->at, b->cap);
        if (!b->at)
            abort();
    }
    if (n)
        memcpy(b->at + b->n, p, n);
    b->n += n;
}

static inline void gguf_put_u32(GgufBytes *b, uint32_t v)
{
    gguf_put(b, &v, sizeof v);
}

static inline void gguf_put_u64(GgufBytes *b, uint64_t v)
{
    gguf_put(b, &v, sizeof v);
}

static inline void gguf_put_text(GgufBytes *b, const char *text)
{
    gguf_put_u64(b, strlen(text));
    gguf_put(b, text, strlen(text));
}

/* The header; its counts are set by gguf_count, which each key and tensor calls. */
static inline void gguf_begin(GgufBytes *b)
{
    b->n = 0;
    gguf_put(b, "GGUF\3\0\0\0", 8);
    gguf_put_u64(b, 0);
    gguf_put_u64(b, 0);
}

static inline void gguf_count(GgufBytes *b, size_t at)
{
    uint64_t n;

    memcpy(&n, b->at + at, sizeof n);
    n++;
    memcpy(b->at + at, &n, sizeof n);
}

/* The name and the kind of a key; its value follows. */
static inline void gguf_name(GgufBytes *b, const char *name, uint32_t kind)
{
    gguf_count(b, 16);
    gguf_put_text(b, name);
    gguf_put_u32(b, kind);
}

static inline void gguf_key_text(GgufBytes *b, const char *name, const char *text)
{
    gguf_name(b, name, 8);
    gguf_put_text(b, text);
}

static inline void gguf_key_u32(GgufBytes *b, const char *name, uint32_t v)
{
    gguf_name(b, name, 4);
    gguf_put_u32(b, v);
}

static inline void gguf_key_flag(GgufBytes *b, const char *name, unsigned char v)
{
    gguf_name(b, name, 7);
    gguf_put(b, &v, 1);
}

/* An array; its elements follow. */
static inline void gguf_key_array(GgufBytes *b, const char *name, uint32_t kind, uint64_t n)
{
    gguf_name(b, name, 9);
    gguf_put_u32(b, kind);
    gguf_put_u64(b, n);
}

/* A tensor's description. All of them follow the keys. */
static inline void gguf_put_tensor(GgufBytes *b, const char *name, uint32_t rank, const uint64_t *dim, uint32_t type,
                                   uint64_t offset)
{
    gguf_count(b, 8);
    gguf_put_text(b, name);
    gguf_put_u32(b, rank);
    for (uint32_t i = 0; i < rank; i++)
        gguf_put_u64(b, dim[i]);
    gguf_put_u32(b, type);
    gguf_put_u64(b, offset);
}

/* Zeros up to a multiple of `to`, then n bytes of data. */
static inline void gguf_put_data(GgufBytes *b, size_t to, size_t n)
{
    static const unsigned char zeros[4096];

    gguf_put(b, zeros, (to - b->n % to) % to);
    while (n) {
        const size_t now = n < sizeof zeros ? n : sizeof zeros;

        gguf_put(b, zeros, now);
        n -= now;
    }
}

#endif
