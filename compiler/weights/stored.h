/* stored.h - checkpoints that were quantised before they were written: quantization_config and the readers of its methods.
 *
 * A reader takes the tensors of each quantised matrix ("x.qweight", "x.scales", ...) out of the checkpoint and puts one
 * tensor of codes (coded.h) in their place: "x.weight". */
#ifndef FTXC_STORED_H
#define FTXC_STORED_H

#include <jansson.h>

#include "tensors.h"

typedef struct Stored {
    Checkpoint *c;
    Arena *keep;
    Diag *d;
    const char *path;     /* of the configuration, for messages */
    const json_t *config; /* quantization_config */
    bool *taken;          /* of each tensor of the checkpoint: it belongs to a matrix */
    bool cache;           /* there are scales for a KV cache, which are not read */
    TensorList made;
} Stored;

/* stored.c. Replaces the tensors of quantised matrices, as quantization_config beside the checkpoint says. */
bool stored_read(Checkpoint *c, Arena *keep, Diag *d);
/* The same with a configuration; path: its file's name. */
bool stored_apply(Checkpoint *c, const json_t *config, const char *path, Arena *keep, Diag *d);

/* What to do with a checkpoint that is refused: the end of a message. */
#define STORED_ORIGINAL "; compile the original checkpoint with -D precision.weights=int4 or int8"

/* --- for readers ------------------------------------------------------------------------------------------ */

/* Fields of the configuration; an error if they have another type. A field that is missing or null has the value `or`. */
bool stored_int(const Stored *s, const json_t *o, const char *name, int64_t or, int64_t *out);
bool stored_word(const Stored *s, const json_t *o, const char *name, const char * or, const char **out);
bool stored_flag(const Stored *s, const json_t *o, const char *name, bool or, bool *out);
/* An error in the configuration; and one of a tensor, whose name and file it says. Both return false. */
__attribute__((format(printf, 2, 3))) bool stored_refuse(const Stored *s, const char *format, ...);
__attribute__((format(printf, 3, 4))) bool stored_wrong(const Stored *s, const Tensor *t, const char *format, ...);

/* The module of a tensor whose name ends with `end`: "x" of "x.qweight"; NULL: it ends otherwise. */
const char *stored_module(const Stored *s, const Tensor *t, const char *end);
/* Tensor "module" + end, which is then taken; NULL: there is none. */
const Tensor *stored_take(Stored *s, const char *module, const char *end);
/* The same; a missing one is an error, beside which tensor `of` stands. types: those that are right, "I32" or "F16 BF16 F32". */
const Tensor *stored_need(Stored *s, const Tensor *of, const char *module, const char *end, const char *types);
/* Takes the scales of activations and KV caches, which are not read: a step computes its own. */
void stored_skip(Stored *s);
/* Whether a tensor has a type of the list; and whether it is [rows,columns]. Else an error. */
bool stored_type(const Stored *s, const Tensor *t, const char *types);
bool stored_matrix(const Stored *s, const Tensor *t, int64_t rows, int64_t columns);
/* Whether list `field` of the configuration names a module, as it is. */
bool stored_named(const Stored *s, const char *field, const char *module);

/* Adds "name", a tensor of [rows,columns], or with `stack` of [stack,rows,columns]. */
Tensor *stored_add(Stored *s, const Tensor *like, const char *name, int64_t stack, int64_t rows, int64_t columns,
                   const Coded *coded);

/* A matrix of integer codes in the order of some format. */
typedef struct StoredCodes {
    const Tensor *codes, *scales, *zeros; /* zeros NULL: all are 2^(bits-1) */
    int64_t rows, columns, group;         /* group: elements that share a scale in the file */
    int bits;
    bool scales_by_row; /* scales are [N,G] ([N,1], [1]), else [G,N] */
    bool inverse;       /* the only scale divides */
    void (*row)(const struct StoredCodes *m, int64_t n, uint8_t *codes);
    uint32_t (*zero)(const struct StoredCodes *m, int64_t n, int64_t g);
} StoredCodes;

/* Adds module + ".weight" of such a matrix: which packed form has its scales and zeros. */
bool stored_codes(Stored *s, const char *module, const StoredCodes *m);

/* Whether g_idx `t` says that element k is of group k / m->group. Else an error, which names the setting that causes
 * another order, and the way to a model without it. */
bool stored_order(const Stored *s, const Tensor *t, const StoredCodes *m, const char *cause, const char *way);

static inline uint32_t stored_u32(const Tensor *t, int64_t i)
{
    uint32_t u;

    memcpy(&u, t->at + 4 * i, 4);
    return u;
}

/* The readers: words.c (GPTQ, AWQ), compressed.c, float8.c (fp8, MXFP4), ternary.c (BitNet). */
bool gptq_read(Stored *s);
bool awq_read(Stored *s);
bool compressed_read(Stored *s);
bool fp8_read(Stored *s);
bool mxfp4_read(Stored *s);
bool bitnet_read(Stored *s);

/* float8.c. Adds module + ".weight": a matrix of e4m3 with a scale for each block, which is kept as codes where a group of
 * elements divides both its rows and the columns of a block. */
bool float8_add(Stored *s, const char *module, const Tensor *weight, const Tensor *scales, int64_t block_rows,
                int64_t block_columns);

#endif
