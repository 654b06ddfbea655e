/* parts.h - what the files of this room share:  text -> cache, or NVRTC in a worker -> cubin. */
#ifndef FTXC_INSTANTIATE_PARTS_H
#define FTXC_INSTANTIATE_PARTS_H

#include "cubin.h"
#include "instantiate.h"
#include "../../runtime/base/hash.h"

/* --- text.c --- */

/* The template with its constants filled in, without a head. Line numbers are those of the template. */
const char *text_body(const Instance *i, Arena *keep);

/* "sm_90a", "compute_80": the value of --gpu-architecture. */
void text_architecture(Target t, char out[32]);
static inline bool target_is_ptx(Target t)
{
    return t.id % 10 == 2;
}

/* --- nvrtc.c --- */

enum { NVRTC_MAX_FLAGS = 8 };
size_t nvrtc_flags(Target t, const char *flags[NVRTC_MAX_FLAGS], char architecture[64]);

/* A cubin, or for a PTX target its text with the NUL. False: *out is NVRTC's log. The caller frees the bytes. */
bool nvrtc_compile(const char *text, Target t, Bytes *out);

/* --- key.c --- */

typedef struct KeyMaker { /* for many keys: headers are stripped once */
    Arena *keep;
    bool any_nvrtc; /* the same key for every version of NVRTC: it names the text, not the code */
    const char *headers[CATALOG_MAX_HEADERS]; /* stripped; NULL: not needed yet */
} KeyMaker;

/* The text of an instance as NVRTC gets it, and a hash of everything that its code follows from. */
Hash128 key_make(KeyMaker *k, const Instance *i, Target t, const char **text);

/* --- workers.c --- */

/* Called in a child process for job i: fills *out, from malloc, with a result (true) or an error text (false). */
typedef bool Work(void *user, size_t i, Bytes *out);
/* Called in this process with each result, in the order of completion. False stops the rest. */
typedef bool WorkDone(void *user, size_t i, bool ok, Bytes bytes);

/* Runs jobs [0, n) in as many processes as there are processors. False: done returned false, or *died < n: the process
 * that ran job *died ended without a result. */
bool workers_run(size_t n, Work *work, WorkDone *done, void *user, size_t *died);

/* --- cache.c --- */

/* The code of an earlier compile, in `keep`, its checksum verified. False: there is none. */
bool cache_read(Hash128 key, Arena *keep, Bytes *out);
/* A cache that cannot be written is not an error. */
void cache_write(Hash128 key, Bytes b);

#endif
