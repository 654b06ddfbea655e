/* weights.h - checkpoint to packed block: safetensors (one file, or shards by an index file). */
#ifndef FTXC_WEIGHTS_H
#define FTXC_WEIGHTS_H

#include "../passes/pass.h"
#include "../spec/spec.h"
#include "../../runtime/base/file.h"

typedef struct Checkpoint Checkpoint; /* maps its files; holds them open until closed */

/* Opens and checks headers: bounds, overlaps, types, duplicate names. */
bool checkpoint_open(const char *path, Arena *keep, Checkpoint **out, Diag *d);
void checkpoint_close(Checkpoint *c); /* NULL is fine */

/* Every WEIGHT of the graph is there with its shape, and every tensor is used (or ignored by the
 * spec). The message names the tensor, the spec line, what was expected and found. */
bool checkpoint_check(const Checkpoint *c, const Spec *spec, Diag *d);

/* After checkpoint_check: one line about the tensors of heads that the graph does not use; NULL: there are none. */
const char *checkpoint_note(const Checkpoint *c, const Spec *spec, Arena *keep);

/* Writes the packed block to `out` at `at`: each weight evaluated (transpose, concat, interleave,
 * pairs, rows, rope_table), folded with others, converted, checked for NaN and infinity, padded with zeros to its
 * offset. c NULL: only the tables, one after another as in FTX_SEC_TABLES. checksum: XXH3-64 of
 * what was written, which is weights_stored_bytes long. */
bool weights_pack(const Checkpoint *c, const Spec *spec, const Packing *packing, FileOut *out, uint64_t at,
                  uint64_t *checksum, void (*progress)(void *user, uint64_t done, uint64_t all), void *user, Diag *d);

uint64_t weights_stored_bytes(const Packing *packing, bool tables_only);

/* What a weight is called: its tensor's name; of several "layers.0.{q,k,v}_proj.weight". */
const char *weights_name(const Graph *g, Id value, Arena *keep);
/* The same of a packed one, which may be "layers.0.up_proj.weight folded with layers.0.norm.weight". */
const char *weights_packed_name(const Graph *g, const PackedWeight *w, Arena *keep);

/* Elements of all tensors the graph reads, each once: "parameters", for people. */
uint64_t weights_parameters(const Graph *g, Arena *scratch);

/* One packed weight as fp32, for tests: [elements], in `keep`. */
bool weights_value(const Checkpoint *c, const Spec *spec, Id value, Arena *keep, float **out, size_t *n, Diag *d);

#endif
