/* inputs.c - which rows a launch multiplies with a matrix of weights: of linear layers, and of experts.
 *
 * Experts share what is multiplied: a token's row counts once for the whole stack (expert_linear), or once for each expert that
 * it was sent to (expert_sum, whose rows are [T][R][K]). */
#include "inputs.h"

#include <string.h>

#include "../../../kernels/cpu/consts.h"

static const struct {
    const char *family;
    int columns, rows_s, each; /* constants; each: rows of a token, -1: one */
    uint32_t matrix;
} products[] = {
    {"linear", LINEAR_K, LINEAR_ROWS_S, -1, 1},
    {"expert_linear", EXPERT_LINEAR_K, EXPERT_LINEAR_ROWS_S, -1, 4},
    {"expert_sum", EXPERT_SUM_K, EXPERT_SUM_ROWS_S, EXPERT_SUM_R, 4},
};

bool inputs_product(const char *family, const int64_t *k, int T, int S, Product *out)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (strcmp(family, products[i].family) == 0) {
            const int64_t tokens = k[products[i].rows_s] ? S : T;

            *out = (Product){products[i].matrix, products[i].each < 0 ? tokens : tokens * k[products[i].each],
                             k[products[i].columns]};
            return true;
        }
    return false;
}
