/* gguf.h - the parts of a GGUF file: keys with values, and tensors. Nothing of the file is believed unchecked.
 *
 * All pointers point into the file's bytes or into the arena that gguf_read was given. */
#ifndef FTXC_GGUF_H
#define FTXC_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "../../runtime/base/arena.h"
#include "../../runtime/base/diag.h"
#include "../../runtime/base/file.h"

enum { GGUF_MAX_RANK = 4, GGUF_MAX_NAME = 255 /* bytes of a name */ };

typedef enum GgufKind { /* of a value, as the file numbers them */
                        GGUF_U8,
                        GGUF_I8,
                        GGUF_U16,
                        GGUF_I16,
                        GGUF_U32,
                        GGUF_I32,
                        GGUF_F32,
                        GGUF_BOOL,
                        GGUF_STRING,
                        GGUF_ARRAY,
                        GGUF_U64,
                        GGUF_I64,
                        GGUF_F64,
} GgufKind;

typedef struct GgufText { /* valid UTF-8 without zeros; no NUL ends it */
    const char *at;
    size_t n;
} GgufText;

typedef struct GgufKey {
    const char *name;
    bool is_array;
    GgufKind kind;           /* of the value, or of an array's elements */
    uint64_t n;              /* elements; 1 if it is no array */
    const unsigned char *at; /* the first element, little-endian; not aligned */
    const GgufText *texts;   /* of GGUF_STRING: [n] */
} GgufKey;

/* Types of tensors: blocks of so many elements in so many bytes. */
typedef enum GgufType {
    GGUF_TYPE_F32 = 0,
    GGUF_TYPE_F16 = 1,
    GGUF_TYPE_Q4_0 = 2,
    GGUF_TYPE_Q4_1 = 3,
    GGUF_TYPE_Q5_0 = 6,
    GGUF_TYPE_Q5_1 = 7,
    GGUF_TYPE_Q8_0 = 8,
    GGUF_TYPE_Q2_K = 10,
    GGUF_TYPE_Q3_K = 11,
    GGUF_TYPE_Q4_K = 12,
    GGUF_TYPE_Q5_K = 13,
    GGUF_TYPE_Q6_K = 14,
    GGUF_TYPE_IQ4_NL = 20,
    GGUF_TYPE_IQ4_XS = 23,
    GGUF_TYPE_BF16 = 30,
} GgufType;

typedef struct GgufTensor {
    const char *name;
    const char *path;      /* of its file */
    GgufType type;         /* or another number of the format's table */
    const char *type_name; /* "Q4_K" */
    uint32_t rank;
    int64_t dim[GGUF_MAX_RANK]; /* as the file lists them: the fastest first */
    uint64_t elements, bytes;
    const unsigned char *at;
} GgufTensor;

typedef struct Gguf {
    const char *path;
    struct {
        GgufKey *at;
        size_t n, cap;
    } keys; /* sorted by name */
    struct {
        GgufTensor *at;
        size_t n, cap;
    } tensors; /* sorted by name */
} Gguf;

/* Whether a file begins as GGUF files do. */
bool gguf_begins(const void *p, size_t n);

/* Reads and checks all but the tensors' data. d names the file, the key or the tensor. */
bool gguf_read(const char *path, const void *p, size_t n, Arena *keep, Gguf *out, Diag *d);

/* Of the first part of a model in several files ("NAME-00001-of-00003.gguf"): reads the other parts and adds their tensors.
 * Another part, and parts that do not make one model, are errors. Of a whole model: does nothing.
 *
 * maps   the files that were mapped are added, also where it fails; the caller unmaps them */
bool gguf_join(Gguf *g, Arena *keep, FileMaps *maps, Diag *d);

/* Bytes of a file's name without its end, ".gguf" or "-00001-of-00003.gguf". */
size_t gguf_stem(const char *name);

const GgufKey *gguf_key(const Gguf *g, const char *name); /* NULL: there is none */

size_t gguf_kind_bytes(GgufKind kind); /* of an element that is a number or GGUF_BOOL */

/* Element i of a key whose kind is a number or GGUF_BOOL. */
double gguf_number(const GgufKey *k, uint64_t i);
int64_t gguf_integer(const GgufKey *k, uint64_t i); /* of an integer's kind, or GGUF_BOOL; above 2^63 - 1: that */
bool gguf_is_integer(const GgufKey *k);

/* The key as a text, an array of texts or of numbers, a flag, a number. False: it is there and of another kind; d names it.
 * Missing: *out stays as it is. */
bool gguf_text(const Gguf *g, const char *name, Arena *keep, const char **out, Diag *d);
bool gguf_flag(const Gguf *g, const char *name, bool *out, Diag *d);
bool gguf_id(const Gguf *g, const char *name, int32_t *out, Diag *d);
bool gguf_array(const Gguf *g, const char *name, bool texts, const GgufKey **out, Diag *d);

#endif
