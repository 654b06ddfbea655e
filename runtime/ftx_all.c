/* ftx_all.c - the runtime as one file, for those who build it into their own program:
 *
 *     cc -O2 -std=gnu11 -D_GNU_SOURCE -Iruntime app.c runtime/ftx_all.c runtime/[cd]*cuda*.c
 *        runtime/cublaslt.c kernels/cpu/[a-z]*.c -lpcre2-8 -lutf8proc -lxxhash -lm -ldl -lpthread
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
#include "trailer.c"
#include "artifact.c"
#include "memory.c"
#include "random.c"
#include "team.c"
#include "device_cpu.c"
#include "utf8.c"
#include "normalize.c"
#include "split.c"
#include "steps.c"
#include "bpe.c"
#include "wordpiece.c"
#include "unigram.c"
#include "tokenizer.c"
#include "detokenize.c"
#include "model.c"
#include "pages.c"
#include "tables.c"
#include "stream.c"
#include "request.c"
#include "beams.c"
#include "schedule.c"
#include "engine.c"
#include "bench.c"
#include "score.c"
#include "encode.c"
