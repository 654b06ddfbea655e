/* calibrate.h - what the inputs of a model's matrices are like on given texts (ftxc compile --calibrate). */
#ifndef FTXC_CALIBRATE_H
#define FTXC_CALIBRATE_H

#include "../compile.h"

/* Compiles the unquantised model that o describes, and runs it on texts on the CPU. out is in `keep`. The model's file lies beside
 * o->out until it is open. */
bool calibrate(const CompileOptions *o, const char *text, size_t bytes, Arena *keep, Calibration *out, Diag *d);

#endif
