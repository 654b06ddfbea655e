// rows.cuh - which rows of a launch are alive, and where a row's input stands.
#pragma once
#include "device/io.h"
#include "device/types.cuh"

// Rows of the step: tokens, or sequences with ROWS_S.
template <int ROWS_S> DEVICE int live_rows(const FtxStep *step) { return ROWS_S ? step->rows : step->tokens; }

// LAST: row m of the output is made of the last token of sequence m.
template <int LAST> DEVICE int source_row(const FtxRow *rows, int m)
{
    return LAST ? rows[m].q_start + rows[m].q_len - 1 : m;
}
