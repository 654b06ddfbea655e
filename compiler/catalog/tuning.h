/* tuning.h - constants that were found best on a GPU: the entries of tuning files, and which of them a compile follows.
 *
 * docs/tuning.md explains the file. spec/tuning.c reads it, tuning_write.c writes it, `ftxc tune` makes it.
 *
 * An entry speaks of one kernel in one program for one shape. It is followed if all of these are the same as when it was
 * measured: the GPU, the kernel (its contract, its text and its headers, by a hash), the program, and all constants that do
 * not depend on tuned ones. Its values must be legal. Values that change the order of a sum, algorithms of cuBLASLt and a
 * choice between kernels are followed only if the file was made with --any-order.
 *
 * A border is an entry of a whole program, with TUNING_BORDER in place of a kernel: steps of more than `most` rows are run by
 * the next larger program of its kind. Its hash is of the kernels, shapes and tuned values of both (passes/borders.c). */
#ifndef FTXC_TUNING_H
#define FTXC_TUNING_H

#include "contract.h"

typedef enum TuningState {
    TUNING_UNUSED, /* no match of this compile is of this kernel, program and shape */
    TUNING_USED,
    TUNING_OLD,     /* measured with another text of the kernel */
    TUNING_ILLEGAL, /* its values do not fit */
    TUNING_ORDER, /* it changes the order of sums or chooses between kernels, and the file was not made with --any-order */
    TUNING_STATES,
} TuningState;

struct TuningEntry {
    const char *kernel;  /* family: "linear_hopper" */
    const char *hash;    /* tuning_hash */
    const char *program; /* "decode 16" */
    const char *shape;   /* "X=bf16 N=8192 K=2048": tuning_shape */
    struct {
        TunedConst *at;
        size_t n, cap;
    } use;
    bool avoid; /* another kernel was faster */
    struct {
        int64_t *at;
        size_t n, cap;
    } algorithms; /* of cuBLASLt, in place of values: words as in FtxMatmulAlgo, its version first */
    int64_t most; /* of a border, in place of values: rows that the program is run with at most; 0: it is none */
    double us, untuned_us; /* of a program's run, with and without this entry; 0: not given */
    const struct TuningFile *file;
    TuningState state;
};

typedef struct TuningFile {
    const char *name;   /* for messages: "tune/nvidia-h200.lua" */
    const char *device; /* "NVIDIA H200" */
    const char *made;   /* with which versions, on which machine; NULL: it does not say */
    bool any_order;
    double rate;   /* GB/s of copies inside the GPU's memory when it was made; 0: it does not say */
    uint64_t hash; /* of its text */
} TuningFile;

#define TUNING_BORDER "border"

/* Of one GPU. Of several entries for one match the first is followed. */
struct Tuning {
    struct {
        TuningEntry *at;
        size_t n, cap;
    } entries;
    struct {
        TuningFile **at;
        size_t n, cap;
    } files;
};

/* "nvidia-h200" of "NVIDIA H200": the name of a GPU's file, without its folder and ".lua". */
const char *tuning_file_name(const char *device, Arena *keep);

/* 16 hexadecimal digits: of the contract's template (catalog_hash). */
const char *tuning_hash(const Contract *c, Arena *keep);

/* All whole numbers and types among the constants that do not depend on tuned ones, but not PAGES: how far the rows of the page
 * table lie apart says nothing about time, and depends on limits.context. */
const char *tuning_shape(const Binding *b, const Instance *in, Arena *keep);

/* Fits again by the entry of f->tuning for this match, if there is one that applies. */
void tuning_follow(const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch, Fitted *fit);

/* After a compile: marks entries of kernels that have changed. */
void tuning_check(Tuning *t, const Catalog *c, Arena *scratch);

/* "tune/nvidia-h200.lua: 40 of 62 entries used; 14 are of older kernels"; NULL: there are no entries. */
const char *tuning_note(const Tuning *t, Arena *keep);

/* A line for each file and for each entry that was followed, for the artifact: "tuning sm_90a tune/nvidia-h200.lua 5c1e...". */
const char *tuning_lines(const Tuning *t, const char *target, Arena *keep);

/* The text of a file: its entries sorted by kernel, shape and program. */
const char *tuning_text(const TuningFile *file, const TuningEntry *entries, size_t n, Arena *keep);

#endif
