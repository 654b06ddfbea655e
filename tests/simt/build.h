/* build.h - compiles kernel texts for the host: each unchanged text as C++, with the headers of
 * tests/simt/device in place of those of kernels/device, all linked into one shared object. */
#ifndef FTX_SIMT_BUILD_H
#define FTX_SIMT_BUILD_H

#include "simt.h"

typedef struct Build Build;

/* dir: where sources and objects are written; created if missing. The compiler is FTX_SIMT_CXX, else g++. */
Build *build_open(const char *dir);
void build_close(Build *b);

/* Adds a text whose kernel is called `entry`. An entry that was added before is ignored. */
void build_add(Build *b, const char *entry, const char *text);

/* Compiles and loads what was added. If that fails, the compiler's messages are printed and the test aborts. */
void build_run(Build *b);
const SimtKernel *build_kernel(const Build *b, const char *entry);
size_t build_count(const Build *b);

/* Compiles one translation unit that includes every header of kernels. Any texts may meet in a unit of build_run, so
 * no two headers may define the same name. Prints the compiler's messages and aborts if they do. */
void build_headers(Build *b);

#endif
