/* inputs.h - which rows a launch multiplies with a matrix of weights. */
#ifndef FTX_DEVICE_CPU_INPUTS_H
#define FTX_DEVICE_CPU_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Product {
    uint32_t matrix; /* the operand that is the matrix, [N][columns]; operand 0 is [rows][columns] in fp32 */
    int64_t rows, columns;
} Product;

/* k: the constants of a kernel of this family; T, S: of the step. False: it multiplies no matrix that could be quantised, or
 * one that is. */
bool inputs_product(const char *family, const int64_t *k, int T, int S, Product *out);

#endif
