/* calibrate.h - what the inputs of a model's matrices are like on given texts (ftxc compile --calibrate). */
#ifndef FTXC_CALIBRATE_H
#define FTXC_CALIBRATE_H

#include "../compile.h"

/* Compiles the unquantised model that o describes, runs it on the texts of a file ("-": standard input) on the CPU, and
 * removes it. o->out must be set: the model lies beside it meanwhile. All in `keep`. */
bool calibrate(const CompileOptions *o, const char *file, Arena *keep, Calibration *out, Diag *d);

#endif
