/* build.h - kernel texts to host code: each text as it is, compiled as C++ with the host's headers in
 * front of kernels/device/, linked into one shared object. */
#ifndef FTX_SIMT_BUILD_H
#define FTX_SIMT_BUILD_H

#include "simt.h"

typedef struct Build Build;

/* dir: where texts and code go, made if missing. The compiler is FTX_SIMT_CXX, else g++. */
Build *build_open(const char *dir);
void build_close(Build *b);

/* A text whose kernel is called `entry`; the same entry twice is one. */
void build_add(Build *b, const char *entry, const char *text);

/* Compiles and loads what was added. A failure prints the compiler's words and aborts the test. */
void build_run(Build *b);
const SimtKernel *build_kernel(const Build *b, const char *entry);
size_t build_count(const Build *b);

#endif
