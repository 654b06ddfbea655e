/* weights.h - a checkpoint (a safetensors file, or shards with an index) to the packed block of weights. */
#ifndef FTXC_WEIGHTS_H
#define FTXC_WEIGHTS_H

#include "../passes/pass.h"
#include "../spec/spec.h"
#include "../../runtime/base/file.h"

typedef struct Checkpoint Checkpoint; /* its files, mapped until it is closed */

enum { MOMENTS_BLOCK = 128 };

/* What the inputs x of a matrix [N,K] are like: the sum of x x^T over rows x, of blocks of columns. Codes are chosen by it
 * (quantise.c). All elements are finite; those with one column twice are positive. */
typedef struct Moments {
    const char *weight; /* weights_name of the matrix */
    int64_t columns;    /* K */
    int64_t block;      /* columns of a block: the largest power of 2 up to MOMENTS_BLOCK that divides K */
    float *at;          /* [K / block][block][block] */
} Moments;

typedef struct Calibration {
    Moments *at;
    size_t n, cap;
} Calibration;

/* Opens and checks headers: bounds, overlaps, types, duplicate names. A safetensors file, an index, a folder with one of
 * them, or a GGUF file. */
bool checkpoint_open(const char *path, Arena *keep, Checkpoint **out, Diag *d);

/* Adds the tensors of further folders (Spec.folders), each with its model.safetensors. Right after opening; the names
 * are sorted by checkpoint_rename. */
bool checkpoint_add(Checkpoint *c, const Spec *spec, Arena *keep, Diag *d);

/* Gives the tensors the names of weights, where the spec says how the file calls them (Spec.stored). Next. */
bool checkpoint_rename(Checkpoint *c, const Spec *spec, Arena *keep, Diag *d);
void checkpoint_close(Checkpoint *c); /* NULL is fine */

/* Notes what an adapter (a folder of PEFT with adapter_config.json and adapter_model.safetensors) makes of the weights.
 * Every tensor of the adapter must belong to a weight. Before checkpoint_check; several adapters in their order. */
bool checkpoint_adapt(Checkpoint *c, const Spec *spec, const char *folder, Arena *keep, Diag *d);

/* The adapters, a line each: "lora NAME: rank 8, 24 matrices (c_attn, c_proj)\n"; "": there are none. */
const char *checkpoint_adapters(const Checkpoint *c);

/* Notes in the graph which weights the checkpoint has as codes of 4 or 8 bits (attributes of WEIGHT). After checkpoint_adapt,
 * before the graph's passes. */
void checkpoint_mark(const Checkpoint *c, const Spec *spec);

/* Checks that every WEIGHT of the graph is there with its shape, and that every tensor is used or may stay unused,
 * and is then the same as the weight that it is a copy of.
 * The message names the tensor, the line of the spec, what was expected and what was found. */
bool checkpoint_check(const Checkpoint *c, const Spec *spec, Diag *d);

/* Matrices that become int4 are quantised for inputs like these, which must outlive the checkpoint. */
void checkpoint_calibrate(Checkpoint *c, const Calibration *calibration);

/* After checkpoint_check: one line about the tensors of heads that the graph does not use; NULL: there are none. */
const char *checkpoint_note(const Checkpoint *c, const Spec *spec, Arena *keep);

/* Writes the packed block of a rank (0: of the only one) to `out` at `at`: evaluates each weight (transpose, concat, interleave, pairs, rows,
 * rope_table), folds norms into it, converts it, checks it for NaN and infinity, and pads with zeros up to its offset.
 * c NULL: only the tables, one after another as in FTX_SEC_TABLES. checksum: XXH3-64 of the weights_stored_bytes
 * bytes that were written. */
bool weights_pack(const Checkpoint *c, const Spec *spec, const Packing *packing, int64_t rank, FileOut *out,
                  uint64_t at, uint64_t *checksum, void (*progress)(void *user, uint64_t done, uint64_t all),
                  void *user, Diag *d);

uint64_t weights_stored_bytes(const Packing *packing, bool tables_only);

/* One line about matrices that the checkpoint has quantised; NULL: there are none. */
const char *checkpoint_stored(const Checkpoint *c);

/* The name of a weight: that of its tensor; of several tensors "layers.0.{q,k,v}_proj.weight". */
const char *weights_name(const Graph *g, Id value, Arena *keep);
/* The name of a packed weight, such as "layers.0.up_proj.weight folded with layers.0.norm.weight". */
const char *weights_packed_name(const Graph *g, const PackedWeight *w, Arena *keep);

/* The number of parameters: elements of all tensors that the graph reads, each counted once. */
uint64_t weights_parameters(const Graph *g, Arena *scratch);

/* One packed weight as fp32 (of rank 0), for tests: [elements], in `keep`. */
bool weights_value(const Checkpoint *c, const Spec *spec, Id value, Arena *keep, float **out, size_t *n, Diag *d);

#endif
