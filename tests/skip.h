/* skip.h - leaves a test out, and says why: scripts/skips lists every reason at the end of a run. */
#ifndef FTX_TEST_SKIP_H
#define FTX_TEST_SKIP_H

/* Ends the test that calls it. Before anything is open: what is open stays so. */
#define SKIP(...) \
    do { \
        print_message("skipped: " __VA_ARGS__); \
        print_message("\n"); \
        skip(); \
    } while (0)

#endif
