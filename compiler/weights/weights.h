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

/* Writes the packed block to `out` at `at`: each weight evaluated (transpose, concat, interleave,
 * pairs, rows, rope_table), converted, checked for NaN and infinity, padded with zeros to its
 * offset. c NULL: only tables are written, the rest stays zero. checksum: XXH3-64 of the block. */
bool weights_pack(const Checkpoint *c, const Spec *spec, const Packing *packing, FileOut *out, uint64_t at,
                  uint64_t *checksum, void (*progress)(void *user, uint64_t done, uint64_t all), void *user,
                  Diag *d);

/* One packed weight as fp32, for tests: [elements], in `keep`. */
bool weights_value(const Checkpoint *c, const Spec *spec, Id value, Arena *keep, float **out, size_t *n, Diag *d);

#endif
