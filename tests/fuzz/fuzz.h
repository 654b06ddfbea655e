/* fuzz.h - what every fuzzer here is: a target for any bytes, and the seeds that a program makes.
 *
 * Seeds that are text lie in seeds/NAME; those in a binary format are made by fuzz_seeds, so they
 * never age. The same file is linked twice: by clang with libFuzzer, and with replay.c, which runs
 * all seeds and all inputs that once crashed, as a test. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Calls fuzz_seed for each; does nothing where all seeds are files. */
void fuzz_seeds(void);
void fuzz_seed(const char *name, const void *p, size_t bytes);

/* The seed that a literal is, bytes 0 in it too. */
#define FUZZ_SEED(name, literal) fuzz_seed(name, literal, sizeof(literal) - 1)

/* A file that holds these bytes until the next call; its path. It is in memory alone. */
const char *fuzz_file(const void *p, size_t bytes);

/* Ends the program as a crash does. */
_Noreturn void fuzz_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
