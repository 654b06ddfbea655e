/* ftx_all.c - the runtime as one file, for those who build it into their own program:
 *
 *     cc -O2 -std=gnu11 -D_GNU_SOURCE -Iruntime app.c runtime/ftx_all.c runtime/device/cuda/[a-z]*.c
 *        kernels/cpu/[a-z]*.c -lpcre2-8 -lutf8proc -lxxhash -lm -ldl -lpthread
 *
 * Add -DFTX_HAVE_CUDA=1 and the folder of cuda.h for GPUs. Apart stay the CUDA device, which is
 * another struct Device than the CPU's, and the CPU kernels, each compiled once for every kind of
 * processor. */
#include "base/env.c"
#include "base/error.c"
#include "base/dtype.c"
#include "base/expr.c"
#include "base/file.c"
#include "base/hash.c"
#include "artifact/trailer.c"
#include "artifact/version.c"
#include "artifact/facts.c"
#include "artifact/artifact.c"
#include "base/memory.c"
#include "base/sized.c"
#include "device/random.c"
#include "base/team.c"
#include "device/cpu/device_cpu.c"
#include "base/utf8.c"
#include "tokenizer/normalize.c"
#include "tokenizer/split.c"
#include "tokenizer/pretokenize.c"
#include "tokenizer/bpe.c"
#include "tokenizer/wordpiece.c"
#include "tokenizer/unigram.c"
#include "tokenizer/tokenizer.c"
#include "tokenizer/detokenize.c"
#include "engine/model.c"
#include "engine/list.c"
#include "engine/pages.c"
#include "engine/tables.c"
#include "engine/stream.c"
#include "engine/request.c"
#include "engine/beams.c"
#include "engine/schedule.c"
#include "engine/engine.c"
#include "engine/bench.c"
#include "engine/score.c"
#include "engine/encode.c"
